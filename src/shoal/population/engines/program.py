"""The form of a population that engines take: members become one array of records, so engines do not use `Member`.

`Program` describes the networks, `Data` is what they are trained on, `State` is all that training changes. `Training`
is one run of an engine with all of these.
The record type is the kernel's `struct MemberRecord`, field for field; `engines.native` compares them on import.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from shoal.population.history import History
from shoal.population.layout import ALIGNMENT, Layout
from shoal.population.members import ACTIVATIONS, INITS, OPTIMIZERS, SCHEDULES
from shoal.population.rows import Rows

LOSSES = ("cross_entropy", "bce", "mse")
ACTIVE, FINISHED, STOPPED, DIVERGED = range(4)
STATUS_NAMES = ("active", "finished", "stopped early", "diverged")

MEMBER_RECORD = np.dtype(
    [
        ("dims_start", np.int64),  # into Program.dims: fan_in, widths..., outputs
        ("features_start", np.int64),  # into Program.features, or -1 for all columns
        ("parameters", np.int64),  # offset into State.parameters
        ("slots", np.int64),  # offset into State.slots
        ("slot_size", np.int64),  # floats of one slot
        ("batch_size", np.int64),
        ("seed", np.uint64),
        ("epochs", np.int64),  # most epochs in all, or -1
        ("patience", np.int64),
        ("n_layers", np.int32),
        ("activation", np.int32),
        ("optimizer", np.int32),
        ("init", np.int32),
        ("schedule", np.int32),
        ("optimizer_slots", np.int32),  # 0 for sgd, 1 with momentum, 2 for adam and adamw
        ("learning_rate", np.float64),
        ("weight_decay", np.float64),
        ("momentum", np.float64),
        ("dropout", np.float64),
        ("warmup", np.float64),
        ("clip", np.float64),
        ("label_smoothing", np.float64),
        ("beta2", np.float64),
    ],
    align=True,
)


@dataclass(frozen=True, eq=False)
class Program:
    """The networks of a population, as arrays. Slot k of a member starts at slots + k * slot_size.

    Slots hold the optimiser's moments, then, for a member with patience, its best weights so far.
    """

    layout: Layout
    records: np.ndarray  # (n_members,) of MEMBER_RECORD
    features: np.ndarray  # (sum of masked members' columns,), int64
    loss: str
    class_weight: np.ndarray  # (n_outputs,) float32, or empty
    n_slot_floats: int

    @property
    def n_features(self) -> int:
        return self.layout.n_features

    @property
    def n_outputs(self) -> int:
        return self.layout.n_outputs

    def __len__(self) -> int:
        return len(self.records)


def compile_program(layout: Layout, loss: str, class_weight: np.ndarray) -> Program:
    """Turn members into records, which hold everything that an engine needs."""
    members = layout.members
    records = np.zeros(len(members), dtype=MEMBER_RECORD)
    records["dims_start"] = layout.dims_start
    records["n_layers"] = layout.n_layers
    records["parameters"] = layout.offsets
    records["slot_size"] = layout.sizes
    for name in (
        "batch_size", "seed", "patience", "learning_rate", "weight_decay", "momentum", "dropout", "warmup", "clip",
        "label_smoothing", "beta2",
    ):  # fmt: skip
        records[name] = [getattr(member, name) for member in members]
    for name, known in (
        ("activation", ACTIVATIONS), ("optimizer", OPTIMIZERS), ("init", INITS), ("schedule", SCHEDULES),
    ):  # fmt: skip
        codes = {word: code for code, word in enumerate(known)}
        records[name] = [codes[getattr(member, name)] for member in members]
    records["epochs"] = [-1 if member.epochs is None else member.epochs for member in members]
    is_sgd = records["optimizer"] == OPTIMIZERS.index("sgd")
    records["optimizer_slots"] = np.where(is_sgd, records["momentum"] > 0, 2)
    slots = records["optimizer_slots"] + (records["patience"] > 0)
    slot_floats = slots * layout.sizes
    records["slots"] = np.cumsum(slot_floats) - slot_floats
    masked = [member.features for member in members if member.features]
    lengths = np.array([len(member.features) if member.features else 0 for member in members], dtype=np.int64)
    records["features_start"] = np.where(lengths > 0, np.cumsum(lengths) - lengths, -1)
    features = np.array([column for columns in masked for column in columns], dtype=np.int64)
    return Program(layout, records, features, loss, class_weight, int(slot_floats.sum()))


@dataclass(eq=False)
class State:
    """All that training changes. Every member is at the end of an epoch when an engine returns."""

    parameters: np.ndarray  # float32, flat
    slots: np.ndarray  # float32, flat
    steps: np.ndarray  # (n_members,) int64: updates done
    epochs: np.ndarray  # (n_members,) int64: epochs done
    best_epoch: np.ndarray  # (n_members,) int64: epochs done when the best validation loss was seen; 0: never
    best_loss: np.ndarray  # (n_members,) float64
    status: np.ndarray  # (n_members,) uint8: ACTIVE, FINISHED, STOPPED or DIVERGED


@dataclass(frozen=True, eq=False)
class Data:
    """What a population is trained on. Exactly one of `labels` and `targets` is not empty."""

    X: np.ndarray  # (n_rows, n_features) float32, C order
    labels: np.ndarray  # (n_rows,) int32: classes, for cross_entropy
    targets: np.ndarray  # (n_rows, n_outputs) float32, for bce and mse


@dataclass(frozen=True, eq=False)
class Assignment:
    """Rows, flattened for the kernel: split s trains on train[train_start[s]:train_start[s + 1]], and so on."""

    train: np.ndarray  # int64
    train_start: np.ndarray  # (n_splits + 1,) int64
    weight: np.ndarray  # float32, as long as `train`, or empty when every weight is one
    valid: np.ndarray  # int64
    valid_start: np.ndarray  # (n_splits + 1,) int64
    split: np.ndarray  # (n_members,) int64
    shuffle: bool
    order: np.ndarray  # (n_members,) uint64: members with equal key and split see their rows in the same order
    horizon: np.ndarray  # (n_members,) int64: epochs over which a schedule runs


def flatten_rows(rows: Rows, shuffle: bool, order: np.ndarray, horizon: np.ndarray) -> Assignment:
    splits = rows.splits
    weighted = any(split.weight is not None for split in splits)
    ones = [split.weight if split.weight is not None else np.ones(len(split.train), np.float32) for split in splits]
    return Assignment(
        train=np.concatenate([split.train for split in splits]),
        train_start=np.concatenate([[0], np.cumsum([len(split.train) for split in splits])]).astype(np.int64),
        weight=np.concatenate(ones) if weighted else np.empty(0, np.float32),
        valid=np.concatenate([split.valid for split in splits]),
        valid_start=np.concatenate([[0], np.cumsum([len(split.valid) for split in splits])]).astype(np.int64),
        split=rows.member,
        shuffle=shuffle,
        order=order,
        horizon=horizon,
    )


@dataclass(frozen=True)
class Resources:
    """Threads, device and memory that an engine may use."""

    threads: int = 1
    device: str = "cpu"
    memory: int = 1 << 33  # bytes that an engine may allocate; it trains members in parts to stay below


@dataclass(frozen=True, eq=False)
class Selection:
    """Some members of a population, and what an engine may use to compute with them."""

    program: Program
    state: State
    which: np.ndarray  # (k,) int64: numbers of the members
    resources: Resources


Progress = Callable[[int], bool]  # called with the number of member-epochs done; returns whether to stop


@dataclass(frozen=True, eq=False)
class Training(Selection):
    """One run of an engine. Curves in `log` are NaN for epochs that were discarded because the run was stopped."""

    data: Data
    rows: Assignment
    until: np.ndarray  # (k,) int64: epochs that members will have done in all
    progress: Progress
    start: np.ndarray = field(init=False)  # (k,) int64: epochs that members had done before
    log: History = field(init=False)  # of these members and epochs

    def __post_init__(self) -> None:
        start = self.state.epochs[self.which]
        object.__setattr__(self, "start", start)
        object.__setattr__(self, "log", History.empty(len(start), int((self.until - start).max(initial=0))))


def aligned_zeros(count: int) -> np.ndarray:
    """Zeroed float32 that starts on a 64-byte boundary."""
    raw = np.zeros(count + ALIGNMENT, dtype=np.float32)
    shift = (-raw.ctypes.data // 4) % ALIGNMENT
    return raw[shift : shift + count]


def empty_state(program: Program, zeros: Callable[[int], np.ndarray] = aligned_zeros) -> State:
    count = len(program)
    return State(
        parameters=zeros(program.layout.total),
        slots=zeros(program.n_slot_floats),
        steps=np.zeros(count, np.int64),
        epochs=np.zeros(count, np.int64),
        best_epoch=np.zeros(count, np.int64),
        best_loss=np.full(count, np.inf),
        status=np.full(count, ACTIVE, np.uint8),
    )


def delivered(program: Program, state: State, i: int) -> tuple[np.ndarray, int]:
    """Buffer and offset of the weights with which member `i` predicts: its best ones, if it keeps them."""
    record = program.records[i]
    if record["patience"] > 0 and state.best_epoch[i] > 0:
        return state.slots, int(record["slots"] + record["optimizer_slots"] * record["slot_size"])
    return state.parameters, int(record["parameters"])
