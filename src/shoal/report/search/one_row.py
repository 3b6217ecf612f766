"""What to expect of one row: how wide intervals, or how large sets, are, and for whom."""

from __future__ import annotations

from typing import Any

from shoal.report.search.sections import weight_bar
from shoal.report.shell import words
from shoal.report.shell.markup import Html, Section, cell, column_head, join, paragraph, row_head, strong, table, tag

MOST_CLASSES = 12


def one_row(part: dict[str, Any] | None, target: str) -> Section | None:
    if not part or not all(words.known(value) for value in part.get("widths") or part.get("sizes") or [None]):
        return None
    numbers = part["kind"] == "numbers"
    body: list[Html | None] = [_widths(part, target) if numbers else _sizes(part, target)]
    if part.get("refit"):
        body.append(
            paragraph(
                "The final model was trained again on all rows, and these figures come from networks that were not. "
                "Take them as an estimate."
            )
        )
    body.append(_for_whom(part, numbers))
    if not numbers:
        body.append(_classes(part))
    body.append(
        paragraph(
            "For rows of your own: ",
            tag("code", f"shoal predict RUN new.csv --coverage {part['coverage']:g}"),
            ". It also names rows that are unlike anything in this table.",
        )
    )
    return Section("one-row", "What to expect of one row", "One row", join(body))


def _asked(part: dict[str, Any]) -> str:
    return f"{round(10 * part['coverage'])} in 10"


def _widths(part: dict[str, Any], target: str) -> Html:
    narrow, middle, wide = part["widths"]
    text = f"The model can give a low and a high value that {target} is between for {_asked(part)} new rows. "
    if wide > 1.05 * narrow:
        spread = (
            f" The tenth of the rows that it is surest of has less than {_about(narrow)}, the tenth that it is "
            f"least sure of more than {_about(wide)}."
        )
    else:
        spread = " It is about as sure of one row as of another."
    return paragraph(text, "Typically that is the prediction ", strong(_about(middle)), ".", spread)


def _about(width: float) -> str:
    """
    >>> _about(3.0)
    '\N{PLUS-MINUS SIGN}1.5'
    """
    return f"\N{PLUS-MINUS SIGN}{words.significant(width / 2)}"


def _sizes(part: dict[str, Any], target: str) -> Html:
    shares = part["sizes"]
    text = (
        f"The model can give a set of classes that has the true {target} in it for at least {_asked(part)} new rows. "
        "The surer it is, the fewer classes are in the set: "
    )
    said = [f"{words.percent(shares[0])} of the rows have one"]
    if len(shares) > 1 and shares[1] >= 0.005:
        said.append(f"{words.percent(shares[1])} two")
    more = sum(shares[2:])
    if more >= 0.005:
        said.append(f"{words.percent(more)} three or more")
    return paragraph(text, strong(", ".join(said)), ".")


def _for_whom(part: dict[str, Any], numbers: bool) -> Html:
    found = part["columns"]
    if not found:
        return paragraph("It is about the same whatever the columns say.")
    largest = max(entry["size"] for column in found for entry in column["parts"]) or 1
    rows = []
    for column in found:
        for entry in column["parts"]:
            rows.append(
                tag(
                    "tr",
                    row_head(join([column["name"], ": ", tag("span", entry["label"])])),
                    cell(_about(entry["size"]) if numbers else words.significant(entry["size"]), numeric=True),
                    cell(weight_bar(entry["size"] / largest), class_="bars"),
                    cell(words.count(entry["rows"]), numeric=True),
                )
            )
    what = "Prediction" if numbers else "Classes in the set"
    head = [column_head("Rows where"), column_head(what, numeric=True), tag("td", class_="bars")]
    head.append(column_head("Rows", numeric=True))
    return table("For whom it is more and less sure", head, rows, id="for-whom", class_="text")


def _classes(part: dict[str, Any]) -> Html | None:
    """By true class, the largest sets first."""
    found = sorted(part["classes"], key=lambda entry: -entry["size"])[:MOST_CLASSES]
    if len(found) < 2:
        return None
    rows = [
        tag(
            "tr",
            row_head(entry["name"]),
            cell(words.significant(entry["size"]), numeric=True),
            cell(words.count(entry["rows"]), numeric=True),
        )
        for entry in found
    ]
    head = [column_head("True class"), column_head("Classes in the set", numeric=True)]
    head.append(column_head("Rows", numeric=True))
    shown = table("Mean size of the set by class", head, rows, id="set-sizes", class_="text")
    return tag("details", tag("summary", "The same by class"), shown)
