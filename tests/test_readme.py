"""The README's Python runs, top to bottom, as one script."""

import re
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"


def test_the_code_of_the_readme_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) >= 2
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), names)
    population = names["survivors"]
    assert 1 <= len(population) <= 60
    assert names["history"].n_epochs == 24
    assert "Population(" in capsys.readouterr().out


def test_the_readme_opens_with_the_two_commands():
    opening = README.read_text(encoding="utf-8")[:600]
    assert opening.index("make demo") < opening.index("make test")
