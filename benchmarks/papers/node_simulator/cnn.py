"""The paper's experiments on images: a convolutional network over nodes, each of which may cross-validate its rows."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import nn
from torch.utils.data import TensorDataset

from benchmarks.harness.measure import Tick
from benchmarks.papers.node_simulator.times import both, measured
from benchmarks.parallel.workers import accuracy, first_rows
from shoal.machine import thread_count
from shoal.parallel import fit
from shoal.parallel.data.datasets import load_data
from shoal.parallel.data.ownership import owners
from shoal.parallel.job import Job
from shoal.parallel.networks import make_model
from shoal.parallel.strategies.kfold import fold_sets
from shoal.planner.simulate.virtual import run_nodes

if TYPE_CHECKING:
    from benchmarks.papers.node_simulator.study import Study

RATE, BATCH, EPOCHS = 0.099, 1024, 20  # of the paper


class Images(NamedTuple):
    """Part of the rows, which is trained on, and all of them, for which times are predicted."""

    train: TensorDataset
    test: TensorDataset
    everything: TensorDataset

    @property
    def batch(self) -> int:
        """With as many steps in an epoch as the paper's batch has on all rows."""
        return max(1, round(BATCH * len(self.train) / len(self.everything)))


def load_images(study: Study) -> Images:
    """Four fifths of MNIST to train, a fifth to test; of both a part."""
    data = load_data("mnist", valid=0.2)
    train, test = first_rows(data.train, study.cnn_rows), first_rows(data.valid, study.cnn_test_rows)
    return Images(train, test, data.train)


def job_of(study: Study, images: Images, nodes: int, every: str = "end") -> Job:
    return Job(
        strategy="local_sgd", average_every=every, workers=nodes, backend="threads", device="cpu", optimizer="sgd",
        learning_rate=RATE, batch_size=images.batch, epochs=study.cnn_epochs, blas_threads=thread_count(),
    )  # fmt: skip


def run_cnn(study: Study, tick: Tick) -> dict[str, Any]:
    """For each number of nodes: no folds (averaged at the end, and each epoch), and each number of folds."""
    images, model = load_images(study), make_model("cnn")
    found = []
    for nodes in study.nodes:
        for every in ("end", "epoch") if nodes > 1 else ("end",):
            tick(f"cnn: {nodes} nodes, averaged {every}")
            result, _ = run_nodes(job_of(study, images, nodes, every), copy.deepcopy(model), images.train, None)
            found.append({"nodes": nodes, "every": every, "folds": 1, **_accuracies(result.model, images)})
        for folds in study.cnn_folds:
            tick(f"cnn: {nodes} nodes, {folds} folds each")
            average = folded(job_of(study, images, nodes), model, images.train, folds)
            found.append({"nodes": nodes, "every": "end", "folds": folds, **_accuracies(average, images)})
    tick("cnn: calibration")
    times = predict_all(study, images, model)
    return {"accuracy": found, "times": times, "training_rows": len(images.train), "test_rows": len(images.test),
            "batch": images.batch, "predicted_rows": len(images.everything)}  # fmt: skip


def _accuracies(model: nn.Module, images: Images) -> dict[str, float]:
    return {"train_accuracy": accuracy(model, images.train), "accuracy": accuracy(model, images.test)}


def folded(job: Job, model: nn.Module, train: TensorDataset, folds: int) -> nn.Module:
    """The average at the end of nodes that cross-validate: each trains a network without each fold of its rows.

    What `planner.simulate.averaged.train_averaged` computes with `folds`, for networks that the engine does not know.
    """
    owner = owners(train.tensors[1], len(train), job.workers, job)
    alone = replace(job, strategy="kfold", workers=1, folds=folds)
    total: dict[str, torch.Tensor] = {}
    for node in range(job.workers):
        mine = TensorDataset(*(tensor[owner == node] for tensor in train.tensors))
        for part, _ in fold_sets(alone, mine):
            trained = copy.deepcopy(model)
            fit(trained, part, optimizer=job.optimizer, strategy="blas", workers=1, learning_rate=job.learning_rate,
                batch_size=job.batch_size, epochs=job.epochs, shuffle=job.shuffle, seed=job.seed, device="cpu",
                blas_threads=job.blas_threads)  # fmt: skip
            share = len(mine) / len(train) / folds
            for name, value in trained.state_dict().items():
                total[name] = total.get(name, 0) + share * value
    average = copy.deepcopy(model)
    average.load_state_dict(total)
    return average


def predict_all(study: Study, images: Images, model: nn.Module) -> list[dict[str, Any]]:
    """For the paper's batch and epochs, and all rows to train on."""
    job = Job(strategy="blas", workers=1, backend=study.backend, device="cpu", optimizer="sgd", learning_rate=RATE,
              batch_size=BATCH, epochs=EPOCHS)  # fmt: skip
    few = first_rows(images.everything, 8 * max(study.cnn_sizes))
    models = measured(job, model, few, study.cnn_sizes, study.link, len(images.everything))
    return [
        {"nodes": nodes, "folds": folds, "split": split,
         "predicted": both(models, nodes, EPOCHS, folds=folds, split=split)}
        for nodes in study.nodes for folds in (1, *study.cnn_folds) for split in (True, False)
    ]  # fmt: skip
