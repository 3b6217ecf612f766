"""What the commands that have a live page can be asked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from shoal.errors import UserError
from shoal.options import Options, option

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class PageOptions(Options):
    """Where a page is served."""

    address: str = option(LOOPBACK, "Address that the page listens on. Any other than the default lets others see it.")
    port: int | None = option(None, "Port of the page. (default: a free one)", least=1)


@dataclass(frozen=True)
class LiveOptions(PageOptions):
    """Options of commands that can show what they do in a browser."""

    live: bool = option(False, "Show the run in a browser while it works.")

    def check_together(self, called: Callable[[str], str]) -> None:
        if not self.live and (self.address, self.port) != (LOOPBACK, None):
            raise UserError(f"{called('address')} and {called('port')} are of the live page: give {called('live')} too")
