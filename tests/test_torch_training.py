"""Packed networks train as the same networks alone: `shoal.torch` against plain PyTorch."""

from itertools import product

import pytest

torch = pytest.importorskip("torch")

from support.packed import BATCH, FEATURES, RAGGED, make, ragged_activations  # noqa: E402
from torch import nn  # noqa: E402

from shoal.torch import ACTIVATIONS, ScatterNetwork  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread_and_seed")

STEPS, TOLERANCE = 40, 1e-5


def problem(task):
    """Inputs, target, number of outputs and the loss class for one kind of task."""
    generator = torch.Generator().manual_seed(7)
    x = torch.randn(BATCH, FEATURES, generator=generator)
    if task == "classification":
        return x, torch.randint(3, (BATCH,), generator=generator), 3, nn.CrossEntropyLoss
    if task == "regression":
        return x, torch.randn(BATCH, 2, generator=generator), 2, nn.MSELoss
    return x, torch.randint(2, (BATCH,), generator=generator).float(), 1, nn.BCEWithLogitsLoss


def assert_same_parameters(packed, alone, tolerance=TOLERANCE):
    packed, alone = dict(packed.named_parameters()), dict(alone.named_parameters())
    assert packed.keys() == alone.keys()
    for name, value in packed.items():
        torch.testing.assert_close(value, alone[name], atol=tolerance, rtol=tolerance)


def flat_parameters(packed, i):
    return torch.cat([part.flatten() for layer in packed.layers(i) for part in layer])


# The paper's check


@pytest.mark.parametrize(
    ("bias", "hidden_layers", "task"),
    [
        *product([True], [1, 3], ["classification", "regression", "bce"]),
        *product([False], [1, 3], ["regression"]),  # what a bias does is the same for every loss
    ],
)
def test_training_packed_equals_training_alone_for_all_ten_activations(bias, hidden_layers, task):
    x, target, outputs, loss_class = problem(task)
    packed = make(list(ACTIVATIONS), out_features=outputs, bias=bias, hidden_layers=hidden_layers, repetitions=1)
    assert packed.num_unique_models == 10 * 3
    alone = packed.extract_mlps(packed.unique_model_ids)
    before = [network.out_layer.weight.detach().clone() for network in alone]
    packed_optimizer = torch.optim.SGD(packed.parameters(), lr=0.1)
    optimizers = [torch.optim.SGD(network.parameters(), lr=0.1) for network in alone]

    for _ in range(STEPS):
        packed_optimizer.zero_grad()
        losses = packed.calculate_loss(loss_class(reduction="none"), packed(x), target).mean(0)
        losses.backward(gradient=torch.ones(packed.num_unique_models))
        packed_optimizer.step()
        for i, (network, optimizer) in enumerate(zip(alone, optimizers, strict=True)):
            optimizer.zero_grad()
            loss = loss_class()(network(x), target[:, None] if task == "bce" else target)
            torch.testing.assert_close(losses[i], loss, atol=TOLERANCE, rtol=TOLERANCE)
            loss.backward()
            optimizer.step()

    for i, after in enumerate(packed.extract_mlps(packed.unique_model_ids)):
        assert_same_parameters(after, alone[i])
        assert after.activation == alone[i].activation
    # Negative control: equality proves nothing about networks that stood still. (A few are dead, with one neuron each.)
    moved = [(now.out_layer.weight - old).abs().max() > 100 * TOLERANCE for now, old in zip(alone, before, strict=True)]
    assert sum(moved) > 0.7 * len(moved)


def test_networks_of_different_depths_train_as_plain_sequentials():
    x, target, outputs, _ = problem("classification")
    packed = ScatterNetwork(FEATURES, outputs, RAGGED, ragged_activations())
    alone = [packed.extract(i) for i in range(len(RAGGED))]
    for i, network in enumerate(alone):
        widths = [layer.out_features for layer in network if isinstance(layer, nn.Linear)]
        assert widths == [*RAGGED[i], outputs]
    optimizers = [torch.optim.SGD(part.parameters(), lr=0.1, momentum=0.5) for part in [packed, *alone]]
    for _ in range(STEPS):
        loss = sum(nn.functional.cross_entropy(packed(x)[:, i], target) for i in range(len(RAGGED)))
        loss = loss + sum(nn.functional.cross_entropy(network(x), target) for network in alone)
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        for i, network in enumerate(alone):
            linears = [layer for layer in network if isinstance(layer, nn.Linear)]
            for (weight, bias), linear in zip(packed.gradients(i), linears, strict=True):
                torch.testing.assert_close(weight, linear.weight.grad.T, atol=TOLERANCE, rtol=1e-4)
                torch.testing.assert_close(bias, linear.bias.grad, atol=TOLERANCE, rtol=1e-4)
        for optimizer in optimizers:
            optimizer.step()
    expected = torch.stack([network(x) for network in alone], dim=1)
    torch.testing.assert_close(packed(x), expected, atol=TOLERANCE, rtol=1e-4)


