"""The table of strategies: what is derived from it, and strategies of a user's own."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.parallel_cases import SETTINGS, data, far, network
from support.planner import cost_model

from shoal import parallel
from shoal.options import options_of
from shoal.parallel.checkpoint import peek
from shoal.parallel.data.loader import key, rows_in
from shoal.parallel.data.ownership import split_rows
from shoal.parallel.job import Job
from shoal.parallel.strategies import TABLE
from shoal.parallel.strategies.updater import WholeModelUpdater
from shoal.planner.cost.cluster import NodeLink

ROOT = Path(__file__).parent.parent.parent
GUIDE, CONTRIBUTING = ((ROOT / p).read_text(encoding="utf-8") for p in ("docs/guides/workers.md", "CONTRIBUTING.md"))


def test_the_docs_and_the_help_show_the_table():
    rows = [line for line in (parallel.__doc__ or "").splitlines() if line.startswith("| `")]
    assert [row.split("`")[1] for row in rows] == list(TABLE)
    assert list(TABLE) == list(parallel.STRATEGIES)
    assert all(f"`{name}`" in GUIDE for name in TABLE)
    named = options_of(Job)["strategy"].help.split(", or auto")[0].split(", ")
    assert [*named, "auto"] == list(TABLE)


def my_strategy() -> type[parallel.Strategy]:
    """Made in a function: other processes cannot import it, so it has to be sent by value."""

    class DampedUpdater(WholeModelUpdater):
        def __init__(self, *arguments, damping: float) -> None:
            super().__init__(*arguments)
            self.damping = damping

        def parts(self, rows):
            start, end = split_rows(len(rows), self.group.size, self.least)[self.group.rank]
            return [rows[start:end]] if end > start else []

        def round(self, items, rows, step):
            total = self.learner.new_vector(self.learner.width)
            for inputs, target in items:
                share = rows_in(target) / rows
                self.learner.gradient(inputs, target, share, key(self.job.seed, step, self.group.rank), total)
            self.group.all_reduce(total)
            loss = float(total[self.learner.count])
            self.learner.apply(total * self.damping, step)
            self.report_loss(loss, step)
            return (loss * rows, rows) if self.group.rank == 0 else (0.0, 0)

    class Damped(parallel.Strategy):
        name = "damped"

        def __init__(self, damping: float) -> None:
            self.damping = damping

        def updater(self, job, group, model, train):
            return DampedUpdater(job, group, model, train, damping=self.damping)

    return Damped


@pytest.mark.parametrize("backend", ["threads", "processes"])
def test_a_strategy_of_ones_own_trains_over_threads_and_processes(backend, tmp_path):
    """Gradients times a half are the plain loop with half the learning rate."""
    job = {**SETTINGS, "optimizer": "sgd", "workers": 2, "backend": backend, "checkpoint": str(tmp_path)}
    result = parallel.fit(network(), data(), data(40, 2), strategy=my_strategy()(0.5), **{**job, "learning_rate": 0.2})
    plain = parallel.fit(network(), data(), data(40, 2), strategy="serial", **{**SETTINGS, "optimizer": "sgd",
                         "learning_rate": 0.1})  # fmt: skip
    assert far(result.model, plain.model) < 1e-6
    assert far(result.model, network()) > 1e-2
    assert [record["train_loss"] for record in result.history] == pytest.approx(
        [record["train_loss"] for record in plain.history], rel=1e-5
    )
    assert result.metrics["strategy"] == peek(tmp_path)["strategy"] == "damped"
    with pytest.raises(ValueError, match=r"that differs: .*strategy was damped and is local_sgd"):
        parallel.fit(network(), data(), strategy="local_sgd", **{**job, "backend": "threads", "learning_rate": 0.2})


def test_a_custom_strategy_is_checked_like_any_other():
    with pytest.raises(ValueError, match=r"'damped' has no exact mode"):
        parallel.fit(network(), data(), strategy=my_strategy()(1.0), exact=True, backend="threads", workers=2)


def test_the_example_of_contributing_trains_and_has_a_cost():
    """It equals the plain loop; with a perfect link it costs what its workers compute, on a slow link more."""
    found: dict = {}
    exec(re.search(r"### A parallel strategy.*?```python\n(.*?)```", CONTRIBUTING, re.S)[1], found)  # type: ignore[index]
    strategy = found["PlainSum"]()
    many = parallel.fit(network(), data(), strategy=strategy, workers=2, backend="threads", **SETTINGS)
    assert far(many.model, parallel.fit(network(), data(), strategy="serial", **SETTINGS).model) < 1e-6
    (variant,) = strategy.variants()
    fast, slow = (cost_model(link).estimate(variant, 4) for link in (NodeLink(math.inf, 0.0), NodeLink(1e6, 1e-3)))
    one = cost_model().estimate(variant, 1)
    assert fast.communicating == 0 < slow.communicating
    assert fast.seconds < one.seconds < slow.seconds
    assert fast.memory < one.memory


class Nothing(parallel.Strategy):
    name = "nothing"


def test_what_is_no_strategy_is_refused():
    with pytest.raises(ValueError, match=r"strategy must be one of serial, .*, auto; got <object object"):
        parallel.fit(network(), data(), strategy=object())
    with pytest.raises(NotImplementedError, match="'nothing' has no updater"):
        parallel.fit(
            network(), data(), strategy=type("Nothing", (parallel.Strategy,), {"name": "nothing"})(), workers=1
        )


def test_jobs_and_strategies_load_without_torch():
    code = "import sys, shoal.parallel; from shoal.parallel.job import Job; Job(strategy='pipeline', workers=2)"
    code += "; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "False", done.stderr
