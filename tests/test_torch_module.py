"""The classes of `shoal.torch`: the paper's interface, losses, checkpoints, errors."""

import copy
import functools
import io
import logging

import pytest

torch = pytest.importorskip("torch")

from support.packed import BATCH, FEATURES, RAGGED, make, ragged_activations  # noqa: E402
from torch import nn  # noqa: E402

from shoal.torch import ACTIVATIONS, MLP, ScatterNetwork  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread_and_seed")

# The paper's class


def test_networks_are_ordered_by_activation_then_repetition_then_width():
    given = [nn.Sigmoid(), nn.ReLU()]
    packed = make(given, min_neurons=2, max_neurons=5, step=2, repetitions=3)
    assert packed.num_unique_models == 12
    assert packed.unique_model_ids == list(range(12))
    assert packed.num_activations == 2
    assert packed.output__model_id.tolist() == list(range(12))
    assert packed.model_id__num_hidden_neurons.tolist() == [2, 4] * 6
    assert packed.output__repetition.tolist() == [0, 0, 1, 1, 2, 2] * 2
    assert packed.output__architecture_id.tolist() == [0, 1] * 3 + [2, 3] * 3
    assert packed.model_id__activation_id.tolist() == [0] * 6 + [1] * 6
    assert packed.total_hidden_neurons == 36
    assert packed.activations_split == 18
    assert packed.hidden_neuron__model_id.tolist() == [i for i in range(12) for _ in range(2 + 2 * (i % 2))]
    assert packed.model_id__start_idx.tolist()[:4] == [0, 2, 6, 8]
    assert packed.model_id__end_idx.tolist()[:4] == [2, 6, 8, 12]
    assert list(packed.model_id__hidden_idx[1]) == [2, 3, 4, 5]
    assert packed.get_model_ids_from_architecture_id(3) == [7, 9, 11]
    assert packed.get_num_hidden_neurons_from_architecture_id(3) == 4
    assert packed.get_num_hidden_neurons_from_model_id(8) == 2
    assert packed.get_architecture_ids_from_model_ids([0, 11]) == [0, 3]
    assert packed.get_activation_from_model_id(5) is given[0]
    assert packed.get_activation_from_model_id([5, 6]) == given
    assert packed.get_activation_name_from_model_id(6) == "relu"
    assert [packed.activations[k] is given[k] for k in range(2)] == [True, True]
    assert packed.activations[1] is packed.extract_mlps([6])[0].activation


@pytest.mark.parametrize("hidden_layers", [1, 2])
@pytest.mark.parametrize("bias", [True, False])
def test_parameters_have_the_shapes_of_the_papers_code(bias, hidden_layers):
    packed = make(bias=bias, hidden_layers=hidden_layers)
    total = 2 * 2 * (1 + 3 + 5)
    assert packed.total_hidden_neurons == len(packed.hidden_neuron__model_id) == total
    assert isinstance(packed.hidden_layer, nn.Linear)
    assert packed.hidden_layer.weight.shape == (total, FEATURES)
    assert packed.weight.shape == (3, total)
    assert (packed.hidden_layer.bias is None, packed.bias is None) == (not bias, not bias)
    if bias:
        assert packed.bias.shape == (packed.num_unique_models, 3)
    names = {name for name, _ in packed.named_parameters()}
    deep = {"edge_weights.0"} | ({"edge_biases.0"} if bias else set())
    expected = {"hidden_layer.weight", "weight"} | ({"hidden_layer.bias", "bias"} if bias else set())
    assert names == packed.state_dict().keys() == expected | (deep if hidden_layers == 2 else set())
    # Only edges within a network are stored.
    assert sum(len(edges) for edges in packed.edge_weights) == (hidden_layers - 1) * 2 * 2 * (1 + 9 + 25)


