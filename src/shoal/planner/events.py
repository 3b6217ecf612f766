"""Events that the callbacks of `plan` receive."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PlanStarted:
    """`started`: options and network are checked, and measuring begins."""

    strategies: tuple[str, ...]
    nodes: tuple[int, ...]
    rows: int
    parameters: int


@dataclass(frozen=True)
class PlanProgress:
    """`progress`: the share that is done, and what is done now.

    If a callback returns True, the plan ends with the accuracies that are known; this machine is measured in any case.
    """

    share: float
    doing: str


@dataclass(frozen=True)
class StageEnded:
    """`step_ended`: "measured", or a strategy and number of nodes whose accuracy is known now."""

    stage: str
