"""The option of all commands that explain."""

from __future__ import annotations

from typing import Any

from shoal.options import option


def explain_seconds_option(default: str) -> Any:
    """Seconds for an explanation. `default`: what None means, in words."""
    return option(
        None, f"Seconds to spend on column importance. (default: {default})", least=0,
        what="a number of seconds", metavar="SECONDS", changes_result=False,
    )  # fmt: skip
