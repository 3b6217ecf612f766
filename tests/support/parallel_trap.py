"""Data that kills or stops the worker that reads it."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from torch.utils.data import Dataset

from support.parallel_cases import ROWS, data


class Trap(Dataset):
    """Rows that do something once: when a worker loads its n-th row, for n = `fetches`."""

    def __init__(self, flag: Path, action: str, fetches: int = 60) -> None:
        self.rows, self.flag, self.action, self.left = data(), str(flag), action, fetches

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, row: int):
        self.left -= 1
        if self.left == 0:
            self.spring()
        return self.rows[row]

    def spring(self) -> None:
        if self.action == "error":
            if os.environ.get("SHOAL_RANK", os.environ.get("PMI_RANK", os.environ.get("RANK"))) == "1":
                raise ZeroDivisionError("row 17 is cursed")
            return
        try:
            os.close(os.open(self.flag, os.O_CREAT | os.O_EXCL))  # the first worker to come here, once
        except FileExistsError:
            return
        os.kill(os.getpid(), getattr(signal, self.action))
