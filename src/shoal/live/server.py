"""A small web server for the page of one run: the page, its events as they are written, the report, and "stop".

The standard library is enough: the page needs four addresses and one stream, and a thread for each of a few readers
costs nothing while it waits. Each reader has a place in the recording, not a queue, so a slow one takes no memory. The
server changes nothing of a run but for one file that asks it to stop.
"""

from __future__ import annotations

import hmac
import json
import secrets
import select
import socket
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import TCPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from shoal.files.plain_files import read_bytes
from shoal.live.options import LOOPBACK
from shoal.live.page import live_page
from shoal.live.recording import read_lines, request_stop
from shoal.live.state import FINISHED, RUNNING, RunState
from shoal.runs.kinds import LIVE, REPORT, read_run

OWN_NAMES = {LOOPBACK, "localhost", "[::1]"}
MOST_READERS = 32  # connections at a time; others are asked to come again
POLL_SECONDS = 0.5  # between two looks for new events
KEEP_ALIVE_SECONDS = 10.0  # of silence, after which a comment shows that the server is there
PATIENCE_SECONDS = 20.0  # for a reader who takes nothing, or a request that does not end
CHUNK_BYTES = 2**16
# Whoever wrote the run folder wrote the report: opened alone, its scripts are of no origin, and reach nothing.
REPORT_POLICY = (
    "sandbox allow-scripts; default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
)


class LiveServer(ThreadingHTTPServer):
    """Serves the page of a run folder until `close`."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = MOST_READERS

    def __init__(self, folder: Path, address: str = LOOPBACK, port: int = 0) -> None:
        """OSError: the port is taken, or the address is not of this machine."""
        self.folder, self.token = folder, secrets.token_urlsafe(24)
        self.state = RunState(folder)
        self.ending = threading.Event()
        self.streams = 0  # that are open
        self.reports = 0  # that were fetched
        self._readers = threading.BoundedSemaphore(MOST_READERS)
        self._lock = threading.Lock()
        if ":" in address:
            self.address_family = socket.AF_INET6
        super().__init__((address, port), LiveHandler)
        threading.Thread(target=self.serve_forever, args=(POLL_SECONDS,), name="shoal-live", daemon=True).start()

    def server_bind(self) -> None:
        """Without a search for the name of this machine, which takes seconds where no server knows it."""
        TCPServer.server_bind(self)

    @property
    def url(self) -> str:
        return f"http://{self.host}/?token={self.token}"

    @property
    def host(self) -> str:
        name, port = self.server_address[:2]
        shown = str(name)
        shown = {"0.0.0.0": socket.gethostname(), "::": socket.gethostname()}.get(shown, shown)
        return f"[{shown}]:{port}" if ":" in shown else f"{shown}:{port}"

    def is_host(self, given: str | None, reached: str) -> bool:
        """Whether a request means this server: a page of another name that leads here is refused. `reached`: the
        address of this machine that the request came to."""
        port = self.server_address[1]
        names = {*OWN_NAMES, f"[{reached}]" if ":" in reached else reached}
        known = {self.host.lower(), *(f"{name}:{port}" for name in names)}  # browsers write names in small letters
        return given is not None and given.lower() in known

    def count(self, streams: int = 0, reports: int = 0) -> None:
        with self._lock:
            self.streams += streams
            self.reports += reports

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._readers.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._readers.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A reader who goes away is no error of the run."""

    def linger(self, seconds: float) -> None:
        """This process does nothing more for the run: wait until open pages know that, and have the report."""
        self.state.is_over = True
        wanted = self.streams if self.state.look(at_once=True).report else 0
        until = time.monotonic() + seconds
        while (self.streams or self.reports < wanted) and time.monotonic() < until:
            time.sleep(POLL_SECONDS / 5)

    def close(self) -> None:
        self.ending.set()
        self.shutdown()
        self.server_close()


