"""`Member`, the recipe of one network, and `grid` and `sample`, which make many of them."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np

from shoal.errors import UserError, WrongType
from shoal.population.activations import TABLE
from shoal.validate import nearest, number, one_of, shown, whole

ACTIVATIONS = tuple(TABLE)
OWN_ACTIVATION = "; compiled code trains members. For a custom activation use shoal.torch.ParallelMLPs"
OPTIMIZERS = ("sgd", "adam", "adamw")
SCHEDULES = ("constant", "cosine")
INITS = ("torch", "glorot")

LARGEST_WIDTH = 1 << 20  # a wider layer is a typing error: a square matrix of that width would not fit in memory


@dataclass(frozen=True, slots=True)
class Member:
    """One network and how to train it. Frozen and hashable; two equal members give equal networks.

    Most users need only the first ten fields.

    Parameters
    ----------
    hidden : int or tuple of int, default (64,)
        Neurons of each hidden layer; () is a linear model.
    activation : str, default "relu"
        One of `shoal.ACTIVATIONS`.
    optimizer : {"adam", "sgd", "adamw"}
        As in PyTorch.
    learning_rate : float, default 0.001
        Its largest value, if there is a schedule.
    weight_decay : float, default 0
        As in PyTorch's optimisers.
    momentum : float, default 0
        Momentum of sgd; the other optimisers do not use it.
    dropout : float, default 0
        Share of the neurons of each hidden layer that are dropped.
    batch_size : int, default 32
        Rows of a step.
    init : {"torch", "glorot"}
        How weights are drawn; "torch" gives the numbers of `nn.Linear`.
    seed : int, default 0
        Of weights and dropout.
    schedule : {"constant", "cosine"}
        With "cosine" the learning rate falls along half a cosine to zero.
    warmup : float, default 0
        Epochs (may be a fraction) over which the learning rate first rises from zero.
    clip : float, default 0
        Largest norm of the whole gradient; 0 leaves it alone.
    label_smoothing : float, default 0
        Share of the target spread evenly over all classes (cross-entropy only).
    features : tuple of int, optional
        The columns this network sees; None means all of them.
    epochs : int, optional
        Stop after this many epochs in total, over all calls of `fit`; also the length of the schedule.
    patience : int, default 0
        Stop after this many epochs without a better validation loss and keep the best weights; 0: never.
    beta2 : float, default 0.999
        How slowly adam and adamw forget squared gradients, as in PyTorch.

    Examples
    --------
    >>> Member(hidden=50, activation="tanh").hidden
    (50,)
    >>> Member(hidden=(), optimizer="sgd", learning_rate=0.1)
    Member(linear, sgd lr=0.1)
    """

    hidden: tuple[int, ...] = (64,)
    activation: str = "relu"
    optimizer: str = "adam"
    learning_rate: float = 1e-3
    weight_decay: float = 0.0
    momentum: float = 0.0
    dropout: float = 0.0
    batch_size: int = 32
    init: str = "torch"
    seed: int = 0
    schedule: str = "constant"
    warmup: float = 0.0
    clip: float = 0.0
    label_smoothing: float = 0.0
    features: tuple[int, ...] | None = None
    epochs: int | None = None
    patience: int = 0
    beta2: float = 0.999

    def __post_init__(self) -> None:
        # A frozen dataclass can only be normalised through object.__setattr__.
        put = object.__setattr__
        put(self, "hidden", _widths(self.hidden))
        hint = OWN_ACTIVATION if callable(self.activation) else None
        put(self, "activation", one_of("activation", self.activation, ACTIVATIONS, hint))
        hint = "; use optimizer='sgd' with momentum=0.9" if self.optimizer == "momentum" else None
        put(self, "optimizer", one_of("optimizer", self.optimizer, OPTIMIZERS, hint))
        put(self, "init", one_of("init", self.init, INITS))
        put(self, "schedule", one_of("schedule", self.schedule, SCHEDULES))
        put(self, "learning_rate", number("learning_rate", self.learning_rate, least=0))
        put(self, "weight_decay", number("weight_decay", self.weight_decay, least=0))
        put(self, "momentum", number("momentum", self.momentum, least=0, below=1))
        put(self, "dropout", number("dropout", self.dropout, least=0, below=1))
        put(self, "warmup", number("warmup", self.warmup, least=0, below=1e6))
        put(self, "clip", number("clip", self.clip, least=0))
        put(self, "beta2", number("beta2", self.beta2, least=0, below=1))
        put(self, "label_smoothing", number("label_smoothing", self.label_smoothing, least=0, below=1))
        put(self, "batch_size", whole("batch_size", self.batch_size, 1, 1 << 30))
        put(self, "seed", whole("seed", self.seed, 0, (1 << 63) - 1))
        put(self, "patience", whole("patience", self.patience, 0, 1 << 30))
        if self.epochs is not None:
            put(self, "epochs", whole("epochs", self.epochs, 1, 1 << 30))
        if self.features is not None:
            put(self, "features", _columns(self.features))

    def __repr__(self) -> str:
        shape = "x".join(map(str, self.hidden)) + f" {self.activation}" if self.hidden else "linear"
        parts = [shape, f"{self.optimizer} lr={self.learning_rate:g}"]
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name in ("hidden", "activation", "optimizer", "learning_rate") or value == field.default:
                continue
            if field.name == "features":
                value = f"{len(value)} columns"
            parts.append(f"{field.name}={value}")
        return f"Member({', '.join(parts)})"

    def replace(self, **changes: Any) -> Member:
        """The same recipe with some fields changed.

        Parameters
        ----------
        **changes : any
            New values by the names of fields.

        Returns
        -------
        Member

        Examples
        --------
        >>> Member(seed=3).replace(activation="elu").seed
        3
        """
        _check_fields(changes)
        return dataclasses.replace(self, **changes)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, in the order of the fields, ready for JSON.

        Returns
        -------
        dict
        """
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    @staticmethod
    def from_dict(fields: dict[str, Any]) -> Member:
        """The member from `as_dict`, also after a round trip through JSON, which turns tuples into lists.

        Parameters
        ----------
        fields : dict
            What `as_dict` gave.

        Returns
        -------
        Member
        """
        plain: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()}
        return Member(**plain)


