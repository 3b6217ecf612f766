"""The workers of a Dask scheduler: `dask://host:8786`, and `tls://host:8786` where the cluster encrypts."""

from __future__ import annotations

import contextlib
import logging
import socket
import ssl
import threading
import time
import warnings
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FuturesTimeout
from pathlib import Path
from typing import Any

from shoal.errors import UserError
from shoal.executors.dask import connection as dask_connection
from shoal.executors.dask.connection import DaskConnection
from shoal.executors.interface import (
    INSTALL_REMEDY,
    Call,
    LostWorker,
    RemoteJob,
    Reply,
    WorkerInfo,
    Workers,
    library,
    parse_address,
)

PORT = 8786
CONNECTING_SECONDS = 4.0
SPEAKING_SECONDS = 6.0  # for the first words of a scheduler, which may be busy
WAITING_SECONDS = 10.0  # for a first worker
OTHERS_SECONDS = 5.0  # for the others, after the first one has answered
RETURNING_SECONDS = 60.0  # in which a scheduler that is out of reach may come back
CLOSING_SECONDS = 3.0
LOGGERS = ("distributed", "distributed.client", "tornado.application")
SETTINGS = {
    "distributed.comm.timeouts.connect": "10s",
    "distributed.admin.large-graph-warning-threshold": "1TB",  # a warning for people who write graphs
}


class DaskWorkers(Workers):
    def __init__(self, name: str) -> None:
        self.name = name
        host, self.port = parse_address(name, PORT)
        self.address = f"{'tls' if name.startswith('tls:') else 'tcp'}://{host}:{self.port}"
        self.host = host.strip("[]")
        self.notes: list[str] = []  # sentences for the user
        self._connection: DaskConnection | None = None
        self._job: RemoteJob | None = None
        self._returning: threading.Thread | None = None
        self._gone = ""  # why there is no way back
        self._closed = self._is_quiet = False

    def check(self) -> None:
        distributed = _distributed()
        self._probe(_security(distributed) if self.address.startswith("tls:") else None)

    def start(self, job: RemoteJob) -> list[WorkerInfo]:
        self._job = job
        _distributed()
        if not self._is_quiet:
            _quiet.begin()
            self._is_quiet = True
        self._connection = connection = self._connect(job)
        connection.open()
        self._wait(connection)
        found = self.present()
        if found:
            return found
        refused = [worker.refused for worker in connection.workers.values() if worker.refused]
        if refused:
            count = "the only worker" if len(refused) == 1 else f"all {len(refused)} workers"
            raise UserError(f"{self.name}: {count} cannot take part: {refused[0]}; {INSTALL_REMEDY}")
        if connection.workers:
            raise UserError(f"{self.name}: none of its {len(connection.workers)} workers answers; restart them")
        raise UserError(
            f"{self.name}: the scheduler has no workers (waited {WAITING_SECONDS:.0f} s); start some, on machines with "
            f"Shoal: dask worker {self.address}"
        )

    def _wait(self, connection: DaskConnection) -> None:
        """Until all workers have said what they are, or there is no use in waiting."""
        began = time.monotonic()
        while not connection.lost:
            workers, elapsed = list(connection.workers.values()), time.monotonic() - began
            silent = [worker for worker in workers if worker.info is None and not worker.refused]
            if workers and (not silent or (len(silent) < len(workers) and elapsed > OTHERS_SECONDS)):
                return
            if elapsed > (dask_connection.GREETING_SECONDS if workers else WAITING_SECONDS):
                return
            time.sleep(0.01)
        raise UserError(self._lost_text())

    def slots(self) -> int:
        if self._gone:
            raise UserError(self._gone)
        connection = self._connection
        return connection.slots if connection is not None and not connection.lost else self._away()

    @property
    def ahead(self) -> int:  # type: ignore[override]
        """One more for each worker, which has it when it has done another one."""
        return self._connection.ahead if self._connection is not None else 0

    def present(self) -> list[WorkerInfo]:
        return self._connection.present() if self._connection is not None else []

    def submit(self, call: Call) -> Future[Reply]:
        if self._closed:
            raise RuntimeError("cannot submit after shutdown")
        if self._connection is None or self._connection.lost:
            raise LostWorker("the scheduler is out of reach")
        return self._connection.submit(call)

    def restart(self) -> None:
        """Workers come and go by themselves. If the scheduler is out of reach, look for it in the background."""
        if self._connection is not None and self._connection.lost:
            self._away()

    def give_up(self, future: Future[Reply]) -> None:
        if self._connection is not None:
            self._connection.give_up(future)

    def forget(self, future: Future[Reply]) -> None:
        future.cancel()
        if self._connection is not None:
            self._connection.forget()

    def refuse(self, worker: WorkerInfo) -> bool:
        return self._connection is not None and self._connection.refuse(worker)

    def close(self) -> None:
        self._closed = True
        connection, self._connection = self._connection, None
        if connection is not None:
            _end(connection)
        if self._is_quiet:
            _quiet.end()
            self._is_quiet = False

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    # --- connecting

    def _connect(self, job: RemoteJob) -> DaskConnection:
        """Within 10 s, or a sentence that says what is wrong there."""
        distributed = _distributed()
        security = _security(distributed) if self.address.startswith("tls:") else None
        self._probe(security)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of versions: workers are asked for those that matter
            try:
                client = distributed.Client(
                    self.address, timeout=CONNECTING_SECONDS, security=security, set_as_default=False,
                    direct_to_workers=False,
                )  # fmt: skip
                versions = client.sync(client.scheduler.versions, callback_timeout=CONNECTING_SECONDS)
            except (OSError, TimeoutError, FuturesTimeout, ImportError, TypeError, ValueError, AssertionError):
                raise UserError(self._something_else()) from None
        there, here = dask_connection.python_there(versions), dask_connection.python_here()
        if there and there != here:
            client.close(CLOSING_SECONDS)
            raise UserError(
                f"{self.name}: the scheduler has Python {there}, and the search has Python {here}; Dask needs the same"
            )
        return DaskConnection(client, job, self._note)

    def _probe(self, security: Any) -> None:
        """Is a Dask scheduler there? It speaks first. Dask's client waits for the first words of others for ever."""
        try:
            plain = socket.create_connection((self.host, self.port), timeout=CONNECTING_SECONDS)
            with plain, _encrypted(plain, security) if security is not None else plain as connection:
                connection.settimeout(SPEAKING_SECONDS)
                try:
                    spoken = connection.recv(1)
                except (TimeoutError, ConnectionError):
                    spoken = b""
        except ssl.SSLError as error:
            raise UserError(
                f"{self.name}: no encrypted connection to a Dask scheduler ({error.reason or error}); the scheduler "
                "must be started with TLS too, with certificates of the same authority"
            ) from None
        except OSError as error:
            raise UserError(
                f"{self.name}: no Dask scheduler answers there ({_words(error)}); start one with "
                f"`dask scheduler --port {self.port}` on that machine, or give the address that it prints"
            ) from None
        if not spoken:
            raise UserError(self._something_else())

    def _something_else(self) -> str:
        other = "dask" if self.address.startswith("tls:") else "tls"
        return (
            f"{self.name}: something answers there, but not as a Dask scheduler does; give the address that "
            f"`dask scheduler` prints ({PORT} is its port if none is given, 8787 that of its web page), or "
            f"{other}://{self.host}:{self.port}"
        )

    # --- a scheduler that is out of reach

    def _away(self) -> int:
        """No slots at the moment. The search can be stopped meanwhile, so this does not wait."""
        if self._returning is None or not self._returning.is_alive():
            self._returning = threading.Thread(target=self._return, daemon=True)
            self._returning.start()
        return 0

    def _return(self) -> None:
        """Look for the scheduler again; it may have been restarted, and has forgotten everything."""
        old, self._connection = self._connection, None
        deadline = time.monotonic() + RETURNING_SECONDS
        if old is None or self._job is None:
            return
        _end(old)
        while time.monotonic() < deadline and not self._closed:
            try:
                connection = self._connect(self._job)
            except UserError:
                time.sleep(0.2)
                continue
            connection.open()
            self._note(f"{self.name}: the scheduler was out of reach, and is back")
            self._connection = connection
            return
        self._gone = self._lost_text()

    def _lost_text(self) -> str:
        return (
            f"{self.name}: the scheduler is gone (waited {RETURNING_SECONDS:.0f} s); start the scheduler and its "
            "workers again, then run the same command again"
        )


