"""Measurements between workers of this machine, kept for the next plan: messages, and the rest by network."""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoal.datasets import cache_folder
from shoal.files.atomic import write_text
from shoal.machine import processor
from shoal.planner.cost.cluster import Cluster
from shoal.planner.cost.curves import Curve
from shoal.planner.cost.times import CostModel
from shoal.planner.measure.calibration import MESSAGES, MachineCalibration
from shoal.runs.kinds import check_of, read_json

if TYPE_CHECKING:
    from shoal.parallel.cost import Facts, Variant
    from shoal.parallel.job import Job

FORMAT = 2  # of the file
MOST_NETWORKS = 40  # whose steps are remembered, for each strategy


def remember(calibration: MachineCalibration, job: Job, variants: Sequence[Variant]) -> None:
    """Write messages, how workers hinder each other, and what steps of each strategy take beyond the model.

    Nothing where nothing can be written.
    """
    model = CostModel(calibration, Cluster(), job, job.batch_size)
    before = _read(_place(calibration, job.backend))
    overhead, network = before.get("overhead", {}), _network(calibration.facts)
    hindered = {**dict(_contention(before, network)), **dict(calibration.contention)}
    others = [pair for pair in before.get("contention", {}).items() if pair[0] != network]
    for name, variant in {variant.small_name: variant for variant in variants}.items():
        if name in calibration.small:
            known = {other: value for other, value in overhead.get(name, {}).items() if other != network}
            overhead[name] = dict([*known.items(), (network, model.unexplained(variant))][-MOST_NETWORKS:])
    content = {
        "format": FORMAT, "date": datetime.date.today().isoformat(),
        "workers": calibration.workers, "start": calibration.start,
        "messages": {name: [list(point) for point in curve.points] for name, curve in calibration.messages.items()},
        "overhead": overhead, "contention": dict([*others, (network, sorted(hindered.items()))][-MOST_NETWORKS:]),
    }  # fmt: skip
    try:
        place = _place(calibration, job.backend)
        place.parent.mkdir(parents=True, exist_ok=True)
        write_text(place, json.dumps({**content, "sha256": check_of(content)}, indent=1) + "\n")
    except OSError:
        return


def recalled(
    calibration: MachineCalibration, job: Job, variants: Sequence[Variant], together: Sequence[int] = ()
) -> tuple[MachineCalibration, str] | None:
    """The calibration with what an earlier plan has measured, and when; None if something is not there.

    together  rows of steps that workers take side by side on this machine: then all must be known of this very network
    """
    found = _read(_place(calibration, job.backend))
    network = _network(calibration.facts)
    needed = {variant.small_name for variant in variants if not variant.strategy.holds_out_rows}
    sizes = [points[-1][0] for name, points in found.get("messages", {}).items() if name != "scatter"]
    wanted = min(calibration.facts.averaged, MESSAGES[-1])
    if not found or not needed <= set(found["overhead"]) or 2 * max(sizes, default=0.0) < wanted:
        return None
    contention = _contention(found, network)
    strange = any(network not in found["overhead"][name] for name in needed)
    if together and (strange or not set(together) <= {rows for rows, _ in contention}):
        return None
    messages = {name: Curve(tuple((float(x), float(y)) for x, y in points))
                for name, points in found["messages"].items()}  # fmt: skip
    overhead = {name: _overhead(found["overhead"][name], network) for name in needed}
    again = replace(calibration, workers=found["workers"], messages=messages,
                    overhead=overhead, start=found["start"], contention=contention)  # fmt: skip
    return again, found["date"]


def _contention(found: dict[str, Any], network: str) -> tuple[tuple[float, float], ...]:
    return tuple((float(rows), float(ratio)) for rows, ratio in found.get("contention", {}).get(network, []))


def _network(facts: Facts) -> str:
    return (
        f"{facts.parameters} parameters in {len(facts.tensors)} tensors, {facts.averaged} bytes averaged, rows of "
        f"{facts.row} bytes, {facts.flops:.0f} operations"
    )


def _overhead(known: dict[str, float], network: str) -> float:
    """Of this network, if it was measured; else the middle of others, which may not make a step shorter."""
    return known[network] if network in known else max(0.0, statistics.median(known.values()))


def _place(calibration: MachineCalibration, backend: str) -> Path:
    torch = importlib.metadata.version("torch").split("+")[0]
    name = f"{processor()}-{calibration.cores}-cores-torch-{torch}-{backend}"
    return cache_folder() / "planner" / f"{''.join(c if c.isalnum() or c in '.-' else '_' for c in name)}.json"


def _read(place: Path) -> dict[str, Any]:
    """What an earlier plan wrote; nothing where the file is missing or damaged."""
    content = read_json(place)
    return content if content.get("format") == FORMAT and content.get("sha256") == check_of(content) else {}
