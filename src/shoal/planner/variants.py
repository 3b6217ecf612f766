"""The strategies that a plan compares: names for `--strategy`. Each strategy declares its own."""

from __future__ import annotations

from shoal.errors import UserError
from shoal.parallel.cost import Variant
from shoal.parallel.strategies import TABLE
from shoal.validate import nearest

VARIANTS = {variant.name: variant for strategy in TABLE.values() for variant in strategy.variants()}
DEFAULT = tuple(variant.name for variant in VARIANTS.values() if variant.by_default)


def find_variants(names: str | tuple[str, ...], flag: str = "--strategy") -> tuple[Variant, ...]:
    """From names, separated by commas: `all`, a name of the table, `local_sgd:K` or `gossip:K` with K steps."""
    words = names.split(",") if isinstance(names, str) else [word for name in names for word in name.split(",")]
    found: dict[str, Variant] = {}
    for word in (word.strip() for word in words):
        for variant in VARIANTS.values() if word == "all" else [_one(word, flag)]:
            found[variant.name] = variant
    return tuple(found.values())


def _one(word: str, flag: str) -> Variant:
    if word in VARIANTS:
        return VARIANTS[word]
    name, _, suffix = word.partition(":")
    found = TABLE[name].variant(suffix) if name in TABLE else None
    if found is None:
        known = ", ".join(VARIANTS)
        raise UserError(f"{flag} must be all or one of {known}; got {word!r}{nearest(word, VARIANTS)}")
    return VARIANTS.get(found.name, found)
