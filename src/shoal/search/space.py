"""The source of recipes: a space of choices, a list of members, or a good default."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from shoal.encoders.encoder import ENCODINGS
from shoal.errors import UserError, WrongType
from shoal.population.members import FIELDS, Member, alternatives, draw_value, with_seed
from shoal.validate import nearest, one_of

ENCODING = "encoding"  # a choice beside the fields of a member: which encoding of the numbers the network sees
MOST_LISTED = 10  # numbers
LONGEST_TRAINING = 8  # times the usual epochs, where longer training pays


@dataclass(frozen=True, slots=True)
class Recipe:
    """A network and the encoding of the data that it sees. The seed of `member` is that of the first network."""

    member: Member
    encoding: str = "plain"

    @property
    def key(self) -> Recipe:
        """Equal for recipes that differ in their seed only."""
        return Recipe(with_seed(self.member, 0), self.encoding)

    def __str__(self) -> str:
        text = repr(self.member.replace(seed=0, epochs=None))[len("Member(") : -1]
        return text if self.encoding == "plain" else f"{self.encoding} numbers, {text}"


@dataclass(frozen=True, eq=False)
class Space:
    """Named choices: a list of alternatives, a scipy distribution, or a fixed value each.

    `most_epochs`: how far a search may go beyond the longest of the epochs, where longer training pays.
    """

    choices: dict[str, Any]
    most_epochs: int = 0

    def with_longer_training(self) -> Space:
        """The longest epochs and twice as many; the same space, where so many are not allowed."""
        longest = self.longest_epochs
        if longest is None or 2 * longest > self.most_epochs:
            return self
        return replace(self, choices={**self.choices, "epochs": [longest, 2 * longest]})

    @property
    def longest_epochs(self) -> int | None:
        """None, where epochs are no list to choose from."""
        epochs = self.choices.get("epochs")
        return max(epochs) if isinstance(epochs, list) else None

    def sample(self, count: int, generator: np.random.Generator) -> list[Recipe]:
        return [self.make({name: draw_value(name, value, generator) for name, value in self.choices.items()},
                          seed=int(generator.integers(1 << 31))) for _ in range(count)]  # fmt: skip

    def make(self, values: Mapping[str, Any], seed: int = 0) -> Recipe:
        fields = {name: value for name, value in values.items() if name != ENCODING}
        if "seed" not in fields:
            fields["seed"] = seed
        return Recipe(tidy(Member(**fields)), values.get(ENCODING, "plain"))

    def mutate(self, parent: Recipe, other: Recipe, generator: np.random.Generator) -> Recipe:
        """A child of two recipes: each choice from one of them, and one or two of them drawn anew."""
        values = {}
        for name in self.choices:
            source = other if generator.random() < 0.3 else parent
            values[name] = source.encoding if name == ENCODING else getattr(source.member, name)
        names = list(self.choices)
        for name in generator.choice(names, size=min(2, len(names)), replace=False):
            values[name] = draw_value(name, self.choices[name], generator)
        return self.make(values, seed=int(generator.integers(1 << 31)))

    def grid(self) -> list[Recipe]:
        for name, value in self.choices.items():
            if hasattr(value, "rvs"):
                raise UserError(f"strategy 'grid' needs lists of values, but {name} is a distribution; use 'random'")
        options = [alternatives(name, value) for name, value in self.choices.items()]
        return [self.make(dict(zip(self.choices, values, strict=True))) for values in itertools.product(*options)]


def tidy(member: Member) -> Member:
    """A linear model has no hidden layer that an activation or dropout could act on: one recipe, not thirty."""
    return member if member.hidden else member.replace(activation="identity", dropout=0.0)


def encodings_of(space: Any) -> tuple[str, ...]:
    """Encodings that recipes of a space may ask for; the plain one is always there."""
    if space is None:
        return ENCODINGS
    named = alternatives(ENCODING, space.get(ENCODING, "plain")) if isinstance(space, Mapping) else []
    return tuple(name for name in ENCODINGS if name == "plain" or name in named)


def check_space(space: Any, encodings: Sequence[str]) -> Space | list[Recipe]:
    """A space or a list of recipes from what a user gave."""
    if isinstance(space, Mapping):
        known = (*FIELDS, ENCODING)
        for name in space:
            if name not in known:
                raise UserError(
                    f"the space has no choice {name!r}{nearest(name, known)} It may name {', '.join(known)}"
                )
        for encoding in alternatives(ENCODING, space.get(ENCODING, "plain")):
            one_of(ENCODING, encoding, ENCODINGS)
        kept = {name: value if hasattr(value, "rvs") else alternatives(name, value) for name, value in space.items()}
        if ENCODING in kept:  # tables without numbers have no piecewise encoding
            kept[ENCODING] = [
                encoding for encoding in alternatives(ENCODING, kept[ENCODING]) if encoding in encodings
            ] or ["plain"]
        return Space(kept)
    if isinstance(space, Member):
        space = [space]
    if isinstance(space, str) or not isinstance(space, Iterable):
        raise WrongType(
            f"space must be a dict of choices, a shoal.Member or a list of them, or None; got {space!r}: a number of "
            "recipes is recipes=, a number of seconds budget=, a way to search strategy="
        )
    recipes = sorted(space, key=_set_order) if isinstance(space, Set) else list(space)
    for k, member in enumerate(recipes):
        if not isinstance(member, Member):
            raise WrongType(f"space must be a dict of choices or a list of shoal.Member; number {k} is {member!r}")
    if not recipes:
        raise UserError("space is an empty list; give at least one shoal.Member, or None for the default space")
    return [Recipe(member) for member in recipes]


def _set_order(member: Any) -> str:
    """Sets have an order of their own in every process."""
    return str(member.as_dict()) if isinstance(member, Member) else repr(member)


def default_space(n_rows: int, classes: bool, encodings: Sequence[str], epochs: int) -> Space:
    """Linear models and one to three hidden layers, ten activations, and how to train them.

    Not tuned to any data set: wide enough for the search to do that.
    """
    from scipy.stats import loguniform

    smallest = 16 if n_rows < 2_000 else 32 if n_rows < 20_000 else 128
    w = 32 if n_rows < 400 else 64 if n_rows < 10_000 else 128
    choices: dict[str, Any] = {
        "hidden": [
            (), (), (w // 2,), (w,), (w,), (2 * w,), (2 * w,), (w // 2, w // 2), (w, w // 2), (w, w), (2 * w, w),
            (2 * w, 2 * w), (w, w, w), (w, w, w // 2), (2 * w, 2 * w, 2 * w), (w, w, w, w),
        ],
        # The first ones are drawn more often: they are right more often.
        "activation": [
            "relu", "relu", "gelu", "gelu", "mish", "mish", "selu", "selu", "tanh", "tanh", "elu", "leaky_relu",
            "sigmoid", "hardshrink", "identity",
        ],
        "optimizer": ["adamw"],
        "beta2": [0.95, 0.999],
        "learning_rate": loguniform(1e-3, 3e-2),
        "weight_decay": [0.0, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0],
        "dropout": [0.0, 0.0, 0.1, 0.2, 0.3, 0.5],
        "batch_size": [smallest, 2 * smallest, 4 * smallest],
        "schedule": ["cosine"],
        "epochs": [max(2, epochs // 4), max(2, epochs // 2), epochs],
    }  # fmt: skip
    if classes:
        choices["label_smoothing"] = [0.0, 0.0, 0.05, 0.1]
    if len(encodings) > 1:
        choices[ENCODING] = list(encodings)
    return Space(choices, LONGEST_TRAINING * epochs)


def first_recipes(n_rows: int, encodings: Sequence[str], epochs: int) -> list[Recipe]:
    """A few recipes that are rarely bad, so that even the shortest search has something to give."""
    common: dict[str, Any] = {
        "optimizer": "adamw", "schedule": "cosine", "epochs": epochs, "batch_size": min(32, max(8, n_rows // 8)),
        "weight_decay": 0.1,
    }  # fmt: skip
    members = [
        Member(hidden=(), activation="identity", learning_rate=1e-2, **common),
        Member(hidden=(128,), activation="relu", learning_rate=3e-3, dropout=0.1, **common),
        Member(hidden=(64, 64), activation="mish", learning_rate=3e-3, dropout=0.2, **common),
    ]
    return [Recipe(member, encoding) for member in members for encoding in encodings[:2]]


def values_tried(recipes: Sequence[Recipe]) -> dict[str, str]:
    """The values of each setting in which recipes differ, in words; of many numbers their range."""
    found = {}
    for name in (*FIELDS, ENCODING):
        values = {one.encoding if name == ENCODING else getattr(one.member, name) for one in recipes}
        if name == "seed" or len(values) < 2:
            continue
        ordered = sorted(values, key=_order)
        words = [_word(value) for value in ordered]
        is_range = len(words) > MOST_LISTED and all(isinstance(value, (int, float)) for value in values)
        found[name] = f"{words[0]} to {words[-1]}" if is_range else ", ".join(words)
    return found


def _order(value: Any) -> tuple[Any, ...]:
    """None, then numbers by size, words by the alphabet, and tuples by length."""
    return () if value is None else (len(value), value) if isinstance(value, tuple) else (value,)


def _word(value: Any) -> str:
    """
    >>> [_word(value) for value in ((), (8, 8), 0.0, 3.0, "relu")]
    ['linear', '8x8', '0', '3', 'relu']
    """
    if isinstance(value, tuple):
        return "x".join(map(str, value)) if value else "linear"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
