"""Basis of the predicted time: the fit of computing and its check, the machine, the training; the critical batch."""

from __future__ import annotations

from typing import Any

from shoal.report.plan.rows import Data
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
# Settings that the page shows elsewhere.
SHOWN_ELSEWHERE = {"strategy", "link", "backend", "own_machines", "goal"}


# ---- the time of a step ----


def fit_figure(compute: dict[str, Any]) -> Html:
    """Measured times of steps as circles, and the fitted line with its spread."""
    points = [(rows, 1e3 * seconds) for rows, seconds in compute["points"]]
    fixed, each = 1e3 * compute["fixed_seconds"], 1e3 * compute["seconds_per_row"]
    sizes, values = [rows for rows, _ in points], [time for _, time in points]
    values += [fixed + each * rows for rows in sizes]
    scaled = max(sizes) > LARGEST_LINEAR_RANGE * min(sizes)
    across, up = Axis(0.0, max(sizes) * 1.04, 46, 340), Axis(0.0, max(values) * 1.1, 210, 30)
    if scaled:
        across, up = LogAxis(*log_padded(sizes, 0.04), 46, 340), LogAxis(*log_padded(values, 0.06), 210, 30)
    parts = [grid(across, up, "rows in a batch", "ms" + (", both axes logarithmic" if scaled else ""))]
    steps = [k / 60 for k in range(61)]
    xs = [across.low * (across.high / across.low) ** k if scaled else across.high * k for k in steps]
    inside = [(x, y) for x in xs if max(up.low, 0) < (y := fixed + each * x) <= up.high]
    xs, ys = [x for x, _ in inside], [y for _, y in inside]
    spread = min(compute["spread"], 0.9)
    if inside and spread:
        parts.append(area(across, up, xs, [y * (1 - spread) for y in ys], [y * (1 + spread) for y in ys]))
    parts.append(polyline(across, up, xs, ys, "valid"))
    parts += [circle(across(rows), up(time), 4, "open") for rows, time in points]
    said = "; ".join(f"{words.count(rows, 'row')} {words.moment(time / 1e3)}" for rows, time in points)
    return drawing("fit-figure", "Time of a step against the rows in a batch", f"Measured: {said}.", 252, *parts)


def fit_words(compute: dict[str, Any]) -> Html:
    fixed, each = (strong(words.moment(compute[key])) for key in ("fixed_seconds", "seconds_per_row"))
    return paragraph(
        "A step on one node takes ",
        fixed,
        " plus ",
        each,
        f" for each row; measured times differ from that by about {words.percent(compute['spread'])}. The line is "
        f"fitted to {words.count(len(compute['points']), 'measured batch size')}.",
    )


def check_words(check: dict[str, Any] | None) -> Html:
    if check is None:
        return EMPTY
    said = f"{words.capitalised(check['text']).rstrip('. ')}."
    if abs(check["error"]) > LARGE_ERROR:
        said = strong(f"{said} Do not trust it further than that.")
    return paragraph("Shoal checked the estimate against a real run. ", said)


# ---- the machine and the training ----


def workers(machine: dict[str, Any]) -> str:
    """What the nodes on one machine are.

    >>> workers({"backend": "mpi"}), workers({"backend": "threads"})
    ('MPI processes', 'threads')
    """
    return "MPI processes" if machine["backend"] == "mpi" else str(machine["backend"])


def machine_terms(machine: dict[str, Any]) -> Html:
    link, latency, start = machine["link"], machine["link"]["latency"], machine["start_seconds"]
    where = "each a machine like this one" if machine["own_machines"] else f"{workers(machine)} on this machine"
    return terms(
        [
            ("processor", machine["cpu"]),
            ("cores", words.setting(machine["cores"])),
            ("instruction set", machine["instruction_set"]),
            ("backend", machine["backend"]),
            ("nodes are", where),
            ("time to start them", words.duration(start) if start else None),
            ("link", link["name"]),
            ("bandwidth", words.rate(link["bandwidth"])),
            ("latency", None if latency is None else words.moment(latency)),
            ("versions", ", ".join(f"{name} {version}" for name, version in machine["versions"].items())),
        ]
    )


def section(data: Data) -> Section:
    machine, compute = data["machine"], data["machine"]["compute"]
    method = paragraph(
        "Shoal measured one node, and measured the link or took it as given. The times on several nodes follow from "
        "these."
    )
    prose = join([method, fit_words(compute), check_words(machine["check"])])
    settings = [(key, value) for key, value in data["settings"].items() if key not in SHOWN_ELSEWHERE]
    training = terms([(key.replace("_", " "), words.setting(value)) for key, value in settings])
    parts = [
        beside(prose, tag("figure", fit_figure(compute), class_="small-figure")),
        tag("h3", "The machine"),
        machine_terms(machine),
        tag("h3", "The training"),
        training,
        tag("h3", "The command"),
        paragraph(tag("code", data["command"])),
    ]
    return Section("estimate", "How was the time estimated?", "Estimate", join(parts))


# ---- the critical batch: how far a batch can grow before it wastes rows ----


def trade_figure(size: float, batch: float, interval: tuple[float, float] | None) -> Html:
    """Steps and rows to the same loss, as multiples of the least, against the batch size."""
    least, most = size / RANGE_AROUND_CRITICAL, size * RANGE_AROUND_CRITICAL
    across = LogAxis(min(least, batch / 1.5), max(most, batch * 1.5), 40, 312)
    sizes = [across.low * (across.high / across.low) ** (place / 80) for place in range(81)]
    up = LogAxis(0.9, 1.1 * (1 + RANGE_AROUND_CRITICAL), 210, 30)
    parts = [grid(across, up, "batch size", "times the least, logarithmic")]
    if interval:
        left, right = across(max(interval[0], across.low)), across(min(interval[1], across.high))
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
    x = across(batch)
    parts += [line(x, up.end, x, up.start, "here"), text(x + 4, up.end + 10, "this plan", "name")]
    description = f"At a batch of {words.count(round(size))}, steps and rows are both twice the least."
    return drawing("batch-figure", "Steps and rows needed against the batch size", description, 252, *parts)


def batch_words(size: float, batch: float) -> Html:
    """What a batch of this size costs, by the model of gradient noise: 1 + batch / critical."""
    return paragraph(
        "Below the critical batch, twice the batch needs nearly half the steps, and more nodes can share a step. "
        "Above it, a larger batch saves few steps and needs more epochs. "
        f"The batch of {words.count(batch)} in this plan needs about {words.percent(batch / size)} more rows than the "
        "smallest."
    )


def batch(data: Data) -> Section | None:
    noise, own = data["noise"], data["settings"]["batch_size"]
    if noise is None:
        return None
    size, low, high = noise["critical_batch"], noise["low"], noise["high"]
    body = paragraph(noise["text"])
    if size:  # not endless, and not zero
        known = words.known(high) and low > 0
        numbers = terms(
            [
                ("critical batch", words.count(round(size))),
                ("interval", f"{words.count(round(low))} to {words.count(round(high))}" if known else None),
                ("batch of this plan", words.count(own)),
            ]
        )
        shown = "Solid: steps. Dotted: rows, and so epochs."
        shown += " Shaded: the interval of the critical batch." if known else ""
        drawn = trade_figure(size, own, (low, high) if known else None)
        prose = join([body, batch_words(size, own), numbers])
        body = beside(prose, tag("figure", drawn, paragraph(shown, kind="small")))
    return Section("batch", "How large can a batch be?", "Batch", body)