@pytest.mark.parametrize("bias", [True, False])
def test_output_equals_extracted_networks_in_double_precision(bias):
    packed = ScatterNetwork(FEATURES, 2, RAGGED, ragged_activations(), bias=bias).double()
    x = torch.randn(BATCH, FEATURES, dtype=torch.float64)
    output = packed(x)
    assert output.shape == (BATCH, len(RAGGED), 2)
    for i in range(len(RAGGED)):
        network = packed.extract(i)
        assert {parameter.dtype for parameter in network.parameters()} == {torch.float64}
        assert all((layer.bias is not None) == bias for layer in network if isinstance(layer, nn.Linear))
        torch.testing.assert_close(output[:, i], network(x), atol=1e-12, rtol=1e-12)


def test_first_steps_by_hand():
    """One network of two layers with numbers small enough to follow on paper."""
    packed = ScatterNetwork(1, 1, [(1,), (2, 1)], [nn.Identity(), nn.ReLU()])
    packed.load(0, [(torch.tensor([[2.0]]), torch.tensor([1.0])), (torch.tensor([[3.0]]), torch.tensor([-1.0]))])
    first = (torch.tensor([[1.0, -1.0]]), torch.tensor([0.0, 5.0]))
    second = (torch.tensor([[10.0], [100.0]]), torch.tensor([7.0]))
    packed.load(1, [first, second, (torch.tensor([[0.5]]), torch.tensor([0.25]))])
    # Network 0: 3 (2x + 1) - 1. Network 1: (10 relu(x) + 100 relu(5 - x) + 7) / 2 + 1/4.
    output = packed(torch.tensor([[2.0], [6.0]]))
    torch.testing.assert_close(output, torch.tensor([[[14.0], [163.75]], [[38.0], [33.75]]]))


# Independence


def test_gradients_do_not_leak_between_networks():
    packed = ScatterNetwork(FEATURES, 2, RAGGED, ragged_activations())
    for i in range(len(RAGGED)):
        packed.zero_grad()
        packed(torch.randn(BATCH, FEATURES))[:, i].square().sum().backward()
        for j in range(len(RAGGED)):
            flat = torch.cat([part.flatten() for layer in packed.gradients(j) for part in layer])
            assert (flat.abs().sum() > 0) == (i == j), f"the loss of network {i} reaches network {j}"


def test_loading_one_network_leaves_the_others_as_they_were():
    packed = ScatterNetwork(FEATURES, 2, RAGGED, ragged_activations())
    donor = ScatterNetwork(FEATURES, 2, RAGGED, ragged_activations())
    x = torch.randn(BATCH, FEATURES)
    before = packed(x)
    packed.load(3, donor.layers(3))
    changed = (packed(x) != before).any(dim=2).any(dim=0)
    assert changed.tolist() == [i == 3 for i in range(len(RAGGED))]
    torch.testing.assert_close(packed(x)[:, 3], donor(x)[:, 3])


def test_copies_do_not_share_memory_with_the_packed_network():
    packed = make(hidden_layers=2)
    x = torch.randn(BATCH, FEATURES)
    packed(x).sum().backward()
    before, gradients = packed(x).detach(), packed.hidden_layer.weight.grad.clone()
    with torch.no_grad():
        for network in [packed.extract(4), *packed.extract_mlps([4])]:
            for parameter in network.parameters():
                parameter.fill_(9.0)
        (parameters,) = packed.extract_params_mlps([4])
        parameters["hidden_weight"].fill_(9.0)
        parameters["out_bias"].fill_(9.0)
        for weight, bias in packed.layers(4) + packed.gradients(4):
            weight.fill_(9.0)
            bias.fill_(9.0)
    assert torch.equal(packed(x), before)
    assert torch.equal(packed.hidden_layer.weight.grad, gradients)


def test_layers_and_load_are_inverse():
    source = ScatterNetwork(FEATURES, 2, RAGGED, ragged_activations())
    copied = ScatterNetwork(FEATURES, 2, RAGGED[::-1], ragged_activations()[::-1])
    for i in range(len(RAGGED)):
        assert [tuple(weight.shape) for weight, _ in source.layers(i)] == list(
            zip([FEATURES, *RAGGED[i]], [*RAGGED[i], 2], strict=True)
        )
        copied.load(len(RAGGED) - 1 - i, source.layers(i))
    x = torch.randn(BATCH, FEATURES)
    torch.testing.assert_close(copied(x).flip(1), source(x), atol=1e-6, rtol=1e-6)


# Activations


def test_equal_activations_are_called_once_per_layer():
    calls = []

    def counted(x):
        calls.append(x.shape[1])
        return x.tanh()

    packed = ScatterNetwork(FEATURES, 1, [(2,), (3, 4), (5,), (6, 1)], [counted, nn.ReLU(), nn.ReLU(), counted])
    packed(torch.zeros(2, FEATURES))
    assert calls == [8, 1]  # widths 2 and 6, then 1
    assert len(packed.activations) == 2  # the two nn.ReLU are alike
    different = ScatterNetwork(FEATURES, 1, [(1,)] * 3, [nn.ELU(1.0), nn.ELU(2.0), nn.ELU(1.0)])
    assert [different.extract(i)[1].alpha for i in range(3)] == [1.0, 2.0, 1.0]
    assert len(different.activations) == 2