ONE_TUPLE = ("hidden", "features")  # fields whose values are tuples themselves
FIELDS = tuple(field.name for field in dataclasses.fields(Member))


def grid(*, repeats: int = 1, **choices: Any) -> list[Member]:
    """Every combination of the given values.

    Parameters
    ----------
    repeats : int, default 1
        Repeat each recipe with this many consecutive seeds.
    **choices : any
        Fields of `Member`. A list, tuple, set, range, array or Series holds alternatives. For `hidden` and `features`
        only, a tuple is one value: (32, 32) is a network of two layers.

    Returns
    -------
    list of Member
        The last keyword varies fastest.

    Examples
    --------
    >>> len(grid(hidden=[8, 16, (32, 32)], activation=["relu", "tanh"], repeats=10))
    60
    """
    _check_fields(choices)
    repeats = whole("repeats", repeats, 1, 1 << 30)
    names = list(choices)
    options = [alternatives(name, choices[name]) for name in names]
    members = []
    for values in itertools.product(*options):
        recipe = Member(**dict(zip(names, values, strict=True)))
        members.append(recipe)
        whole("seed", recipe.seed + repeats - 1, 0, (1 << 63) - 1)
        members.extend(with_seed(recipe, recipe.seed + k) for k in range(1, repeats))
    return members


def sample(count: int, *, seed: int = 0, **space: Any) -> list[Member]:
    """Draw recipes at random.

    Parameters
    ----------
    count : int
        How many.
    seed : int, default 0
        Of the draw. Every member gets its own seed, drawn from this one.
    **space : any
        Fields of `Member`: alternatives, as in `grid`, or a scipy distribution. A float drawn for a field of integers
        is rounded, so that `scipy.stats.loguniform(16, 256)` works for `batch_size` or `hidden`.

    Returns
    -------
    list of Member

    Examples
    --------
    >>> len(sample(5, seed=1, hidden=[8, 16], learning_rate=0.01))
    5
    """
    _check_fields(space)
    count = whole("count", count, 1, 1 << 30)
    generator = np.random.default_rng(whole("seed", seed, 0, (1 << 63) - 1))
    space = {name: value if hasattr(value, "rvs") else alternatives(name, value) for name, value in space.items()}
    members = []
    for _ in range(count):
        drawn = {name: draw_value(name, value, generator) for name, value in space.items()}
        members.append(Member(**drawn, seed=int(generator.integers(1 << 31))))
    return members


