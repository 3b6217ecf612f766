"""A real browser for the tests of the report, which fails them on any error, console line, dialog or request."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium")
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
FLAGS += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
Visit = Callable[..., Any]


class Window:
    """One browser, one tab that tests share since it is slow to open, and what pages have complained of."""

    def __init__(self, browser: Any) -> None:
        self.browser = browser
        self.complaints: list[str] = []
        self.address = ""
        self.shared = self.tab(viewport={"width": 1280, "height": 900})

    def tab(self, **settings: Any) -> Any:
        page = self.browser.new_context(**settings).new_page()
        page.set_default_timeout(10_000)
        page.on("console", lambda message: self.complaints.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        page.on("dialog", lambda dialog: (self.complaints.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.on("request", self.requested)
        return page

    def requested(self, request: Any) -> None:
        if request.url != self.address:
            self.complaints.append(f"request: {request.url}")


@contextmanager
def open_window() -> Iterator[Window]:
    if CHROMIUM is None:
        pytest.skip("the report is tested in Chromium, which is not installed here")
    playwright = pytest.importorskip("playwright.sync_api", reason="the report is tested with Playwright")
    with playwright.sync_playwright() as running:
        browser = running.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield Window(browser)
        browser.close()


def visits(window: Window, file: Path, write: Callable[..., Path]) -> Iterator[Visit]:
    """Open the report of some data. Whatever a test does, no error, console line, dialog or request may come of it."""
    window.complaints.clear()
    opened = []

    def go(data: dict[str, Any], **settings: Any) -> Any:
        page = window.shared
        if settings:
            page = window.tab(**{"viewport": {"width": 1280, "height": 900}, **settings})
            opened.append(page)
        window.address = write(data, file).as_uri()
        page.mouse.move(0, 0)
        page.goto(window.address)
        return page

    yield go
    for page in opened:
        page.context.close()
    assert window.complaints == []


def cells(page: Any, key: str) -> list[str]:
    """What one column of the leaderboard shows, from top to bottom."""
    keys = page.eval_on_selector_all("#leaderboard thead th", "heads => heads.map(head => head.dataset.key)")
    place = keys.index(key) + 1
    return page.eval_on_selector_all(
        f"#leaderboard tbody tr > :nth-child({place})", "all => all.map(c => c.textContent)"
    )


def status(page: Any) -> str:
    return page.locator("#board-status").inner_text()


def head(page: Any, key: str) -> Any:
    return page.locator(f'#leaderboard th[data-key="{key}"]')


def dot(page: Any, series: int) -> dict[str, float]:
    """Where on the screen the first dot of a series is."""
    return page.evaluate(
        """series => {
          const path = document.querySelector(`.plot path[data-series="${series}"]`);
          const [x, y] = path.getAttribute("d").slice(1).split(/[ m]/).map(Number);
          const edge = path.ownerSVGElement.getBoundingClientRect();
          return { x: edge.left + x, y: edge.top + y };
        }""",
        series,
    )
