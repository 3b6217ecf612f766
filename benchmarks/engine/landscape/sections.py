"""Sections of the page: how good, where, what matters, what is luck, every recipe, how it was done."""

from __future__ import annotations

from typing import Any

from benchmarks.engine.landscape import figures
from benchmarks.engine.landscape.tints import LEVELS, Tints
from shoal.report.shell import words
from shoal.report.shell.figures import share_bar
from shoal.report.shell.markup import (
    NUMBER,
    Html,
    Section,
    column_head,
    data_table,
    join,
    paragraph,
    strong,
    table,
    tag,
    terms,
)

FACTORS = {
    "width": "width", "activation": "activation", "learning rate": "learning rate",
    "combination": "how they combine", "seed": "seed",
}  # fmt: skip


def recipe_words(one: dict[str, Any]) -> str:
    return f"{words.count(one['width'], 'neuron')}, {one['activation']}, learning rate {one['rate']:g}"


def percent(value: float) -> str:
    return words.percent(value, 1)


def opening(data: dict[str, Any]) -> Section:
    best, recipe = data["best"], data["best_recipe"]
    headline = tag(
        "p", tag("span", percent(best["fresh"]), class_="figure"),
        tag("span", f"is what the best of {words.count(data['networks'], 'network')} has on rows that it was not "
            f"picked by. On those it was picked by it has {percent(best['picked'])}."), class_="headline",
    )  # fmt: skip
    lost = best["picked"] - best["fresh"]
    luck = (
        f"{words.difference(lost, 'accuracy')} of its score were luck."
        if lost > 0.0005
        else "Luck played no part in it."
    )
    told = [
        paragraph("The median network has ", strong(percent(data["median"])), " on these fresh rows, and always saying "
                  "the most frequent class ", strong(percent(data["table"]["guessing"])), f". {luck}"),
        paragraph("The best recipe by the mean of its seeds is ", strong(recipe_words(recipe)), ": "
                  f"{percent(recipe['fresh'])} on fresh rows on average, from {percent(recipe['lowest'])} to "
                  f"{percent(recipe['highest'])} for its {data['seeds']} seeds."),
    ]  # fmt: skip
    caption = tag(
        "figcaption", f"All {words.count(data['networks'], 'network')} by their accuracy on the rows to pick by"
    )
    shown = tag("div", tag("div", *told), tag("figure", caption, figures.histogram_figure(data)), class_="beside")
    return Section("score", "How good are they?", "Score", join([headline, shown]))


def tints_of(data: dict[str, Any]) -> Tints:
    return Tints.of([one["mean"] for one in data["recipes"]], data["table"]["picking_rows"])


def legend(tints: Tints) -> Html:
    """The tints from low to high, every second one with the accuracy that it begins at."""
    decimals = 1 if tints.starts[-1] - tints.starts[-3] < 0.02 else 0
    items = []
    for level in range(LEVELS):
        label = words.percent(tints.starts[level - 1], decimals) if level % 2 else ""
        items.append(tag("li", tag("span", class_=f"tile b{level}"), tag("span", label, class_="from")))
    return tag("ol", *items, class_="tints", aria_label="Tints from the lowest to the highest accuracy")


def panels(data: dict[str, Any], tints: Tints) -> list[Html]:
    """A map for each activation, the one with the best recipe first."""
    rates, names, widths = len(data["rates"]), data["activations"], len(data["widths"])
    found = []
    for k, name in enumerate(names):
        cells = [data["recipes"][(w * len(names) + k) * rates + r] for w in range(widths) for r in range(rates)]
        found.append((max(cell["mean"] for cell in cells), k, name, cells))
    shown = []
    for place, (best, k, name, cells) in enumerate(sorted(found, key=lambda one: -one[0])):
        drawn = figures.map_figure(place, name, cells, k * widths * rates, data, tints)
        caption = tag("figcaption", strong(name), tag("span", f" at best {percent(best)}", class_="quiet"))
        shown.append(tag("figure", caption, drawn, class_="map"))
    return shown


def landscape_map(data: dict[str, Any]) -> Section:
    tints = tints_of(data)
    epochs = words.count(data["epochs"], "epoch")
    intro = paragraph(
        f"A map for each activation: neurons across, learning rate up, both in steps of about equal factors. A cell is "
        f"one recipe, and its tint the mean accuracy of {data['seeds']} networks that differ in their seeds, after "
        f"{epochs}. Each tint has an error that is smaller than the last one's by the same factor."
    )
    hint = tag(
        "p", "Point at a cell, or use the arrow keys (Page Up and Down for other maps), for its numbers. The slider "
        "shows how the landscape looked earlier.", class_="small with-script", hidden=True,
    )  # fmt: skip
    maps = tag("div", *panels(data, tints), class_="maps", id="maps")
    return Section("map", "Where are the good networks?", "Map", join([intro, legend(tints), hint, maps]), wide=True)


