"""The class of the ParallelMLPs paper (see `shoal.torch.scatter`). Scripts for the code of that paper run with it."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from shoal.errors import UserError, WrongType
from shoal.torch.scatter import ACTIVATIONS, ScatterNetwork, sum_before
from shoal.validate import nearest, whole

_VALUE_LOSSES = (nn.MSELoss, nn.L1Loss, nn.SmoothL1Loss, nn.HuberLoss, nn.BCEWithLogitsLoss, nn.BCELoss)


class MLP(nn.Module):
    """One network extracted from `ParallelMLPs`. With more than one hidden layer, `hidden_layers` lists them all."""

    def __init__(self, hidden_layers: list[nn.Linear], activation: nn.Module, out_layer: nn.Linear, model_id: int):
        super().__init__()
        self.hidden_layer = hidden_layers[0]
        if len(hidden_layers) > 1:
            self.hidden_layers = nn.ModuleList(hidden_layers)
        self.activation = activation
        self.out_layer = out_layer
        self.out_features = out_layer.out_features
        self.model_id = model_id
        self.metadata = {"model_id": model_id}

    def forward(self, x: Tensor) -> Tensor:
        for layer in getattr(self, "hidden_layers", [self.hidden_layer]):
            x = self.activation(layer(x))
        return self.out_layer(x)

    @property
    def device(self) -> torch.device:
        return self.out_layer.weight.device

    def short_repr(self) -> str:
        widths = [layer.out_features for layer in getattr(self, "hidden_layers", [self.hidden_layer])]
        return "-".join(map(str, [self.hidden_layer.in_features, *widths, self.activation, self.out_features]))


class ParallelMLPs(ScatterNetwork):
    """The class of the ParallelMLPs paper: networks of many widths and activations as one module.

    There is a network for each width from `min_neurons` to `max_neurons` by `step`, for each activation, repeated.
    Networks are ordered by activation, then repetition, then width. Those that differ in repetition alone have the same
    architecture id.

    Parameters
    ----------
    in_features, out_features : int
        Of each network.
    min_neurons, max_neurons, step : int
        Widths of the hidden layer.
    repetitions : int
        Networks of each width and activation.
    activations : list of nn.Module or str
        One after the other.
    bias : bool, default True
        Whether layers have one.
    device : str or torch.device, optional
        By default a GPU if there is one.
    logger : logging.Logger, optional
        Where to say how many networks there are.
    hidden_layers : int, default 1
        Each network has that many layers of its width. What the paper's code says of hidden neurons
        (`total_hidden_neurons`, `hidden_neuron__model_id`) then holds for each layer.

    Examples
    --------
    >>> networks = ParallelMLPs(4, 2, 1, 3, 1, repetitions=5, activations=[nn.Tanh(), nn.ReLU()], device="cpu")
    >>> networks(torch.zeros(7, 4)).shape  # [batch, models, out_features]
    torch.Size([7, 30, 2])
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        min_neurons: int,
        max_neurons: int,
        step: int,
        repetitions: int,
        activations: Sequence[nn.Module | str],
        bias: bool = True,
        device: torch.device | str | None = None,
        logger: logging.Logger | None = None,
        *,
        hidden_layers: int = 1,
    ) -> None:
        for name, value in {"step": step, "repetitions": repetitions, "hidden_layers": hidden_layers}.items():
            whole(name, value, 1)
        if whole("min_neurons", min_neurons, 1) > whole("max_neurons", max_neurons, 1):
            raise UserError(f"min_neurons={min_neurons} is above max_neurons={max_neurons}: exchange them")
        modules = _unique_activations(activations)
        widths = range(min_neurons, max_neurons + 1, step)
        hidden = [(width,) * hidden_layers for _ in modules for _ in range(repetitions) for width in widths]
        each = [module for module in modules for _ in range(repetitions * len(widths))]
        super().__init__(in_features, out_features, hidden, each, bias)
        self.num_activations, self.num_unique_models = len(modules), len(hidden)
        self.unique_model_ids = list(range(len(hidden)))
        self._describe(len(widths), repetitions)
        self.logger = logging.getLogger("shoal.torch") if logger is None else logger
        self.to(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        self.logger.info("%d networks are on %s", self.num_unique_models, self.device)

    def _describe(self, widths: int, repetitions: int) -> None:
        """The paper's maps from neurons, outputs and models to one another."""
        models = torch.arange(self.num_unique_models)
        neurons = torch.tensor([sizes[0] for sizes in self.hidden])
        activation = models // (repetitions * widths)
        self.total_hidden_neurons = int(neurons.sum())
        self.activations_split = self.total_hidden_neurons // self.num_activations
        bounds = enumerate(zip(self._column_starts, self.hidden, strict=True))
        self.model_id__hidden_idx = {model: range(start, start + sizes[0]) for model, (start, sizes) in bounds}
        self._add_map("hidden_neuron__model_id", models.repeat_interleave(neurons))
        self._add_map("output__model_id", models)
        self._add_map("output__architecture_id", activation * widths + models % widths)
        self._add_map("output__repetition", models // widths % repetitions)
        self._add_map("model_id__num_hidden_neurons", neurons)
        self._add_map("model_id__start_idx", sum_before(neurons))
        self._add_map("model_id__end_idx", neurons.cumsum(0))
        self._add_map("model_id__activation_id", activation)

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return self.weight.device

    def calculate_loss(self, loss_func: Callable[[Tensor, Tensor], Tensor], preds: Tensor, target: Tensor) -> Tensor:
        """The loss of each sample and model, [batch, models], for preds [batch, models, out_features].

        `target` is class indices [batch] for a classification loss. For others it is values [batch, out_features], or
        [batch] for a single output, and losses are averaged over outputs. One network's 2-D preds give [batch].
        """
        reduction = getattr(loss_func, "reduction", "none")
        if reduction != "none":
            raise UserError(f'the loss must keep models apart, got {reduction=}: write reduction="none"')
        if preds.ndim == 2:
            return self.calculate_loss(loss_func, preds[:, None], target)[:, 0]
        if preds.ndim != 3:
            raise UserError(f"preds must have the shape [batch, models, out_features], got {list(preds.shape)}")
        # One row per sample and model is a shape that every loss accepts.
        loss = loss_func(preds.flatten(0, 1), _target_rows(loss_func, preds, target))
        if loss.shape[:1] != (preds.shape[0] * preds.shape[1],):
            raise UserError(f"the loss must keep samples and models apart, got {list(loss.shape)}: do not reduce it")
        loss = loss.unflatten(0, preds.shape[:2])
        return loss.mean(-1) if loss.ndim == 3 else loss

    def extract_mlps(self, model_ids: Iterable[int]) -> list[MLP]:
        """Networks with their own parameters; the activation is the object that the constructor was given."""
        mlps = []
        for model_id in self._checked_ids(model_ids):
            *hidden, output = self._linears(model_id)
            mlps.append(MLP(hidden, self.get_activation_from_model_id(model_id), output, model_id))
        return mlps

    def extract_params_mlps(self, model_ids: Iterable[int]) -> list[dict[str, Any]]:
        """As `extract_mlps`, but dictionaries of tensors; also of all hidden layers if there are several."""
        extracted = []
        for model_id in self._checked_ids(model_ids):
            weights, biases = zip(*[(weight.T, bias) for weight, bias in self.layers(model_id)], strict=True)
            parameters = {"hidden_weight": weights[0], "hidden_bias": biases[0]}
            if self.depth > 1:
                parameters |= {"hidden_weights": weights[:-1], "hidden_biases": biases[:-1]}
            parameters |= {"out_weight": weights[-1], "out_bias": biases[-1], "metadata": {"model_id": model_id}}
            extracted.append(parameters | {"activation": self.get_activation_from_model_id(model_id)})
        return extracted

    def get_model_ids_from_architecture_id(self, architecture_id: int) -> list[int]:
        """The repetitions of one width and activation."""
        architectures = self.get_buffer("output__architecture_id")
        found = (architectures == architecture_id).nonzero().squeeze(1).tolist()
        if not found:
            raise UserError(f"no architecture has the id {architecture_id}: use 0 to {int(architectures.max())}")
        return found

    def get_num_hidden_neurons_from_architecture_id(self, architecture_id: int) -> Tensor:
        """The width of an architecture."""
        return self.get_num_hidden_neurons_from_model_id(self.get_model_ids_from_architecture_id(architecture_id)[0])

    def get_num_hidden_neurons_from_model_id(self, model_id: int) -> Tensor:
        """The width of one model."""
        (model_id,) = self._checked_ids(model_id)
        return self.get_buffer("model_id__num_hidden_neurons")[model_id]

    def get_architecture_ids_from_model_ids(self, model_ids: Iterable[int]) -> list[int]:
        """The width and activation of each model, as a number."""
        return self.get_buffer("output__architecture_id")[self._checked_ids(model_ids)].tolist()

    def get_activation_from_model_id(self, model_ids: int | Iterable[int]) -> Any:
        """The activation of one model; a list of them for several ids (for one id no list, as in the paper's code)."""
        found = [self.activations[self._activation_of[model_id]] for model_id in self._checked_ids(model_ids)]
        return found[0] if len(found) == 1 else found

    def get_activation_name_from_model_id(self, model_id: int) -> str:
        """The name of one model's activation."""
        kind = type(self.get_activation_from_model_id(model_id))
        return next((name for name, known in ACTIVATIONS.items() if known is kind), kind.__name__)


def _unique_activations(activations: Sequence[nn.Module | str]) -> list[nn.Module]:
    """The activations of `ParallelMLPs`, with names turned into modules."""
    if isinstance(activations, str) or not len(activations):
        raise UserError(f'activations must be a list of one or more, such as ["relu"], got {activations!r}')
    modules = []
    for given in activations:
        if isinstance(given, str) and given not in ACTIVATIONS:
            raise UserError(f"activations are {', '.join(ACTIVATIONS)}; got {given!r}{nearest(given, ACTIVATIONS)}")
        modules.append(ACTIVATIONS[given]() if isinstance(given, str) else given)
        if not isinstance(modules[-1], nn.Module):
            raise WrongType(f'an activation is a module or a name, such as nn.ReLU() or "relu", got {given!r}')
    kind, count = Counter(type(module).__name__ for module in modules).most_common(1)[0]
    if count > 1:
        raise UserError(f"activations must be of different types, got {count} of {kind}: raise repetitions instead")
    return modules


def _target_rows(loss_func: object, preds: Tensor, target: Tensor) -> Tensor:
    """The target once per model: class indices [batch * models], or values [batch * models, out_features]."""
    batch, models, outputs = preds.shape
    values = target[:, None] if target.ndim == 1 and outputs == 1 else target
    if values.shape == (batch, outputs):
        return values.to(preds.dtype).repeat_interleave(models, dim=0)
    if target.shape == (batch,) and not target.is_floating_point() and not isinstance(loss_func, _VALUE_LOSSES):
        return target.long().repeat_interleave(models)
    wanted = f"values [{batch}, {outputs}] or, for classification, whole class indices [{batch}]"
    raise UserError(f"preds {list(preds.shape)} need {wanted}, got {list(target.shape)} of {target.dtype}")
