"""The paper's experiments on text: perceptrons on TF-IDF of reviews, over nodes, with and without splits and folds."""

from __future__ import annotations

import csv
import gzip
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import nn
from torch.utils.data import TensorDataset

from benchmarks.harness.measure import Tick
from benchmarks.papers.node_simulator.times import both, measured
from shoal import datasets
from shoal.parallel.job import Job
from shoal.parallel.networks import make_model
from shoal.planner.simulate.averaged import Averaged, train_averaged

if TYPE_CHECKING:
    from benchmarks.papers.node_simulator.study import Study
    from shoal.planner.cost.times import CostModel

FILE = "text/movie-reviews.csv.gz"
LAYERS = (1, 3)
RATE, ERROR, WIDTH = 0.1, 0.01, 10
STEPS = (3, 6, 12, 24)  # rows of steps that are measured


class Texts(NamedTuple):
    train: TensorDataset
    test: TensorDataset

    @property
    def features(self) -> int:
        return int(self.train.tensors[0].shape[1])


def load_texts(features: int, rows: int | None = None) -> Texts:
    """Four fifths to train, a fifth to test; words and their weights are those of the rows to train on alone."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.model_selection import train_test_split

    with gzip.open(datasets.find(FILE), "rt", encoding="utf-8", newline="") as file:
        reviews = [(row["review"], row["sentiment"]) for row in csv.DictReader(file)]
    texts, names = zip(*reviews, strict=True)
    classes = np.unique(np.array(names), return_inverse=True)[1].astype(np.int64)
    chosen = np.random.default_rng(0).permutation(len(texts))[:rows]
    train, test = train_test_split(chosen, test_size=0.2, stratify=classes[chosen], random_state=0)
    vectorizer = TfidfVectorizer(max_features=features, dtype=np.float32).fit([texts[k] for k in train])
    parts = []
    for which in (train, test):
        X = vectorizer.transform([texts[k] for k in which]).toarray()
        parts.append(TensorDataset(torch.from_numpy(X), torch.from_numpy(classes[which])))
    return Texts(*parts)


def network(features: int, layers: int, seed: int) -> nn.Sequential:
    """The paper's perceptron: hidden layers of ten neurons each."""
    return make_model(f"mlp:{'-'.join(map(str, [features, *[WIDTH] * layers, 2]))}", activation="tanh", seed=seed)


def job_of(study: Study, nodes: int, seed: int, every: str = "end", start: str = "same") -> Job:
    """A node stops when the mean loss of its rows in an epoch is at most ERROR."""
    return Job(
        strategy="local_sgd", average_every=every, workers=nodes, backend=study.backend, device="cpu",
        optimizer="sgd", learning_rate=RATE, batch_size=study.text_batch, epochs=study.text_epochs,
        until_error=ERROR, start=start, seed=seed,
    )  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """One training of all nodes."""

    accuracy: float  # of the average, on the rows to test; NaN if it has diverged
    epochs: int  # of the network that needed most
    stopped: bool  # whether all networks reached ERROR before the cap

    @classmethod
    def each(cls, found: Averaged, test: TensorDataset, cap: int) -> list[Outcome]:
        """Of all jobs that were trained together."""
        inputs, target = test.tensors
        scores = found.networks.evaluate(inputs.numpy(), target.numpy()).score
        epochs = np.isfinite(found.losses).sum(1)
        return [
            cls(math.nan if diverged is not None else float(score), int(count), bool(count < cap))
            for score, count, diverged in zip(scores, epochs, found.diverged, strict=True)
        ]


def train(study: Study, texts: Texts, layers: int, jobs: Sequence[Job], folds: int | None = None) -> list[Outcome]:
    models = [network(texts.features, layers, job.seed) for job in jobs]
    found = train_averaged(models, texts.train, jobs, folds=folds)
    return Outcome.each(found, texts.test, study.text_epochs)


def unsplit(texts: Texts, nodes: int) -> Texts:
    """Each node has all rows: they are there once for each node, and dealt in their order."""
    inputs, target = texts.train.tensors
    return texts._replace(train=TensorDataset(inputs.repeat(nodes, 1), target.repeat(nodes)))


def run_text(study: Study, texts: Texts, tick: Tick) -> list[dict[str, Any]]:
    """For each network, number of nodes and variant: accuracy of each seed, epochs, predicted seconds."""
    found = []
    for layers in LAYERS:
        tick(f"text, {layers} hidden: calibration")
        job = replace(job_of(study, 1, 0), strategy="blas", average_every="epoch", until_error=None)
        models = measured(job, network(texts.features, layers, 0), texts.train, STEPS, study.link)
        for nodes in study.nodes:
            tick(f"text, {layers} hidden: {nodes} nodes")
            for name, outcomes in variants(study, texts, layers, nodes).items():
                found.append({"layers": layers, "nodes": nodes, "variant": name, **summary(outcomes)})
        mine = [entry for entry in found if entry["layers"] == layers]
        found += [folds_over_nodes(mine, nodes) for nodes in study.nodes]
        predict_all(study, [entry for entry in found if entry["layers"] == layers], models)
    return found


def folds_over_nodes(entries: Sequence[dict[str, Any]], nodes: int) -> dict[str, Any]:
    """Without a split, folds of all rows are dealt to nodes: the same networks, whatever the number of nodes."""
    alone = next(entry for entry in entries if (entry["nodes"], entry["variant"]) == (1, "split, folds"))
    return {**alone, "nodes": nodes, "variant": "whole, folds"}


def variants(study: Study, texts: Texts, layers: int, nodes: int) -> dict[str, list[Outcome]]:
    """Seeds of each variant that has to be trained."""

    def jobs(**changes: Any) -> list[Job]:
        return [job_of(study, nodes, seed, **changes) for seed in range(study.seeds)]

    made = {
        "split, end": train(study, texts, layers, jobs()),
        "split, folds": train(study, texts, layers, jobs(), study.folds),
    }
    made["split, epoch"] = train(study, texts, layers, jobs(every="epoch")) if nodes > 1 else made["split, end"]
    made["whole, end"] = made["split, end"]
    if nodes > 1:
        dealt = [replace(job, split="order") for job in jobs()]
        made["whole, end"] = train(study, unsplit(texts, nodes), layers, dealt)
    return made


def summary(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    return {
        "accuracies": [outcome.accuracy for outcome in outcomes],
        "epochs": statistics.fmean(outcome.epochs for outcome in outcomes),
        "stopped": all(outcome.stopped for outcome in outcomes),
    }


def predict_all(study: Study, entries: Sequence[dict[str, Any]], models: dict[str, CostModel]) -> None:
    """Add what the cost model says of the epochs that were needed."""
    kinds: dict[str, dict[str, Any]] = {
        "split, end": {},
        "split, epoch": {"every": "epoch"},
        "split, folds": {"folds": study.folds},
        "whole, end": {"split": False},
        "whole, folds": {"split": False, "folds": study.folds},
    }
    for entry in entries:
        entry["predicted"] = both(models, entry["nodes"], entry["epochs"], **kinds[entry["variant"]])
