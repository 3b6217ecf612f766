"""HTML elements. Text is escaped unless it is `Html`, so a column named `<script>` is shown as that name."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any


class Html(str):
    """Text that is already HTML. Every other string is escaped when it is put into an element."""

    __slots__ = ()


EMPTY = Html("")
# Elements without an end tag in HTML. SVG shapes get an end tag, which HTML parsers accept too.
VOID = frozenset({"br", "hr", "input", "col"})
# Control characters, which an untrained model may write: each is shown as its Unicode control picture.
PICTURES = {code: 0x2400 + code for code in range(32) if chr(code) not in "\t\n"} | {127: 0x2421}
LONGEST_TEXT = 6000


def escape(value: object) -> Html:
    """Escape a value for text and for attributes in double quotes.

    Half a surrogate pair (from a badly decoded file) cannot be written as UTF-8 and becomes a question mark.

    >>> escape('<a href="x">')
    '&lt;a href=&quot;x&quot;&gt;'
    """
    if isinstance(value, Html):
        return value
    return Html(html.escape(str(value).encode("utf-8", "replace").decode("utf-8"), quote=True))


def join(parts: Iterable[object], separator: str = "") -> Html:
    return Html(escape(separator).join(escape(part) for part in parts if part is not None))


def tag(name: str, *children: object, **attributes: Any) -> Html:
    """An element. A trailing underscore is dropped from attribute names, inner ones become hyphens.

    >>> tag("p", "1 < 2", class_="note", aria_label="a & b", hidden=True, id=None)
    '<p class="note" aria-label="a &amp; b" hidden>1 &lt; 2</p>'
    """
    written = []
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        key = key.rstrip("_").replace("_", "-")
        written.append(f" {key}" if value is True else f' {key}="{escape(value)}"')
    start = f"<{name}{''.join(written)}>"
    return Html(start) if name in VOID else Html(f"{start}{join(children)}</{name}>")


def table(caption: object, head: list[Html], body: Iterable[Html], **attributes: Any) -> Html:
    """A table with a caption, in a region that scrolls sideways, also by keyboard, so that the page need not."""
    identity = attributes.pop("id")
    rows = join(body)
    inner = tag(
        "table",
        tag("caption", caption, id=f"{identity}-caption"),
        tag("thead", tag("tr", *head)),
        tag("tbody", rows),
        id=identity,
        **attributes,
    )
    return tag("div", inner, class_="scroll", role="region", tabindex="0", aria_labelledby=f"{identity}-caption")


def column_head(label: object, numeric: bool = False, **attributes: Any) -> Html:
    return tag("th", label, scope="col", class_="number" if numeric else None, **attributes)


# What a column of a table holds, which is also the class of its cells.
TEXT, NUMBER, BAR = None, "number", "bars"
Columns = Sequence[tuple[str, str | None]]  # the name and the kind of each


def table_row(columns: Columns, values: Sequence[object], **attributes: Any) -> Html:
    """A row of a `data_table`; the first value is its heading."""
    first, *kinds = (kind for _, kind in columns)
    head = tag("th", values[0], scope="row", class_=first)
    return tag(
        "tr", head, *[tag("td", v, class_=kind) for kind, v in zip(kinds, values[1:], strict=True)], **attributes
    )


def data_table(identity: str, caption: object, columns: Columns, rows: Iterable[Any], class_: str = "text") -> Html:
    """A table of columns with a kind each. Rows are lists of values, or come from `table_row`.

    A column without a name has an empty cell as its heading.
    """
    heads = [column_head(name, kind == NUMBER) if name else tag("td", class_=kind) for name, kind in columns]
    body = [row if isinstance(row, Html) else table_row(columns, row) for row in rows]
    return table(caption, heads, body, id=identity, class_=class_)


def matrix(identity: str, caption: object, names: list[str], rows: Iterable[tuple[str, list[Any]]]) -> Html:
    """A table whose cells are tinted: `names` of the corner and the columns; rows of pairs of text and strength."""
    head = [column_head(names[0]), *[column_head(name, numeric=True) for name in names[1:]]]
    body = [
        tag(
            "tr",
            tag("th", name, scope="row"),
            *[tag("td", text, class_=NUMBER, style=f"--share:{share:.2f}") for text, share in cells],
        )
        for name, cells in rows
    ]
    return table(caption, head, body, id=identity, class_="matrix")


def bullets(items: Iterable[object]) -> Html:
    """A list; nothing where there are no items."""
    listed = [tag("li", item) for item in items]
    return tag("ul", *listed) if listed else EMPTY


def details(summary: object, *content: object) -> Html:
    """Content that is hidden until the summary is clicked."""
    return tag("details", tag("summary", summary), *content)


def beside(prose: object, figure: Html | None, kind: str = "beside") -> Html:
    """Text and a figure next to each other where there is room."""
    return tag("div", tag("div", prose), figure or None, class_=kind)


def terms(pairs: Iterable[tuple[object, object]], kind: str | None = None) -> Html:
    """A description list of names and values; pairs whose value is None are skipped."""
    items = [tag("div", tag("dt", name), tag("dd", value)) for name, value in pairs if value is not None]
    return tag("dl", *items, class_=kind) if items else EMPTY


@dataclass(frozen=True)
class Section:
    """A section of the page: its id, its heading, a shorter name for the table of contents, and its body."""

    address: str
    heading: str
    short: str
    body: Html
    wide: bool = False

    def html(self) -> Html:
        return tag(
            "section",
            tag("h2", self.heading, id=f"{self.address}-heading"),
            tag("div", self.body, class_="body"),
            id=self.address,
            class_="wide" if self.wide else None,
            aria_labelledby=f"{self.address}-heading",
        )


def paragraph(*parts: object, kind: str | None = None) -> Html:
    return tag("p", *parts, class_=kind)


def strong(value: object) -> Html:
    return tag("strong", value)


def large_figure(figure: str, meaning: str) -> Html:
    """A number in large type, and what it means."""
    return paragraph(tag("span", figure, class_="figure"), " ", tag("span", meaning), kind="headline")


def preformatted(text: str) -> Html:
    """Text with its line breaks; the style sheet wraps long lines. Very long text is cut, with a note.

    >>> preformatted("a < b\\n")
    '<pre dir="auto" tabindex="0">\\na &lt; b\\n</pre>'
    """
    shown = str(text).replace("\r\n", "\n").translate(PICTURES)
    rest = len(shown) - LONGEST_TEXT
    # HTML drops one newline at the start of <pre>: add one, so that the text keeps its own.
    block = tag("pre", Html("\n"), shown[:LONGEST_TEXT], dir="auto", tabindex="0")
    return join([block, paragraph(f"{rest:,} more characters are not shown.", kind="small")]) if rest > 0 else block
