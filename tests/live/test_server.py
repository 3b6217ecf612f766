"""The server of a live page: who may ask, and readers who are slow, hang, or are many."""

import re
import socket
import threading
import time

import pytest
from support.live import FakeTime, ask, record_search, running, serving
from support.waiting import wait_until

from shoal.errors import UserError
from shoal.live import server as module
from shoal.live.options import LiveOptions, PageOptions
from shoal.live.recording import Recording
from shoal.live.state import ENDED, FINISHED, GONE, RUNNING, RunState
from shoal.live.watching import live_server, open_server
from shoal.runs.kinds import LIVE, REPORT, SETTINGS, STOP


@pytest.fixture
def folder(tmp_path):
    with running(tmp_path / "run") as run:
        clock = FakeTime()
        recording = Recording(run.path, print, clock)
        record_search(recording, clock)
        yield run.path
        recording.close()


@pytest.fixture
def server(folder):
    with serving(folder) as server:
        yield server


def connect(server, lines):
    """A raw connection that has sent these lines."""
    link = socket.create_connection(server.server_address[:2], timeout=10)
    link.sendall("\r\n".join(lines).encode())
    return link


def stream(server, *more):
    host = f"127.0.0.1:{server.server_address[1]}"
    lines = [f"GET /events?token={server.token} HTTP/1.1", f"Host: {host}", *more, "", ""]
    return connect(server, lines)


def read_until(link, words):
    found = b""
    while words not in found:
        part = link.recv(65536)
        assert part, f"ended without {words!r}: {found[-200:]!r}"
        found += part
    return found


PATHS = [("/", "GET"), ("/events", "GET"), ("/report", "GET"), ("/stop", "POST")]


@pytest.mark.parametrize(("path", "method"), PATHS)
def test_only_who_knows_the_token_gets_anything(server, folder, path, method):
    short = server.token[:-1]
    for token in ("", "?token=", "?token=wrong", "?token=%FF%FE", f"?token={short}", f"?token={short}%C3%A4"):
        status, text, headers = ask(server, path + token, method)
        assert (status, "price" in text, server.token in text) == (403, False, False)
        assert headers["Cache-Control"] == "no-store"
    assert not (folder / STOP).exists()


@pytest.mark.parametrize(("path", "method"), PATHS)
def test_a_name_that_leads_here_and_other_pages_are_refused(server, folder, path, method):
    port = server.server_address[1]
    for host in ("evil.example", f"evil.example:{port}", "127.0.0.1:1", "127.0.0.1", ""):
        assert ask(server, path + "?token={token}", method, Host=host)[0] == 421
    for origin in ("http://evil.example", "null", f"https://127.0.0.1:{port}", "http://127.0.0.1:1"):
        assert ask(server, path + "?token={token}", method, Origin=origin)[0] == 403
    assert not (folder / STOP).exists()


def test_the_page_loads_nothing_and_stop_is_no_link(server, folder):
    status, text, headers = ask(server, "/?token={token}")
    assert status == 200
    assert headers["X-Frame-Options"] == "DENY"
    assert "default-src &#x27;none&#x27;" in text
    assert not re.findall(r"""(?:src|href)=["'](?!data:|#)""", text)
    assert ask(server, "/stop?token={token}")[0] == 404  # a link or a picture cannot stop a run
    assert ask(server, "/../../etc/passwd?token={token}")[0] == 404
    assert ask(server, "/?token={token}", "PUT")[0] == 501
    assert not (folder / STOP).exists()
    assert ask(server, "/stop?token={token}", "POST")[0] == 200
    assert (folder / STOP).exists()


def test_it_listens_here_alone_unless_told(server, folder, capsys):
    assert server.server_address[0] == "127.0.0.1"
    with serving(folder, address="0.0.0.0") as open_to_all:
        assert open_to_all.server_address[0] == "0.0.0.0"
    open_server(folder, PageOptions(address="0.0.0.0")).close()
    assert "visible to other machines" in capsys.readouterr().err
    open_server(folder, PageOptions()).close()
    assert "warning" not in capsys.readouterr().err


