"""A step of each node as a trace for Chrome or Perfetto: nodes are processes, computing and link their threads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

LANES = {"compute": 0, "link": 1}
MICROSECONDS = 1e6


def trace_of(spans: Sequence[dict[str, Any]], title: str) -> dict[str, Any]:
    """The format of chrome://tracing: complete events, and names of processes and threads."""
    events: list[dict[str, Any]] = []
    for node in sorted({span["node"] for span in spans}):
        events.append({"ph": "M", "name": "process_name", "pid": node, "tid": 0, "args": {"name": f"node {node}"}})
        events += [{"ph": "M", "name": "thread_name", "pid": node, "tid": number, "args": {"name": lane}}
                   for lane, number in LANES.items()]  # fmt: skip
    events += [
        {"ph": "X", "name": span["name"], "cat": span["lane"], "pid": span["node"], "tid": LANES[span["lane"]],
         "ts": span["start"] * MICROSECONDS, "dur": span["seconds"] * MICROSECONDS}
        for span in spans
    ]  # fmt: skip
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": {"title": title}}