def choices(data: dict[str, Any]) -> Section:
    shares = [(FACTORS[name], share) for name, share in data["variance"].items()]
    bar = share_bar("variance-figure", "What the differences between networks come from", shares)
    keys = [
        tag("li", tag("span", class_=f"swatch part{place}"), f"{name} {words.percent(share, 1 if share < 0.1 else 0)}")
        for place, (name, share) in enumerate(shares)
    ]
    first = max(shares, key=lambda one: one[1])
    top = data["top"]
    said = paragraph(
        "Over all networks, most of the differences in accuracy come from ", strong(first[0]),
        f" ({words.percent(first[1])} of their variance). Among the {top['recipes']} best recipes of "
        f"{len(data['recipes'])}, ",
        strong(words.percent(top["share"])), " is the seed: there, two networks of one recipe differ by "
        f"{words.difference(top['deviation'] * 2**0.5, 'accuracy')} as a rule.",
    )  # fmt: skip
    by = data["by"]
    drawn = {
        "By width": figures.ribbon_figure("by-width", "neurons", data["widths"], by["width"]),
        "By learning rate": figures.ribbon_figure("by-rate", "learning rate", data["rates"], by["rate"]),
        "By activation": figures.activation_figure(data["activations"], by["activation"]),
    }
    shown = [tag("figure", tag("figcaption", name), figure) for name, figure in drawn.items()]
    note = paragraph(
        "Dots: the median network. Inner band: half of the networks. Outer band: nine tenths.", kind="small"
    )
    wide_bar = tag("figure", bar, tag("ul", *keys, class_="legend"), class_="shares")
    return Section(
        "choices", "What matters?", "Choices", join([said, wide_bar, tag("div", *shown, class_="pair"), note])
    )


def picking(data: dict[str, Any]) -> Section:
    more = data["more"]
    middle = min(more, key=lambda one: abs(one["networks"] - 100))
    last = more[-1]
    gain = last["fresh"] - middle["fresh"]
    gained = f"gains {words.difference(gain, 'accuracy')}" if gain > 0.0005 else "gains nothing"
    if gain < -0.0005:
        gained = f"loses {words.difference(-gain, 'accuracy')}"
    said = paragraph(
        "Networks drawn at random from all, of which the one that is best on the rows to pick by is kept. The more "
        f"there are, the better it looks. On fresh rows the best of {words.count(last['networks'])} ", strong(gained),
        f" over the best of {words.count(middle['networks'])}.",
    )  # fmt: skip
    heads = [(name, NUMBER) for name in ("networks", "where picked", "fresh rows")]
    rows = [[words.count(one["networks"]), percent(one["picked"]), percent(one["fresh"])] for one in shown_counts(more)]
    listed = data_table("picking-table", "The accuracy of the best, on average", heads, rows)
    shown = tag("div", tag("figure", figures.picking_figure(more)), listed, class_="beside")
    return Section("picking", "What is picking among more worth?", "Picking", join([said, shown]))


def shown_counts(more: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Powers of ten, and all networks unless that is nearly one of them."""
    tens = [one for one in more if set(str(one["networks"])[1:]) <= {"0"} and str(one["networks"])[0] == "1"]
    return tens if tens and more[-1]["networks"] < 1.5 * tens[-1]["networks"] else [*tens, more[-1]]


COLUMNS = [
    ("neurons", "width"), ("activation", "activation"), ("learning rate", "rate"), ("mean", "mean"),
    ("deviation of seeds", "deviation"), ("lowest", "lowest"), ("highest", "highest"), ("fresh rows", "fresh"),
]  # fmt: skip


def recipes(data: dict[str, Any]) -> Section:
    heads = [column_head(label, key != "activation") for label, key in COLUMNS]
    rows = []
    for one in sorted(data["recipes"], key=lambda one: -one["mean"]):
        cells = [
            tag("th", one["width"], scope="row", class_="number", data_order=one["width"]),
            tag("td", one["activation"]),
            tag("td", f"{one['rate']:g}", class_="number", data_order=one["rate"]),
        ]
        for _, key in COLUMNS[3:]:
            shown = words.percent(one[key], 2 if key == "deviation" else 1)
            cells.append(tag("td", shown, class_="number", data_order=f"{one[key]:.5f}"))
        rows.append(tag("tr", *cells))
    caption = f"Every recipe: accuracy of {data['seeds']} networks on the rows to pick by, and their mean on fresh rows"
    listed = table(caption, heads, rows, id="recipes", class_="board sortable")
    said = paragraph(
        caption + ", the best first.", tag("span", " A click on a head sorts.", class_="with-script", hidden=True)
    )
    body = join([said, tag("div", listed, class_="tall")])
    return Section("table", f"All {words.count(len(rows), 'recipe')}", "Recipes", body)


def method(data: dict[str, Any]) -> Section:
    about, machine = data["table"], data.get("machine") or {}
    processor = f"{machine.get('cpu')}, {words.count(machine.get('cores'), 'core')}" if machine.get("cpu") else None
    counted = {
        "Inputs": about["inputs"], "Classes": about["classes"], "Rows to train on": about["training_rows"],
        "Rows to pick by": about["picking_rows"], "Fresh rows": about["fresh_rows"], "Networks": data["networks"],
        "Seeds of each recipe": data["seeds"], "Epochs": data["epochs"], "Diverged": data["diverged"],
        "Parts, to bound memory": data["parts"],
    }  # fmt: skip
    pairs = [
        ("Table", about["name"]), *((name, words.count(number)) for name, number in counted.items()),
        ("Optimiser", f"Adam, batch {data['batch']}"), ("Training", words.duration(data.get("training_seconds"))),
        ("Processor", processor),
    ]  # fmt: skip
    said = paragraph(
        "Networks with one hidden layer: every combination of width, activation and learning rate, each with the same "
        "seeds, which draw the initial weights. All see the rows in the same order. Numbers are scaled on the training "
        "rows. Nothing is decided by the fresh rows."
    )
    command = paragraph("Made by ", tag("code", data["command"]), ".") if data.get("command") else None
    return Section("method", "How was it done?", "Method", join([said, terms(pairs), command]))
