"""A model as an ONNX graph, preprocessing included. Written operator by operator: PyTorch is not needed."""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from shoal.encoders.scaling import LARGEST_SCALED, SMOOTH_LIMIT
from shoal.errors import UserError
from shoal.metrics.tasks import CLASSIFICATION, MULTILABEL, REGRESSION, SMALLEST_PROBABILITY
from shoal.models.export.plan import Category, ExportPlan, PartNetworks
from shoal.population.activations import TABLE

OPSET, ML_OPSET = 17, 2
IR_VERSION = 8  # the one of operator set 17, so that runtimes of 2022 and later read the file
ML = "ai.onnx.ml"
LARGEST_FILE = (1 << 31) - (1 << 20)  # what the format's messages may hold


class Graph:
    """Nodes and constants under construction; every method gives the name of a result."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def constant(self, value: Any, dtype: Any = np.float64) -> str:
        name = f"constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.array(value, dtype=dtype, order="C"), name))
        return name

    def add(self, operator: str, *inputs: str, name: str = "", **attributes: Any) -> str:
        result = name or f"{operator.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, list(inputs), [result], name=f"make_{result}", **attributes))
        return result

    def cast(self, value: str, dtype: int) -> str:
        return self.add("Cast", value, to=dtype)


# ---- preprocessing ----


def _values(graph: Graph, plan: ExportPlan) -> str | None:
    """(folds or 1, n, columns) float64: numbers, then frequencies; None where there are neither."""
    blocks = []
    if plan.numbers:
        blocks.append(graph.add("Unsqueeze", "numbers", graph.constant([0], np.int64)))
    if plan.counted and blocks:
        blocks = [graph.add("Mul", blocks[0], graph.constant(np.ones((plan.folds, 1, 1))))]
    for category in plan.counted:
        index = _index(graph, plan, category, category.frequent)
        found = graph.add("Gather", graph.constant(category.logs), index, axis=1)
        blocks.append(graph.add("Unsqueeze", found, graph.constant([2], np.int64)))
    if not blocks:
        return None
    return blocks[0] if len(blocks) == 1 else graph.add("Concat", *blocks, axis=2)


def _index(graph: Graph, plan: ExportPlan, category: Category, known: tuple[str, ...]) -> str:
    """(n,) the number of each cell: its place among the known values, then unseen, then missing."""
    position = graph.constant(plan.categories.index(category), np.int64)
    column = graph.add("Gather", "categories", position, axis=1)
    cells = category.numbered(known)
    return graph.add(
        "LabelEncoder", column, domain=ML, keys_strings=list(cells), values_int64s=list(cells.values()),
        default_int64=len(known),
    )  # fmt: skip


def _plain(graph: Graph, plan: ExportPlan, values: str) -> str:
    scaling = plan.scaling
    moved = graph.add("Sub", values, graph.constant(scaling.centre))
    scaled = graph.add("Mul", moved, graph.constant(scaling.inverse))
    scaled = graph.add("Where", graph.add("IsNaN", values), graph.constant(0.0), scaled)
    scaled = graph.add("Clip", scaled, graph.constant(-LARGEST_SCALED), graph.constant(LARGEST_SCALED))
    third = graph.add("Div", scaled, graph.constant(SMOOTH_LIMIT))
    bend = graph.add("Sqrt", graph.add("Add", graph.constant(1.0), graph.add("Mul", third, third)))
    return graph.cast(graph.add("Div", scaled, bend), TensorProto.FLOAT)


def _piecewise(graph: Graph, plan: ExportPlan, values: str) -> str:
    pieces = plan.pieces
    chosen = graph.add("Gather", values, graph.constant(pieces.column, np.int64), axis=2)
    moved = graph.add("Sub", chosen, graph.constant(pieces.low))
    part = graph.add("Mul", moved, graph.constant(pieces.inverse))
    part = graph.add("Clip", part, graph.constant(0.0), graph.constant(1.0))
    part = graph.add("Sub", part, graph.constant(pieces.offset))
    part = graph.add("Where", graph.add("IsNaN", chosen), graph.constant(0.0), part)
    return graph.cast(part, TensorProto.FLOAT)


def _shared(graph: Graph, plan: ExportPlan) -> list[str]:
    """Inputs that are the same in every encoding, (folds, n, width) float32: missing indicators and categories."""
    blocks = []
    if len(plan.missing):
        chosen = graph.add("Gather", "numbers", graph.constant(plan.missing, np.int64), axis=1)
        blocks.append(graph.cast(graph.add("IsNaN", chosen), TensorProto.FLOAT))
    for category in plan.categories:
        index = _index(graph, plan, category, category.values)
        column = graph.add("Unsqueeze", index, graph.constant([1], np.int64))
        every = graph.constant(np.arange(category.width), np.int64)
        blocks.append(graph.cast(graph.add("Equal", column, every), TensorProto.FLOAT))
    if not blocks:
        return []  # a constant that nothing uses makes runtimes print a warning
    ones = graph.constant(np.ones((plan.folds, 1, 1)), np.float32)
    return [graph.add("Mul", block, ones) for block in blocks]


def _inputs(graph: Graph, plan: ExportPlan) -> dict[str, str]:
    values, shared = _values(graph, plan), _shared(graph, plan)
    encodings = {"plain": _plain, "piecewise": _piecewise}
    made = {}
    for encoding in plan.encodings:
        blocks = [*([] if values is None else [encodings[encoding](graph, plan, values)]), *shared]
        made[encoding] = blocks[0] if len(blocks) == 1 else graph.add("Concat", *blocks, axis=2)
    return made


# ---- networks and the way back ----


def _raw(graph: Graph, network: PartNetworks, value: str) -> str:
    """The raw outputs."""
    for k, (weight, bias) in enumerate(network.layers):
        hidden = value if k == 0 else TABLE[network.activation].onnx(graph, value)
        product = graph.add("MatMul", hidden, graph.constant(weight, np.float32))
        value = graph.add("Add", product, graph.constant(bias, np.float32))
    return value


def _back(graph: Graph, plan: ExportPlan, raw: str) -> str:
    """Raw outputs to predictions, (folds, n, n_outputs) float64."""
    if plan.task.kind == CLASSIFICATION:
        return graph.cast(graph.add("Softmax", raw, axis=-1), TensorProto.DOUBLE)
    if plan.task.kind == MULTILABEL:
        return graph.cast(graph.add("Sigmoid", raw), TensorProto.DOUBLE)
    target = {name: graph.constant(array) for name, array in plan.target.items()}
    scaled = graph.add("Mul", graph.cast(raw, TensorProto.DOUBLE), target["scale"])
    value = graph.add("Add", scaled, target["centre"])
    return graph.add("Min", graph.add("Max", value, target["low"]), target["high"])


def _temper(graph: Graph, plan: ExportPlan, prediction: str) -> str:
    if plan.task.kind == REGRESSION or plan.temperature == 1.0:
        return prediction
    least, one = graph.constant(SMALLEST_PROBABILITY), graph.constant(1.0)
    temperature = graph.constant(plan.temperature)

    def tempered_log(probability: str) -> str:
        return graph.add("Div", graph.add("Log", graph.add("Clip", probability, least, one)), temperature)

    logs = tempered_log(prediction)
    if plan.task.kind == MULTILABEL:
        other = tempered_log(graph.add("Sub", one, prediction))
        odds = graph.add("Exp", graph.add("Sub", other, logs))
        return graph.add("Div", one, graph.add("Add", one, odds))
    return graph.add("Softmax", logs, axis=-1)


def _predict(graph: Graph, plan: ExportPlan) -> list[Any]:
    """Add everything to the graph and describe its outputs."""
    inputs = _inputs(graph, plan)
    parts = []
    for network in plan.networks:
        prediction = _back(graph, plan, _raw(graph, network, inputs[network.encoding]))
        parts.append(graph.add("Mul", prediction, graph.constant(network.weight)))
    total = parts[0] if len(parts) == 1 else graph.add("Sum", *parts)
    mean = graph.add("ReduceMean", total, axes=[0], keepdims=0)
    regression = plan.task.kind == REGRESSION
    result = graph.add("Identity", _temper(graph, plan, mean), name="prediction" if regression else "probabilities")
    described = [helper.make_tensor_value_info(result, TensorProto.DOUBLE, ["rows", plan.task.n_outputs])]
    if plan.task.kind == CLASSIFICATION:
        graph.add("ArgMax", result, name="label", axis=1, keepdims=0)
        described.append(helper.make_tensor_value_info("label", TensorProto.INT64, ["rows"]))
    elif plan.task.kind == MULTILABEL:
        graph.add("Cast", graph.add("Greater", result, graph.constant(0.5)), name="label", to=TensorProto.INT64)
        described.append(helper.make_tensor_value_info("label", TensorProto.INT64, ["rows", plan.task.n_outputs]))
    return described


def build(plan: ExportPlan, metadata: Mapping[str, Any]) -> Any:
    """The whole model as an `onnx.ModelProto`."""
    graph = Graph()
    outputs = _predict(graph, plan)
    inputs = []
    if plan.numbers:
        inputs.append(helper.make_tensor_value_info("numbers", TensorProto.DOUBLE, ["rows", len(plan.numbers)]))
    if plan.categories:
        inputs.append(helper.make_tensor_value_info("categories", TensorProto.STRING, ["rows", len(plan.categories)]))
    domains = [helper.make_opsetid("", OPSET), *([helper.make_opsetid(ML, ML_OPSET)] if plan.categories else [])]
    model = helper.make_model(
        helper.make_graph(graph.nodes, "shoal", inputs, outputs, initializer=graph.constants),
        opset_imports=domains, ir_version=IR_VERSION, producer_name="shoal",
    )  # fmt: skip
    helper.set_model_props(model, {key: json.dumps(value, default=str) for key, value in metadata.items()})
    return model


def write(plan: ExportPlan, metadata: Mapping[str, Any], path: Path) -> None:
    size = sum(array.nbytes for network in plan.networks for layer in network.layers for array in layer)
    if size > LARGEST_FILE:
        raise UserError(
            f"an ONNX file holds at most 2 GB; the weights of this model take {size / 2**30:.1f} GB: "
            "export it with --to torch, or search with a smaller ensemble"
        )
    model = build(plan, metadata)
    onnx.checker.check_model(model)
    path.write_bytes(model.SerializeToString())


def run(path: Path, inputs: Mapping[str, np.ndarray]) -> np.ndarray:
    """The prediction of a file from `write`."""
    session = importlib.import_module("onnxruntime").InferenceSession(
        path.read_bytes(), providers=["CPUExecutionProvider"]
    )
    wanted = {entry.name for entry in session.get_inputs()}
    return np.asarray(session.run(None, {name: array for name, array in inputs.items() if name in wanted})[0])
