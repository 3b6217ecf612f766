"""The two environments: that of the checkout for Shoal, and one for all others, whose packages do not fit into it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness.child import CHECKOUT
from benchmarks.peers.tabular.contenders import ENTRANTS, OURS
from shoal.errors import MissingFile
from shoal.validate import one_of

VARIABLE = "SHOAL_PEERS_PYTHON"
BUILT = CHECKOUT / ".venv-peers" / "bin" / "python"
PACKAGES = "import importlib.metadata as m, json; print(json.dumps({d.name: d.version for d in m.distributions()}))"


@dataclass(frozen=True)
class Environment:
    """A Python interpreter and the versions of all its packages."""

    python: str
    versions: dict[str, str]

    @classmethod
    def of(cls, python: Path) -> Environment:
        found = subprocess.run([str(python), "-c", PACKAGES], capture_output=True, text=True, check=True)
        versions = {name.lower(): version for name, version in json.loads(found.stdout).items()}
        return cls(str(python), dict(sorted(versions.items())))


@dataclass(frozen=True)
class Environments:
    """Contenders that can take part, where each one runs, and why the others cannot."""

    present: dict[str, Environment]
    absent: dict[str, str]

    def versions(self, contender: str) -> dict[str, str]:
        """Of the packages that the contender is made of."""
        return {name: self.present[contender].versions[name] for name in ENTRANTS[contender].packages}

    def packages(self) -> dict[str, dict[str, str]]:
        """Versions of all packages, of Shoal's environment and of the peers'."""
        return {"shoal" if name == OURS else "peers": one.versions for name, one in self.present.items()}


def find_environments(contenders: Iterable[str]) -> Environments:
    """Look for the contenders' packages."""
    contenders = [one_of("--contenders", name, ENTRANTS) for name in dict.fromkeys(contenders)]
    named = os.environ.get(VARIABLE)
    python = Path(named or BUILT)
    if named and not python.exists():
        raise MissingFile(f"{VARIABLE} names {python}, which does not exist. Build it with: make peers")
    peers = Environment.of(python) if python.exists() and any(name != OURS for name in contenders) else None
    ours = Environment.of(Path(sys.executable))
    present, absent = {}, {}
    for name in contenders:
        environment = ours if name == OURS else peers
        lacking = [one for one in ENTRANTS[name].packages if environment and one not in environment.versions]
        if environment is None:
            absent[name] = "the environment of the peers is not built: make peers"
        elif lacking:
            absent[name] = f"{', '.join(lacking)} is not installed in its environment"
        else:
            present[name] = environment
    return Environments(present, absent)
