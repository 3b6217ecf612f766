"""`shoal info`: what this machine and this installation have."""

from __future__ import annotations

import importlib.util
import os
import platform

from shoal import _native
from shoal.console.terminal import say
from shoal.machine import available_memory, instruction_set, processor, size_text, thread_count
from shoal.population.engines import available_engines
from shoal.version import __version__

INFO_EXAMPLES = """\b
Examples:
  shoal info
  SHOAL_ISA=baseline shoal info    (as on a machine without AVX2)"""


def info() -> None:
    """Print the version, engines, instruction set and memory."""
    found = describe()
    width = max(map(len, found))
    for name, value in found.items():
        say(f"{name.ljust(width)}  {value}")


def describe() -> dict[str, str]:
    """What `shoal info` prints."""
    import importlib.metadata  # slow to import, and needed here only

    engines = [name if answer == "yes" else f"{name} ({answer})" for name, answer in available_engines().items()]
    forced = ", set by SHOAL_ISA" if os.environ.get("SHOAL_ISA") else ""
    return {
        "shoal": __version__,
        "python": f"{platform.python_version()} on {platform.system()} {platform.machine()}",
        "processor": processor(),
        "threads": str(thread_count()),
        "memory": f"{size_text(available_memory())} available",
        "instruction set": f"{instruction_set()}{forced} (here: {', '.join(_native.instruction_sets())})",
        "engines": ", ".join(engines),
        "devices": ", ".join(_devices()),
        "numpy": importlib.metadata.version("numpy"),
        "torch": importlib.metadata.version("torch") if importlib.util.find_spec("torch") else "not installed",
    }


def _devices() -> list[str]:
    if importlib.util.find_spec("torch") is None:
        return ["cpu"]
    import torch

    found = ["cpu"]
    if torch.cuda.is_available():
        found.append(f"cuda ({torch.cuda.get_device_name()})")
    if torch.backends.mps.is_available():
        found.append("mps")
    return found
