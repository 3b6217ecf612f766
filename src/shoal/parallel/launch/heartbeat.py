"""Heartbeats: a monitor finds out which workers are lost; each worker has a connection to it of its own.

The libraries that workers compute and communicate with do not notice a stopped process, an unplugged cable or a dead
MPI rank. Every worker sends a heartbeat each second, and gets one. When a worker is silent for too long, or its
connection breaks, the monitor tells the others to end; workers that hear nothing from the monitor end themselves.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import os
import queue
import secrets
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NoReturn

SECONDS_BETWEEN_BEATS = 1.0
SECONDS_OF_SILENCE = 7.0  # after which a worker counts as lost
SECONDS_OF_WORK = 60.0  # the same, if it is on this machine and computes, or waits for a processor or the disk
MOST_CHARACTERS_OF_HELLO = 4096  # nothing more is read before a worker has shown the token
# Exit codes of a worker: it failed, the monitor has ended it, or another is lost. A library may end a process with 3.
FAILED, STOPPED, PEER_LOST = 1, 75, 76


@dataclass
class Event:
    """Something that the monitor has heard or noticed."""

    kind: str  # "error", "lost", "done", "progress", "connected"
    rank: int
    content: dict[str, Any] = field(default_factory=dict)


class HeartbeatMonitor:
    """Listens to all workers; its owner reads `events`."""

    def __init__(self, host: str = "127.0.0.1", patience: float = SECONDS_OF_SILENCE) -> None:
        """Workers connect to `host`; it listens on all addresses, unless that is 127.0.0.1."""
        self.token = secrets.token_hex(16)
        self.patience = patience
        self.events: queue.Queue[Event] = queue.Queue()
        self.heard: dict[int, float] = {}
        self.pids: dict[int, tuple[str, int]] = {}
        self.connections: dict[int, socket.socket] = {}
        self.ended: set[int] = set()
        self.lock = threading.Lock()
        self.closed = threading.Event()
        self.server = socket.create_server((host if host == "127.0.0.1" else "", 0))
        self.address = f"{host}:{self.server.getsockname()[1]}:{self.token}"
        threading.Thread(target=self._accept, name="shoal-monitor", daemon=True).start()
        threading.Thread(target=self._watch, name="shoal-watch", daemon=True).start()

    def _accept(self) -> None:
        while not self.closed.is_set():
            try:
                connection, _ = self.server.accept()
            except OSError:
                return
            threading.Thread(target=self._listen, args=(connection,), daemon=True).start()

    def _listen(self, connection: socket.socket) -> None:
        rank = None
        try:
            connection.settimeout(30)
            reader = connection.makefile("r", encoding="utf-8")
            hello = json.loads(reader.readline(MOST_CHARACTERS_OF_HELLO) or "{}")
            if not hmac.compare_digest(str(hello.get("token")), self.token):
                raise ValueError("a stranger")
            connection.settimeout(None)
            _limit_sending(connection)
            rank = int(hello["rank"])
            with self.lock:
                self.connections[rank], self.heard[rank] = connection, time.monotonic()
                self.pids[rank] = (hello["host"], hello["pid"])
            self.events.put(Event("connected", rank, hello))
            for text in reader:
                self._hear(rank, json.loads(text))
        except (OSError, ValueError, KeyError, AttributeError, TypeError):  # also JSON that is no dict
            pass
        if rank is None:
            _close(connection)
        else:
            self._lose(rank, "is gone")

    def _hear(self, rank: int, message: dict[str, Any]) -> None:
        with self.lock:
            self.heard[rank] = time.monotonic()
        kind = message.pop("kind")
        if kind == "done":
            self.ended.add(rank)
        if kind != "beat":
            self.events.put(Event(kind, rank, message))

    def _lose(self, rank: int, reason: str) -> None:
        with self.lock:
            if rank in self.ended or self.closed.is_set():
                return
            self.ended.add(rank)
        self.events.put(Event("lost", rank, {"reason": reason}))

    def _watch(self) -> None:
        """Send heartbeats and notice silent workers. If this process itself was stopped, silence counts from now."""
        last = time.monotonic()
        while not self.closed.wait(SECONDS_BETWEEN_BEATS):
            now = time.monotonic()
            with self.lock:
                if now - last > SECONDS_BETWEEN_BEATS + 2:
                    self.heard = dict.fromkeys(self.heard, now)
                silent = {r: now - heard for r, heard in self.heard.items() if r not in self.ended}
            last = now
            self._send_all({"kind": "beat"})
            for rank, seconds in silent.items():
                if seconds > self.patience and (seconds > SECONDS_OF_WORK or not self._is_at_work(rank)):
                    self._lose(rank, f"has been silent for {seconds:.0f} s")

    def _is_at_work(self, rank: int) -> bool:
        """On a crowded machine, loading a library may keep a worker from sending anything for long."""
        import psutil

        host, pid = self.pids[rank]
        with contextlib.suppress(psutil.Error):
            return host == socket.gethostname() and psutil.Process(pid).status() in ("running", "disk-sleep")
        return False

    def _send_all(self, message: dict[str, Any]) -> None:
        with self.lock:
            connections = list(self.connections.values())
        for connection in connections:
            _send(connection, message)

    def answer(self, rank: int, answer: bool) -> None:
        """Answer what a worker has asked."""
        with self.lock:
            connection = self.connections[rank]
        _send(connection, {"kind": "answer", "answer": answer})

    def pause(self) -> None:
        """Ask all workers to save a checkpoint and end."""
        self._send_all({"kind": "pause"})

    def stop(self) -> None:
        """Tell all workers to end; kill those of this machine that are stopped and so cannot hear it."""
        self._send_all({"kind": "stop"})
        self.kill_all(only_stopped=True)

    def kill_all(self, only_stopped: bool = False) -> None:
        """Kill workers of this machine that still run. They are ours: each has shown the token."""
        with self.lock:
            pids = list(self.pids.values())
        for host, pid in pids:
            if host == socket.gethostname() and pid != os.getpid():
                _kill(pid, only_stopped)

    def close(self) -> None:
        self.closed.set()
        _close(self.server)
        with self.lock:
            for connection in self.connections.values():
                _close(connection)


def _send(connection: socket.socket, message: dict[str, Any]) -> None:
    with contextlib.suppress(OSError):  # the other side is gone, which its own thread notices
        connection.sendall((json.dumps(message) + "\n").encode())


def _close(connection: socket.socket) -> None:
    """Close a socket, and wake the thread that reads from it."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()


