"""`shoal watch` and `--live`: what they refuse, and that no bit of a result changes."""

import contextlib
import json
import re
import socket
import threading
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest
from sklearn.datasets import load_wine
from support.commands import start
from support.waiting import wait_until

from shoal.live.recording import request_stop
from shoal.runs.kinds import LIVE


@pytest.fixture
def table(tmp_path):
    load_wine(as_frame=True).frame.to_csv(tmp_path / "wine.csv", index=False)
    return "wine.csv"


def search(call, folder, *flags):
    return call(folder, "search", "wine.csv", "--target", "target", "--recipes", "4", "--explain-seconds", "0", *flags)


def model_files(folder):
    return {
        path.name: path.read_bytes() for path in sorted((folder / "model").iterdir()) if path.name != "explanation.json"
    }


def test_a_page_changes_no_bit_of_the_model(call, tmp_path, table):
    """Also with ten readers at once: some ask all the time, some take nothing, some never end their request."""
    search(call, tmp_path, "--out", "alone")
    process = start(
        tmp_path, "search", table, "--target", "target", "--recipes", "4", "--explain-seconds", "0", "--out", "seen",
        "--live",
    )  # fmt: skip
    said = []
    for line in process.stdout:
        said.append(line)
        if line.startswith("live page: "):
            break
    address = urlsplit(said[-1].split()[-1])
    assert re.fullmatch(r"live page: http://127\.0\.0\.1:\d+/\?token=\S{20,}\n", said[-1])
    begin = f"GET /events?{address.query} HTTP/1.1\r\nHost: {address.netloc}\r\n"
    sent = [*[begin + "\r\n"] * 3, *[begin[:20], begin, "nonsense\r\n\r\n", ""]]
    links = [socket.create_connection((address.hostname, address.port)) for _ in sent]
    for link, text in zip(links, sent, strict=True):
        link.sendall(text.encode())
    answers = []

    def read():
        while process.poll() is None:
            with contextlib.suppress(OSError):
                answers.append(urlopen(address.geturl(), timeout=20).status)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    _, err = process.communicate(timeout=300)
    for reader in readers:
        reader.join()
    for link in links:
        link.close()
    assert process.returncode == 0, err
    assert 200 in answers
    assert model_files(tmp_path / "alone") == model_files(tmp_path / "seen")
    events = [json.loads(line) for line in (tmp_path / "seen" / LIVE).read_text().splitlines()]
    assert [events[0]["e"], events[-1]["e"]] == ["begin", "end"]
    assert {number for event in events if event["e"] == "dots" for number, *_ in event["dots"]} >= set(range(4))


def test_watch_exports_and_refuses_in_one_sentence(call, tmp_path, table):
    assert "there is no run in shoal-runs" in call(tmp_path, "watch", code=2).stderr
    assert "wine.csv is not the folder of a run" in call(tmp_path, "watch", "wine.csv", code=2).stderr
    search(call, tmp_path)
    said = call(tmp_path, "watch", "--export", "pages/replay.html").stdout
    assert "the latest run: shoal-runs/wine-1" in said
    assert '"e\\":\\"dots' in (tmp_path / "pages" / "replay.html").read_text()
    (tmp_path / "shoal-runs" / "wine-1" / LIVE).unlink()
    assert "nothing to replay" in call(tmp_path, "watch", "--export", "replay.html", code=2).stderr


def test_the_flags_of_a_page_need_one(call, tmp_path, table):
    for flags in (("--port", "8000"), ("--address", "0.0.0.0")):
        said = call(tmp_path, "search", "wine.csv", "--target", "target", *flags, code=2)
        assert "are of the live page: give --live too" in said.stderr
    assert "port must be" in call(tmp_path, "watch", "--port", "0", code=2).stderr


def test_any_process_can_ask_a_search_to_stop(tmp_path, table):
    """The page of `shoal watch` writes a file, which the search sees wherever it runs."""
    process = start(tmp_path, "search", "wine.csv", "--target", "target", "--budget", "600", "--out", "r")
    wait_until(lambda: (tmp_path / "r" / LIVE).exists() and '"dots"' in (tmp_path / "r" / LIVE).read_text(), 600)
    request_stop(tmp_path / "r")
    out, err = process.communicate(timeout=600)
    assert process.returncode == 0, err
    assert "ended early by the live page" in out
    assert "The same command resumes the search" in out


def test_a_training_is_recorded_and_stops_after_an_epoch(call, tmp_path, table):
    process = start(
        tmp_path, "train", "wine.csv", "--target", "target", "--epochs", "100000", "--workers", "1", "--out", "t"
    )
    wait_until(lambda: (tmp_path / "t" / LIVE).exists() and '"epoch"' in (tmp_path / "t" / LIVE).read_text(), 600)
    request_stop(tmp_path / "t")
    _, err = process.communicate(timeout=600)
    assert process.returncode == 0, err
    events = [json.loads(line) for line in (tmp_path / "t" / LIVE).read_text().splitlines()]
    kinds = [event["e"] for event in events]
    assert kinds[:2] == ["begin", "started"]
    assert kinds[-2:] == ["end", "tested"]
    assert kinds.count("epoch") == len(json.loads((tmp_path / "t" / "history.json").read_text())["history"]) < 100000
