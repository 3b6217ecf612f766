"""Runs to watch: a folder with a lock and a recording; requests to a server; a tab that must not complain."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from shoal.live.recording import Recording
from shoal.live.server import LiveServer
from shoal.runs.folder import RunFolder
from shoal.runs.kinds import SEARCH, Kind
from support.browser import Window

ABOUT: dict[str, Any] = {
    "title": "houses.csv",
    "target": "price",
    "metric": "accuracy",
    "percent": True,
    "budget": 60.0,
}


class FakeTime:
    """A clock that is wound by hand."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@contextmanager
def running(path: Path, kind: Kind = SEARCH) -> Iterator[RunFolder]:
    """A folder in which this process works on a run that it will not finish."""
    with RunFolder(kind, path, "houses", {"data": "1"}, say=lambda text: None) as folder:
        folder.journal(print).note("kept", True)
        yield folder


def dots(first: int, scores: list[float | None]) -> list[list[Any]]:
    """New recipes as a recorder writes them."""
    return [[first + k, score, 4, "64-32", "relu", 0.01, "plain"] for k, score in enumerate(scores)]


def record_search(recording: Recording, clock: FakeTime, rounds: int = 3, size: int = 20) -> int:
    """The events of a small search without its end; how many recipes."""
    recording.write("begin", kind="search", host="here", pid=1, **ABOUT)
    recording.write("started", rows=100, folds=5, metric="accuracy", budget=60.0, workers=None)
    for k in range(rounds):
        clock.seconds += 5
        first = k * size
        scores = [0.6 + 0.3 * j / size for j in range(size)]
        recording.write("dots", stage="searching", dots=dots(first, list(scores)))
        best = [first + size - 1, scores[-1]]
        recording.write("now", stage="searching", share=0.1, tried=first + size, best=best, range=[0.8, 0.85, 0.9])
        recording.write("rung", stage="searching", trained=size, kept=list(range(first + size // 2, first + size)))
    return rounds * size


@contextmanager
def serving(folder: Path, **named: Any) -> Iterator[LiveServer]:
    server = LiveServer(folder, **named)
    try:
        yield server
    finally:
        server.close()


def ask(server: LiveServer, path: str, method: str = "GET", **headers: str) -> tuple[int, str, dict[str, str]]:
    """Status, text and headers of an answer. `{token}` in the path is the right one."""
    connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=10)
    try:
        connection.request(method, path.format(token=server.token), headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode(), dict(answer.getheaders())
    finally:
        connection.close()


@contextmanager
def watching(window: Window, url: str, **settings: Any) -> Iterator[Any]:
    """A tab that shows a live page. It may ask its own server only, and must not complain of anything."""
    complaints: list[str] = []
    context = window.browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **settings})
    page = context.new_page()
    page.set_default_timeout(20_000)
    origin = "{0.scheme}://{0.netloc}".format(urlsplit(url))
    page.on("console", lambda message: complaints.append(f"console: {message.text}"))
    page.on("pageerror", lambda error: complaints.append(f"error: {error}"))
    page.on("dialog", lambda dialog: (complaints.append(f"dialog: {dialog.message}"), dialog.dismiss()))
    page.on("request", lambda request: complaints.extend([] if request.url.startswith(origin) else [request.url]))
    page.complaints = complaints
    page.goto(url)
    yield page
    context.close()
    assert complaints == [], complaints


DOTS_SHOWN = """() => {
  const canvas = document.querySelector("#live-dots canvas");
  if (!canvas || !canvas.width) return 0;
  const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d", { willReadFrequently: true });
  copy.drawImage(canvas, 0, 0);
  const pixels = copy.getImageData(0, 0, canvas.width, canvas.height).data;
  let found = 0;
  for (let place = 3; place < pixels.length; place += 4) if (pixels[place]) found += 1;
  return found;
}"""
