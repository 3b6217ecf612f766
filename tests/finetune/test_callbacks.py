"""`finetune` in Python: what callbacks receive, and how they stop a run that is then resumed."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("transformers")
pytest.importorskip("accelerate")

from shoal.errors import UserError
from shoal.finetune.events import Evaluated, FinetuneProgress, FinetuneResult, FinetuneStarted
from shoal.finetune.options import FinetuneOptions
from shoal.finetune.run import finetune
from shoal.finetune.texts import Texts

OPTIONS = FinetuneOptions(model="tiny", epochs=2, batch_size=4, context=16, threads=1, samples=0, eval_every=2)


class Watching:
    """Keeps every event, and stops the run after an evaluation of this step or a later one."""

    def __init__(self, stop_at: float = float("inf")) -> None:
        self.stop_at = stop_at
        self.events: list[Any] = []

    def started(self, event: FinetuneStarted) -> None:
        self.events.append(event)

    def progress(self, event: FinetuneProgress) -> None:
        self.events.append(event)

    def step_ended(self, event: Evaluated) -> bool:
        self.events.append(event)
        return event.step >= self.stop_at

    def finished(self, result: FinetuneResult) -> None:
        self.events.append(result)

    def of(self, kind: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


def test_a_callback_stops_a_run_and_the_same_call_resumes_it(tmp_path, capfd):
    rows = [(f"text {number} " * 9,) for number in range(30)]
    found = Texts("a.csv", ("text",), rows, 30)
    first, second = Watching(stop_at=0), Watching()
    stopped = finetune(found, OPTIONS, tmp_path / "run", callbacks=[first])
    assert not stopped.finished
    assert 0 < stopped.step < 14
    result = finetune(found, OPTIONS, tmp_path / "run", callbacks=[second])
    assert (result.finished, result.step, result.folder) == (True, 14, tmp_path / "run")
    for watching, returned in ((first, stopped), (second, result)):
        [started] = watching.of(FinetuneStarted)
        assert (started.texts, started.context) == (30, 16)
        assert started.cut == 30
        assert watching.events[-1] == returned
    assert first.of(Evaluated)[0].step == 0
    assert min(event.step for event in second.of(Evaluated)) >= stopped.step
    assert second.of(Evaluated)[-1].loss == result.loss_after < first.of(Evaluated)[0].loss == result.loss_before
    assert second.of(FinetuneProgress)[-1].share > first.of(FinetuneProgress)[0].share == 0.0
    assert capfd.readouterr() == ("", ""), "the library prints nothing"


def test_a_class_is_no_callback(tmp_path):
    with pytest.raises(UserError, match="a callback must be an object"):
        finetune(Texts("a.csv", ("text",), [("a",), ("b",)], 2), OPTIONS, tmp_path / "run", callbacks=[Watching])
