"""The model of `shoal train`: one network and the encoding of its table (see `shoal.models.saving`).

A network `mlp:...` is stored as every model is. Of any other, the folder holds the weights and the name: Shoal makes a
named one again, and the user gives one of their own code.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from shoal.files.json_values import plain
from shoal.models.model import FoldTransforms, single_model
from shoal.models.networks import TorchNetwork, mlp_of, state_of
from shoal.models.predictor import Predictor
from shoal.models.saving import EXPLANATION, Described
from shoal.parallel.networks import make_model, own_network
from shoal.search.results import row_explanations
from shoal.validate import instance

if TYPE_CHECKING:
    from torch import nn

    from shoal.parallel.data.tables import Prepared


def trained_model(module: nn.Module, prepared: Prepared, net: dict[str, Any], loss: str) -> Predictor:
    """A trained network with the encoding of its table; `net`: the arguments of `make_model`."""
    task, encoder, weights = prepared.task, prepared.encoder, state_of(module)
    network: Any = mlp_of(net, weights, task.loss)
    if network is None:
        network = TorchNetwork(net, encoder.width("plain"), task.n_outputs, weights, module)
    made = Predictor()
    transforms = FoldTransforms(encoder, prepared.scaling)
    made.model_ = single_model(task, encoder.schema, transforms, network, net["net"])
    made.schema_, made.reading_, made.target_name_ = encoder.schema, prepared.reading, prepared.target
    made.feature_names_in_ = np.array([column.name for column in encoder.schema.columns], dtype=object)
    made.n_features_in_, made.loss_, made.background_ = len(made.feature_names_in_), loss, prepared.background
    if prepared.classes:
        made.classes_ = np.asarray(prepared.classes)
    else:
        made.one_column_ = True
    return made


def make_network(network: TorchNetwork, net: str | None) -> nn.Module | None:
    """The network, without its weights; None where the user's code makes it, and `net` does not say where that is."""
    if not network.is_code:
        return make_model(**network.net)
    return None if net is None else own_network(net, network.n_features, network.n_outputs)


def describe(predictor: Predictor) -> Described:
    explanation = plain(row_explanations.described(predictor))
    return Described({"loss": predictor.loss_}, files={EXPLANATION: explanation} if explanation else {})


def restore(body: dict[str, Any], arrays: dict[str, np.ndarray], folder: Path, network: Any = None) -> Predictor:
    instance("loss", body.get("loss"), str)
    made = Predictor.restore(body, arrays, lambda kept: make_network(kept, None) if network is None else network)
    row_explanations.restore(made, folder)
    return made
