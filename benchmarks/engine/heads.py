"""Does a variety of heads regularise the backbone they share? Fashion-MNIST, few rows, several seeds.

Three companies for one and the same head: none, copies of it that differ in their seeds, and heads of all kinds. All
start from the same backbone and see the same batches, so differences between them are paired.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from benchmarks.harness.benchmark import benchmark
from benchmarks.harness.measure import Tick, progress_bar
from benchmarks.harness.plots import grid_of_axes
from benchmarks.harness.report import Result
from benchmarks.harness.tables import ResultTable
from shoal.datasets import Images, load_mnist
from shoal.machine import thread_count
from shoal.population.members import Member
from shoal.population.population import Population

if TYPE_CHECKING:
    import torch
    from matplotlib.figure import Figure

FEATURES, CLASSES, BATCH = 64, 10, 64
HEAD = Member(hidden=(64,), activation="relu")  # number 0 in every company
ARMS = ("one head", "equal heads", "varied heads")
MEASURES = {
    "head": "head 0, which is the same recipe in every company",
    "mean": "a head, on average over all heads",
    "together": "all heads together, probabilities averaged",
    "fresh": "fresh linear heads on the frozen backbone",
}


class Split(NamedTuple):
    """Images as tensors, [rows, 1, 28, 28], and their classes."""

    X: torch.Tensor
    y: torch.Tensor


@benchmark(needs=("torch",), quick={"rows": (500,), "test_rows": 2000, "heads": 6, "steps": 24, "seeds": 2})
def heads(
    *,
    rows: tuple[int, ...] = (1000,),
    test_rows: int = 10_000,
    heads: int = 16,
    steps: int = 600,
    rate: float = 0.003,
    seeds: int = 6,
    linear: bool = True,
) -> Result:
    """Does a variety of heads regularise the backbone they share? (Fashion-MNIST, a small convolutional backbone)

    rows: Rows that are trained on.
    test_rows: Rows to test on.
    heads: Heads on one backbone.
    steps: Steps of the optimiser.
    rate: Learning rate of backbone and heads.
    seeds: Seeds.
    linear: Whether some of the varied heads are linear.
    """
    images = load_mnist("fashion-mnist")
    with progress_bar("heads", len(rows) * seeds * len(ARMS)) as tick:
        runs = [
            measure(
                split(images, count, test_rows, seed), company(arm, heads, seed, linear), steps, rate, seed, arm, tick
            )
            for count in rows
            for seed in range(seeds)
            for arm in ARMS
        ]
    compared = differences(runs)
    return Result(
        title="Heads on one backbone: does their variety regularise it? (Fashion-MNIST)", settings={"batch": BATCH},
        data={"runs": runs, "differences": compared}, tables=[table(runs), difference_table(compared)],
        notes=notes(seeds, compared), draw=lambda: draw(compared),
    )  # fmt: skip


def company(arm: str, heads: int, seed: int, linear: bool = True) -> list[Member]:
    """The members of an arm; number 0 is the same in all. Without `linear`, none of the varied heads is linear."""
    first = HEAD.replace(seed=1000 * seed)
    if arm == "one head":
        return [first]
    if arm == "equal heads":
        return [first.replace(seed=1000 * seed + k) for k in range(heads)]
    shapes: list[tuple[int, ...]] = [(), (16,), (128,), (32, 32), (64,), (24,), (48, 16), (96,)]
    activations = ("tanh", "gelu", "elu", "sigmoid", "mish", "leaky_relu", "selu", "identity")
    if not linear:
        shapes[0], activations = (40,), (*activations[:-1], "hardshrink")
    others = [
        HEAD.replace(hidden=shapes[k % len(shapes)], activation=activations[(k + k // 8) % len(activations)],
                     dropout=(0.0, 0.2)[k % 2] if shapes[k % len(shapes)] else 0.0, seed=1000 * seed + k)
        for k in range(1, heads)
    ]  # fmt: skip
    return [first, *others]


def make_backbone(seed: int) -> torch.nn.Module:
    """Two small convolutions with pooling and a layer of 64 features: 27 thousand weights."""
    from torch import nn

    from shoal.torch import seeded

    (module,) = seeded(
        lambda: nn.Sequential(
            nn.Conv2d(1, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(400, FEATURES), nn.ReLU(),
        ),
        [seed],
    )  # fmt: skip
    return module


def measure(
    parts: tuple[Split, Split], members: list[Member], steps: int, rate: float, seed: int, arm: str, tick: Tick
) -> dict[str, Any]:
    import torch

    from benchmarks.peers.torch_threads import torch_threads
    from shoal.torch import Heads

    train, test = parts
    rows = len(train.y)
    tick(f"{rows} rows, seed {seed}, {arm}")
    members = [member.replace(learning_rate=rate) for member in members]
    heads = Heads(make_backbone(seed), members, FEATURES, CLASSES)
    begun = time.perf_counter()
    with torch_threads(thread_count()):
        train_heads(heads, train, steps, rate, seed)
        seconds = time.perf_counter() - begun
        heads.eval()
        with torch.no_grad():
            features = [heads.backbone(part.X) for part in (train, test)]
            outputs = [heads.from_features(part) for part in features]
    accuracies = (outputs[1].argmax(-1) == test.y).double().mean(1)
    together = outputs[1].softmax(-1).mean(0)
    return {
        "rows": rows, "seed": seed, "arm": arm, "heads": len(heads), "seconds": seconds,
        "head": float(accuracies[0]), "mean": float(accuracies.mean()),
        "together": float((together.argmax(-1) == test.y).double().mean()),
        "fresh": fresh_heads(features[0].numpy(), train.y.numpy(), features[1].numpy(), test.y.numpy()),
        "train_accuracy": float((outputs[0][0].argmax(-1) == train.y).double().mean()),
        "test_loss": float(torch.nn.functional.cross_entropy(outputs[1][0], test.y)),
    }  # fmt: skip


def split(images: Images, rows: int, test_rows: int, seed: int) -> tuple[Split, Split]:
    """Rows drawn from the training images, and the first of the test images."""
    import torch

    chosen = np.random.default_rng(seed).permutation(len(images.X_train))[:rows]
    parts = []
    for X, y in ((images.X_train[chosen], images.y_train[chosen]), (images.X_test, images.y_test)):
        pixels = torch.from_numpy(X.astype(np.float32) / 255).reshape(-1, 1, 28, 28)
        parts.append(Split(pixels, torch.from_numpy(y)))
    return parts[0], Split(parts[1].X[:test_rows], parts[1].y[:test_rows])


def train_heads(heads: Any, train: Split, steps: int, rate: float, seed: int) -> None:
    import torch

    optimizer = torch.optim.Adam(heads.parameter_groups(lr=rate))
    order = torch.Generator().manual_seed(seed)
    batches: list[torch.Tensor] = []
    for _ in range(steps):
        batches = batches or list(torch.randperm(len(train.y), generator=order).split(BATCH))
        batch = batches.pop()
        optimizer.zero_grad()
        heads.losses(heads(train.X[batch]), train.y[batch]).sum().backward()
        optimizer.step()


def fresh_heads(X: np.ndarray, y: np.ndarray, X_test: np.ndarray, y_test: np.ndarray) -> float:
    """How good the backbone is, whatever its heads: mean accuracy of linear heads trained on what it gives."""
    scale = X.std(0) + 1e-6
    members = [Member(hidden=(), learning_rate=0.01, schedule="cosine", seed=seed) for seed in range(5)]
    population = Population(members, FEATURES, CLASSES)
    population.fit(X / scale, y, 20, engine="native")
    return float(population.evaluate(X_test / scale, y_test).score.mean())


def differences(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each pair of companies, paired by seed: mean difference with a 95% interval."""
    found = []
    pairs = [("varied heads", "one head"), ("equal heads", "one head"), ("varied heads", "equal heads")]
    for rows in dict.fromkeys(run["rows"] for run in runs):
        for measure in MEASURES:
            for better, base in pairs:
                mine, other = ([run[measure] for run in runs if run["rows"] == rows and run["arm"] == arm]
                               for arm in (better, base))  # fmt: skip
                mean, low, high = paired(np.array(mine) - np.array(other))
                found.append({"rows": rows, "measure": measure, "arm": better, "against": base, "difference": mean,
                              "low": low, "high": high})  # fmt: skip
    return found