def _limit_sending(connection: socket.socket) -> None:
    """Sending to somebody who does not read waits for two seconds at most; reading has a thread of its own."""
    if os.name == "posix":
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 2, 0))


def _kill(pid: int, only_stopped: bool) -> None:
    """Kill a worker, unless its number now belongs to another program."""
    import psutil

    with contextlib.suppress(psutil.Error):  # it is gone
        process = psutil.Process(pid)
        stopped = process.status() in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)
        if "shoal" in " ".join(process.cmdline()) and (stopped or not only_stopped):
            process.kill()


class Heartbeat:
    """A worker's connection to the monitor."""

    def __init__(self, address: str, rank: int, on_lost: Callable[[str], None] | None = None) -> None:
        host, port, token = address.rsplit(":", 2)
        self.socket = socket.create_connection((host, int(port)), timeout=30)
        self.socket.settimeout(None)
        _limit_sending(self.socket)
        self.rank = rank
        self.on_lost = on_lost or end_worker
        self.lock = threading.Lock()
        self.closed = threading.Event()
        self.paused = threading.Event()  # set when the work is to be saved and ended
        self.answers: queue.Queue[bool] = queue.Queue()
        self.heard = time.monotonic()
        self.send("hello", token=token, rank=rank, pid=os.getpid(), host=socket.gethostname())
        threading.Thread(target=self._listen, name="shoal-heartbeat-listen", daemon=True).start()
        threading.Thread(target=self._beat, name="shoal-heartbeat", daemon=True).start()

    def send(self, kind: str, **content: Any) -> None:
        with self.lock:
            _send(self.socket, {"kind": kind, **content})

    def ask(self, kind: str, **content: Any) -> bool:
        """Send, and wait for the answer. If the monitor is lost, this process ends."""
        self.send(kind, awaits_answer=True, **content)
        return self.answers.get()

    def _beat(self) -> None:
        last = time.monotonic()
        while not self.closed.wait(SECONDS_BETWEEN_BEATS):
            now = time.monotonic()
            if now - last > SECONDS_BETWEEN_BEATS + 2:  # this process itself was stopped
                self.heard = now
            last = now
            self.send("beat")
            if now - self.heard > SECONDS_OF_SILENCE:
                self._end(f"no heartbeat for {SECONDS_OF_SILENCE:g} s")

    def _listen(self) -> None:
        try:
            for text in self.socket.makefile("r", encoding="utf-8"):
                self.heard = time.monotonic()
                message = json.loads(text)
                kind = message["kind"]
                if kind == "stop":
                    self._end("")
                elif kind == "pause":
                    self.paused.set()
                elif kind == "answer":
                    self.answers.put(bool(message["answer"]))
        except (OSError, ValueError):
            pass
        self._end("the connection to the monitor broke")

    def _end(self, reason: str) -> None:
        if not self.closed.is_set():
            self.closed.set()
            self.on_lost(reason)

    def done(self) -> None:
        """Say that this worker is done. From here on nobody is missed: the monitor may be gone before `close`."""
        self.closed.set()
        self.send("done")

    def close(self) -> None:
        self.closed.set()
        _close(self.socket)


def end_worker(reason: str) -> None:
    """What a worker does by default when it is told to end, or has lost the monitor."""
    end_process(STOPPED)


def end_process(code: int) -> NoReturn:
    """End this process at once, without Python's own shutdown.

    There is no other way: the main thread may be inside a call of gloo or MPI that waits for a lost rank and that no
    exception interrupts, and at shutdown Python and MPI would wait for threads of these libraries in the same way.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
