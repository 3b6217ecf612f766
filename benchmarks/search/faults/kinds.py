"""Kinds of faults: what is done to a search, at random moments, until it has ended all the same."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random

import psutil

from benchmarks.harness.clusters import Cluster, Dask
from benchmarks.harness.searches import LOOK, Attempt, Story, alive, busy, send


@dataclass(frozen=True)
class Scene:
    """A search that is to be disturbed."""

    story: Story
    cluster: Cluster
    random: Random
    usual: float  # seconds that it takes undisturbed
    faults: int  # at most

    @property
    def limit(self) -> float:
        """Seconds after which an attempt hangs."""
        return 10 * self.usual + 120


def kill_search(scene: Scene) -> bool:
    """kill -9 of the search at random moments, the same command again each time."""
    for _ in range(scene.faults):
        attempt = scene.story.start()
        moment = scene.random.uniform(0, scene.usual)
        if attempt.wait(moment):
            return scene.story.finish(scene.limit, attempt)
        attempt.kill()
        scene.story.faults.append(f"killed after {moment:.2f} s")
    return scene.story.finish(scene.limit)


def kill_workers(scene: Scene) -> bool:
    """kill -9 of workers while they compute."""
    return _disturb_workers(scene, signal.SIGKILL)


def stop_workers(scene: Scene) -> bool:
    """SIGSTOP of one worker while it computes: it hangs. Another is left to do its work."""
    return _disturb_workers(scene, signal.SIGSTOP)


def _disturb_workers(scene: Scene, number: signal.Signals) -> bool:
    attempt = scene.story.start()
    hit: list[psutil.Process] = []
    moments = sorted(scene.random.uniform(0.2, 0.9) * scene.usual for _ in range(scene.faults))
    for moment in moments[:1] if number == signal.SIGSTOP else moments:
        if attempt.wait(moment):
            break
        worker = _busy_worker(scene, attempt)
        if worker is None:
            break
        with suppress(ProcessLookupError):
            send(worker, number)
            hit.append(worker)
            seconds = time.perf_counter() - attempt.begun
            scene.story.faults.append(f"worker {number.name} after {seconds:.2f} s")
    finished = scene.story.finish(scene.limit, attempt)
    for worker in filter(alive, hit):
        send(worker, signal.SIGKILL)
    return finished


def _busy_worker(scene: Scene, attempt: Attempt) -> psutil.Process | None:
    """A worker in mid-shard; None: the search has ended before there was one. Some shard was finished before: those
    that are busy earlier may only be starting."""
    while attempt.running:
        found = busy(scene.cluster.workers(attempt)) if scene.story.shards else []
        if found:
            return scene.random.choice(found)
        time.sleep(LOOK)
    return None


def kill_scheduler(scene: Scene) -> bool:
    """kill -9 of the Dask scheduler; another one and workers are started at the same address, and the search again."""
    cluster = scene.cluster
    assert isinstance(cluster, Dask)
    attempt = scene.story.start()
    ended = attempt.wait(scene.random.uniform(0.2, 0.9) * scene.usual)
    if ended or _busy_worker(scene, attempt) is None:
        return scene.story.finish(scene.limit, attempt)
    cluster.kill_scheduler()
    scene.story.faults.append(f"scheduler killed after {time.perf_counter() - attempt.begun:.2f} s")
    cluster.end()
    cluster.start()
    return scene.story.finish(scene.limit, attempt)


def damage_journal(scene: Scene) -> bool:
    """kill -9 of the search, then a lie in its journal, as often as asked; then the same command."""
    for _ in range(scene.faults):
        attempt = scene.story.start()
        if attempt.wait(scene.random.uniform(0.3, 1) * scene.usual):
            return scene.story.finish(scene.limit, attempt)
        attempt.kill()
        what = damage(scene.story.files, scene.random)
        if what:
            scene.story.faults.append(what)
    return scene.story.finish(scene.limit)


def damage(files: list[Path], random: Random) -> str:
    """Change something in a journal with these files, and say what; nothing where it has too few."""
    ways = [truncate, flip, delete, cut_events, flip_events, *([swap] * (len(files) > 1))]
    return random.choice(ways)(files, random) if files else ""


Way = Callable[[list[Path], Random], str]  # changes something in a journal with these files, says what


def truncate(files: list[Path], random: Random) -> str:
    path = random.choice(files)
    os.truncate(path, random.randrange(path.stat().st_size))
    return "truncated"


def flip(files: list[Path], random: Random) -> str:
    flip_bit(random.choice(files), random)
    return "bit flipped"


def delete(files: list[Path], random: Random) -> str:
    random.choice(files).unlink()
    return "deleted"


def swap(files: list[Path], random: Random) -> str:
    one, other = random.sample(files, 2)
    aside = one.with_name("aside")
    one.rename(aside)
    other.rename(one)
    aside.rename(other)
    return "swapped"


def cut_events(files: list[Path], random: Random) -> str:
    path = files[0].with_name("events.jsonl")
    if not path.is_file() or not path.stat().st_size:
        return ""
    os.truncate(path, random.randrange(path.stat().st_size))
    return "events cut"


def flip_events(files: list[Path], random: Random) -> str:
    path = files[0].with_name("events.jsonl")
    if not path.is_file() or not path.stat().st_size:
        return ""
    flip_bit(path, random)
    return "bit of events flipped"


def flip_bit(path: Path, random: Random) -> None:
    content = bytearray(path.read_bytes())
    content[random.randrange(len(content))] ^= 1 << random.randrange(8)
    path.write_bytes(content)


@dataclass(frozen=True)
class Kind:
    """A fault, where the search runs that it happens to, and what is done."""

    words: str
    cluster: str
    play: Callable[[Scene], bool]
    share: float = 1.0  # of the faults that are asked for: some take a whole search each


ONE_EACH = 0.25
KINDS = {
    "search": Kind("search killed", "serial", kill_search),
    "search-local": Kind("search killed", "local", kill_search),
    "search-dask": Kind("search killed", "dask", kill_search),
    "worker-local": Kind("worker killed", "local", kill_workers),
    "worker-dask": Kind("worker killed", "dask", kill_workers),
    "stopped-local": Kind("worker stopped", "local", stop_workers, ONE_EACH),
    "stopped-dask": Kind("worker stopped", "dask", stop_workers, ONE_EACH),
    "scheduler": Kind("scheduler killed", "dask", kill_scheduler, ONE_EACH),
    "mpi": Kind("rank killed", "mpi", kill_workers, ONE_EACH),
    "journal": Kind("search killed, journal damaged", "serial", damage_journal),
}