def paired(values: np.ndarray) -> tuple[float, float, float]:
    """The mean and its 95% interval by Student's t.

    >>> [round(number, 3) for number in paired(np.array([1.0, 2.0, 3.0]))]
    [2.0, -0.484, 4.484]
    """
    from scipy.stats import t

    if len(values) < 2:
        return float(values.mean()), float("nan"), float("nan")
    room = float(t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values)))
    return float(values.mean()), float(values.mean()) - room, float(values.mean()) + room


def table(runs: list[dict[str, Any]]) -> ResultTable:
    lines = []
    for rows in dict.fromkeys(run["rows"] for run in runs):
        for arm in ARMS:
            own = [run for run in runs if run["rows"] == rows and run["arm"] == arm]
            cells = [f"{100 * np.mean([run[measure] for run in own]):.2f}%" for measure in MEASURES]
            train = f"{100 * np.mean([run['train_accuracy'] for run in own]):.2f}%"
            loss = f"{np.mean([run['test_loss'] for run in own]):.3f}"
            seconds = f"{np.mean([run['seconds'] for run in own]):.1f}"
            lines.append([f"{rows:,}", arm, *cells, train, loss, seconds])
    header = ["rows", "company", "head 0", "mean head", "together", "fresh linear heads", "head 0 on training rows",
              "test loss of head 0", "seconds"]  # fmt: skip
    return ResultTable("Accuracy on the test images, mean over the seeds", header, lines)


