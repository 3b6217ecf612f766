"""Checks of model and data before a run, so that what cannot work ends in one sentence."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.utils.data import Dataset, TensorDataset

from shoal.errors import UserError, WrongType
from shoal.parallel.devices import find_device
from shoal.parallel.learner import IGNORED, make_loss
from shoal.parallel.loader import Loader
from shoal.parallel.ownership import owners

if TYPE_CHECKING:
    from shoal.parallel.job import Job


def check_fit(
    job: Job,
    model: nn.Module,
    train: Dataset[Any],
    valid: Dataset[Any] | None,
    fewest: int = 0,
    most: int | None = None,
) -> None:
    """Refuse what cannot work before anything is started: no rows, shapes that do not fit.

    fewest, most: the number of outputs that the data need, where it is known.
    """
    find_device(job.device)
    _check_parameters(model)
    for name, data in (("train_set", train), ("valid_set", valid)):
        if data is None:
            continue
        if not hasattr(data, "__len__") or not hasattr(data, "__getitem__"):
            raise WrongType(f"{name} must be a map-style data set, with len() and []; got {type(data).__name__}")
        if len(data) == 0:
            raise UserError(f"{name} has no rows")
    rows: int = len(train)  # type: ignore[arg-type]
    needed = job.method.fewest_rows(job)
    if rows < needed:
        raise UserError(f"strategy {job.method.name!r} needs at least {needed} rows, one for each worker or fold; "
                        f"train_set has {rows} rows")  # fmt: skip
    job.method.check_model(job, model)
    if job.method.needs_targets(job) and type(train) is TensorDataset:
        owners(train.tensors[1], rows, job.workers, job)
    _try(job, model, train, fewest, most)


def _check_parameters(model: nn.Module) -> None:
    if not isinstance(model, nn.Module):
        raise WrongType(f"model must be a torch.nn.Module; got {type(model).__name__}")
    for name, parameter in model.named_parameters():
        if isinstance(parameter, nn.parameter.UninitializedParameter):
            raise UserError(
                f"the size of {name!r} is not known before the model has seen rows: use a layer with a given number of "
                "inputs, such as nn.Linear for nn.LazyLinear, or call the model once on some rows"
            )
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise UserError("the model has no parameter that can be trained")


def _try(job: Job, model: nn.Module, train: Dataset[Any], fewest: int, most: int | None) -> None:
    """Send two rows through a copy of the model and the loss."""
    rows = min(2, len(train))  # type: ignore[arg-type]
    inputs, target = Loader(train, torch.device("cpu")).take(torch.arange(rows))
    state = torch.get_rng_state()
    try:
        with torch.no_grad():
            trial = copy.deepcopy(model).cpu().eval()
            output = trial(inputs)
            _check_output(job, output, rows, fewest, most)
            _check_classes(job, output, train)
            make_loss(job.loss)(output, target)
    except Misfit:
        raise
    except (Exception, SystemExit) as error:
        shapes = f"inputs {_shape(inputs)}, targets {_shape(target)}"
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(f"the model does not fit the data ({shapes}): {reason}") from None
    finally:
        torch.set_rng_state(state)


class Misfit(UserError):
    """Outputs of a wrong kind or number."""


def _check_output(job: Job, output: Any, rows: int, fewest: int, most: int | None) -> None:
    """One tensor, with as many numbers a row as the data need."""
    if not isinstance(output, torch.Tensor):
        if not callable(job.loss):
            raise Misfit(
                f"the model must return one tensor for the loss {job.loss!r}; it returns {_kind(output)} (a loss of "
                "your own, in shoal.parallel.fit, may take anything)"
            )
        return
    found = output.numel() // rows
    if fewest and (output.dim() == 0 or len(output) != rows):
        raise Misfit(f"the network must return one row of outputs a row; for {rows} rows it returns {_shape(output)}")
    if fewest and (found < fewest or (most is not None and found > most)):
        raise Misfit(
            f"the network returns {found} output{'s' * (found != 1)} a row, the data need {fewest}: change its last "
            "layer"
        )


def _kind(value: Any) -> str:
    return f"a {type(value).__name__}" if value is not None else "None"


def _check_classes(job: Job, output: Any, train: Dataset[Any]) -> None:
    """Find classes for which the network has no output before training starts."""
    if callable(job.loss) or type(train) is not TensorDataset:
        return
    target = train.tensors[1]
    single = job.loss != "cross_entropy" and output.shape[-1:] == (1,)  # then classes are numbers to predict
    if not target.is_floating_point() and target.dim() == 1 and output.dim() == 2 and not single:
        highest = int(target.max())
        if highest >= output.shape[1] or _below_zero(job, target):
            raise Misfit(
                f"the model does not fit the data: targets go from {int(target.min())} to {highest}, "
                f"and the network has {output.shape[1]} outputs, for classes from 0"
            )


def _below_zero(job: Job, target: torch.Tensor) -> bool:
    """Whether classes are negative, apart from rows that cross entropy ignores."""
    ignored = (target == IGNORED) & (job.loss == "cross_entropy")
    return bool(((target < 0) & ~ignored).any())


def _shape(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{tuple(value.shape)} of {str(value.dtype).removeprefix('torch.')}"
    return type(value).__name__
