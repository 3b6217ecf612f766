"""MLflow: a run for each search or training, with child runs of the best recipes."""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit
from urllib.request import getproxies

from shoal.trackers.content import Scores, TriedRecipe, Values
from shoal.trackers.tracker import FAILED, FINISHED, STOPPED, Tracker, need

STATUS = {FINISHED: "FINISHED", STOPPED: "KILLED", FAILED: "FAILED"}
SECONDS_TO_CONNECT = 10.0
LONGEST = 500  # characters of a parameter, as all versions of MLflow take them
PARENT, RANK, USED = "mlflow.parentRunId", "shoal.rank", "shoal.used"  # tags


@dataclass(eq=False)
class MLflow(Tracker):
    """A callback that logs to MLflow: parameters, scores of each rung, the honest score, the report and the model.

    The best recipes of a search, at most 100, become child runs. A search that is resumed continues its run. Within
    `with mlflow.start_run():` the first search logs to that run and leaves it open, and others get child runs. A
    server that fails causes one warning, and the search goes on without it. Needs MLflow:
    `pip install 'shoal-ml[mlflow]'`.

    Parameters
    ----------
    uri : str, optional
        Such as "sqlite:///mlflow.db" or "http://server:5000"; by default what MLflow is set to.
    experiment : str, default "shoal"
        The experiment, which is created where it does not exist.

    Examples
    --------
    >>> import tempfile
    >>> from sklearn.datasets import load_iris
    >>> from shoal import ShoalClassifier
    >>> tracker = MLflow(f"sqlite:///{tempfile.mkdtemp()}/mlflow.db")
    >>> model = ShoalClassifier(recipes=2, seeds=1, callbacks=[tracker])  # `fit` then logs
    """

    copies_files: ClassVar[bool] = True

    uri: str | None = None
    experiment: str = "shoal"

    def __post_init__(self) -> None:
        need("mlflow", "mlflow", self.address)

    @property
    def address(self) -> str:
        """Where it writes."""
        return "mlflow" if self.uri is None else f"mlflow:{self.uri}"

    def started(self, event: Any) -> None:
        """Begin a run, or continue that of a resumed search, or use the one that is active."""
        known = sys.modules.get("mlflow")  # not loaded: no run can be active
        active = None if known is None else known.active_run()  # of this thread
        self._active = None if active is None else active.info.run_id
        super().started(event)

    def begin(self, parameters: Values, run: str) -> str:
        """Begin a run, or continue an earlier one."""
        from mlflow import MlflowClient

        self._client = MlflowClient(self.uri)
        _check_server(self._client.tracking_uri)
        active = None if self._active is None else self._client.get_run(self._active)
        if run and self._continues(run):
            return run
        if active is not None and USED not in active.data.tags:
            self._run, self._experiment = active.info.run_id, active.info.experiment_id
            self._client.set_tag(self._run, USED, "1")
            parameters = {name: value for name, value in parameters.items() if name not in active.data.params}
        else:  # parameters of one run cannot change, so another search needs another run
            self._experiment = self._find_experiment() if active is None else active.info.experiment_id
            tags = None if active is None else {PARENT: self._active}
            self._run = self._client.create_run(self._experiment, tags=tags).info.run_id
        self._send(self._run, parameters)
        return str(self._run)

    def _continues(self, run: str) -> bool:
        """Continue an earlier run of the same search, unless it was deleted or another one is active."""
        from mlflow.exceptions import MlflowException

        try:
            earlier = self._client.get_run(run)
        except MlflowException as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
            return False
        outer = (None, earlier.info.run_id, earlier.data.tags.get(PARENT))
        if earlier.info.lifecycle_stage != "active" or self._active not in outer:
            return False
        self._run, self._experiment = earlier.info.run_id, earlier.info.experiment_id
        self._client.update_run(self._run, status="RUNNING")
        return True

    def log(self, step: int, scores: Scores) -> None:
        """Scores of a step."""
        self._send(self._run, {}, [(step, scores)])

    def forget_recipes(self) -> None:
        """Those of an earlier attempt at the same search."""
        wanted = f"tags.`{PARENT}` = '{self._run}' and tags.`{RANK}` != ''"
        for child in self._client.search_runs([self._experiment], wanted, max_results=1000):
            self._client.delete_run(child.info.run_id)

    def log_recipe(self, rank: int, recipe: TriedRecipe) -> None:
        """A child run."""
        tags, name = {PARENT: self._run, RANK: str(rank)}, f"{rank}. {recipe.name}"[:LONGEST]
        child = self._client.create_run(self._experiment, tags=tags, run_name=name).info.run_id
        self._send(child, recipe.parameters, [*recipe.curve, (0, recipe.scores)])
        self._client.set_terminated(child)

    def log_file(self, path: Path) -> None:
        """An artifact."""
        if path.is_dir():
            self._client.log_artifacts(self._run, str(path), path.name)
        else:
            self._client.log_artifact(self._run, str(path))

    def end(self, results: Scores, status: str) -> None:
        """The run is complete, or will not be."""
        self._send(self._run, {}, [(0, results)])
        if self._run != self._active:
            self._client.set_terminated(self._run, STATUS[status])

    # ---- how ----

    def _find_experiment(self) -> str:
        found = self._client.get_experiment_by_name(self.experiment)
        return str(self._client.create_experiment(self.experiment) if found is None else found.experiment_id)

    def _send(self, run: str, parameters: Values, steps: Iterable[tuple[int, Scores]] = ()) -> None:
        from mlflow.entities import Metric, Param

        now = int(time.time() * 1000)
        values = [Metric(name, value, now, step) for step, scores in steps for name, value in scores.items()]
        settings = [Param(name, str(value)[:LONGEST]) for name, value in parameters.items()]
        if values or settings:
            self._client.log_batch(run, values[:1000], settings[:100])


def _check_server(uri: str | None) -> None:
    """Learn in seconds that nobody answers; MLflow itself tries for minutes."""
    found = urlsplit(uri or "")
    if found.scheme in ("http", "https") and found.hostname and not getproxies():
        port = found.port or (443 if found.scheme == "https" else 80)
        socket.create_connection((found.hostname, port), timeout=SECONDS_TO_CONNECT).close()