@pytest.mark.parametrize("hidden_layers", [1, 3])
@pytest.mark.parametrize("bias", [True, False])
def test_extracted_networks_predict_what_their_slice_predicts(bias, hidden_layers):
    packed = make(bias=bias, hidden_layers=hidden_layers)
    x = torch.randn(BATCH, FEATURES)
    mlps = packed.extract_mlps([4, 0, 11])
    dictionaries = packed.extract_params_mlps([4, 0, 11])
    assert hasattr(mlps[0], "hidden_layers") == (hidden_layers > 1) == ("hidden_weights" in dictionaries[0])
    for i, mlp, parameters in zip([4, 0, 11], mlps, dictionaries, strict=True):
        assert type(mlp) is MLP
        assert mlp.model_id == i
        assert mlp.metadata == parameters["metadata"] == {"model_id": i}
        torch.testing.assert_close(mlp(x), packed(x)[:, i])
        torch.testing.assert_close(packed.extract(i)(x), packed(x)[:, i])
        assert torch.equal(parameters["hidden_weight"], mlp.hidden_layer.weight)
        assert torch.equal(parameters["out_weight"], mlp.out_layer.weight)
        assert parameters["activation"] is mlp.activation
        assert (parameters["out_bias"] is None, mlp.out_layer.bias is None) == (not bias, not bias)
        assert (parameters["hidden_bias"] is None, mlp.hidden_layer.bias is None) == (not bias, not bias)
        if bias:
            assert torch.equal(parameters["hidden_bias"], mlp.hidden_layer.bias)
            assert torch.equal(parameters["out_bias"], mlp.out_layer.bias)
        if hidden_layers > 1:
            assert mlp.hidden_layers[0] is mlp.hidden_layer
            for weight, layer in zip(parameters["hidden_weights"], mlp.hidden_layers, strict=True):
                assert torch.equal(weight, layer.weight)
    width = packed.get_num_hidden_neurons_from_model_id(4)
    assert mlps[0].short_repr() == f"{FEATURES}-" + f"{width}-" * hidden_layers + "Tanh()-3"
    assert mlps[0].device == packed.device
    assert mlps[0].out_features == 3
    assert packed.extract_mlps([]) == []


def test_apply_activations_treats_each_networks_columns_with_its_own_activation():
    packed = make(["relu", "identity"])
    x = torch.randn(BATCH, packed.total_hidden_neurons)
    half = packed.activations_split
    assert torch.equal(packed.apply_activations(x), torch.cat([x[:, :half].relu(), x[:, half:]], dim=1))


def test_names_stand_for_the_same_modules():
    torch.manual_seed(0)
    named = make(list(ACTIVATIONS))
    torch.manual_seed(0)
    given = make([kind() for kind in ACTIVATIONS.values()])
    x = torch.randn(BATCH, FEATURES)
    assert torch.equal(named(x), given(x))
    per_activation = range(0, named.num_unique_models, named.num_unique_models // len(ACTIVATIONS))
    assert [named.get_activation_name_from_model_id(i) for i in per_activation] == list(ACTIVATIONS)


def test_default_device_and_logger(caplog):
    with caplog.at_level(logging.INFO):
        packed = make(device=None, logger=logging.getLogger("mine"))
    assert packed.device.type == ("cuda" if torch.cuda.is_available() else "cpu")
    assert [(record.name, record.args[0]) for record in caplog.records] == [("mine", 12)]


# Losses


def expected_losses(loss_function, preds, target):
    return torch.stack([loss_function(preds[:, i], target) for i in range(preds.shape[1])], dim=1)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8])
def test_classification_losses(dtype):
    packed, target = make(), torch.randint(3, (BATCH,))
    preds = packed(torch.randn(BATCH, FEATURES))
    for loss in (
        nn.CrossEntropyLoss(reduction="none", weight=torch.tensor([1.0, 2.0, 3.0]), label_smoothing=0.1),
        nn.MultiMarginLoss(reduction="none"),
        functools.partial(nn.functional.cross_entropy, reduction="none"),
    ):
        losses = packed.calculate_loss(loss, preds, target.to(dtype))
        torch.testing.assert_close(losses, expected_losses(loss, preds, target))
        torch.testing.assert_close(packed.calculate_loss(loss, preds[:, 5], target), losses[:, 5])
    log_preds, negative_log = preds.log_softmax(-1), nn.NLLLoss(reduction="none")
    torch.testing.assert_close(
        packed.calculate_loss(negative_log, log_preds, target), expected_losses(negative_log, log_preds, target)
    )


