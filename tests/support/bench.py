"""What tests of the search's benchmarks share."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from shoal.cli.bench import app


def bench(tmp_path: Path, command: str) -> dict[str, Any]:
    """Run a command; check what every result must have."""
    name = command.split()[0]
    outcome = CliRunner().invoke(app, [*command.split(), "--out", str(tmp_path)], catch_exceptions=False)
    assert outcome.exit_code == 0, outcome.output
    for ending in ("json", "md", "png"):
        assert (tmp_path / f"{name}.{ending}").stat().st_size > 200
    text = (tmp_path / f"{name}.json").read_text() + (tmp_path / f"{name}.md").read_text()
    for path in (str(tmp_path), str(Path.home()), str(Path.cwd()), sys.prefix):
        assert path not in text
    result: dict[str, Any] = json.loads((tmp_path / f"{name}.json").read_text())
    assert result["command"] == f"shoal bench {command}"
    assert {"date", "cpu", "cores", "versions"} <= set(result["machine"])
    return result
