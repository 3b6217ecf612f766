"""Every row of `shoal.population.activations` in every part of the package that has to know it.

A new row fails here until all of them do; the message names the file. Training is in
`engines/test_every_activation.py`, accuracy in `engines/test_native.py`, whole exported models in
`models/test_export.py`.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import runpy
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from support.kernel import activation  # noqa: E402
from torch import nn  # noqa: E402

from benchmarks.peers import jax_stacked  # noqa: E402
from shoal import ACTIVATIONS, Member, Population, _native  # noqa: E402
from shoal.models.export.plan import PartNetworks  # noqa: E402
from shoal.models.export.torch import _Networks  # noqa: E402
from shoal.parallel.networks import make_model  # noqa: E402
from shoal.population.activations import TABLE, check_complete  # noqa: E402
from shoal.population.engines import grouped  # noqa: E402
from shoal.population.engines.native import CODES, check_kernel  # noqa: E402
from shoal.population.engines.program import MEMBER_RECORD  # noqa: E402
from shoal.torch import ACTIVATIONS as CLASSES  # noqa: E402
from shoal.torch import ParallelMLPs  # noqa: E402

DESIGN = Path(__file__).parents[2] / "docs" / "how" / "kernel.md"
# Over the range that networks use, on no place where an activation jumps or has a corner.
INPUTS = np.linspace(-6.03, 6.04, 500, dtype=np.float32)

every_activation = pytest.mark.parametrize("name", TABLE)


def plain(name: str, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Value and derivative as PyTorch has them, in float64."""
    inputs = torch.tensor(x, dtype=torch.float64, requires_grad=True)
    values = TABLE[name].module()()(inputs)
    (slopes,) = torch.autograd.grad(values.sum(), inputs)
    return values.detach().numpy(), slopes.numpy()


@every_activation
def test_rows_say_the_truth(name):
    row = TABLE[name]
    assert row.name == name
    assert row.help.strip() == row.help != ""
    assert "\n" not in row.help
    assert row.zero_at_zero == (plain(name, np.zeros(1))[0][0] == 0), f"zero_at_zero of {name} in activations.py"
    grid = np.linspace(-8, 8, 160_001)
    steps = np.abs(np.diff(plain(name, grid)[0]))
    jumps = grid[:-1][steps > 0.01]
    assert jumps == pytest.approx(row.jumps_at, abs=2e-4), f"jumps_at of {name} in activations.py"


@every_activation
def test_pytorch_engines_and_modules_take_the_row_s_module(name):
    kind = TABLE[name].module()
    assert issubclass(kind, nn.Module)
    assert CLASSES[name] is kind
    packed = ParallelMLPs(3, 2, 1, 4, 1, repetitions=1, activations=[name], device="cpu")
    assert packed.get_activation_name_from_model_id(0) == name
    x = torch.randn(6, 3)
    for i in range(4):
        (first, _), _ = layers = packed.layers(i)
        hidden = kind()(torch.addmm(layers[0][1], x, first))
        torch.testing.assert_close(packed(x)[:, i], torch.addmm(layers[1][1], hidden, layers[1][0]))
    extracted = Population([Member(hidden=4, activation=name)], 3, 2).extract(0)
    assert type(extracted[1]) is kind
    assert type(make_model("mlp:3-4-2", activation=name)[1]) is kind


@pytest.mark.parametrize("isa", _native.instruction_sets())
@every_activation
def test_the_kernel_agrees_with_pytorch(monkeypatch, isa, name):
    monkeypatch.setenv("SHOAL_ISA", isa)
    got = activation(name, INPUTS)
    for what, mine, truth in zip(("value", "derivative"), got, plain(name, INPUTS), strict=True):
        np.testing.assert_allclose(mine, truth, rtol=1e-5, atol=1e-6, err_msg=f"{what} in native/per_isa/math.hpp")


@every_activation
def test_onnx_operators_agree_with_pytorch(name):
    onnx = pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    from shoal.models.export.onnx import IR_VERSION, OPSET, Graph

    graph = Graph()
    result = graph.add("Identity", TABLE[name].onnx(graph, "x"))
    described = [onnx.helper.make_tensor_value_info(one, onnx.TensorProto.FLOAT, ["n"]) for one in ("x", result)]
    made = onnx.helper.make_graph(graph.nodes, name, described[:1], described[1:], initializer=graph.constants)
    model = onnx.helper.make_model(made, opset_imports=[onnx.helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
    onnx.checker.check_model(model)
    session = runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (got,) = session.run(None, {"x": INPUTS})
    np.testing.assert_allclose(got, plain(name, INPUTS)[0], rtol=1e-5, atol=1e-6, err_msg=f"onnx of {name}")


@every_activation
def test_modules_for_torch_export_agree_with_pytorch(name):
    one, zero = np.ones((1, 1, 1), np.float32), np.zeros((1, 1, 1), np.float32)
    network = _Networks(PartNetworks("plain", name, 1.0, ((one, zero), (one, zero))))
    got = network(torch.from_numpy(INPUTS)[None, :, None]).numpy()[0, :, 0]
    np.testing.assert_allclose(got, plain(name, INPUTS)[0], rtol=1e-5, atol=1e-6)


@every_activation
def test_documentation_has_the_row(name):
    assert f"| `{name}` | {TABLE[name].help} |" in DESIGN.read_text(encoding="utf-8"), f"{name} in docs/how/kernel.md"


@every_activation
@pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="jax is not installed")
def test_jax_agrees_with_pytorch(name):
    got = np.asarray(jax_stacked.ACTIVATIONS[name](INPUTS))
    np.testing.assert_allclose(got, plain(name, INPUTS)[0], rtol=1e-5, atol=1e-6)


def test_order_is_that_of_the_kernel():
    assert tuple(TABLE) == ACTIVATIONS == _native.CODES["activation"]


def test_a_part_that_lacks_a_formula_is_named():
    with pytest.raises(
        NotImplementedError, match=r"x\.py has no formula for gelu, mish of shoal\.population\.activations"
    ):
        check_complete(TABLE.keys() - {"gelu", "mish"}, "engines/x.py")


@pytest.mark.parametrize("module", [grouped, jax_stacked])
def test_a_new_row_names_the_file_that_lacks_it(monkeypatch, module):
    file = Path(module.__file__)
    monkeypatch.setitem(TABLE, "new", dataclasses.replace(TABLE["relu"], name="new"))
    with pytest.raises(NotImplementedError, match=rf"{file.parent.name}/{file.name} has no formula for new of shoal"):
        runpy.run_path(str(file))


def test_a_new_row_names_the_folder_of_the_kernel_s_list():
    with pytest.raises(
        ImportError, match=r"words for activation are .*'new'\) in Python; .*src/shoal/population/native/shared/"
    ):
        check_kernel(MEMBER_RECORD, CODES | {"activation": (*TABLE, "new")})


def test_an_activation_of_ones_own_is_refused_with_the_remedy():
    for own in (nn.SiLU(), nn.SiLU, torch.sin):
        with pytest.raises(ValueError, match=r"must be one of identity, .*mish.*; got .*shoal\.torch\.ParallelMLPs"):
            Member(activation=own)
    packed = ParallelMLPs(3, 2, 1, 2, 1, repetitions=1, activations=[nn.SiLU()], device="cpu")
    assert packed(torch.zeros(5, 3)).shape == (5, 2, 2), "the remedy works"
