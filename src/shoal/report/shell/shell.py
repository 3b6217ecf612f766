"""The frame of every report: sections, style and scripts in one file, which loads nothing from the network."""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from shoal.files import atomic
from shoal.files.json_values import plain
from shoal.report.shell.markup import Html, Section, escape, join, tag


def resource(name: str | Path) -> str:
    """The text of a file in `assets`, or of a file elsewhere given as a path."""
    if isinstance(name, Path):
        return name.read_text(encoding="utf-8")
    return files("shoal.report").joinpath("assets", name).read_text(encoding="utf-8")


def scripts(names: tuple[str | Path, ...]) -> str:
    """The scripts joined in one function scope."""
    inner = "\n".join(resource(name) for name in names)
    return f'(() => {{\n"use strict";\n{inner}\n}})();'


def script_json(value: Any) -> str:
    """JSON for a script element: no `<`, so that neither `</script>` nor `<!--` in a user's string can end it.

    >>> script_json({"name": "</script>"})
    '{"name":"\\\\u003c/script\\\\u003e"}'
    """
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def policy(*allowed: str) -> str:
    """The content security policy: nothing is loaded, and only the scripts with these hashes run."""
    digests = [base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii") for script in allowed]
    sources = " ".join(f"'sha256-{digest}'" for digest in digests)
    loaded = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src {sources}"
    return f"{loaded}; base-uri 'none'; form-action 'none'"


@dataclass(frozen=True)
class Page:
    """A report: its kind (`name`), its content, the data for its script, and the data of the run."""

    name: str
    heading: Html
    sections: list[Section]
    scripts: tuple[str | Path, ...]
    script_data: dict[str, Any]
    data: dict[str, Any]
    styles: tuple[str | Path, ...] = ("page.css",)

    def html(self) -> str:
        script = scripts(self.scripts)
        links = (tag("li", tag("a", section.short, href=f"#{section.address}")) for section in self.sections)
        return Template(resource("page.html")).substitute(
            policy=escape(policy(script)),
            title=escape(f"{self.data['title']}: Shoal {self.name} report"),
            style="\n".join(resource(name) for name in self.styles),
            name=escape(self.name),
            heading=self.heading,
            created=escape(self.data.get("created") or ""),
            version=escape(self.data.get("version") or ""),
            contents=join(links),
            sections=join((section.html() for section in self.sections), "\n"),
            data=script_json(self.script_data),
            script=script,
        )


def checked(data: dict[str, Any], objects: tuple[str, ...], lists: tuple[str, ...]) -> dict[str, Any]:
    """A copy of a run's data with JSON values only, and with every part: one that is missing or None is empty."""
    data = plain(data)
    parts = {key: data.get(key) or {} for key in objects} | {key: data.get(key) or [] for key in lists}
    return data | parts


def write(page: str, path: str | Path) -> Path:
    path = Path(path)
    atomic.write_text(path, page)
    return path