def test_cross_entropy_with_probabilities():
    packed, target = make(), torch.rand(BATCH, 3).softmax(-1)
    preds, loss = packed(torch.randn(BATCH, FEATURES)), nn.CrossEntropyLoss(reduction="none")
    torch.testing.assert_close(packed.calculate_loss(loss, preds, target), expected_losses(loss, preds, target))


@pytest.mark.parametrize("kind", [nn.MSELoss, nn.L1Loss, nn.SmoothL1Loss, nn.HuberLoss, nn.BCEWithLogitsLoss])
@pytest.mark.parametrize("outputs", [1, 4])
def test_elementwise_losses_are_averaged_over_outputs(kind, outputs):
    packed, target = make(out_features=outputs), torch.randint(2, (BATCH, outputs))
    preds, loss = packed(torch.randn(BATCH, FEATURES)), kind(reduction="none")
    expected = expected_losses(loss, preds, target.float()).mean(-1)
    losses = packed.calculate_loss(loss, preds, target)  # whole numbers are values here, not classes
    assert losses.shape == (BATCH, packed.num_unique_models)
    torch.testing.assert_close(losses, expected)
    torch.testing.assert_close(packed.calculate_loss(loss, preds[:, 2], target.float()), expected[:, 2])
    if outputs == 1:
        torch.testing.assert_close(packed.calculate_loss(loss, preds, target[:, 0]), expected)
        torch.testing.assert_close(packed.calculate_loss(loss, preds[:, 2], target[:, 0]), expected[:, 2])
        function = functools.partial(nn.functional.binary_cross_entropy_with_logits, reduction="none")
        torch.testing.assert_close(
            packed.calculate_loss(function, preds, target[:, 0]),
            expected_losses(function, preds, target.float())[..., 0],
        )


def test_loss_errors_name_what_was_received():
    packed = make()
    preds, classes = packed(torch.randn(BATCH, FEATURES)), torch.zeros(BATCH, dtype=torch.long)
    cross_entropy, squared = nn.CrossEntropyLoss(reduction="none"), nn.MSELoss(reduction="none")
    with pytest.raises(ValueError, match=r"got reduction='mean': write reduction=\"none\""):
        packed.calculate_loss(nn.CrossEntropyLoss(), preds, classes)
    with pytest.raises(ValueError, match=r"preds must have the shape .* got \[24\]"):
        packed.calculate_loss(cross_entropy, preds[:, 0, 0], classes)
    for loss, target, received in [
        (cross_entropy, classes[:-1], r"got \[23\] of torch.int64"),
        (cross_entropy, classes.float(), r"got \[24\] of torch.float32"),
        (cross_entropy, classes[:, None], r"got \[24, 1\] of torch.int64"),
        (squared, classes, r"got \[24\] of torch.int64"),
        (squared, classes.float(), r"got \[24\] of torch.float32"),
        (squared, torch.zeros(BATCH, 2), r"got \[24, 2\] of torch.float32"),
        (squared, torch.zeros(1, 3), r"got \[1, 3\] of torch.float32"),
        (squared, torch.tensor(1.0), r"got \[\] of torch.float32"),
    ]:
        with pytest.raises(ValueError, match=r"need values \[24, 3\] or, .* class indices \[24\], " + received):
            packed.calculate_loss(loss, preds, target)
    with pytest.raises(ValueError, match=r"got \[\]: do not reduce it"):
        packed.calculate_loss(nn.functional.cross_entropy, preds, classes)


# As a module among modules