def test_other_machines_reach_it_by_its_address_and_by_its_name_in_small_letters(folder, monkeypatch):
    monkeypatch.setattr(module.socket, "gethostname", lambda: "Annas-Laptop")
    with serving(folder, address="0.0.0.0") as server:
        port = server.server_address[1]
        assert f"http://Annas-Laptop:{port}/" in server.url
        link = socket.create_connection(("127.0.0.2", port), timeout=10)  # another address of this machine
        link.sendall(f"GET /?token={server.token} HTTP/1.1\r\nHost: 127.0.0.2:{port}\r\n\r\n".encode())
        assert b" 200 OK" in link.recv(1000)
        link.close()
        answers = [(f"annas-laptop:{port}", 200), (f"127.0.0.2:{port}", 421), (f"evil.example:{port}", 421)]
        for host, status in answers:
            assert ask(server, "/?token={token}", Host=host)[0] == status


def test_the_name_of_this_machine_is_not_looked_up(folder, monkeypatch):
    """That takes seconds where no server of names answers."""
    monkeypatch.setattr(socket, "getfqdn", lambda name: pytest.fail(f"{name} was looked up"))
    with serving(folder) as server:
        assert ask(server, "/?token={token}")[0] == 200


def test_an_address_that_can_be_none_ends_no_run(folder, capsys):
    with live_server(folder, LiveOptions(live=True, address="\u00fc..")) as nothing:
        assert nothing is None
    assert "continues without its page" in capsys.readouterr().err


def test_a_browser_that_waits_does_not_keep_a_run_waiting(folder, monkeypatch):
    asked, closed, waited = threading.Event(), threading.Event(), []

    def browse(url):
        asked.set()
        waited.append(closed.wait(5))

    monkeypatch.setattr("webbrowser.open", browse)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("DISPLAY", ":0")
    open_server(folder, PageOptions()).close()
    assert waited == []
    assert asked.wait(10)
    closed.set()


def test_ctrl_c_while_pages_fetch_the_report_ends_the_waiting_not_the_run(folder, monkeypatch):
    def interrupted(server, seconds):
        raise KeyboardInterrupt

    monkeypatch.setattr(module.LiveServer, "linger", interrupted)
    try:
        with live_server(folder, LiveOptions(live=True)) as server:
            assert server is not None
    except KeyboardInterrupt:
        pytest.fail("the run is complete")
    with pytest.raises(KeyboardInterrupt), live_server(folder, LiveOptions(live=True)):
        raise KeyboardInterrupt


