"""The page that shows a run: one that listens to a server, or one that holds a whole recording."""

from __future__ import annotations

import json
from pathlib import Path
from string import Template
from typing import Any

from shoal.files import atomic
from shoal.files.json_values import plain
from shoal.files.plain_files import read_bytes
from shoal.live.recording import MOST_BYTES, read_lines
from shoal.report.finetune.page import SCRIPTS as FINETUNE_SCRIPTS
from shoal.report.search.page import SCRIPTS as SEARCH_SCRIPTS
from shoal.report.shell.markup import escape
from shoal.report.shell.shell import policy, resource, script_json, scripts
from shoal.runs.kinds import LIVE, Run
from shoal.version import __version__

PARTS = ("state", "dots", "panels", "lines", "kinds", "page")
SCRIPTS = ("elements.js", *(f"live/{name}.js" for name in PARTS))
STYLES = ("page.css", "finetune.css", "live/live.css")
REPORT_SCRIPTS = {"search": SEARCH_SCRIPTS, "finetune": FINETUNE_SCRIPTS}


def live_page(run: Run) -> str:
    """Follows a run through the server that it comes from, and becomes the report."""
    names = REPORT_SCRIPTS.get(run.kind.name)
    report = "" if names is None else scripts(names)
    return _page(run, {"kind": run.kind.name, "events": None, "report_script": report}, connects="'self'")


def write_replay(run: Run, path: Path) -> Path:
    """One file that shows a run again, without a server; returns its path."""
    recorded = read_bytes(run.path / LIVE, MOST_BYTES).decode("utf-8", "replace")
    lines = [line for line in recorded.splitlines() if _event(line)]
    atomic.check_target(path)
    atomic.write_text(path, _page(run, {"kind": run.kind.name, "events": "\n".join(lines)}, connects="'none'"))
    return path


def _event(line: str | bytes) -> dict[str, Any] | None:
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) and "e" in event else None


def _about(run: Run) -> dict[str, Any] | None:
    """What the recording begins with, which the heading shows."""
    try:
        lines, _ = read_lines(run.path / LIVE, 0)
    except OSError:
        return None
    events = [event for line in lines.splitlines() if (event := _event(line)) is not None]
    return next((plain(event) for event in events if event["e"] == "begin"), None)


def _page(run: Run, data: dict[str, Any], connects: str) -> str:
    script = scripts(SCRIPTS)
    allowed = policy(script, data.get("report_script") or "")
    facts = {"about": _about(run), "run": run.path.name, "begun": run.begun, "version": __version__}
    return Template(resource("live/live.html")).substitute(
        policy=escape(f"{allowed}; connect-src {connects}"),
        title=escape(f"{run.path.name}: Shoal"),
        style="\n".join(resource(name) for name in STYLES),
        kind=escape(run.kind.name),
        data=script_json({**data, **facts}),
        version=escape(__version__),
        script=script,
    )
