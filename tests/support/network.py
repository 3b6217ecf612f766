"""A second host: a network namespace, and a link to it that can be cut."""

from __future__ import annotations

import os
import shutil
import subprocess


class Link:
    """`here` and `there` are the addresses of its ends; commands that begin with `prefix` run there."""

    def __init__(self) -> None:
        number = os.getpid() % 16000
        self.space, self.near, self.far = f"shoal{number}", f"shoal{number}a", f"shoal{number}b"
        network = f"10.{201 + number // 250 // 64}.{number // 250 % 64 * 4}"
        self.here, self.there = f"{network}.{number % 250 // 2 * 2 + 1}", f"{network}.{number % 250 // 2 * 2 + 2}"
        self.prefix = ["ip", "netns", "exec", self.space]

    def open(self) -> None:
        ip("netns", "add", self.space)
        ip("link", "add", self.near, "type", "veth", "peer", "name", self.far, "netns", self.space)
        ip("address", "add", self.here, "peer", self.there, "dev", self.near)
        ip("link", "set", self.near, "up")
        for words in (
            ["address", "add", self.there, "peer", self.here, "dev", self.far],
            ["link", "set", self.far, "up"],
            ["link", "set", "lo", "up"],
        ):
            ip("-n", self.space, *words)

    def cut(self) -> None:
        ip("link", "set", self.near, "down")

    def mend(self) -> None:
        ip("link", "set", self.near, "up")

    def close(self) -> None:
        subprocess.run(["ip", "netns", "delete", self.space], capture_output=True, check=False)
        subprocess.run(["ip", "link", "delete", self.near], capture_output=True, check=False)


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def may_make_links() -> bool:
    """It takes the command `ip`, and the right to use it."""
    if shutil.which("ip") is None or not hasattr(os, "geteuid") or os.geteuid() != 0:
        return False
    link = Link()
    try:
        link.open()
    except (subprocess.CalledProcessError, OSError):
        return False
    finally:
        link.close()
    return True
