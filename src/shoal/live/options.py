"""What the commands that have a live page can be asked."""

from __future__ import annotations

from dataclasses import dataclass

from shoal.options import Options, option

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class LiveOptions(Options):
    """Options of commands that can show what they do in a browser."""

    live: bool = option(False, "Show the run in a browser while it works. Prints the address of the page.")
    live_address: str = option(LOOPBACK, "Address to listen on. Others than {default} let other machines see the page.")
    live_port: int = option(0, "Port to listen on. (default: a free one)", least=0)
