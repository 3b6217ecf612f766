"""Options for the data and the network of a training (see `shoal.options`). The other options are in `job.py`."""

from __future__ import annotations

from dataclasses import dataclass

from shoal.options import Options, option
from shoal.population.members import ACTIVATIONS, INITS
from shoal.tables.options import DataOptions
from shoal.tables.target import TASKS


@dataclass(frozen=True)
class NetworkOptions(Options):
    """A data set by name, how many of its rows, and the network."""

    data: str | None = option(None, "mnist (default), fashion-mnist, iris, wine, digits or breast-cancer.")
    rows: int | None = option(None, "Use only so many training rows.", least=2)
    valid: float = option(
        1 / 6, "Share of the training rows kept for validation. (default: {default})", above=0, below=1, what="a share"
    )
    net: str | None = option(
        None, "mlp:784-256-10 (layer sizes), cnn, or file.py:make_network, a function that returns an nn.Module, "
        "called with (inputs, outputs) if it takes two. (default: an mlp that fits the data)",
    )  # fmt: skip
    activation: str = option("relu", f"Of hidden layers: {', '.join(ACTIVATIONS)}.", one_of=ACTIVATIONS)
    output: str = option("identity", "Activation of the last layer.", one_of=ACTIVATIONS, flags="--output-activation")
    init: str = option("torch", "Initial weights: torch or glorot.", one_of=INITS)
    dropout: float = option(0.0, "Share of hidden units dropped in training.", least=0, below=1)

    def network(self, seed: int) -> dict[str, object]:
        """Arguments of `make_model`, besides the name."""
        return {name: getattr(self, name) for name in ("activation", "output", "init", "dropout")} | {"seed": seed}


@dataclass(frozen=True)
class TableOptions(DataOptions):
    """How the table is read, and what is held back of it."""

    test: float = option(
        0.2, "Share of the rows held back for the score at the end. (default: {default})", above=0, below=1,
        what="a share",
    )  # fmt: skip
    task: str | None = option(None, "classification or regression. (default: guessed)", one_of=TASKS)