@pytest.mark.parametrize("make_network", [make, lambda: ScatterNetwork(FEATURES, 3, RAGGED, ragged_activations())])
def test_deep_copies_and_checkpoints_round_trip(make_network):
    packed, other = make_network(), make_network()
    x = torch.randn(BATCH, FEATURES)
    expected = packed(x).detach()
    copied = copy.deepcopy(packed)
    with torch.no_grad():
        packed.weight.zero_()
    assert torch.equal(copied(x), expected)
    assert not torch.equal(other(x), expected)
    file = io.BytesIO()
    torch.save(copied.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(other(x), expected)
    assert set(copied.state_dict()) == {name for name, _ in copied.named_parameters()}


@pytest.mark.parametrize("make_network", [make, lambda: ScatterNetwork(FEATURES, 3, RAGGED, ragged_activations())])
def test_all_maps_are_buffers_that_follow_the_module(make_network):
    packed = make_network().to("meta")
    assert {buffer.device.type for buffer in packed.buffers()} == {"meta"}
    held = [name for name, value in vars(packed).items() if isinstance(value, torch.Tensor)]
    assert held == []
    output = packed(torch.zeros(BATCH, FEATURES, device="meta"))
    assert output.device.type == "meta"
    assert output.shape == (BATCH, len(packed.hidden), 3)
    assert make_network().double()(torch.zeros(1, FEATURES, dtype=torch.float64)).dtype == torch.float64


def test_the_papers_checkpoint_keys_load():
    packed = make()
    weights = {"hidden_layer.weight": torch.ones(36, FEATURES), "hidden_layer.bias": torch.zeros(36)}
    weights |= {"weight": torch.ones(3, 36), "bias": torch.zeros(12, 3)}
    packed.load_state_dict(weights)
    output = packed(torch.ones(1, FEATURES))
    torch.testing.assert_close(output[0, -1], torch.full((3,), 5.0 * FEATURES))  # 5 neurons of relu(1 + ... + 1)


def test_an_empty_batch_gives_an_empty_result():
    packed = make(hidden_layers=2)
    preds = packed(torch.zeros(0, FEATURES))
    assert preds.shape == (0, 12, 3)
    losses = packed.calculate_loss(nn.MSELoss(reduction="none"), preds, torch.zeros(0, 3))
    assert losses.shape == (0, 12)


# Errors


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"min_neurons": 6}, "min_neurons=6 is above max_neurons=5: exchange them"),
        ({"min_neurons": 0}, "min_neurons must be a whole number of at least 1; got 0"),
        ({"max_neurons": 2.5}, "max_neurons must be a whole number of at least 1; got 2.5"),
        ({"step": 0}, "step must be a whole number of at least 1; got 0"),
        ({"repetitions": 0}, "repetitions must be a whole number of at least 1; got 0"),
        ({"hidden_layers": 0}, "hidden_layers must be a whole number of at least 1; got 0"),
        ({"in_features": 0}, "in_features must be a whole number of at least 1; got 0"),
        ({"out_features": "3"}, "out_features must be a whole number of at least 1; got '3'"),
        ({"activations": []}, r"activations must be a list of one or more, such as \[\"relu\"\], got \[\]"),
        ({"activations": "relu"}, r"activations must be a list of one or more, such as \[\"relu\"\], got 'relu'"),
        ({"activations": ["relu", nn.ReLU()]}, "different types, got 2 of ReLU: raise repetitions"),
        ({"activations": ["leakyrelu"]}, "got 'leakyrelu'; did you mean 'leaky_relu'"),
        ({"activations": ["xyz"]}, "activations are identity, sigmoid, .*mish.*; got 'xyz'"),
        ({"activations": [nn.Softmax(dim=1)]}, r"Softmax\(dim=1\) would mix the networks"),
        ({"activations": [nn.PReLU()]}, "6 networks would share the parameters of PReLU"),
    ],
)
def test_bad_arguments_of_the_papers_class(changes, message):
    with pytest.raises(ValueError, match=message):
        make(**changes)


@pytest.mark.parametrize("given", [nn.ReLU, torch.relu, None])
def test_the_papers_class_takes_modules_or_names(given):
    with pytest.raises(TypeError, match=r'a module or a name, such as nn.ReLU\(\) or "relu", got .*(ReLU|relu|None)'):
        make([given])


@pytest.mark.parametrize(
    ("hidden", "activations", "error", "message"),
    [
        ([], [], ValueError, "give one activation per network, got 0 for 0 networks"),
        ([(3,)], [nn.ReLU()] * 2, ValueError, "give one activation per network, got 2 for 1 networks"),
        ([(3,), ()], [nn.ReLU()] * 2, ValueError, r"hidden\[1\] must be a tuple of one or more widths, .* got \(\)"),
        ([(3,), 4], [nn.ReLU()] * 2, ValueError, r"hidden\[1\] must be a tuple of one or more widths, .* got 4"),
        ([(3, 0)], [nn.ReLU()], ValueError, r"hidden\[0\] must be a whole number of at least 1; got 0"),
        ([(2.0,)], [nn.ReLU()], ValueError, r"hidden\[0\] must be a whole number of at least 1; got 2.0"),
        ([(3,)], [nn.ReLU], TypeError, r"such as nn.Tanh\(\), got <class '.*ReLU'>"),
        ([(3,)], ["relu"], TypeError, r"such as nn.Tanh\(\), got 'relu'"),
        ([(3,)], [nn.GLU()], ValueError, "would mix the networks: use an activation that treats each element alone"),
    ],
)
def test_bad_arguments_of_the_scatter_network(hidden, activations, error, message):
    with pytest.raises(error, match=message):
        ScatterNetwork(FEATURES, 2, hidden, activations)


