"""Modules of one architecture as one: each ends as it does alone, in plain PyTorch."""

from __future__ import annotations

import copy
import math
import random
import warnings
from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch.nn.utils import parametrizations  # noqa: E402

from shoal.errors import UserError  # noqa: E402
from shoal.parallel.networks import make_model  # noqa: E402
from shoal.torch import seeded, stack  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread_and_seed")

TOLERANCE = 2e-5  # of weights after a few steps in single precision
DOUBLE = 1e-10  # and in double precision


def convolutional(dropout: float = 0.0, norm: bool = False) -> nn.Module:
    # Before batch normalisation a bias has no effect. Its gradient is a rounding error, which Adam would magnify.
    layers: list[nn.Module] = [nn.Conv2d(1, 3, 3, bias=not norm), *([nn.BatchNorm2d(3)] if norm else [])]
    layers += [nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Dropout(dropout), nn.Linear(27, 3)]
    return nn.Sequential(*layers)


class Residual(nn.Module):
    """No nn.Sequential, one weight used twice, a buffer, two inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(5, 5), nn.BatchNorm1d(5), nn.Linear(5, 2, bias=False)
        self.tied = self.first
        self.register_buffer("scale", torch.rand(5))

    def forward(self, x, y):
        return self.last(self.norm(x + self.tied(self.first(x)).tanh()) * self.scale + y)


def batches(steps, *shape, classes=3, dtype=torch.float32):
    draws = torch.Generator().manual_seed(1)
    return [
        (torch.randn(*shape, generator=draws, dtype=dtype), torch.randint(0, classes, shape[:1], generator=draws))
        for _ in range(steps)
    ]


def train_alone(module, seed, lr, data, kind, **settings):
    optimizer = kind(module.parameters(), lr=lr, **settings)
    state = torch.get_rng_state()
    torch.manual_seed(seed)  # of dropout
    for x, y in data:
        optimizer.zero_grad()
        functional.cross_entropy(module(x), y).backward()
        optimizer.step()
    torch.set_rng_state(state)


def train_stacked(stacked, rates, data, kind, **settings):
    optimizer = kind(stacked.parameter_groups(lr=rates, **settings))
    for x, y in data:
        optimizer.zero_grad()
        stacked.losses(stacked(x), y).sum().backward()
        optimizer.step()


def assert_same(ours, theirs, tolerance):
    for (name, value), other in zip(ours.state_dict().items(), theirs.state_dict().values(), strict=True):
        torch.testing.assert_close(
            value, other, atol=tolerance, rtol=tolerance, msg=lambda text, n=name: f"{n}: {text}"
        )


# ---- the oracle ----


@settings(max_examples=12, deadline=None)
@given(
    count=st.integers(1, 5),
    dropout=st.sampled_from([0.0, 0.5]),
    norm=st.booleans(),
    kind=st.sampled_from([torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW]),
    rows=st.integers(2, 9),
    data=st.data(),
)
def test_each_module_ends_as_it_does_alone(count, dropout, norm, kind, rows, data):
    """Weights, batch statistics and what dropout drops, with a learning rate and a seed for each."""
    seeds = data.draw(st.lists(st.integers(0, 1 << 40), min_size=count, max_size=count))
    rates = data.draw(st.lists(st.sampled_from([1e-3, 1e-2, 0.05]), min_size=count, max_size=count))
    modules = [module.double() for module in seeded(lambda: convolutional(dropout, norm), seeds)]
    alone = copy.deepcopy(modules)
    shown = batches(4, rows, 1, 8, 8, dtype=torch.float64)
    stacked = stack(modules, seeds)
    train_stacked(stacked, rates, shown, kind, weight_decay=0.01)
    for k, module in enumerate(alone):
        before = copy.deepcopy(module)
        train_alone(module, seeds[k], rates[k], shown, kind, weight_decay=0.01)
        assert_same(modules[k], module, DOUBLE)
        assert_same(stacked.extract(k), module, DOUBLE)
        moved = [(a - b).abs().max() for a, b in zip(before.parameters(), module.parameters(), strict=True)]
        assert max(moved) > 1e-4
    with torch.no_grad():
        x = shown[0][0]
        expected = torch.stack([module.eval()(x) for module in alone])
        torch.testing.assert_close(stacked.eval()(x), expected, atol=DOUBLE, rtol=DOUBLE)


def test_the_convolutional_network_of_the_paper_in_copies():
    modules = seeded(lambda: make_model("cnn", seed=torch.initial_seed()), [3, 4, 5])
    alone = copy.deepcopy(modules)
    rates, shown = [0.05, 0.1, 0.02], batches(3, 6, 784, classes=10)
    train_stacked(stack(modules), rates, shown, torch.optim.SGD, momentum=0.9)
    for k, module in enumerate(alone):
        train_alone(module, 0, rates[k], shown, torch.optim.SGD, momentum=0.9)
        assert_same(modules[k], module, TOLERANCE)
    assert not torch.equal(modules[0][1].weight, modules[1][1].weight)


def test_any_forward_several_inputs_tied_weights_and_a_part_for_each():
    modules = [Residual().double() for _ in range(3)]
    alone = copy.deepcopy(modules)
    x, y = torch.randn(2, 3, 7, 5, dtype=torch.float64)
    stacked = stack(modules)
    outputs = stacked(x, y, each=True)
    outputs.square().sum().backward()
    for k, module in enumerate(alone):
        expected = module(x[k], y[k])
        expected.square().sum().backward()
        torch.testing.assert_close(outputs[k], expected, atol=1e-12, rtol=1e-12)
        assert_same(modules[k], module, 1e-12)  # the running statistics
        for ours, theirs in zip(modules[k].parameters(), module.parameters(), strict=True):
            torch.testing.assert_close(ours.grad, theirs.grad, atol=1e-12, rtol=1e-12)


def test_modules_are_dropped_while_the_optimizer_goes_on():
    modules = seeded(lambda: convolutional(0.5), range(4))
    alone = copy.deepcopy(modules)
    stacked, shown = stack(modules, seeds=[7, 8, 9, 10]), batches(6, 8, 1, 8, 8)
    optimizer = torch.optim.Adam(stacked.parameter_groups(lr=0.01))
    for step, (x, y) in enumerate(shown):
        if step == 3:
            stacked.drop([0, 2])
        optimizer.zero_grad()
        stacked.losses(stacked(x), y).sum().backward()
        optimizer.step()
    assert stacked.active == [1, 3]
    for k, seen in ((0, 3), (1, 6), (2, 3), (3, 6)):
        train_alone(alone[k], 7 + k, 0.01, shown[:seen], torch.optim.Adam)
        assert_same(modules[k], alone[k], TOLERANCE)
    assert stacked.network(3) is modules[3]


def test_a_part_in_evaluation_mode_stays_in_it():
    modules = seeded(lambda: convolutional(norm=True), range(2))
    stacked = stack(modules)
    for module in modules:
        module[1].eval()
    before = copy.deepcopy(modules[0][1].running_mean)
    stacked(torch.randn(4, 1, 8, 8))
    assert torch.equal(modules[0][1].running_mean, before)


def test_dropout_of_shared_inputs_differs_between_modules():
    stacked = stack([nn.Sequential(nn.Dropout(0.5), nn.Linear(50, 1, bias=False)) for _ in range(2)])
    outputs = stacked(torch.ones(20, 50))
    for k in range(2):
        torch.manual_seed(k)
        torch.testing.assert_close(outputs[k], stacked.network(k)(torch.ones(20, 50)))
    assert not torch.equal(outputs[0], outputs[1])


def test_copies_and_other_precisions_work():
    stacked = stack(seeded(lambda: convolutional(0.3, norm=True), range(3)))
    other = copy.deepcopy(stacked).double()
    x = torch.randn(5, 1, 8, 8)
    torch.testing.assert_close(stacked(x).double(), other(x.double()), atol=1e-4, rtol=1e-4)
    assert set(stacked.state_dict()) == set(other.state_dict())
    assert all(name.startswith("networks.") for name in stacked.state_dict())


class Ruled(nn.Module):
    """A layer, and something that is neither a parameter nor a part."""

    def __init__(self, rule, **more) -> None:
        super().__init__()
        self.layer, self.rule = nn.Linear(3, 3), rule
        vars(self).update(more)

    def forward(self, x):
        return self.rule(self.layer(x))


def test_functions_that_modules_make_for_themselves_are_the_same_if_their_code_is():
    modules = [Ruled(lambda x, power=power: x**power) for power in (2, 2)]
    torch.testing.assert_close(stack(modules)(torch.ones(4, 3))[1], modules[1](torch.ones(4, 3)))
    bound = [Ruled(None), Ruled(None)]
    for module in bound:
        module.rule = module.layer.forward
    assert stack(bound)(torch.ones(4, 3)).shape == (2, 4, 3)


def test_one_dropout_layer_in_two_places_drops_as_it_does_alone():
    def make():
        drop = nn.Dropout(0.5)
        return nn.Sequential(nn.Linear(3, 8), drop, nn.Linear(8, 8), drop, nn.Linear(8, 2))

    modules = seeded(make, range(3))
    outputs = stack(modules, seeds=[5, 6, 7])(torch.ones(4, 3))
    for k, module in enumerate(modules):
        torch.manual_seed(5 + k)
        torch.testing.assert_close(outputs[k], module(torch.ones(4, 3)))


def test_one_module_in_another_mode_is_refused():
    stacked = stack(seeded(nn.Dropout, range(2)))
    stacked.network(1).eval()
    with pytest.raises(ValueError, match="some modules are in training mode and others are not"):
        stacked(torch.ones(4, 3))


# ---- wrong input ----


def differing():
    linear = nn.Sequential(nn.Linear(3, 4), nn.ReLU())
    return {
        r"'0\.out_features' is 4 and 5": [linear, nn.Sequential(nn.Linear(3, 5), nn.ReLU())],
        "'1' is ReLU and Tanh": [linear, nn.Sequential(nn.Linear(3, 4), nn.Tanh())],
        "'1' is ReLU and missing": [linear, nn.Sequential(nn.Linear(3, 4))],
        "'1' is missing and Tanh": [nn.Sequential(nn.Linear(3, 4)), nn.Sequential(nn.Linear(3, 4), nn.Tanh())],
        r"'0\.p' is 0\.1 and 0\.2": [nn.Sequential(nn.Dropout(0.1)), nn.Sequential(nn.Dropout(0.2))],
        r"'weight' is \[4, 3\] of float32 on cpu and \[4, 3\] of float64": [nn.Linear(3, 4), nn.Linear(3, 4).double()],
        "they are Linear and Conv2d": [nn.Linear(3, 4), nn.Conv2d(3, 4, 1)],
        "'bias' is .* and missing": [nn.Linear(3, 4), nn.Linear(3, 4, bias=False)],
        "'rule' is tanh and relu": [Ruled(torch.tanh), Ruled(torch.relu)],
        "'rule' is <lambda> and <lambda>, of other values": [Ruled(lambda x: x), Ruled(lambda x: 2 * x)],
        "'rule' is <lambda> and .*lambda": [Ruled(lambda x, k=k: k * x) for k in (1, 2)],
        r"'rule' is \[1, 2\] and \[1, 3\]": [Ruled([1, 2]), Ruled([1, 3])],
        "'rule' is a Tensor and a Tensor, of other values": [Ruled(torch.zeros(2)), Ruled(torch.ones(2))],
        "'_hidden' is 'missing' and 1": [Ruled(None), Ruled(None, _hidden=1)],
    }


@pytest.mark.parametrize("message", differing())
def test_modules_of_different_architectures_are_told_apart(message):
    first, second = differing()[message]
    with pytest.raises(ValueError, match=rf"modules 0 and 2 differ: .*{message}"):
        stack([first, copy.deepcopy(first), second])


def test_wrong_modules_seeds_and_settings_are_refused_in_words():
    with pytest.raises(ValueError, match="at least one module; got none"):
        stack([])
    with pytest.raises(TypeError, match="put the single one into a list; got a Sequential"):
        stack(convolutional())
    with pytest.raises(TypeError, match="number 1 is 'relu'"):
        stack([nn.ReLU(), "relu"])
    shared = nn.Linear(2, 2)
    with pytest.raises(ValueError, match="modules 0 and 1 share parts"):
        stack([shared, shared])
    with pytest.raises(ValueError, match="modules 0 and 1 share parts"):
        stack([nn.Sequential(shared), nn.Sequential(shared)])
    with pytest.raises(ValueError, match="lazy"):
        stack([nn.LazyLinear(2)])
    stacked = stack([nn.Linear(2, 2), nn.Linear(2, 2)])
    with pytest.raises(ValueError, match="lr must be one value, or a list of 2, one for each module; got 3"):
        stacked.parameter_groups(lr=[1, 2, 3])
    with pytest.raises(ValueError, match="one seed for each of 2 modules; got 1"):
        stack([nn.Linear(2, 2), nn.Linear(2, 2)], seeds=[1])
    with pytest.raises(ValueError, match=r"a part for each of 2 modules; got \[3, 2\]"):
        stacked(torch.zeros(3, 2), each=True)
    with pytest.raises(RuntimeError, match="Expected size"):
        stacked(torch.zeros(3, 4))


class Deciding(nn.Module):
    def forward(self, x):
        return x if x.sum() > 0 else -x


def test_what_vmap_cannot_do_is_said_in_words():
    x = torch.ones(3, 4)
    drops = stack([nn.Sequential(nn.Linear(4, 4), nn.AlphaDropout(0.5)) for _ in range(2)])
    with pytest.raises(ValueError, match=r"random numbers of nn\.Dropout only"):
        drops(x)
    assert drops.eval()(x).shape == (2, 3, 4)
    decides = stack([nn.Sequential(nn.Linear(4, 4), Deciding()) for _ in range(2)])
    with pytest.raises(ValueError, match=r"cannot run in a stack, since torch\.func\.vmap refuses it"):
        decides(x)


class Tied(nn.Module):
    """Some of its parameters are one."""

    def __init__(self, tied=("weight", "bias")):
        super().__init__()
        self.encoder, self.decoder = nn.Linear(4, 4), nn.Linear(4, 4)
        for name in tied:
            setattr(self.decoder, name, getattr(self.encoder, name))

    def forward(self, x):
        return self.decoder(torch.tanh(self.encoder(x)))


def layer_in_two_places():
    layer = nn.Linear(4, 4)
    return nn.Sequential(layer, nn.Tanh(), layer, nn.Tanh(), Tied(("weight",)))


@pytest.mark.parametrize(
    "make",
    [Tied, lambda: Tied(("weight",)), lambda: Tied(("bias",)), layer_in_two_places,
     lambda: nn.Sequential(parametrizations.weight_norm(nn.Linear(4, 5)), nn.ReLU(), nn.Linear(5, 4)),
     lambda: nn.Sequential(parametrizations.orthogonal(nn.Linear(4, 4)), nn.Linear(4, 4))],
)  # fmt: skip
@pytest.mark.parametrize("mode", [True, False])
@pytest.mark.filterwarnings("ignore:There is a performance drop")  # weight_norm: torch takes a loop
def test_tied_and_parametrized_weights_end_as_alone(make, mode):
    modules = seeded(make, range(3))
    alone, stacked = seeded(make, range(3)), stack(modules).train(mode)
    rates, shown = [0.1, 0.2, 0.05], batches(3, 6, 4, classes=4)
    train_stacked(stacked, rates, shown, torch.optim.SGD)
    for k, module in enumerate(alone):
        train_alone(module.train(mode), 0, rates[k], shown, torch.optim.SGD)
        assert_same(modules[k], module, TOLERANCE)
        assert len(list(stacked.extract(k).parameters())) == len(list(module.parameters())), "still tied"


class Recurrent(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.layer = kind(4, 3)

    def forward(self, x):
        return self.layer(x)[0]


@pytest.mark.parametrize(("make", "message"), [
    (lambda: Recurrent(nn.LSTM), r"nn.LSTM cannot run in a stack.*one after the other"),
    (lambda: Recurrent(nn.GRU), r"nn.GRU cannot run in a stack"),
    (lambda: nn.Sequential(nn.utils.spectral_norm(nn.Linear(4, 3))), r"'weight' of an nn.Linear is computed by a hook"),
    (lambda: nn.Embedding(5, 2, sparse=True), r"nn.Embedding\(sparse=True\).*sparse=False, for the same result"),
    (lambda: nn.EmbeddingBag(5, 2, sparse=True), r"nn.EmbeddingBag\(sparse=True\)"),
])  # fmt: skip
@pytest.mark.parametrize("count", [1, 3])
def test_what_a_stack_cannot_train_is_refused_before(make, message, count):
    with pytest.raises(UserError, match=message):
        stack([make() for _ in range(count)])


def test_old_weight_norm_is_refused_with_the_new_one_as_remedy():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        modules = [nn.utils.weight_norm(nn.Linear(4, 3)) for _ in range(2)]
    with pytest.raises(UserError, match=r"computed by a hook.*use those of torch.nn.utils.parametrizations"):
        stack(modules)


class Hidden(nn.Module):
    """Keeps its weights where torch.func does not look: in a list, or cut off from their gradient."""

    def __init__(self, detached):
        super().__init__()
        self.layer, self.detached = nn.Linear(4, 3), detached
        self.kept = [self.layer.weight]

    def forward(self, x):
        return x @ self.kept[0].T if not self.detached else self.layer(x) + x @ self.kept[0].T


@pytest.mark.parametrize("detached", [False, True])
def test_a_module_that_computes_something_else_in_a_stack_is_refused(detached):
    modules = seeded(lambda: Hidden(detached), range(3))
    with pytest.raises(UserError, match=r"module 0 does not compute in a stack what it computes alone; train the"):
        stack(modules)(torch.randn(5, 4))


def test_modules_that_are_tied_in_another_way_differ():
    with pytest.raises(UserError, match=r"modules 0 and 1 differ: 'decoder.weight' is tied to 'encoder.weight'"):
        stack([Tied(), Tied(("bias",))])


def test_the_first_call_changes_neither_modes_nor_random_numbers_nor_buffers():
    modules = [nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Dropout(0.5)) for _ in range(2)]
    modules = [module.train() for module in modules]
    alone, stacked, x = copy.deepcopy(modules), stack(modules), torch.randn(6, 4)
    torch.manual_seed(5)
    stacked(x)
    assert torch.equal(torch.rand(3), torch.rand(3, generator=torch.Generator().manual_seed(5)))
    for ours, theirs in zip(modules, alone, strict=True):
        theirs(x)
        assert ours.training
        assert_same(ours, theirs, TOLERANCE)  # the running statistics were updated once


def test_seeded_leaves_the_callers_random_numbers_alone():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    one, two = seeded(lambda: nn.Linear(4, 4), [11, 12])
    assert torch.equal(torch.rand(3), expected)
    torch.manual_seed(12)
    assert torch.equal(nn.Linear(4, 4).weight, two.weight)
    assert math.isfinite(one.weight.sum().item())


class Counting(nn.Linear):
    """Counts its calls, by changing a buffer in place, or by replacing it."""

    def __init__(self, replaced: bool) -> None:
        super().__init__(3, 2)
        self.replaced = replaced
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        if self.replaced:
            self.calls = self.calls + 1
        else:
            self.calls += 1
        return super().forward(x)


@pytest.mark.parametrize("replaced", [False, True])
def test_the_comparison_with_the_modules_alone_leaves_their_buffers_as_they_are(replaced):
    modules = [Counting(replaced) for _ in range(3)]
    stacked, state = stack(modules), torch.get_rng_state()
    for _ in range(4):
        stacked(torch.zeros(5, 3))
    assert [float(module.calls) for module in modules] == [4, 4, 4]
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.filterwarnings("ignore:There is a performance drop")  # vmap calls attention once for each module
def test_encoder_layers_of_transformers_are_stacked():
    modules = seeded(lambda: nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True), range(3))
    stacked, rows = stack(modules), torch.randn(4, 5, 8)
    outputs = stacked(rows)
    assert torch.backends.mha.get_fastpath_enabled()
    for own, module in zip(outputs, modules, strict=True):
        torch.testing.assert_close(own, module(rows), rtol=1e-4, atol=1e-5)
    (outputs**2).sum().backward()
    assert all(parameter.grad is not None for module in modules for parameter in module.parameters())


class Scaled(nn.Module):
    """What `change` does to the layer's outputs, in training only."""

    def __init__(self, change):
        super().__init__()
        self.layer, self.change, self.scale = nn.Linear(4, 4), change, 1.0
        self.register_buffer("mean", torch.zeros(4))
        self.kept = torch.zeros(4)

    def forward(self, x):
        found = self.layer(x) * self.scale
        return self.change(self, found) if self.training else found - self.mean