class _Quiet:
    """What Dask writes to the terminal is for people who run clusters: changed while searches run, then put back."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._searches = 0
        self._levels: dict[str, int] = {}
        self._settings: Any = None

    def begin(self) -> None:
        import dask

        with self._lock:
            self._searches += 1
            if self._searches == 1:
                self._levels = {name: logging.getLogger(name).level for name in LOGGERS}
                for name in LOGGERS:
                    logging.getLogger(name).setLevel(logging.CRITICAL + 1)
                self._settings = dask.config.set(SETTINGS)

    def end(self) -> None:
        with self._lock:
            self._searches -= 1
            if self._searches == 0:
                for name, level in self._levels.items():
                    logging.getLogger(name).setLevel(level)
                self._settings.__exit__(None, None, None)


_quiet = _Quiet()


def _distributed() -> Any:
    return library("distributed", "dask://...", "cluster")


def _security(distributed: Any) -> Any:
    """The certificates of Dask's own configuration."""
    security = distributed.Security()
    files = {"ca-file": security.tls_ca_file, "client.cert": security.tls_client_cert}
    missing = [name for name, value in files.items() if not value]
    if missing:
        names = " and ".join(f"distributed.comm.tls.{name}" for name in missing)
        variables = " ".join(f"DASK_DISTRIBUTED__COMM__TLS__{_variable(name)}=..." for name in missing)
        raise UserError(
            f"tls:// needs certificates, and Dask's configuration has no {names}; set them in ~/.config/dask/*.yaml, "
            f"or by {variables}"
        )
    files["client.key"] = security.tls_client_key
    for name, value in files.items():
        if value and "\n" not in value and not Path(value).is_file():
            raise UserError(
                f"there is no file {value!r}, which Dask's configuration names as distributed.comm.tls.{name}"
            )
    try:
        security.get_connection_args("client")
    except (OSError, ValueError) as error:
        raise UserError(f"the certificates of Dask's configuration cannot be used: {_words(error)}") from None
    return security


def _variable(name: str) -> str:
    return name.replace(".", "__").replace("-", "_").upper()


def _end(connection: DaskConnection) -> None:
    """A worker that hangs would keep it waiting."""
    with contextlib.suppress(Exception):
        connection.ask(connection.close(), CLOSING_SECONDS)
    with contextlib.suppress(Exception):
        connection.client.close(CLOSING_SECONDS)


def _encrypted(plain: socket.socket, security: Any) -> socket.socket:
    context: ssl.SSLContext = security.get_connection_args("client")["ssl_context"]
    return context.wrap_socket(plain)


def _words(error: BaseException) -> str:
    if isinstance(error, socket.gaierror):
        return "there is no host of that name"
    if isinstance(error, TimeoutError):
        return f"no answer within {CONNECTING_SECONDS:.0f} s"
    return str(getattr(error, "strerror", None) or error)
