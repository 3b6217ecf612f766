"""Checks of model and data before a run, so that what cannot work ends in one sentence."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from shoal.errors import UserError, WrongType
from shoal.parallel.data.loader import Loader, find_device
from shoal.parallel.data.ownership import owners
from shoal.parallel.exact.randomness import random_numbers_kept
from shoal.parallel.lazy import nn, torch
from shoal.parallel.learner import IGNORED, Misfit, make_loss, need_tensor, shape_text, trained_parameters
from shoal.parallel.strategies.updater import fewest_rows

if TYPE_CHECKING:
    from torch.utils.data import Dataset

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
    if job.method.needs_targets(job) and type(train) is torch.utils.data.TensorDataset:
        owners(train.tensors[1], rows, job.workers, job)
    _try(job, model, train, fewest, most)
    _try_smallest_part(job, model, train)


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
    _refuse_shared_memory(model)
    for name, value in model.state_dict().items():
        if not isinstance(value, torch.Tensor):
            raise UserError(
                f"the model's state_dict has {name!r}, a {type(value).__name__}, but only tensors reach workers, "
                "checkpoints and saved models: keep numbers in a buffer instead, and remove get_extra_state"
            )


def _refuse_shared_memory(model: nn.Module) -> None:
    """Two parameters in the same memory: other processes would get two that are not tied. Or numbers of one."""
    for name, parameter in model.named_parameters():
        if any(size > 1 and stride == 0 for size, stride in zip(parameter.shape, parameter.stride(), strict=True)):
            raise UserError(f"numbers of the parameter {name!r} share memory, as expand() makes them: clone it")
    places = [(parameter.data_ptr(), parameter.data_ptr() + _extent(parameter), name)
              for name, parameter in model.named_parameters() if parameter.numel()]  # fmt: skip
    places.sort(key=lambda place: place[:2])
    for (_, end, one), (start, _, other) in pairwise(places):
        if start < end:
            raise UserError(
                f"the parameters {one!r} and {other!r} share memory without being one parameter. To tie them, assign "
                "the parameter itself, as in decoder.weight = encoder.weight, or clone one of them"
            )


def _extent(tensor: torch.Tensor) -> int:
    """Bytes from its first number to the end of its last."""
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return (last + 1) * tensor.element_size()


def _copied(model: nn.Module) -> nn.Module:
    hooks = [hook for module in model.modules() for hook in module._forward_pre_hooks.values()]
    by_hook = any(type(hook).__name__ == "WeightNorm" for hook in hooks)
    remedy = " with torch.nn.utils.weight_norm, but can with torch.nn.utils.parametrizations.weight_norm" * by_hook
    with _refused(f"every worker needs a copy of the model, and it cannot be copied{remedy}: {{}}"):
        return copy.deepcopy(model).cpu()


def _try(job: Job, model: nn.Module, train: Dataset[Any], fewest: int, most: int | None) -> None:
    """Send two rows through a copy of the model and the loss."""
    rows = min(2, len(train))  # type: ignore[arg-type]
    inputs, target = Loader(train, torch.device("cpu")).take(torch.arange(rows))
    shapes = f"inputs {shape_text(inputs)}, targets {shape_text(target)}"
    trial = _copied(model).eval()
    with torch.no_grad(), _refused(f"the model does not fit the data ({shapes}): {{}}"):
        output = trial(inputs)
        _check_output(job, output, rows, fewest, most)
        _check_classes(job, output, train)
        make_loss(job.loss)(output, target)


def _try_smallest_part(job: Job, model: nn.Module, train: Dataset[Any]) -> None:
    """Find out before training whether the model can be trained on the fewest rows that it will get.

    Batch normalisation cannot normalise one row, and the last batch of an epoch may have no more.
    """
    rows: int = len(train)  # type: ignore[arg-type]
    targets = train.tensors[1] if type(train) is torch.utils.data.TensorDataset else None
    if job.method.needs_targets(job) and targets is None:  # each row would have to be read for that
        return
    count = min(2, job.method.smallest_part(job, rows, fewest_rows(model), targets))
    inputs, target = Loader(train, torch.device("cpu")).take(torch.arange(count))
    trial = _copied(model).train()
    trained = trained_parameters(trial)
    workers = f" and {job.workers} workers" if job.workers > 1 else ""
    with _refused(
        "the model cannot be trained on the first two rows: {}" if count > 1 else
        f"the model cannot be trained on a single row ({{}}), and with {rows:,} rows, batch_size={job.batch_size}"
        f"{workers} a part of a batch has only one. Give another batch_size, or one row more or fewer"
    ):  # fmt: skip
        loss = make_loss(job.loss)(trial(inputs), target)
        gradients = torch.autograd.grad(loss, list(trained.values()), allow_unused=True)
    for name, gradient in zip(trained, gradients, strict=True):
        if gradient is not None and gradient.layout is not torch.strided:
            raise UserError(
                f"the gradient of {name!r} is sparse, which shoal.parallel cannot sum over workers; give its layer "
                "sparse=False, for the same result"
            )


@contextmanager
def _refused(sentence: str) -> Iterator[None]:
    """Any error of the model becomes a sentence about it, with its reason. Random numbers stay what they were."""
    try:
        with random_numbers_kept():
            yield
    except Misfit:
        raise
    except (Exception, SystemExit) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        if isinstance(error, SystemExit):
            reason = f"it calls sys.exit({reason}); let it raise an error instead"
        raise UserError(sentence.format(reason)) from None


def _check_output(job: Job, output: Any, rows: int, fewest: int, most: int | None) -> None:
    """One tensor, with as many numbers a row as the data need."""
    if not isinstance(output, torch.Tensor):
        if not callable(job.loss):
            need_tensor(output, job.loss)
        return
    found = output.numel() // rows
    if fewest and (output.dim() == 0 or len(output) != rows):
        raise Misfit(
            f"the network must return one row of outputs a row; for {rows} rows it returns {shape_text(output)}"
        )
    if fewest and (found < fewest or (most is not None and found > most)):
        raise Misfit(
            f"the network returns {found} output{'s' * (found != 1)} a row, the data need {fewest}: change its last "
            "layer"
        )


def _check_classes(job: Job, output: Any, train: Dataset[Any]) -> None:
    """Find classes for which the network has no output before training starts."""
    if callable(job.loss) or type(train) is not torch.utils.data.TensorDataset:
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
