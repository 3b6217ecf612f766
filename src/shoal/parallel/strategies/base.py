"""The contract of a strategy: its name, what it needs, and what each worker runs. Nothing here loads PyTorch.

A custom strategy is a subclass with a `name` and an `updater_class`; `fit(..., strategy=MyStrategy())` takes it:

    class MyStrategy(parallel.Strategy):
        name = "mine"
        updater_class = MyUpdater  # a shoal.parallel.Updater

One object serves all workers, and is copied to those in other processes: keep the state of a run in the updater.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from shoal.parallel.cost import Estimate, TrainingRound, Variant, memory_of, synchronous
from shoal.parallel.events import Notify
from shoal.parallel.exact.tree_sum import shards_of

if TYPE_CHECKING:
    import torch
    from torch import nn
    from torch.utils.data import Dataset

    from shoal.parallel.data.loader import Loader
    from shoal.parallel.groups import Group
    from shoal.parallel.job import Job
    from shoal.parallel.strategies.updater import Updater
    from shoal.parallel.worker import Result
    from shoal.planner.cost.times import CostModel

Runner = Callable[..., Any]  # (job, model, train, valid, notify) -> Result


class Strategy:
    """How one network is trained over several workers.

    Class attributes say what a strategy needs. A subclass needs a `name` and an `updater_class`.

    Examples
    --------
    >>> class Mine(Strategy):
    ...     name = "mine"
    ...     one_worker = True
    >>> Mine().one_worker
    True

    `CONTRIBUTING.md` and `examples/strategy.py` have whole ones.
    """

    name = ""
    plan_label = ""  # what a plan calls it
    updater_class: type[Updater] | None = None  # what each worker runs
    one_worker = False  # takes no more than one
    one_thread = False  # unless the user asks for more
    steps_timed_together = 1  # by `auto`: more where a round is more than a batch
    servers = 0  # ranks besides the workers
    splits_model = False  # a worker holds a part of the model: needs processes, and torch.distributed between them
    can_be_exact = False  # the same bits for any number of workers
    pools_threads = False  # backend "threads": one worker with a pool of threads, instead of a thread for each worker
    holds_out_rows = False  # makes validation sets of its own
    owns_rows = False  # workers train on rows of their own: takes the options of `strategies.own_rows`
    when_launched = ""  # the strategy to take instead under torchrun and mpiexec

    # ---- checks, before anything is started ----

    def check(self, job: Job) -> None:
        """Refuse settings that this strategy cannot have."""

    def check_model(self, job: Job, model: nn.Module) -> None:
        """Refuse a model that this strategy cannot train."""

    def fewest_rows(self, job: Job) -> int:
        """Rows that a training set needs."""
        return 1

    def needs_targets(self, job: Job) -> bool:
        """Whether the targets of all training rows decide which worker has which rows."""
        return False

    def smallest_part(self, job: Job, rows: int, least: int, targets: torch.Tensor | None = None) -> int:
        """Rows in the smallest part of a batch that the model is ever trained on, if parts have `least` where possible.

        A batch is cut into parts of at least that many, so only the last batch of an epoch can have fewer.
        """
        return rows % job.batch_size or min(rows, job.batch_size)

    # ---- workers and threads ----

    def default_workers(self, cores: int) -> int:
        """How many workers there are if the user does not say."""
        return 1 if self.one_worker else cores

    def possible_workers(self, workers: int) -> int:
        """The largest possible number of workers up to this one."""
        return workers

    def can_lose_workers(self, job: Job) -> bool:
        """Whether fewer workers can resume a run from its checkpoint."""
        return True

    def mesh_shape(self, job: Job) -> tuple[int, int]:
        """Workers along (data, model)."""
        return job.mesh or (1, job.workers)

    def blas_threads(self, job: Job, share: int) -> int:
        """Threads of a worker's matrix products, of its `share` of the cores. In exact mode one: more change bits."""
        return 1 if job.exact else share

    # ---- the run ----

    def exact_by_default(self, job: Job, notify: Notify) -> bool:
        """Whether a run is exact if the user does not say. Depends on the settings alone, never on the clock."""
        return False

    def default_shards(self, batch_size: int) -> int:
        """Parts of a batch in exact mode, if the user does not say. They decide the bits: no number of workers may."""
        return shards_of(batch_size)

    def parts_of_batch(self, job: Job) -> int:
        """Into how many parts a batch is cut at most; batch normalisation sees each part alone."""
        return 1

    def fingerprint(self, job: Job) -> dict[str, Any]:
        """Entries of a checkpoint's fingerprint that replace the job's: the name, and the settings of this object."""
        return {"strategy": self.name} | {f"strategy's {name}": value for name, value in vars(self).items()}

    def resume(self, job: Job, earlier: dict[str, Any]) -> Job:
        """Fill in what the user left open from the fingerprint of the run that is resumed."""
        return job

    def choose(self, job: Job, model: nn.Module, train: Dataset[Any], notify: Notify) -> Job:
        """Decide what is left open, say by measuring."""
        return job

    def run(self, workers: Runner, job: Job, *training: Any) -> Result:
        """Train; `workers(job, *training)`, with model, train, valid, notify, trains one model over all workers."""
        result: Result = workers(job, *training)
        return result

    def updater(self, job: Job, group: Group, model: nn.Module, train: Loader) -> Updater:
        """The updater that a worker runs."""
        if self.updater_class is None:
            raise NotImplementedError(f"strategy {self.name!r} has no updater")
        return self.updater_class(job, group, model, train)

    # ---- what it does to accuracy, and what it costs, for the planner ----

    def is_population(self, job: Job) -> bool:
        """Whether the planner may train all workers as members of one population that is averaged after epochs."""
        return False

    def variants(self) -> list[Variant]:
        """The variants that a plan compares. Without a label, plans skip this strategy."""
        return [Variant(self.name, self.plan_label, self)] if self.plan_label else []

    def variant(self, suffix: str) -> Variant | None:
        """The variant that `--strategy NAME:SUFFIX` of a plan means, or None."""
        return None

    def round_cost(self, costs: CostModel, variant: Variant, rows: int, nodes: int) -> TrainingRound:
        """A round of `rows` rows on n nodes: usually a batch."""
        raise NotImplementedError(f"strategy {self.name!r} has no cost formula")

    def estimate(self, costs: CostModel, variant: Variant, nodes: int) -> Estimate:
        """An epoch on n nodes."""
        return synchronous(costs, variant, nodes)

    def memory(self, costs: CostModel, variant: Variant, nodes: int) -> float:
        """Bytes of each of n nodes."""
        return memory_of(costs, nodes, replicas=nodes)

    def unexplained(self, costs: CostModel, variant: Variant, rows: int, workers: int, measured: float) -> float:
        """Seconds of a round beyond the formula, from those of a small step of `rows` rows that was measured."""
        return measured - self.round_cost(costs, variant, rows, workers).seconds
