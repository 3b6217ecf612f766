"""The Python of docs/tools.md runs, top to bottom, as one script."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "tools.md"


def test_the_examples_of_the_tools_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 4
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "tools.md", "exec"), names)
    assert names["forest"].oob_score_ > 0.9
    assert 3 <= names["selector"].get_support().sum() <= 5
    assert names["grown"].n_stages_ >= 1
    assert names["drawn"].best > names["drawn"].median
    assert "random networks" in capsys.readouterr().out
