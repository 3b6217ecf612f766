"""Two hosts on one machine: network namespaces with a link between them whose rate is limited. Needs root and `ip`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from benchmarks.harness import child

NETWORK = "10.213.7"
BURST, QUEUE = "64kb", "200ms"  # of the token bucket: how much may pass at once, how long a packet may wait
LIMIT = 600.0  # seconds for all runs of a rank, more than they are expected to take


def missing() -> str:
    """Why hosts cannot be made here; empty if they can."""
    if shutil.which("ip") is None or shutil.which("tc") is None:
        return "the commands ip and tc (Debian: iproute2) are not there"
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        return "only root may make network namespaces"
    try:
        with hosts("1gbit"):
            return ""
    except subprocess.CalledProcessError as error:
        return f"a network namespace cannot be made: {(error.stderr or b'').decode().strip()}"


@contextmanager
def hosts(rate: str) -> Iterator[list[tuple[list[str], str, str]]]:
    """Two hosts whose link has this rate each way: for each the words before a command, its address, its interface."""
    number = os.getpid() % 30_000
    spaces = [f"shoalhost{number}{end}" for end in "ab"]
    devices = [f"sh{number}{end}" for end in "ab"]
    try:
        for space in spaces:
            _run("ip", "netns", "add", space)
        _run("ip", "link", "add", devices[0], "netns", spaces[0], "type", "veth", "peer", "name", devices[1], "netns",
             spaces[1])  # fmt: skip
        for k, (space, device) in enumerate(zip(spaces, devices, strict=True)):
            _run("ip", "-n", space, "address", "add", f"{NETWORK}.{k + 1}/24", "dev", device)
            for name in (device, "lo"):
                _run("ip", "-n", space, "link", "set", name, "up")
            _run("ip", "netns", "exec", space, "tc", "qdisc", "add", "dev", device, "root", "tbf", "rate", rate,
                 "burst", BURST, "latency", QUEUE)  # fmt: skip
        yield [(["ip", "netns", "exec", space], f"{NETWORK}.{k + 1}", device)
               for k, (space, device) in enumerate(zip(spaces, devices, strict=True))]  # fmt: skip
    finally:
        for space in spaces:
            with suppress(OSError):
                subprocess.run(["ip", "netns", "delete", space], capture_output=True, check=False)


def _run(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True)


def run_on_hosts(rate: str, runs: Sequence[dict[str, Any]], limit: float = LIMIT) -> list[dict[str, Any]]:
    """Each run with a rank on each of two hosts, one run after the other; what the first rank found."""
    with hosts(rate) as made:
        address = made[0][1]
        processes = []
        for rank, (prefix, _, device) in enumerate(made):
            own = {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1",
                   "MASTER_ADDR": address, "MASTER_PORT": "29517", "GLOO_SOCKET_IFNAME": device}  # fmt: skip
            command = [*prefix, *child.command("benchmarks.planner.hosts_child", list(runs))]
            environment = {**os.environ, **own}
            processes.append(
                subprocess.Popen(command, cwd=child.CHECKOUT, env=environment, stdout=subprocess.PIPE, text=True)
            )
        try:
            outputs = [process.communicate(timeout=limit)[0] for process in processes]
        finally:
            for process in processes:
                process.kill()
    if any(process.returncode for process in processes):
        raise RuntimeError(f"a rank on a host ended with exit code {[process.returncode for process in processes]}")
    found: list[dict[str, Any]] = json.loads(outputs[0].strip().splitlines()[-1])
    return found