def replaces_a_buffer(self, found):
    self.mean = 0.9 * self.mean + 0.1 * found.detach().mean(0)
    return found - self.mean


def own_weight(seed=[0]):  # noqa: B006
    seed[0] += 1
    mine = torch.randn(4, generator=torch.Generator().manual_seed(seed[0]))
    return lambda self, found: found * mine


def of_an_object():
    config = SimpleNamespace(scale=float(torch.rand(())))
    return lambda self, found: found * config.scale


def shrinks(self, found):
    with torch.no_grad():
        self.layer.weight.mul_(0.5)
    return self.layer(found)


def keeps(self, found):
    self.kept = 0.5 * self.kept + found.detach().mean(0)
    return found - self.kept


def leaves(self, found):
    raise SystemExit(0)


def without_gradient(self, found):
    weight = self.layer.weight
    return torch.utils.checkpoint.checkpoint(lambda x: x @ weight.T, found, use_reentrant=False)


@pytest.mark.parametrize(("make", "message"), [
    (own_weight, "modules 0 and 1 differ: 'change'"),
    (of_an_object, "modules 0 and 1 differ: 'change'"),
    (lambda: shrinks, "forward\\(\\) changes the parameter 'layer.weight'"),
    (lambda: keeps, "keeps a tensor in 'kept', .* make it a buffer with register_buffer"),
    (lambda: lambda self, found: found * np.random.rand(), "random numbers of Python or NumPy"),
    (lambda: lambda self, found: found if random.random() < 0.5 else 2 * found, "random numbers of Python or NumPy"),
    (lambda: leaves, r"calls sys.exit\(0\)"),
    (lambda: lambda self, found: None, "must return tensors"),
])  # fmt: skip
def test_what_goes_wrong_in_training_only_is_refused_in_the_first_call_of_training(make, message):
    modules = seeded(lambda: Scaled(make()), range(3))
    before, numbers = copy.deepcopy([module.state_dict() for module in modules]), random.getstate()

    def run():
        stacked = stack(modules)
        stacked.eval()(torch.randn(5, 4))
        stacked.train()(torch.randn(5, 4))

    with pytest.raises(UserError, match=message):
        run()
    assert random.getstate() == numbers
    for module, state in zip(modules, before, strict=True):
        assert all(torch.equal(value, state[name]) for name, value in module.state_dict().items())


