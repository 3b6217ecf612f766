"""How the time was estimated: the training, the machine, the link, the fit of computing and its own check."""

from __future__ import annotations

from typing import Any

from shoal.report.plan import numbers
from shoal.report.shell import words
from shoal.report.shell.figures import circle, drawing, grid, polyline
from shoal.report.shell.markup import EMPTY, Html, Section, join, paragraph, strong, tag, terms
from shoal.report.shell.scales import Axis, LogAxis, log_padded

# A check that is further off than this is said in bold.
FAR_OFF = 0.15
WIDE_RANGE = 30


def measured_points(compute: dict[str, Any]) -> list[tuple[float, float]]:
    pairs = [point for point in compute.get("points") or [] if isinstance(point, list) and len(point) == 2]
    return [
        (rows, seconds) for rows, seconds in pairs if words.known(rows) and words.known(seconds) and rows > 0 < seconds
    ]


def fit_axes(points: list[tuple[float, float]], fitted: list[float]) -> tuple[Axis, Axis, bool]:
    """Axes of rows and milliseconds; logarithmic where the batches differ much in size."""
    sizes, values = [rows for rows, _ in points], [1e3 * seconds for _, seconds in points]
    values += [1e3 * seconds for seconds in fitted if seconds > 0]
    if max(sizes) > WIDE_RANGE * min(sizes):
        across, up = LogAxis(*log_padded(sizes, 0.04), 46, 340), LogAxis(*log_padded(values, 0.06), 210, 30)
        return across, up, True
    return Axis(0.0, max(sizes) * 1.04, 46, 340), Axis(0.0, max(values) * 1.1, 210, 30), False


def fit_figure(compute: dict[str, Any]) -> Html:
    """Measured times of steps as circles, and the fitted line with its spread."""
    points = measured_points(compute)
    fixed, each = compute.get("fixed_seconds"), compute.get("seconds_per_row")
    if len(points) < 2:
        return EMPTY
    fitted = [fixed + each * rows for rows, _ in points] if words.known(fixed) and words.known(each) else []
    across, up, scaled = fit_axes(points, fitted)
    parts = [grid(across, up, "rows in a batch", "ms" + (", both axes logarithmic" if scaled else ""))]
    if words.known(fixed) and words.known(each):
        steps = [
            across.low * (across.high / across.low) ** (k / 60) if scaled else across.high * k / 60 for k in range(61)
        ]
        line = [1e3 * (fixed + each * rows) for rows in steps]
        spread = min(compute.get("spread") or 0.0, 0.9)
        inside = [(x, y) for x, y in zip(steps, line, strict=True) if max(up.low, 0) < y <= up.high]
        there = "L".join(f"{across(x):g} {up(min(y * (1 + spread), up.high)):g}" for x, y in inside)
        back = "L".join(f"{across(x):g} {up(max(y * (1 - spread), up.low)):g}" for x, y in reversed(inside))
        parts.append(tag("path", d=f"M{there}L{back}z", class_="band") if inside and spread else EMPTY)
        parts.append(polyline(across, up, [x for x, _ in inside], [y for _, y in inside], "valid"))
    parts += [circle(across(rows), up(1e3 * seconds), 4, "open") for rows, seconds in points]
    said = "; ".join(f"{words.count(rows, 'row')} {numbers.moment(seconds)}" for rows, seconds in points)
    return drawing("fit-figure", "Time of a step against the rows in a batch", f"Measured: {said}.", 252, *parts)


def fit_words(compute: dict[str, Any]) -> Html:
    fixed, each, spread = (compute.get(key) for key in ("fixed_seconds", "seconds_per_row", "spread"))
    if not (words.known(fixed) and words.known(each)):
        return EMPTY
    parts: list[object] = ["A step on one node computes for ", strong(numbers.moment(fixed)), " plus "]
    parts += [strong(numbers.moment(each)), " a row"]
    if words.known(spread):
        parts.append(f"; measured times differ from that by about {words.percent(spread)}")
    points = len(measured_points(compute))
    parts.append(f". The line is fitted to {words.count(points, 'measured batch size')}." if points else ".")
    return paragraph(*parts)


def check_words(check: dict[str, Any]) -> Html:
    text, error = check.get("text"), check.get("error")
    if not text and not words.known(error):
        return EMPTY
    said = str(text or f"The time was predicted {words.percent(abs(error or 0.0))} off.")
    said = f"{said[:1].upper()}{said[1:].rstrip('. ')}."
    if words.known(error) and abs(error) > FAR_OFF:
        return paragraph("The estimate was checked against a real run. ", strong(f"{said} Trust it that far only."))
    return paragraph("The estimate was checked against a real run. ", said)


# Settings that the page has in another place.
ELSEWHERE = {"strategy", "link", "backend", "own_machines", "goal"}


def training_terms(data: dict[str, Any]) -> Html:
    """The settings of the training, in the order of the data."""
    found = [(key, value) for key, value in data["settings"].items() if key not in ELSEWHERE]
    return terms([(key.replace("_", " "), numbers.value(value)) for key, value in found])


def workers(machine: dict[str, Any]) -> str:
    """What the nodes on one machine are.

    >>> workers({"backend": "mpi"}), workers({"backend": "threads"}), workers({})
    ('MPI processes', 'threads', 'workers')
    """
    return str({"mpi": "MPI processes"}.get(name := machine.get("backend") or "workers", name))


def machine_terms(machine: dict[str, Any]) -> Html:
    link = machine.get("link") or {}
    own = machine.get("own_machines")
    where = None if own is None else "each a machine like this one" if own else f"{workers(machine)} on this machine"
    versions = machine.get("versions") or {}
    latency = link.get("latency")
    starts = words.known(machine.get("start_seconds")) and machine["start_seconds"] > 0
    return terms(
        [
            ("processor", machine.get("cpu")),
            ("cores", numbers.value(machine.get("cores"))),
            ("instruction set", machine.get("instruction_set")),
            ("backend", machine.get("backend")),
            ("nodes are", where),
            ("time to start them", numbers.duration(machine["start_seconds"]) if starts else None),
            ("link", link.get("name")),
            ("bandwidth", numbers.rate(link.get("bandwidth"))),
            ("latency", numbers.moment(latency) if words.known(latency) else None),
            ("versions", ", ".join(f"{name} {version}" for name, version in versions.items()) or None),
        ]
    )


def section(data: dict[str, Any]) -> Section | None:
    machine = data["machine"]
    compute, check = machine.get("compute") or {}, machine.get("check") or {}
    prose = join([fit_words(compute), check_words(check)])
    picture = fit_figure(compute)
    parts: list[Html] = []
    if prose or picture:
        method = paragraph(
            "One node was measured, and the link measured or given. From these two follow the times of several nodes."
        )
        figure = tag("figure", picture, class_="small-figure") if picture else None
        parts.append(tag("div", tag("div", method, prose), figure, class_="beside"))
    for name, block in (("The machine", machine_terms(machine)), ("The training", training_terms(data))):
        if block:
            parts += [tag("h3", name), block]
    if data["command"]:
        parts += [tag("h3", "The command"), paragraph(tag("code", data["command"]))]
    return Section("estimate", "How was the time estimated?", "Estimate", join(parts)) if parts else None