class LiveHandler(BaseHTTPRequestHandler):
    """One request. Only those that know the token get anything."""

    server: LiveServer
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "Shoal", ""
    timeout = PATIENCE_SECONDS

    def do_GET(self) -> None:
        self._answer({"/": self._page, "/events": self._events, "/report": self._report})

    def do_POST(self) -> None:
        self._answer({"/stop": self._stop})

    def log_message(self, format: str, *values: Any) -> None:
        """The terminal is the run's."""

    # ---- who asks ----

    def _answer(self, known: dict[str, Callable[[], None]]) -> None:
        self.close_connection = True
        parts = urlsplit(self.path)
        token = parse_qs(parts.query).get("token", [""])[0]
        origin, host = self.headers.get("Origin"), self.headers.get("Host")
        reached = str(self.connection.getsockname()[0]).removeprefix("::ffff:")
        if not self.server.is_host(host, reached):
            self._refuse(HTTPStatus.MISDIRECTED_REQUEST, "this server has another name")
        elif origin is not None and origin != f"http://{host}":
            self._refuse(HTTPStatus.FORBIDDEN, "another page may not ask this server")
        elif not hmac.compare_digest(token.encode(), self.server.token.encode()):
            self._refuse(HTTPStatus.FORBIDDEN, "open the whole address that Shoal has printed, with its token")
        elif parts.path not in known:
            self._refuse(HTTPStatus.NOT_FOUND, "there is nothing here")
        else:
            known[parts.path]()

    def _refuse(self, status: HTTPStatus, words: str) -> None:
        self._send(status, "text/plain", f"{words}\n".encode())

    def _send(self, status: HTTPStatus, kind: str, content: bytes, **more: str) -> None:
        self._head(status, kind, {"Content-Length": str(len(content)), **more})
        for start in range(0, len(content), CHUNK_BYTES):  # the time limit is of each piece
            self.wfile.write(content[start : start + CHUNK_BYTES])

    def _head(self, status: HTTPStatus, kind: str, more: dict[str, str]) -> None:
        self.send_response(status)
        headers = {
            "Content-Type": f"{kind}; charset=utf-8", "Cache-Control": "no-store", "Connection": "close",
            "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "X-Frame-Options": "DENY", **more,
        }  # fmt: skip
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    # ---- what they get ----

    def _page(self) -> None:
        run = read_run(self.server.folder)
        if run is None:
            self._refuse(HTTPStatus.GONE, "the run folder is not there any more")
            return
        self._send(HTTPStatus.OK, "text/html", live_page(run).encode("utf-8", "backslashreplace"))

    def _report(self) -> None:
        try:
            content = read_bytes(self.server.folder / REPORT)
        except OSError:
            self._refuse(HTTPStatus.NOT_FOUND, "there is no report yet")
            return
        self._send(HTTPStatus.OK, "text/html", content, **{"Content-Security-Policy": REPORT_POLICY})
        self.server.count(reports=1)

    def _stop(self) -> None:
        if self.server.state.look().state != RUNNING:
            self._refuse(HTTPStatus.CONFLICT, "this run does not run any more")
            return
        try:
            request_stop(self.server.folder)
        except OSError as error:
            self._refuse(HTTPStatus.CONFLICT, f"the run folder cannot be written to ({error.strerror or error})")
            return
        self._send(HTTPStatus.OK, "text/plain", b"asked to stop\n")

    def _events(self) -> None:
        """New lines as they are written, each chunk with its place, where a reader who comes again continues."""
        query = parse_qs(urlsplit(self.path).query)
        given = self.headers.get("Last-Event-ID") or query.get("from", [""])[0]
        place = int(given) if given.isascii() and given.isdigit() and len(given) < 15 else 0
        self._head(HTTPStatus.OK, "text/event-stream", {"X-Accel-Buffering": "no"})
        self.server.count(streams=1)
        try:
            self._stream(place)
        except OSError:  # the reader has gone away, or takes nothing any more
            pass
        finally:
            self.server.count(streams=-1)

    def _stream(self, place: int) -> None:
        said, spoke = None, time.monotonic()
        while not self.server.ending.is_set():
            state = self.server.state.look()  # before the lines are read: then the last ones come before "finished"
            lines, place = read_lines(self.server.folder / LIVE, place, CHUNK_BYTES)
            if lines:
                data = b"".join(b"data: " + line + b"\n" for line in lines.splitlines())
                self.wfile.write(b"id: %d\n%s\n" % (place, data))
            elif self._is_shorter_than(place):  # begun anew with --fresh: the page shows another run's events
                self.wfile.write(b"event: again\ndata: \n\n")
                return
            elif state != said:
                self.wfile.write(f"event: state\ndata: {json.dumps(vars(state))}\n\n".encode())
                said = state
            elif time.monotonic() - spoke > KEEP_ALIVE_SECONDS:
                self.wfile.write(b": still here\n\n")
            else:
                if said is not None and (said.state == FINISHED or self.server.state.is_over):
                    self.wfile.write(b"event: over\ndata: \n\n")
                    return
                if select.select([self.connection], [], [], POLL_SECONDS)[0]:
                    return  # the reader has gone away: it has nothing more to ask
                continue
            spoke = time.monotonic()

    def _is_shorter_than(self, place: int) -> bool:
        try:
            return (self.server.folder / LIVE).stat().st_size < place
        except OSError:
            return False