def test_the_report_of_a_slow_reader_is_whole(folder, monkeypatch):
    """The time limit is of each piece, not of all."""
    monkeypatch.setattr(module.LiveHandler, "timeout", 1.0)
    content = b"<p>" + b"x" * 12_000_000
    (folder / REPORT).write_bytes(content)
    with serving(folder) as server:
        link = socket.socket()
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        link.settimeout(10)
        link.connect(server.server_address[:2])
        host = f"127.0.0.1:{server.server_address[1]}"
        link.sendall(f"GET /report?token={server.token} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        got = 0
        while part := link.recv(1 << 20):
            got += len(part)
            time.sleep(len(part) / 4e6)
        link.close()
        assert got > len(content)


def test_an_occupied_port_ends_no_run(server, folder, capsys):
    port = server.server_address[1]
    with live_server(folder, LiveOptions(live=True, port=port)) as second:
        assert second is None
    assert re.search(rf"port {port} .*--port.*continues without its page", capsys.readouterr().err)
    with pytest.raises(UserError, match="cannot be served"):
        open_server(folder, PageOptions(address="203.0.113.7"))
    with live_server(folder, LiveOptions()) as nothing:
        assert nothing is None
    assert capsys.readouterr().out == ""


def test_a_reader_who_comes_again_continues_where_it_was(server, folder):
    link = stream(server)
    text = read_until(link, b"event: state")
    link.close()
    place = int(re.findall(rb"id: (\d+)\n", text)[-1])
    assert place == (folder / LIVE).stat().st_size
    with open(folder / LIVE, "ab") as file:
        file.write(b'{"e":"note","t":99,"text":"later"}\n')
    again = stream(server, f"Last-Event-ID: {place}")
    text = read_until(again, b"later")
    assert b'"begin"' not in text
    again.close()
    link = connect(server, [f"GET /events?token={server.token}&from={place} HTTP/1.1",
                            f"Host: 127.0.0.1:{server.server_address[1]}", "", ""])  # fmt: skip
    text = read_until(link, b"later")
    assert b'"begin"' not in text
    link.close()
    for odd in ("-1", "x", "9" * 30, "\u00b2"):
        link = stream(server, f"Last-Event-ID: {odd}")
        assert b'"begin"' in read_until(link, b"event: state")
        link.close()


def test_a_page_is_told_when_the_run_begins_anew(server, folder):
    link = stream(server)
    read_until(link, b"event: state")
    (folder / LIVE).unlink()  # as --fresh does
    (folder / LIVE).write_text('{"e":"begin","t":0}\n')
    assert b'"begin"' not in read_until(link, b"event: again")
    link.close()


def test_readers_who_hang_or_take_nothing_keep_nobody_waiting(server, folder, monkeypatch):
    monkeypatch.setattr(module.LiveHandler, "timeout", 1.0)
    with open(folder / LIVE, "ab") as file:  # more than fits between the two
        file.write((b'{"e":"note","t":99,"text":"' + b"x" * 2000 + b'"}\n') * 10_000)
    before = threading.active_count()
    hanging = [connect(server, ["GET /?tok"]) for _ in range(5)]
    lazy = [stream(server) for _ in range(10)]
    assert ask(server, "/?token={token}")[0] == 200
    wait_until(lambda: server.streams == 0, 30)  # those who take nothing are left
    wait_until(lambda: threading.active_count() <= before, 30)
    for link in (*hanging, *lazy):
        link.close()
    assert ask(server, "/?token={token}")[0] == 200


def test_too_many_readers_are_sent_away_and_the_next_is_served(folder, monkeypatch):
    monkeypatch.setattr(module, "MOST_READERS", 3)
    with serving(folder) as server:
        links = [stream(server) for _ in range(3)]
        for link in links:
            read_until(link, b"event: state")
        one_more = stream(server)
        assert one_more.recv(100) == b""
        one_more.close()
        links.pop().close()
        wait_until(lambda: _served(server), 30)
        for link in links:
            link.close()


def _served(server):
    try:
        return ask(server, "/?token={token}")[0] == 200
    except (OSError, ConnectionError):
        return False


def test_state_of_a_run_that_is_killed_finished_or_removed(tmp_path):
    path = tmp_path / "run"
    with running(path) as run:
        assert RunState(path).look().state == RUNNING
        ours = RunState(path)
        ours.is_over = True
        assert ours.look().state == ENDED
        (run.path / REPORT).write_text("<p>")
        (run.path / SETTINGS).write_text('{"result": {}}')
    found = RunState(path).look()
    assert found.state == FINISHED
    assert found.report
    (path / SETTINGS).write_text('{"result": {"ended": "interrupted"}}')
    assert RunState(path).look().state == ENDED
    (path / "run.json").unlink()
    for file in (path / "journal").iterdir():
        file.unlink()
    assert RunState(path).look().state == GONE


def test_at_the_end_the_server_waits_for_its_pages_but_not_for_long(server, folder):
    (folder / REPORT).write_text("<p>done</p>")
    link = stream(server)
    read_until(link, b"event: state")
    fetched = threading.Thread(target=lambda: (read_until(link, b"event: over"), ask(server, "/report?token={token}")))
    fetched.start()
    server.linger(20)
    assert server.reports == 1
    fetched.join()
    link.close()
    lazy = stream(server)  # it never asks for the report
    wait_until(lambda: server.streams == 1 or server.reports, 10)
    server.linger(0.2)
    lazy.close()
