"""A network of linear layers, trained by the compiled kernel of `shoal.Population` on all threads of one worker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shoal.errors import UserError
from shoal.parallel.data.loader import Loader, key
from shoal.parallel.exact.threads import blas_threads
from shoal.parallel.lazy import nn, torch
from shoal.parallel.learner import like_output, make_loss
from shoal.parallel.strategies.base import Strategy
from shoal.parallel.strategies.updater import Items, Updater, given
from shoal.population.activations import TABLE
from shoal.population.members import Member
from shoal.population.population import Population

if TYPE_CHECKING:
    from shoal.parallel.groups import Group
    from shoal.parallel.job import Job


class NativeUpdater(Updater):
    """A population of one. A round is an epoch, since calling the kernel takes longer than a step of a small network.

    After each round the model has the population's weights. The kernel keeps the moments and the number of steps.
    """

    def __init__(self, job: Job, group: Group, model: nn.Module, train: Loader) -> None:
        super().__init__(job, group, model, train)
        self.layers = linear_layers(model)
        first, last = self.layers[0], self.layers[-1]
        member = member_of(job, model)
        self.population = Population.blank([member], first.in_features, last.out_features, str(job.loss))
        self._give_weights()
        self.begun = False

    def round_rows(self) -> int:
        return self.rows

    def parts(self, rows: torch.Tensor) -> list[torch.Tensor]:
        return [rows]

    def round(self, items: Items, rows: int, step: int) -> tuple[float, int]:
        inputs, target = given(items[0])
        if not self.begun:  # an error about the first epoch names the loss that training began with
            self.begun = True
            few = slice(0, self.job.batch_size)
            with torch.no_grad():
                self.report_loss(float(make_loss(self.job.loss)(self.model(inputs[few]), target[few])), step)
        if self.job.loss != "cross_entropy":
            target = like_output(inputs.new_empty(rows, self.population.n_outputs), target)
        X, y = inputs.cpu().numpy(), target.cpu().numpy()
        threads = blas_threads(self.job)
        history = self.population.fit(X, y, 1, engine="native", threads=threads, shuffle=False)
        loss = float(history.loss[0, -1])
        self.report_loss(loss, step + self.steps_in(rows) - 1)
        self._take_weights()
        return loss * rows, rows

    def state(self) -> dict[str, Any]:
        state = self.population.state
        return {
            "model": {name: value.detach().cpu().clone() for name, value in self.model.state_dict().items()},
            "moments": torch.from_numpy(state.slots.copy()),
            "steps": int(state.steps[0]),
            "epochs": int(state.epochs[0]),
        }

    def load(self, state: dict[str, Any]) -> None:
        self.model.load_state_dict(state["model"])
        self._give_weights()
        mine = self.population.state
        mine.slots[:] = state["moments"].numpy()
        mine.steps[0], mine.epochs[0] = state["steps"], state["epochs"]

    def _give_weights(self) -> None:
        layers = [(layer.weight.detach().T, layer.bias.detach()) for layer in self.layers]
        self.population.set_weights(0, [(weight.cpu().numpy(), bias.cpu().numpy()) for weight, bias in layers])

    def _take_weights(self) -> None:
        with torch.no_grad():
            for layer, (weight, bias) in zip(self.layers, self.population.weights(0), strict=True):
                layer.weight.copy_(torch.from_numpy(weight).T)
                layer.bias.copy_(torch.from_numpy(bias))


class Native(Strategy):
    """One worker, whose threads share the work of the compiled kernel. The same bits for any number of threads."""

    name = "native"
    updater_class = NativeUpdater
    one_worker = True
    steps_timed_together = 8

    def check(self, job: Job) -> None:
        for name, value in (("loss", job.loss), ("optimizer", job.optimizer)):
            if callable(value):
                raise UserError(f"strategy 'native' runs compiled code: {name} must be a name, not a function")
        if job.device not in ("auto", "cpu"):
            raise UserError(f"strategy 'native' computes on the CPU; got device {job.device!r}")

    def check_model(self, job: Job, model: nn.Module) -> None:
        member_of(job, model)


def can_train(job: Job, model: nn.Module) -> bool:
    """Whether the kernel gives the result of the plain loop, except for rounding: its dropout draws other numbers."""
    try:
        Native().check(job)
        return member_of(job, model).dropout == 0
    except UserError:
        return False


def linear_layers(model: nn.Module) -> list[nn.Linear]:
    return [module for module in _modules(model) if isinstance(module, nn.Linear)]


def _modules(model: nn.Module) -> list[nn.Module]:
    return list(model) if isinstance(model, nn.Sequential) else [model]


def member_of(job: Job, model: nn.Module) -> Member:
    """The recipe of the network and its training; a network that the kernel cannot train is refused."""
    activation, dropout = _between_layers(model)
    layers = linear_layers(model)
    own = {id(parameter) for layer in layers for parameter in (layer.weight, layer.bias) if parameter is not None}
    if len(own) < 2 * len(layers) or own != set(map(id, model.parameters())):
        raise _refused("each layer must have a weight and a bias of its own")
    if any(module._forward_hooks or module._forward_pre_hooks for module in model.modules()):
        raise _refused("its hooks would not be called")
    if any(parameter.dtype != torch.float32 or not parameter.requires_grad for parameter in model.parameters()):
        raise _refused("all parameters must be float32 and be trained")
    return Member(
        tuple(layer.out_features for layer in layers[:-1]), activation, str(job.optimizer), job.learning_rate,
        weight_decay=job.weight_decay, momentum=job.momentum, dropout=dropout, batch_size=job.batch_size,
        seed=key(job.seed), schedule=job.schedule, epochs=job.epochs if job.schedule != "constant" else None,
    )  # fmt: skip


def _between_layers(model: nn.Module) -> tuple[str, float]:
    """Activation and dropout of the hidden layers, all of which must have the same."""
    modules = _modules(model)
    if type(model) not in (nn.Sequential, nn.Linear):
        raise _refused(f"this is {type(model).__name__}")
    if not modules or type(modules[0]) is not nn.Linear or type(modules[-1]) is not nn.Linear:
        raise _refused("the first layer and the last must be nn.Linear")
    names = {repr(activation.module()()): name for name, activation in TABLE.items()}
    found: list[list[Any]] = []  # of each layer, what comes after it
    for module in modules:
        if type(module) is nn.Linear:
            found.append([])
        elif repr(module) in names:
            found[-1].append(names[repr(module)])
        elif type(module) is nn.Dropout:
            found[-1].append(module.p)
        else:
            raise _refused(f"{module} is none of these")
    kinds = {tuple(after) for after in found[:-1]}
    if len(kinds) > 1:
        raise _refused("all hidden layers must have the same activation and dropout")
    after = next(iter(kinds), ())
    activation = after[0] if after and isinstance(after[0], str) else "identity"
    rest = after[1:] if after and isinstance(after[0], str) else after
    if len(rest) > 1 or any(isinstance(one, str) or one >= 1 for one in rest):
        raise _refused("there may be one activation after a layer, and then one nn.Dropout")
    return activation, float(rest[0]) if rest else 0.0


def _refused(reason: str) -> UserError:
    return UserError(
        f"strategy 'native' trains an nn.Sequential of nn.Linear, activations of shoal.ACTIVATIONS and nn.Dropout: "
        f"{reason}; use strategy 'blas'"
    )
