"""How the time was estimated: the fit of computing and its check, the machine, the training; and the critical batch."""

from __future__ import annotations

from typing import Any

from shoal.report.plan.rows import Data, Points
from shoal.report.shell import words
from shoal.report.shell.figures import area, circle, drawing, end_labels, grid, line, polyline, text
from shoal.report.shell.markup import EMPTY, Html, Section, beside, join, paragraph, strong, tag, terms
from shoal.report.shell.scales import Axis, LogAxis, log_padded

# A check that is further off than this is said in bold.
LARGE_ERROR = 0.15
# Batch sizes that differ by more than this factor get a logarithmic axis.
LARGEST_LINEAR_RANGE = 30
# The figure of the critical batch shows batches up to so many times smaller and larger.
RANGE_AROUND_CRITICAL = 32.0
# Settings that the page has in another place.
SHOWN_ELSEWHERE = {"strategy", "link", "backend", "own_machines", "goal"}


# ---- the time of a step ----


def measured_points(compute: dict[str, Any]) -> Points:
    pairs = [point for point in compute.get("points") or [] if isinstance(point, list) and len(point) == 2]
    return [(rows, time) for rows, time in pairs if words.known(rows) and words.known(time) and rows > 0 < time]


def fit_figure(compute: dict[str, Any]) -> Html:
    """Measured times of steps as circles, and the fitted line with its spread."""
    points = [(rows, 1e3 * seconds) for rows, seconds in measured_points(compute)]
    if len(points) < 2:
        return EMPTY
    fixed, each = compute.get("fixed_seconds"), compute.get("seconds_per_row")
    fit = (1e3 * fixed, 1e3 * each) if words.known(fixed) and words.known(each) else None
    sizes, values = [rows for rows, _ in points], [time for _, time in points]
    values += [time for rows in sizes if fit and (time := fit[0] + fit[1] * rows) > 0]
    scaled = max(sizes) > LARGEST_LINEAR_RANGE * min(sizes)
    across, up = Axis(0.0, max(sizes) * 1.04, 46, 340), Axis(0.0, max(values) * 1.1, 210, 30)
    if scaled:
        across, up = LogAxis(*log_padded(sizes, 0.04), 46, 340), LogAxis(*log_padded(values, 0.06), 210, 30)
    parts = [grid(across, up, "rows in a batch", "ms" + (", both axes logarithmic" if scaled else ""))]
    if fit:
        steps = [k / 60 for k in range(61)]
        xs = [across.low * (across.high / across.low) ** k if scaled else across.high * k for k in steps]
        inside = [(x, y) for x in xs if max(up.low, 0) < (y := fit[0] + fit[1] * x) <= up.high]
        xs, ys = [x for x, _ in inside], [y for _, y in inside]
        spread = min(compute.get("spread") or 0.0, 0.9)
        if inside and spread:
            parts.append(area(across, up, xs, [y * (1 - spread) for y in ys], [y * (1 + spread) for y in ys]))
        parts.append(polyline(across, up, xs, ys, "valid"))
    parts += [circle(across(rows), up(time), 4, "open") for rows, time in points]
    said = "; ".join(f"{words.count(rows, 'row')} {words.moment(time / 1e3)}" for rows, time in points)
    return drawing("fit-figure", "Time of a step against the rows in a batch", f"Measured: {said}.", 252, *parts)


def fit_words(compute: dict[str, Any]) -> Html:
    fixed, each, spread = (compute.get(key) for key in ("fixed_seconds", "seconds_per_row", "spread"))
    if not (words.known(fixed) and words.known(each)):
        return EMPTY
    parts: list[object] = ["A step on one node takes ", strong(words.moment(fixed)), " plus "]
    parts += [strong(words.moment(each)), " for each row"]
    if words.known(spread):
        parts.append(f"; measured times differ from that by about {words.percent(spread)}")
    points = len(measured_points(compute))
    parts.append(f". The line is fitted to {words.count(points, 'measured batch size')}." if points else ".")
    return paragraph(*parts)


def check_words(check: dict[str, Any]) -> Html:
    said, error = check.get("text"), check.get("error")
    if not said and not words.known(error):
        return EMPTY
    said = said or f"The predicted time was {words.percent(abs(error or 0.0))} off."
    said = f"{words.capitalised(str(said)).rstrip('. ')}."
    if words.known(error) and abs(error) > LARGE_ERROR:
        said = strong(f"{said} Do not trust it further than that.")
    return paragraph("Shoal checked the estimate against a real run. ", said)


# ---- the machine and the training ----


def workers(machine: dict[str, Any]) -> str:
    """What the nodes on one machine are.

    >>> workers({"backend": "mpi"}), workers({"backend": "threads"}), workers({})
    ('MPI processes', 'threads', 'workers')
    """
    return str({"mpi": "MPI processes"}.get(name := machine.get("backend") or "workers", name))


