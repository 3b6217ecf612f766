"""MNIST: how fast the paper's 10,000 networks train, measured on a part; and how well a few do, trained to the end."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks import peers
from benchmarks.harness.benchmark import benchmark
from benchmarks.harness.machine import MatrixProduct, installed
from benchmarks.harness.measure import Contender, Tick, progress_bar, race, rounds
from benchmarks.harness.plots import COLORS, grid_of_axes
from benchmarks.harness.problems import PAPER_MEMBERS, Problem, paper_members
from benchmarks.harness.report import Result
from benchmarks.harness.tables import ResultTable, significant
from benchmarks.papers.parallel_mlps import printed as paper
from shoal.datasets import Images, load_mnist
from shoal.machine import thread_count
from shoal.population.members import Member, sample
from shoal.population.population import Population
from shoal.population.rows import holdout

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BATCH = 64
HELD_OUT = 1 / 6  # 10,000 of 60,000 rows, as many as the test set has


@benchmark(quick={"sample": 50, "rows": 3200, "train_members": 8, "train_rows": 12_000, "epochs": 5, "repeats": 2})
def mnist(
    *,
    sample: int = 200,
    rows: int = 6400,
    train_members: int = 40,
    train_rows: int = 60_000,
    epochs: int = 10,
    repeats: int = 3,
) -> Result:
    """MNIST: the speed of the paper's 10,000 networks, and the accuracy of a few trained to the end.

    sample: Networks of 10,000 whose speed is measured.
    rows: Rows of 60,000 that they are measured on.
    train_members: Networks trained to the end.
    train_rows: Rows they see, hold-out included.
    epochs: Epochs that they are trained for.
    repeats: Times that everything is measured; the best counts.
    """
    images = load_mnist()
    with progress_bar("mnist", rounds(2, repeats) + epochs) as tick:
        speed = measure_speed(sample, min(rows, len(images.X_train)), repeats, images, tick)
        trained = train(train_members, train_rows, epochs, images, tick)
    data = {"speed": speed, "trained": trained}
    return Result(
        title=f"MNIST: {PAPER_MEMBERS:,} networks, 784 features, 10 classes, batch {BATCH}", data=data,
        tables=[speed_table(speed), best_table(trained)], notes=notes(speed, trained),
        draw=lambda: draw(speed, trained),
    )  # fmt: skip


def measure_speed(sample: int, rows: int, repeats: int, images: Images, tick: Tick) -> dict[str, Any]:
    """GFLOPS on evenly spread networks of the paper's and some of the rows, and what that means for all of them.

    With all networks and all rows nothing is projected.
    """
    X = images.X_train[:rows].astype(np.float32) / 255
    problem = Problem(Population(paper_members(sample, BATCH), 784, 10), X, images.y_train[:rows])
    peer = peers.make("native", problem, thread_count())
    contenders = [Contender("native", lambda: peer.run(1), peer.warm_up)]
    product = MatrixProduct(thread_count()) if installed("torch") else None
    if product:
        contenders.append(Contender("matrix product", product, product))
    timing = race(contenders, repeats, tick)["native"]
    gflops = problem.flops / timing.seconds / 1e9
    whole = _flops_of_all(len(images.X_train))
    projected = sample < PAPER_MEMBERS or rows < len(images.X_train)
    return {
        "measured_on": f"{sample:,} of {PAPER_MEMBERS:,} networks, {rows:,} of {len(images.X_train):,} rows",
        "seconds_measured": timing.seconds, "raw_seconds": timing.raw, "gflops": gflops,
        "peak_gflops": product.gflops if product else None,
        "share_of_peak": gflops / product.gflops if product else None,
        "seconds_per_epoch": whole / gflops / 1e9 if projected else timing.seconds, "projected": projected,
        "paper_gpu_parallel_seconds": paper.MNIST_PARALLEL_GPU,
        "paper_gpu_sequential_seconds": paper.MNIST_SEQUENTIAL_GPU,
    }  # fmt: skip


def _flops_of_all(rows: int) -> float:
    from shoal.population.layout import Layout

    return float(Layout(paper_members(PAPER_MEMBERS, BATCH), 784, 10).flops_per_row.sum()) * rows


def recipes(count: int) -> list[Member]:
    """Networks of various widths, depths, activations and learning rates, all with Adam."""
    return sample(
        count, seed=1, hidden=[64, 96, 128, 192, 256, (128, 64), (192, 96)],
        activation=["relu", "gelu", "tanh", "elu", "leaky_relu"], learning_rate=[5e-4, 1e-3, 2e-3, 3e-3],
        dropout=[0.0, 0.1, 0.2], optimizer="adam", schedule="cosine", batch_size=BATCH,
    )  # fmt: skip


def train(train_members: int, train_rows: int, epochs: int, images: Images, tick: Tick) -> dict[str, Any]:
    """Select on rows held out from the training set; score the one selected on the test set, once."""
    rows = min(train_rows, len(images.X_train))
    split = holdout(rows, HELD_OUT, seed=0)
    X, X_test = standardise(images.X_train[:rows], images.X_test, split.train)
    population = Population(recipes(train_members), 784, 10)
    seconds = 0.0
    steps = population.iter_fit(X, images.y_train[:rows], epochs, rows=split, threads=thread_count())
    for epoch in range(epochs):
        tick(f"training, epoch {epoch + 1} of {epochs}")
        begun = time.perf_counter()
        next(steps, None)
        seconds += time.perf_counter() - begun
    scores = population.history.valid_score
    final = population.history.last("valid_score")
    best = int(np.nanargmax(final))
    test = population.evaluate(X_test, images.y_test, members=[best])
    return {
        "networks": len(population), "training_rows": len(split.train), "held_out_rows": len(split.valid),
        "epochs": epochs, "seconds": seconds, "best": str(population.members[best]),
        "best_held_out_accuracy": float(final[best]), "best_test_accuracy": float(test.score[0]),
        "median_held_out_accuracy": float(np.nanmedian(final)),
        "held_out_curves": scores.tolist(), "best_index": best, "test_rows": len(images.y_test),
    }  # fmt: skip


def standardise(X: np.ndarray, X_test: np.ndarray, train_rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """One mean and one deviation for all pixels, from the training rows alone."""
    mean, deviation = float(X[train_rows].mean()), float(X[train_rows].std()) or 1.0
    scaled = [(part.astype(np.float32) - np.float32(mean)) / np.float32(deviation) for part in (X, X_test)]
    return scaled[0], scaled[1]


def speed_table(speed: dict[str, Any]) -> ResultTable:
    share = "-" if speed["share_of_peak"] is None else f"{100 * speed['share_of_peak']:.0f}%"
    mark = "~" if speed["projected"] else ""
    rows = [
        ["native, this CPU", f"{mark}{significant(speed['seconds_per_epoch'])}", significant(speed["gflops"]), share],
        ["the paper, parallel, its GPU", significant(speed["paper_gpu_parallel_seconds"]), "-", "-"],
        ["the paper, sequential, its GPU", significant(speed["paper_gpu_sequential_seconds"]), "-", "-"],
    ]
    title = f"An epoch of {PAPER_MEMBERS:,} networks{' (~ projected)' * speed['projected']}"
    return ResultTable(title, ["what", "seconds", "GFLOPS", "share of peak"], rows)


def best_table(trained: dict[str, Any]) -> ResultTable:
    rows = [
        ["networks trained", f"{trained['networks']:,} for {trained['epochs']} epochs in {trained['seconds']:.0f} s"],
        ["best on the hold-out", trained["best"]],
        ["its accuracy on the hold-out", f"{100 * trained['best_held_out_accuracy']:.2f}%"],
        ["its accuracy on the test set", f"{100 * trained['best_test_accuracy']:.2f}%"],
        ["median accuracy on the hold-out", f"{100 * trained['median_held_out_accuracy']:.2f}%"],
    ]
    return ResultTable("Trained to the end", ["what", "result"], rows)


def notes(speed: dict[str, Any], trained: dict[str, Any]) -> list[str]:
    part = (
        f"~ projected: measured on {speed['measured_on']} in {speed['seconds_measured']:.2f} s; the whole takes as "
        "many times longer as it has more multiplications and additions."
    )
    return [
        part if speed["projected"] else f"A real epoch: measured on {speed['measured_on']}.",
        f"The best network was picked by its accuracy on {trained['held_out_rows']:,} training rows that none was "
        f"trained on; it alone was scored on the {trained['test_rows']:,} test images, once.",
    ]


def draw(speed: dict[str, Any], trained: dict[str, Any]) -> Figure:
    figure, ((left, right),) = grid_of_axes(1, 2, width=5.0, height=3.6)
    ours = "native, this CPU" + "\n(projected)" * speed["projected"]
    names = [ours, "paper, parallel,\nits GPU", "paper, sequential,\nits GPU"]
    values = [speed["seconds_per_epoch"], speed["paper_gpu_parallel_seconds"], speed["paper_gpu_sequential_seconds"]]
    bars = left.bar(names, values, color=[COLORS["native"], "0.6", "0.75"], width=0.6)
    left.bar_label(bars, fmt="{:,.0f} s", padding=3)
    left.set(yscale="log", ylabel="seconds per epoch", ylim=(min(values) / 3, max(values) * 3))
    left.set_title(f"{PAPER_MEMBERS:,} networks, one epoch", fontsize=10)
    draw_curves(right, trained)
    return figure


def draw_curves(axis: Any, trained: dict[str, Any]) -> None:
    """The error of every network on the hold-out, epoch by epoch."""
    from matplotlib.ticker import MaxNLocator, ScalarFormatter

    curves = 100 * (1 - np.array(trained["held_out_curves"], float))
    epochs = np.arange(1, curves.shape[1] + 1)
    for curve in curves:
        axis.plot(epochs, curve, color="0.75", linewidth=0.8)
    axis.plot(epochs, curves[trained["best_index"]], color=COLORS["native"], linewidth=2, label="best on the hold-out")
    error = 100 * (1 - trained["best_test_accuracy"])
    label = f"its error on the test set: {error:.2f}%"
    axis.axhline(error, color=COLORS["vmap"], linestyle="--", linewidth=1, label=label)
    axis.set(yscale="log", xlabel="epoch", ylabel="error on the hold-out, %")
    axis.set_title(f"{len(curves)} networks trained to the end", fontsize=10)
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.yaxis.set_major_formatter(ScalarFormatter())
    axis.yaxis.set_minor_formatter(ScalarFormatter())
    axis.legend(frameon=False, fontsize=9)
