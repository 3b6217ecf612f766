"""The workers of a Dask scheduler: `dask://host:8786`, and `tls://host:8786` where the cluster encrypts."""

from __future__ import annotations

import contextlib
import logging
import re
import socket
import ssl
import threading
import time
import warnings
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FuturesTimeout
from pathlib import Path
from typing import Any

from shoal.errors import MissingPackage, UserError
from shoal.executors import dask_session
from shoal.executors.dask_session import Session
from shoal.executors.interface import Call, Job, Reply, WorkerInfo, WorkerLost, Workers

PORT = 8786
CONNECTING = 4.0  # seconds
SPEAKING = 6.0  # seconds for the first words of a scheduler, which may be busy
WAITING = 10.0  # seconds for a first worker
OTHERS = 5.0  # seconds for the others, after the first one has answered
RETURNING = 60.0  # seconds in which a scheduler that is out of reach may come back
CLOSING = 3.0
LOGGERS = ("distributed", "distributed.client", "tornado.application")
SETTINGS = {
    "distributed.comm.timeouts.connect": "10s",
    "distributed.admin.large-graph-warning-threshold": "1TB",  # a warning for people who write graphs
}


class DaskWorkers(Workers):
    def __init__(self, name: str) -> None:
        self.name = name
        self.address, self.host, self.port = _parse(name)
        self.notes: list[str] = []  # sentences for the user
        self._session: Session | None = None
        self._job: Job | None = None
        self._returning: threading.Thread | None = None
        self._gone = ""  # why there is no way back
        self._closed = self._is_quiet = False

    def check(self) -> None:
        distributed = _distributed()
        self._probe(_security(distributed) if self.address.startswith("tls:") else None)

    def start(self, job: Job) -> list[WorkerInfo]:
        self._job = job
        _distributed()
        if not self._is_quiet:
            _quiet.begin()
            self._is_quiet = True
        self._session = session = self._connect(job)
        session.open()
        self._wait(session)
        found = self.present()
        if found:
            return found
        refused = [worker.refused for worker in session.workers.values() if worker.refused]
        if refused:
            count = "the only worker" if len(refused) == 1 else f"all {len(refused)} workers"
            raise UserError(f"{self.name}: {count} cannot take part: {refused[0]}; install there what is here")
        if session.workers:
            raise UserError(f"{self.name}: none of its {len(session.workers)} workers answers; restart them")
        raise UserError(
            f"{self.name}: the scheduler has no workers (waited {WAITING:.0f} s); start some, on machines with Shoal: "
            f"dask worker {self.address}"
        )

    def _wait(self, session: Session) -> None:
        """Until all workers have said what they are, or there is no use in waiting."""
        began = time.monotonic()
        while not session.lost:
            workers, elapsed = list(session.workers.values()), time.monotonic() - began
            silent = [worker for worker in workers if worker.info is None and not worker.refused]
            if workers and (not silent or (len(silent) < len(workers) and elapsed > OTHERS)):
                return
            if elapsed > (dask_session.GREETING if workers else WAITING):
                return
            time.sleep(0.01)
        raise UserError(self._lost_text())

    def slots(self) -> int:
        if self._gone:
            raise UserError(self._gone)
        session = self._session
        return session.slots if session is not None and not session.lost else self._away()

    @property
    def ahead(self) -> int:  # type: ignore[override]
        """One more for each worker, which has it when it has done another one."""
        return self._session.ahead if self._session is not None else 0

    def present(self) -> list[WorkerInfo]:
        return self._session.present() if self._session is not None else []

    def submit(self, call: Call) -> Future[Reply]:
        if self._closed:
            raise RuntimeError("cannot submit after shutdown")
        if self._session is None or self._session.lost:
            raise WorkerLost("the scheduler is out of reach")
        return self._session.submit(call)

    def restart(self) -> None:
        """Workers come and go by themselves. If the scheduler is out of reach, look for it in the background."""
        if self._session is not None and self._session.lost:
            self._away()

    def give_up(self, future: Future[Reply]) -> None:
        if self._session is not None:
            self._session.give_up(future)

    def forget(self, future: Future[Reply]) -> None:
        future.cancel()
        if self._session is not None:
            self._session.forget()

    def refuse(self, worker: WorkerInfo) -> bool:
        return self._session is not None and self._session.refuse(worker)

    def close(self) -> None:
        self._closed = True
        session, self._session = self._session, None
        if session is not None:
            _end(session)
        if self._is_quiet:
            _quiet.end()
            self._is_quiet = False

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    # --- connecting

    def _connect(self, job: Job) -> Session:
        """Within 10 s, or a sentence that says what is wrong there."""
        distributed = _distributed()
        security = _security(distributed) if self.address.startswith("tls:") else None
        self._probe(security)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of versions: workers are asked for those that matter
            try:
                client = distributed.Client(
                    self.address, timeout=CONNECTING, set_as_default=False, security=security, direct_to_workers=False
                )
                versions = client.sync(client.scheduler.versions, callback_timeout=CONNECTING)
            except (OSError, TimeoutError, FuturesTimeout, ImportError, TypeError, ValueError, AssertionError):
                raise UserError(self._something_else()) from None
        there, here = dask_session.python_there(versions), dask_session.python_here()
        if there and there != here:
            client.close(CLOSING)
            raise UserError(
                f"{self.name}: the scheduler has Python {there}, and the search has Python {here}; Dask needs the same"
            )
        return Session(client, job, self._note)

    def _probe(self, security: Any) -> None:
        """Is a Dask scheduler there? It speaks first. Dask's client waits for the first words of others for ever."""
        try:
            plain = socket.create_connection((self.host, self.port), timeout=CONNECTING)
            with plain, _encrypted(plain, security) if security is not None else plain as connection:
                connection.settimeout(SPEAKING)
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
        old, self._session = self._session, None
        deadline = time.monotonic() + RETURNING
        if old is None or self._job is None:
            return
        _end(old)
        while time.monotonic() < deadline and not self._closed:
            try:
                session = self._connect(self._job)
            except UserError:
                time.sleep(0.2)
                continue
            session.open()
            self._note(f"{self.name}: the scheduler was out of reach, and is back")
            self._session = session
            return
        self._gone = self._lost_text()

    def _lost_text(self) -> str:
        return (
            f"{self.name}: the scheduler is gone (waited {RETURNING:.0f} s); start the scheduler and its workers "
            "again, then run the same command again"
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


def _parse(name: str) -> tuple[str, str, int]:
    """dask://host:port -> the address as Dask writes it, host, port."""
    found = re.fullmatch(r"(dask|tcp|tls)://(\[[0-9a-fA-F:.]+\]|[^/:@\s]+)(?::(\d+))?/?", name)
    port = int(found[3] or PORT) if found else 0
    if found is None or not 1 <= port <= 65535:
        raise UserError(f"dask://host:port needs a host, such as dask://scheduler:{PORT}; got {name!r}")
    scheme = "tls" if found[1] == "tls" else "tcp"
    return f"{scheme}://{found[2]}:{port}", found[2].strip("[]"), port


def _distributed() -> Any:
    try:
        import distributed
    except ModuleNotFoundError:
        raise MissingPackage(
            "--cluster dask://... needs Dask: pip install 'shoal[cluster]'", name="distributed"
        ) from None
    return distributed


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


def _end(session: Session) -> None:
    """A worker that hangs would keep it waiting."""
    for work in (lambda: session.ask(session.close(), CLOSING), lambda: session.client.close(CLOSING)):
        with contextlib.suppress(Exception):
            work()


def _encrypted(plain: socket.socket, security: Any) -> socket.socket:
    context: ssl.SSLContext = security.get_connection_args("client")["ssl_context"]
    return context.wrap_socket(plain)


def _words(error: BaseException) -> str:
    if isinstance(error, socket.gaierror):
        return "there is no host of that name"
    if isinstance(error, TimeoutError):
        return f"no answer within {CONNECTING:.0f} s"
    return str(getattr(error, "strerror", None) or error)
