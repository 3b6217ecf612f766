"""What tests of benchmarks share."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

from benchmarks.__main__ import main


def bench(tmp_path: Path, command: str) -> dict[str, Any]:
    """Run a command; check what every result must have."""
    words = shlex.split(command)
    main([*words, "--out", str(tmp_path)])
    name = words[0]
    for ending in ("json", "md", "png"):
        assert (tmp_path / f"{name}.{ending}").stat().st_size > 200
    text = (tmp_path / f"{name}.json").read_text() + (tmp_path / f"{name}.md").read_text()
    for path in (str(tmp_path), str(Path.home()), str(Path.cwd()), sys.prefix):
        assert path not in text
    result: dict[str, Any] = json.loads((tmp_path / f"{name}.json").read_text())
    assert result["command"] == f"python -m benchmarks {command}"
    assert {"date", "cpu", "cores", "versions", "load_average_before", "load_average_after"} <= set(result["machine"])
    assert "commit" in result
    return result
