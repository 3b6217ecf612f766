"""Opens the page of a run: the address, the browser, and the options of it that commands have in common."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from shoal.console.terminal import say
from shoal.errors import UserError
from shoal.live.options import LOOPBACK, LiveOptions, PageOptions
from shoal.live.server import LiveServer

LINGER_SECONDS = 5.0  # that an ended command waits for its page


@contextmanager
def live_server(folder: Path, options: LiveOptions) -> Iterator[LiveServer | None]:
    """Serve the page of a run while inside, if that was asked for, and open a browser. A page that cannot be served
    does not end a run."""
    if not options.live:
        yield None
        return
    try:
        server = open_server(folder, options)
    except UserError as error:
        say(f"note: {error}. The run continues without its page; shoal watch {folder} shows it", error=True)
        yield None
        return
    try:
        yield server
        with contextlib.suppress(KeyboardInterrupt):  # the run is complete
            server.linger(LINGER_SECONDS)
    finally:
        server.close()


def open_server(folder: Path, options: PageOptions) -> LiveServer:
    """A server, whose address is printed."""
    try:
        server = LiveServer(folder, options.address, options.port or 0)
    except (OSError, OverflowError, TypeError) as error:  # the last: the address can be no name
        why = getattr(error, "strerror", None) or str(error)
        raise UserError(
            f"the page cannot be served on {options.address}, port {options.port or 'any'} ({why}); "
            "give another --port, or none"
        ) from None
    if options.address not in (LOOPBACK, "localhost", "::1"):
        say(
            "warning: the page is visible to other machines. It is not encrypted, and whoever has its address can "
            "read it and stop the run", error=True,
        )  # fmt: skip
    say(f"live page: {server.url}")
    _open_browser(server.url)
    return server


def _open_browser(url: str) -> None:
    """Only for somebody who sits at a terminal with a screen."""
    screen = (
        os.name == "nt" or sys.platform == "darwin" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    )
    if screen and sys.stdout.isatty():
        threading.Thread(target=webbrowser.open, args=(url,), name="shoal-browser", daemon=True).start()  # it may wait
