"""The frame of a card: its heading, its content, and a style that reaches nothing outside of it."""

from __future__ import annotations

import hashlib
import re

from shoal.report.shell import words
from shoal.report.shell.markup import Html, join, paragraph, tag, terms
from shoal.report.shell.shell import resource

STYLE = "notebook.css"
# A quote in a user's text is escaped, so that these can only be attributes that `tag` has written.
NAMES = re.compile(r' (id|aria-labelledby)="([^"]*)"')


def card(heading: object, *content: object) -> Html:
    """A card. Its ids are those of no other card, unless that has the same content."""
    inside = join([paragraph(heading, kind="heading"), *(part for part in content if part)])
    mark = hashlib.sha256(inside.encode()).hexdigest()[:8]

    def own(found: re.Match[str]) -> str:
        return f' {found[1]}="' + " ".join(f"shoal-{mark}-{name}" for name in found[2].split()) + '"'

    return tag("div", tag("style", Html(resource(STYLE))), Html(NAMES.sub(own, inside)), class_="shoal")


def heading(kind: str, said: object = "") -> Html:
    """What is shown, and its size in a few words."""
    return join([tag("strong", kind), " ", tag("span", said)] if said else [tag("strong", kind)])


def facts(**found: object) -> Html:
    """Names and values; those that are None are left out."""
    return terms((words.capitalised(name.replace("_", " ")), value) for name, value in found.items())


def small(*parts: object) -> Html:
    return paragraph(*parts, kind="small")