def with_seed(recipe: Member, seed: int) -> Member:
    """A copy with another seed (at least 0); nothing is checked again, which would be slow for many members."""
    copy = object.__new__(Member)
    for name in FIELDS:
        object.__setattr__(copy, name, getattr(recipe, name))
    object.__setattr__(copy, "seed", seed)
    return copy


def draw_value(name: str, value: Any, generator: np.random.Generator) -> Any:
    if hasattr(value, "rvs"):
        drawn = value.rvs(random_state=generator)
        whole = name in ("hidden", "batch_size", "patience", "epochs")
        return int(np.rint(drawn)) if whole and np.ndim(drawn) == 0 else drawn
    options = alternatives(name, value)
    return options[int(generator.integers(len(options)))]


def alternatives(name: str, value: Any) -> list[Any]:
    """The alternatives as a list; a single value becomes a list of one.

    >>> alternatives("dropout", (0.0, 0.5)), alternatives("hidden", (8, 8)), alternatives("init", {"torch", "glorot"})
    ([0.0, 0.5], [(8, 8)], ['glorot', 'torch'])
    """
    if isinstance(value, (str, bytes, Mapping)) or (isinstance(value, tuple) and name in ONE_TUPLE):
        return [value]
    if hasattr(value, "tolist"):  # numpy, pandas
        value = value.tolist()
    if not isinstance(value, Iterable):
        return [value]
    options = sorted(value, key=_set_order) if isinstance(value, Set) else list(value)
    if not options:
        linear = "; a linear model, without hidden layers, is hidden=()" if name == "hidden" else ""
        raise UserError(f"{name} has no alternatives: the list is empty. Give at least one value{linear}.")
    return options


def _set_order(option: Any) -> tuple[int, Any]:
    """A sort key for sets, whose order differs between processes: numbers, then strings, then others by their repr."""
    if isinstance(option, Real):
        return 0, option
    return (1, option) if isinstance(option, str) else (2, repr(option))


def _check_fields(given: Iterable[str]) -> None:
    for name in given:
        if name not in FIELDS:
            raise WrongType(f"a member has no field {name!r}{nearest(name, FIELDS)} The fields are {', '.join(FIELDS)}")


def _widths(value: Any) -> tuple[int, ...]:
    if isinstance(value, Integral) and not isinstance(value, bool):
        value = (value,)
    if not isinstance(value, (tuple, list, np.ndarray)):
        raise WrongType(f"hidden must be a width or a tuple of widths; got {value!r}")
    return tuple(whole("a hidden width", width, 1, LARGEST_WIDTH) for width in value)


def _columns(value: Any) -> tuple[int, ...]:
    if not isinstance(value, (tuple, list, range, np.ndarray)):
        raise WrongType(f"features must be a tuple of column numbers, or None for all of them; got {value!r}")
    columns = tuple(whole("a feature index", column, 0, (1 << 31) - 1) for column in value)
    if not columns:
        raise UserError("features must name at least one column, or be None for all of them; got an empty tuple")
    if len(set(columns)) != len(columns):
        raise UserError(f"features must name each column once; got {value!r}")
    return columns


def check_members(members: Sequence[Member], n_features: int, n_outputs: int) -> list[Member]:
    """A list of members that fit the data."""
    if isinstance(members, Member):
        raise WrongType(f"members must be a list of shoal.Member; put the single one into a list: [{members!r}]")
    if not isinstance(members, Iterable):
        raise WrongType(f"members must be a list of shoal.Member; got {shown(members)}")
    members = list(members)
    if not members:
        raise UserError("give at least one member; got none")
    whole("n_features", n_features, 1, (1 << 31) - 1)
    whole("n_outputs", n_outputs, 1, (1 << 31) - 1)
    for k, member in enumerate(members):
        if not isinstance(member, Member):
            raise WrongType(f"members must be shoal.Member; number {k} is {member!r}")
        if member.features and max(member.features) >= n_features:
            raise UserError(f"member {k} sees column {max(member.features)}, but columns are 0 to {n_features - 1}")
    return members