@pytest.mark.parametrize("shape", [(FEATURES,), (BATCH, FEATURES + 1), (BATCH, 2, FEATURES)])
def test_bad_inputs(shape):
    with pytest.raises(ValueError, match=r"\[batch, 5\], got \[" + ", ".join(map(str, shape))):
        make()(torch.zeros(shape))


@pytest.mark.parametrize("model_id", [12, -1])
def test_ids_out_of_range(model_id):
    packed = make()
    for method in (
        packed.extract,
        packed.layers,
        packed.gradients,
        packed.get_num_hidden_neurons_from_model_id,
        packed.get_activation_from_model_id,
        packed.get_activation_name_from_model_id,
        lambda i: packed.load(i, []),
        lambda i: packed.extract_mlps([0, i]),
        lambda i: packed.extract_params_mlps([0, i]),
        lambda i: packed.reset_parameters([0, i]),
        lambda i: packed.get_architecture_ids_from_model_ids([0, i]),
    ):
        with pytest.raises(ValueError, match=f"no network has the id {model_id}: use 0 to 11"):
            method(model_id)
    with pytest.raises(ValueError, match="no architecture has the id 6: use 0 to 5"):
        packed.get_model_ids_from_architecture_id(6)


def test_ids_must_be_whole_numbers_but_of_any_integer_type():
    packed = make()
    numpy = pytest.importorskip("numpy")
    for ids in ([3, 7], (3, 7), range(3, 8, 4), torch.tensor([3, 7]), numpy.array([3, 7]), iter([3, 7])):
        assert [mlp.model_id for mlp in packed.extract_mlps(ids)] == [3, 7]
    for one in (3, torch.tensor(3), numpy.int64(3)):
        assert torch.equal(packed.extract(one)[0].weight, packed.extract(3)[0].weight)
    with pytest.raises(TypeError, match="float"):
        packed.extract_mlps([1.5])


def test_load_refuses_what_does_not_fit_and_changes_nothing():
    packed = ScatterNetwork(FEATURES, 2, [(3, 4)], [nn.ReLU()])
    before, fitting = packed.layers(0), [(weight + 1, bias + 1) for weight, bias in packed.layers(0)]
    (weight, bias), *rest = fitting
    for wrong in (
        fitting[:-1],
        [(weight.T, bias), *rest],
        [(weight, bias[:-1]), *rest],
        [(weight, None), *rest],
        [*fitting[:-1], (torch.zeros(4, 3), torch.zeros(3))],
    ):
        with pytest.raises(ValueError, match=r"needs W \[fan_in, fan_out\] and b of shapes \[\(\[5, 3\], \[3\]\)"):
            packed.load(0, wrong)
    for (weight, bias), (old_weight, old_bias) in zip(packed.layers(0), before, strict=True):
        assert torch.equal(weight, old_weight)
        assert torch.equal(bias, old_bias)
    without_bias = ScatterNetwork(FEATURES, 2, [(3, 4)], [nn.ReLU()], bias=False)
    with pytest.raises(ValueError, match=r"\(\[5, 3\], None\).* got \[\(\[5, 3\], \[3\]\)"):
        without_bias.load(0, fitting)
    without_bias.load(0, [(weight, None) for weight, _ in fitting])
    assert torch.equal(without_bias.layers(0)[1][0], fitting[1][0])
    assert without_bias.layers(0)[1][1] is None


def test_gradients_before_a_backward_pass():
    with pytest.raises(RuntimeError, match=r"shape \[36, 5\] has no gradient: call backward\(\) first"):
        make().gradients(0)
