"""The strategies that a plan compares: names for `--strategy`, the settings of `shoal.parallel` behind them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from shoal.errors import UserError
from shoal.validate import nearest


@dataclass(frozen=True, eq=False)
class Variant:
    """A strategy with the settings that make it what it is."""

    name: str
    label: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    own_algorithm: bool = False  # the result depends on the number of nodes; else it is one training whatever n
    nodes_only: str = ""  # "even": needs an even number of nodes

    def __str__(self) -> str:
        return self.name


def _variants() -> dict[str, Variant]:
    made = [
        Variant("allreduce", "all-reduce", {"strategy": "allreduce", "exact": False}),
        Variant("allreduce-exact", "all-reduce, exact", {"strategy": "allreduce", "exact": True}),
        Variant("parameter_server", "server", {"strategy": "parameter_server"}),
        Variant("parameter_server-async", "server, asynchronous",
                {"strategy": "parameter_server", "asynchronous": True}, True),
        local_sgd(8),
        local_sgd("epoch"),
        local_sgd("end"),
        Variant("gossip", "gossip on a ring", {"strategy": "gossip", "average_every": "epoch"}, True),
        Variant("tensor", "tensor", {"strategy": "tensor"}),
        Variant("pipeline", "pipeline", {"strategy": "pipeline"}),
        Variant("data+tensor", "data x tensor", {"strategy": "data+tensor"}, nodes_only="even"),
        Variant("data+pipeline", "data x pipeline", {"strategy": "data+pipeline"}, nodes_only="even"),
        Variant("sharded", "sharded", {"strategy": "sharded"}),
        Variant("kfold", "folds over nodes", {"strategy": "kfold"}, True),
    ]  # fmt: skip
    return {variant.name: variant for variant in made}


def local_sgd(every: int | str) -> Variant:
    """Local SGD; `every` so many steps, every epoch, or at the end."""
    words = {"epoch": "averaging each epoch", "end": "averaging at the end"}
    label = words.get(str(every), f"local SGD, {every} steps")
    return Variant(f"local_sgd:{every}", label, {"strategy": "local_sgd", "average_every": every}, True)


VARIANTS = _variants()
DEFAULT = ("allreduce", "allreduce-exact", "parameter_server", "local_sgd:8", "local_sgd:epoch", "local_sgd:end")


def find_variants(names: str | tuple[str, ...], flag: str = "--strategy") -> tuple[Variant, ...]:
    """From names, separated by commas: `all`, a name of the table, `local_sgd:K` or `gossip:K` with K steps."""
    words = names.split(",") if isinstance(names, str) else [word for name in names for word in name.split(",")]
    found: dict[str, Variant] = {}
    for word in (word.strip() for word in words):
        for variant in VARIANTS.values() if word == "all" else [_one(word, flag)]:
            found[variant.name] = variant
    return tuple(found.values())


def _one(word: str, flag: str) -> Variant:
    word = {"local_sgd": "local_sgd:8", "gossip:epoch": "gossip"}.get(word, word)
    kind, _, every = word.partition(":")
    if word in VARIANTS:
        return VARIANTS[word]
    if kind in ("local_sgd", "gossip") and every.isdecimal() and int(every) > 0:
        if kind == "local_sgd":
            return local_sgd(int(every))
        settings = {"strategy": "gossip", "average_every": int(every)}
        return Variant(word, f"gossip, {every} steps", settings, True)
    known = ", ".join(VARIANTS)
    raise UserError(f"{flag} must be all or one of {known}; got {word!r}{nearest(word, VARIANTS)}")