def test_in_place_activations_give_the_same_gradients():
    plain = ScatterNetwork(FEATURES, 2, RAGGED, [nn.ReLU(), nn.Tanh()] * 3 + [nn.ReLU()])
    in_place = ScatterNetwork(FEATURES, 2, RAGGED, [nn.ReLU(inplace=True), nn.Tanh()] * 3 + [nn.ReLU(inplace=True)])
    in_place.load_state_dict(plain.state_dict())
    x = torch.randn(BATCH, FEATURES)
    for network in (plain, in_place):
        network(x).square().sum().backward()
    for expected, parameter in zip(plain.parameters(), in_place.parameters(), strict=True):
        torch.testing.assert_close(parameter.grad, expected.grad)


def test_an_activation_with_parameters_belongs_to_one_network():
    prelus = [nn.PReLU(init=0.5), nn.PReLU(init=0.1)]
    packed = ScatterNetwork(FEATURES, 2, [(3,), (4, 4)], prelus)
    x = torch.randn(BATCH, FEATURES)
    for i in range(2):
        torch.testing.assert_close(packed(x)[:, i], packed.extract(i)(x))
    packed(x)[:, 1].sum().backward()
    assert prelus[1].weight.grad.abs() > 0
    assert not prelus[0].weight.grad
    with pytest.raises(ValueError, match=r"2 networks would share the parameters of PReLU.*its own copy"):
        ScatterNetwork(FEATURES, 2, [(3,), (4,)], [prelus[0]] * 2)


# The hook


def test_transform_sees_every_hidden_layer_and_can_silence_one_network():
    packed = ScatterNetwork(FEATURES, 2, RAGGED, ragged_activations())
    seen = {}

    def silence_network_3(layer, signal, network_ids):
        seen[layer] = network_ids
        assert signal.shape == (BATCH, len(network_ids))
        return signal * (network_ids != 3)

    x = torch.randn(BATCH, FEATURES)
    output, plain = packed(x, transform=silence_network_3), packed(x)
    for layer, ids in seen.items():
        expected = [sizes[layer] if layer < len(sizes) else 0 for sizes in RAGGED]
        assert torch.bincount(ids, minlength=len(RAGGED)).tolist() == expected
        assert int((ids.diff() != 0).sum()) + 1 == len(set(ids.tolist()))  # each network's neurons are neighbours
    assert sorted(seen) == [0, 1, 2]
    torch.testing.assert_close(output[:, 3], packed.bias[3].expand(BATCH, -1))
    others = [i for i in range(len(RAGGED)) if i != 3]
    torch.testing.assert_close(output[:, others], plain[:, others])


def test_transform_comes_after_the_activation():
    packed = ScatterNetwork(FEATURES, 1, [(4,)], [nn.Sigmoid()])
    signals = []
    packed(100 * torch.randn(BATCH, FEATURES), transform=lambda layer, signal, ids: signals.append(signal) or signal)
    assert 0 <= signals[0].min() < signals[0].max() <= 1


# Initial draw


def test_every_layer_of_every_network_is_drawn_within_its_own_bounds():
    packed = ScatterNetwork(100, 50, [(4,), (400, 25), (9, 400)], [nn.Tanh(), nn.ReLU(), nn.Tanh()])
    for i in range(3):
        for weight, bias in packed.layers(i):
            bound = weight.shape[0] ** -0.5
            for part in (weight, bias):
                assert part.abs().max() <= bound * (1 + 1e-6)
            # A uniform draw comes close to its bound, on both sides, and has the standard deviation bound / sqrt(3).
            assert weight.max() > 0.9 * bound
            assert weight.min() < -0.9 * bound
            assert weight.std().item() == pytest.approx(bound / 3**0.5, rel=0.15)
            assert bias.std() > 0


def test_reset_parameters_draws_only_the_given_networks():
    packed = make(hidden_layers=2)
    before = [flat_parameters(packed, i) for i in packed.unique_model_ids]

    def changed():
        """For each network, whether its numbers have changed: {True} if all, {False} if none."""
        now = [flat_parameters(packed, i) for i in packed.unique_model_ids]
        return [set((new != old).tolist()) for new, old in zip(now, before, strict=True)]

    packed.reset_parameters([1, 4])
    assert changed() == [{i in (1, 4)} for i in packed.unique_model_ids]
    packed.reset_parameters(layer_ids=torch.tensor([0]))
    assert changed() == [{i in (0, 1, 4)} for i in packed.unique_model_ids]
    packed.reset_parameters()
    assert changed() == [{True}] * packed.num_unique_models


def test_a_seed_repeats_the_draw_and_networks_differ():
    draws = []
    for _ in range(2):
        torch.manual_seed(5)
        draws.append(make(repetitions=3).state_dict())
    assert all(torch.equal(draws[0][name], draws[1][name]) for name in draws[0])
    packed = make()
    first, second = (flat_parameters(packed, i) for i in packed.get_model_ids_from_architecture_id(2))
    assert (first != second).all()