def cools(module, step):
    module[1].scale = 1 / (1 + step)


def swaps(module, step):
    if step == 2:
        module[3] = nn.Tanh()


def ties(module, step):
    if step == 2:
        module[4].weight = module[0].weight


def drops_more(module, step):
    module[2].p = 0.1 * step


def averages_longer(module, step):
    module[5].momentum = 0.5 / (1 + step)


def hooks(module, step):
    if step == 1:
        module[3].register_forward_hook(lambda part, inputs, outputs: outputs * 3)


@pytest.mark.parametrize("change", [cools, swaps, ties, drops_more, averages_longer, hooks, None])
def test_settings_and_layers_that_are_changed_later_count(change):
    def make():
        return nn.Sequential(nn.Linear(4, 4), Scaled(replaces_a_buffer), nn.Dropout(0.5), nn.ReLU(), nn.Linear(4, 4),
                             nn.BatchNorm1d(4))  # fmt: skip

    modules, alone, x = seeded(make, range(3)), seeded(make, range(3)), torch.randn(12, 4)
    stacked = stack(modules)
    optimizer = torch.optim.SGD(stacked.parameter_groups(lr=0.1))
    for step in range(4):
        for module in modules:
            change and change(module, step)
        optimizer.zero_grad()
        (stacked(x) ** 3).mean((1, 2)).sum().backward()
        optimizer.step()
    for seed, module in enumerate(alone):
        torch.manual_seed(seed)
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
        for step in range(4):
            change and change(module, step)
            optimizer.zero_grad()
            (module(x) ** 3).mean().backward()
            optimizer.step()
        assert_same(modules[seed], module, TOLERANCE)
    outputs = stacked.eval()(x)
    for own, module in zip(outputs, alone, strict=True):
        torch.testing.assert_close(own, module.eval()(x), rtol=1e-3, atol=1e-4)


def test_a_module_whose_gradient_calls_it_again_is_refused():
    modules = seeded(lambda: Scaled(without_gradient), range(2))
    with pytest.raises(UserError, match=r"module 0 (cannot be trained|does not compute) in a stack"):
        stack(modules)(torch.randn(5, 4))
