"""Shells complete commands and options."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

COMPLETE = """
source "$1"
COMP_WORDS=({words}) COMP_CWORD={place}
_shoal_completion shoal
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """`shoal` on the path: the one of this Python."""
    script = f"#!{sys.executable}\nfrom shoal.cli import main\nmain()\n"  # as pip makes it
    (tmp_path / "shoal").write_text(script, encoding="utf-8")
    (tmp_path / "shoal").chmod(0o755)
    return {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "HOME": str(tmp_path), "SHELL": "/bin/bash"}


def _script(shell: str, environment: dict[str, str]) -> str:
    """What `shoal --show-completion` prints below a shell. typer asks the processes above for its name, unless told."""
    code = "from typer._completion_shared import get_completion_script as get; "
    code += f"print(get(prog_name='shoal', complete_var='_SHOAL_COMPLETE', shell={shell!r}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    return done.stdout


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize(
    ("words", "place", "expected"),
    [("shoal se", 1, "search"), ("shoal runs cl", 2, "clean"), ("shoal search --budg", 2, "--budget")],
)
def test_bash_completes(words, place, expected, environment, tmp_path):
    script = tmp_path / "completion.sh"
    script.write_text(_script("bash", environment), encoding="utf-8")
    code = COMPLETE.format(words=words, place=place)
    done = subprocess.run(["bash", "-c", code, "bash", script], capture_output=True, text=True, env=environment)
    assert (done.stdout.split(), done.stderr) == ([expected], "")


@pytest.mark.parametrize(("shell", "part"), [("zsh", "#compdef shoal"), ("fish", "complete --command shoal")])
def test_other_shells_have_a_script(shell, part, environment):
    assert part in _script(shell, environment)


def test_a_request_for_completions_is_no_bug(environment):
    asked = {**environment, "_SHOAL_COMPLETE": "complete_bash", "COMP_WORDS": "shoal pre", "COMP_CWORD": "1"}
    done = subprocess.run(["shoal"], capture_output=True, text=True, env=asked)
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, ["predict"], "")