def machine_terms(machine: dict[str, Any]) -> Html:
    link, versions = machine.get("link") or {}, machine.get("versions") or {}
    own, latency, start = machine.get("own_machines"), link.get("latency"), machine.get("start_seconds")
    where = None if own is None else "each a machine like this one" if own else f"{workers(machine)} on this machine"
    return terms(
        [
            ("processor", machine.get("cpu")),
            ("cores", words.setting(machine.get("cores"))),
            ("instruction set", machine.get("instruction_set")),
            ("backend", machine.get("backend")),
            ("nodes are", where),
            ("time to start them", words.duration(start) if words.known(start) and start > 0 else None),
            ("link", link.get("name")),
            ("bandwidth", words.rate(link.get("bandwidth"))),
            ("latency", words.moment(latency) if words.known(latency) else None),
            ("versions", ", ".join(f"{name} {version}" for name, version in versions.items()) or None),
        ]
    )


def section(data: Data) -> Section | None:
    machine, parts = data["machine"], []
    compute = machine.get("compute") or {}
    prose, picture = join([fit_words(compute), check_words(machine.get("check") or {})]), fit_figure(compute)
    if prose or picture:
        method = paragraph(
            "Shoal measured one node, and measured the link or took it as given. The times on several nodes follow "
            "from these."
        )
        figure = tag("figure", picture, class_="small-figure") if picture else None
        parts.append(beside(join([method, prose]), figure))
    settings = [(key, value) for key, value in data["settings"].items() if key not in SHOWN_ELSEWHERE]
    training = terms([(key.replace("_", " "), words.setting(value)) for key, value in settings])
    command = paragraph(tag("code", data["command"])) if data["command"] else EMPTY
    blocks = {"The machine": machine_terms(machine), "The training": training, "The command": command}
    parts += [join([tag("h3", name), block]) for name, block in blocks.items() if block]
    return Section("estimate", "How was the time estimated?", "Estimate", join(parts)) if parts else None


# ---- the critical batch: how far a batch can grow before it wastes rows ----


def trade_figure(size: float, batch: float | None, low: float | None, high: float | None) -> Html:
    """Steps and rows to the same loss, as multiples of the least, against the batch size."""
    least, most = size / RANGE_AROUND_CRITICAL, size * RANGE_AROUND_CRITICAL
    across = LogAxis(min(least, (batch or size) / 1.5), max(most, (batch or size) * 1.5), 40, 312)
    sizes = [across.low * (across.high / across.low) ** (place / 80) for place in range(81)]
    up = LogAxis(0.9, 1.1 * (1 + RANGE_AROUND_CRITICAL), 210, 30)
    parts = [grid(across, up, "batch size", "times the least, logarithmic")]
    if words.known(low) and words.known(high) and 0 < low <= high:
        left, right = across(max(low, across.low)), across(min(high, across.high))
        box = {"x": left, "y": up.end, "width": round(right - left, 1), "height": up.start - up.end}
        parts.append(tag("rect", **box, class_="range"))
    parts.append(line(across(size), up.end, across(size), up.start, "level"))
    ends = []
    lines = {
        "steps": ("valid", [1 + size / one for one in sizes]),
        "rows": ("train", [1 + one / size for one in sizes]),
    }
    for name, (kind, values) in lines.items():
        parts.append(polyline(across, up, sizes, values, kind))
        ends.append((up(min(values[-1], up.high)), across.end, name, kind))
    parts += end_labels(ends)
    if batch is not None:
        x = across(batch)
        parts += [line(x, up.end, x, up.start, "here"), text(x + 4, up.end + 10, "this plan", "name")]
    description = f"At a batch of {words.count(round(size))}, steps and rows are both twice the least."
    return drawing("batch-figure", "Steps and rows needed against the batch size", description, 252, *parts)


def batch_words(size: float, batch: float | None, said: bool) -> Html:
    """What a batch of this size costs, by the model of gradient noise: 1 + batch / critical."""
    parts: list[object] = []
    if not said:
        parts += ["The critical batch is about ", strong(words.count(round(size), "row")), ". "]
    parts.append(
        "Below the critical batch, twice the batch needs nearly half the steps, and more nodes can share a step. "
        "Above it, a larger batch saves few steps and needs more epochs."
    )
    if batch is not None:
        more = words.percent(batch / size)
        parts.append(f" The batch of {words.count(batch)} in this plan needs about {more} more rows than the smallest.")
    return paragraph(*parts)


def batch(data: Data) -> Section | None:
    noise, own = data["noise"], data["settings"].get("batch_size")
    own = own if words.known(own) and own > 0 else None
    found = [noise.get("critical_batch"), noise.get("noise_scale")]
    size = next((value for value in found if words.known(value) and value > 0), None)
    said = paragraph(noise["text"]) if noise.get("text") else EMPTY
    if size is None:
        return Section("batch", "How large can a batch be?", "Batch", said) if said else None
    low, high, scale = noise.get("low"), noise.get("high"), noise.get("noise_scale")
    known = words.known(low) and words.known(high)
    numbers = terms(
        [
            ("critical batch", words.count(round(size))),
            ("interval", f"{words.count(round(low))} to {words.count(round(high))}" if known else None),
            ("gradient noise scale", words.significant(scale) if words.known(scale) else None),
            ("batch of this plan", words.counted(own)),
        ]
    )
    shown = "Solid: steps. Dotted: rows, and so epochs."
    shown += " Shaded: the interval of the critical batch." if known else ""
    figure = tag("figure", trade_figure(size, own, low, high), paragraph(shown, kind="small"))
    body = beside(join([said, batch_words(size, own, bool(said)), numbers]), figure)
    return Section("batch", "How large can a batch be?", "Batch", body)