def difference_table(compared: list[dict[str, Any]]) -> ResultTable:
    lines = [
        [f"{one['rows']:,}", MEASURES[one["measure"]], f"{one['arm']} - {one['against']}", points(one["difference"]),
         f"{points(one['low'])} to {points(one['high'])}", judged(one)]
        for one in compared
    ]  # fmt: skip
    header = ["rows", "accuracy of", "difference", "points", "95% interval", "verdict"]
    return ResultTable("Differences, paired by seed", header, lines)


def points(value: float) -> str:
    """
    >>> points(0.0123), points(float("nan"))
    ('+1.23', '-')
    """
    return f"{100 * value:+.2f}" if np.isfinite(value) else "-"


def judged(one: dict[str, Any]) -> str:
    if not np.isfinite(one["low"]):
        return "one seed tells nothing"
    if one["low"] > 0:
        return "better"
    return "worse" if one["high"] < 0 else "no difference shown"


def notes(seeds: int, compared: list[dict[str, Any]]) -> list[str]:
    varied = [one for one in compared if one["arm"] == "varied heads" and one["measure"] == "fresh"]
    answers = [f"{one['rows']:,} rows, against {one['against']}: {points(one['difference'])} points ({judged(one)})"
               for one in varied]  # fmt: skip
    return [
        f"Is the backbone better for the variety of its heads? Fresh linear heads on it say: {'; '.join(answers)}.",
        f"{seeds} seeds; each draws other training rows, another backbone and another order of batches, the "
        "same for all three companies. The intervals are those of one comparison: of many, some leave zero by luck.",
        "The backbone hears the mean of its heads' gradients, so its learning rate means the same in every company.",
    ]


def draw(compared: list[dict[str, Any]]) -> Figure:
    sizes = list(dict.fromkeys(one["rows"] for one in compared))
    figure, (axes,) = grid_of_axes(1, len(sizes), width=5.2, height=4.4)
    for axis, rows in zip(axes, sizes, strict=True):
        own = [one for one in compared if one["rows"] == rows][::-1]
        names = [f"{one['measure']}: {one['arm'].split()[0]} - {one['against'].split()[0]}" for one in own]
        values = np.array([100 * one["difference"] for one in own])
        room = np.nan_to_num([[100 * (one["difference"] - one["low"]), 100 * (one["high"] - one["difference"])]
                              for one in own]).T  # fmt: skip
        axis.errorbar(values, names, xerr=room, fmt="o", color="#0072B2", capsize=3, markersize=5)
        axis.axvline(0, color="0.3", linewidth=1)
        axis.set_xlabel("points of accuracy, 95% interval")
        axis.set_title(f"{rows:,} training rows", fontsize=10)
    return figure
