"""One backbone with many heads: against plain PyTorch, dropping heads, extracting them, wrong input."""

from __future__ import annotations

import copy
import io

import pytest

torch = pytest.importorskip("torch")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from shoal import ACTIVATIONS, Member, Population, grid  # noqa: E402
from shoal.torch import Heads  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread_and_seed")

FEATURES, CLASSES = 6, 3
VARIED = [
    Member(hidden=(), seed=1),
    Member(hidden=5, activation="tanh", learning_rate=0.1, seed=2),
    Member(hidden=8, activation="sigmoid", seed=3, init="glorot"),
    Member(hidden=7, activation="sigmoid", learning_rate=0.03, weight_decay=0.1, seed=4),
    Member(hidden=(5, 9), activation="mish", label_smoothing=0.2, seed=5),
    Member(hidden=(6, 12), activation="selu", features=(4, 0, 2), seed=6),
    Member(hidden=(), features=(5,), seed=7),
]


def backbone() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(2 * 4 * 4, FEATURES), nn.Tanh())


def rows(count: int = 9) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(count, 1, 6, 6), torch.randint(0, CLASSES, (count,))


class Loop:
    """The same training in plain PyTorch, one head after another."""

    def __init__(self, shared: nn.Module, members: list[Member], initial: list[nn.Module]) -> None:
        self.shared, self.members, self.heads = shared, members, initial
        groups = [{"params": shared.parameters(), "lr": 0.02}]
        groups += [
            {"params": head.parameters(), "lr": member.learning_rate, "weight_decay": member.weight_decay}
            for member, head in zip(members, initial, strict=True)
        ]
        self.optimizer = torch.optim.Adam(groups)

    def loss(self, member: Member, head: nn.Module, features: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        seen = features if member.features is None else features[:, list(member.features)]
        return functional.cross_entropy(head(seen), y, label_smoothing=member.label_smoothing)

    def step(self, x: torch.Tensor, y: torch.Tensor) -> list[float]:
        self.optimizer.zero_grad()
        found = []
        for member, head in zip(self.members, self.heads, strict=True):
            found.append(self.loss(member, head, self.shared(x), y))
            found[-1].backward()
        for parameter in self.shared.parameters():
            parameter.grad /= len(self.heads)  # the mean of what the heads send
        self.optimizer.step()
        return [loss.item() for loss in found]


# ---- the oracle ----


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 2e-4)])
def test_heads_and_backbone_train_as_in_plain_pytorch(dtype, tolerance):
    heads = Heads(backbone(), VARIED, FEATURES, CLASSES).to(dtype)
    alone = Loop(copy.deepcopy(heads.backbone), VARIED, [copy.deepcopy(heads.network(i)) for i in range(len(VARIED))])
    optimizer = torch.optim.Adam(heads.parameter_groups(lr=0.02))
    start = copy.deepcopy(heads)
    for _ in range(12):
        x, y = rows()
        optimizer.zero_grad()
        losses = heads.losses(heads(x.to(dtype)), y)
        losses.sum().backward()
        optimizer.step()
        expected = torch.tensor(alone.step(x.to(dtype), y), dtype=dtype)
        torch.testing.assert_close(losses.detach(), expected, atol=tolerance, rtol=tolerance)
    pairs = [(heads.backbone, alone.shared)]
    pairs += [(heads.network(i), head) for i, head in enumerate(alone.heads)]
    for ours, theirs in pairs:
        for parameter, other in zip(ours.parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(parameter, other, atol=tolerance, rtol=tolerance)
    for before, after in zip(start.parameters(), heads.parameters(), strict=True):
        assert (before - after).abs().max() > 1e-3  # there was something to learn, also in the backbone


def test_heads_start_with_the_weights_of_a_population():
    heads = Heads(nn.Identity(), VARIED, FEATURES, CLASSES)
    population = Population(VARIED, FEATURES, CLASSES)
    for i in range(len(VARIED)):
        for ours, theirs in zip(heads.extract(i)[1].parameters(), population.extract(i).parameters(), strict=True):
            assert torch.equal(ours, theirs)


MEMBERS = st.builds(
    Member,
    hidden=st.lists(st.integers(1, 20), max_size=3).map(tuple),
    activation=st.sampled_from(ACTIVATIONS),
    seed=st.integers(0, 99),
    features=st.none() | st.lists(st.integers(0, FEATURES - 1), min_size=1, unique=True).map(tuple),
)


@settings(max_examples=25, deadline=None)
@given(members=st.lists(MEMBERS, min_size=1, max_size=8), count=st.integers(1, 5), outputs=st.integers(1, 4))
def test_an_extracted_head_predicts_what_its_slice_predicts(members, count, outputs):
    heads = Heads(nn.Linear(2, FEATURES), members, FEATURES, outputs).double()
    x = torch.randn(count, 2, dtype=torch.float64)
    found = heads(x)
    assert found.shape == (len(members), count, outputs)
    for i in range(len(members)):
        torch.testing.assert_close(found[i], heads.extract(i)(x), atol=1e-12, rtol=1e-12)


def test_extracted_modules_are_plain_and_share_no_memory():
    heads = Heads(backbone(), VARIED, FEATURES, CLASSES)
    x, _ = rows()
    before = heads(x).detach()
    for i in range(len(VARIED)):
        module = heads.extract(i)
        assert not module.training
        assert {type(part).__module__.split(".")[0] for part in module.modules()} == {"torch"}
        torch.testing.assert_close(module(x), before[i], atol=1e-6, rtol=1e-6)
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.fill_(7.0)
    assert torch.equal(heads(x), before)


def test_the_loss_of_one_head_reaches_the_backbone_and_no_other_head():
    heads = Heads(backbone(), VARIED, FEATURES, CLASSES)
    x, y = rows()
    heads.losses(heads(x), y)[3].backward()
    assert all(parameter.grad.abs().sum() > 0 for parameter in heads.backbone.parameters())
    for i in range(len(VARIED)):
        reached = sum(parameter.grad.abs().sum() for parameter in heads.network(i).parameters())
        assert (reached > 0) == (i == 3)


@pytest.mark.parametrize(("loss", "outputs"), [("mse", 1), ("mse", 2), ("bce", 2)])
def test_losses_of_values(loss, outputs):
    heads = Heads(nn.Identity(), VARIED[:4], FEATURES, outputs, loss)
    x = torch.randn(5, FEATURES)
    target = torch.rand(5, outputs).round()
    each = {"mse": functional.mse_loss, "bce": functional.binary_cross_entropy_with_logits}[loss]
    expected = torch.stack([each(output, target) for output in heads(x)])
    torch.testing.assert_close(heads.losses(heads(x), target), expected)
    if outputs == 1:
        torch.testing.assert_close(heads.losses(heads(x), target[:, 0]), expected)


def test_dropout_is_that_of_the_head_alone_whatever_its_company():
    members = [Member(hidden=(9, 5), dropout=0.4, seed=k) for k in range(3)] + [Member(hidden=9, seed=4)]
    heads = Heads(nn.Identity(), members, FEATURES, CLASSES).double()
    x = torch.randn(50, FEATURES, dtype=torch.float64)
    found = heads(x)
    for i, member in enumerate(members):
        alone = heads.extract(i).train()
        torch.manual_seed(member.seed)
        torch.testing.assert_close(found[i], alone(x), atol=1e-12, rtol=1e-12)
    assert not torch.allclose(heads(x)[0], found[0])  # another draw in the next step
    assert torch.equal(heads.eval()(x), heads(x))


# ---- dropping heads ----


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD, torch.optim.RMSprop])
def test_heads_are_dropped_while_any_optimizer_goes_on(kind):
    """With a backbone that does not learn, those that stay never notice."""
    frozen = backbone().requires_grad_(False)
    whole = Heads(frozen, VARIED, FEATURES, CLASSES).double()
    part = copy.deepcopy(whole)
    optimizers = [kind(heads.parameter_groups()) for heads in (whole, part)]
    gone = part.network(2)
    for step in range(8):
        if step == 4:
            part.drop([2, 5])
            kept = copy.deepcopy(gone.state_dict())
        x, y = rows()
        for heads, optimizer in zip((whole, part), optimizers, strict=True):
            optimizer.zero_grad()
            heads.losses(heads(x.double()), y).sum().backward()
            optimizer.step()
    assert part.active == [0, 1, 3, 4, 6]
    assert len(part) == 5
    assert part(rows()[0].double()).shape[0] == 5
    for i in part.active:
        for ours, theirs in zip(part.network(i).parameters(), whole.network(i).parameters(), strict=True):
            torch.testing.assert_close(ours, theirs, atol=1e-12, rtol=1e-12)
    assert all(torch.equal(value, kept[name]) for name, value in gone.state_dict().items())  # and is left alone


def test_a_head_that_is_dropped_between_backward_and_step_is_left_alone():
    heads = Heads(backbone(), VARIED, FEATURES, CLASSES)
    optimizer = torch.optim.Adam(heads.parameter_groups(lr=0.1))
    x, y = rows()
    heads.losses(heads(x), y).sum().backward()
    gone, before = heads.network(2), copy.deepcopy(heads.network(2).state_dict())
    heads.drop(2)
    optimizer.step()
    assert all(torch.equal(value, before[name]) for name, value in gone.state_dict().items())


def test_the_backbone_hears_the_mean_also_after_heads_were_dropped():
    members = [Member(hidden=4, seed=1)] * 4  # equal heads: the mean is the gradient of any of them
    x, y = rows()
    gradients = []
    for dropped in ([], [0], [1, 2, 3]):
        torch.manual_seed(0)
        heads = Heads(backbone(), members, FEATURES, CLASSES)
        if dropped:
            heads.drop(dropped)
        heads.losses(heads(x), y).sum().backward()
        gradients.append(heads.backbone[0].weight.grad)
    for gradient in gradients[1:]:
        torch.testing.assert_close(gradient, gradients[0])


def test_numbers_stay_and_checkpoints_load():
    heads = Heads(backbone(), VARIED, FEATURES, CLASSES)
    heads.drop(0)
    assert heads.active == [1, 2, 3, 4, 5, 6]
    x, y = rows()
    torch.testing.assert_close(heads.extract(3)(x), heads(x)[2])
    assert heads.losses(heads(x), y).shape == (6,)
    file = io.BytesIO()
    torch.save(heads.state_dict(), file)
    file.seek(0)
    other = Heads(backbone(), VARIED, FEATURES, CLASSES)
    other.drop(0)
    other.load_state_dict(torch.load(file))
    assert torch.equal(other(x), heads(x))


# ---- wrong input ----


def test_a_backbone_that_does_not_fit_is_named_with_its_shape():
    x, _ = rows()
    flat = Heads(nn.Conv2d(1, 2, 3), VARIED, FEATURES, CLASSES)
    with pytest.raises(ValueError, match=r"see 6 features, but the backbone gives \[9, 2, 4, 4\].*nn.Flatten"):
        flat(x)
    with pytest.raises(ValueError, match=r"see 6 features, but the backbone gives \[9, 36\]: give n_features=36"):
        Heads(nn.Flatten(), VARIED, FEATURES, CLASSES)(x)
    with pytest.raises(ValueError, match=r"the backbone gives \[324\]: it must give a row for each row it gets"):
        Heads(nn.Flatten(0), VARIED, FEATURES, CLASSES)(x)
    pair = Heads(nn.LSTM(6, 6), VARIED, FEATURES, CLASSES)
    with pytest.raises(TypeError, match="must give one tensor"):
        pair(x[:, 0])


def test_wrong_members_losses_and_targets_are_refused_in_words():
    with pytest.raises(ValueError, match="at least one member; got none"):
        Heads(backbone(), [], FEATURES, CLASSES)
    with pytest.raises(TypeError, match="into a list"):
        Heads(backbone(), Member(), FEATURES, CLASSES)
    with pytest.raises(TypeError, match=r"members must be a list of shoal\.Member; got None"):
        Heads(backbone(), None, FEATURES, CLASSES)
    with pytest.raises(TypeError, match="number 1 is 8"):
        Heads(backbone(), [Member(), 8], FEATURES, CLASSES)
    with pytest.raises(TypeError, match=r"backbone must be a torch\.nn\.Module"):
        Heads([nn.Flatten()], [Member()], FEATURES, CLASSES)
    with pytest.raises(ValueError, match="member 0 sees column 6, but columns are 0 to 5"):
        Heads(backbone(), [Member(features=(6,))], FEATURES, CLASSES)
    with pytest.raises(ValueError, match=r"n_features must be a whole number from 1 to .*; got 0"):
        Heads(backbone(), [Member()], 0, CLASSES)
    with pytest.raises(ValueError, match=r"loss must be one of .*got 'hinge'"):
        Heads(backbone(), [Member()], FEATURES, CLASSES, "hinge")
    with pytest.raises(ValueError, match="label_smoothing, which works with cross_entropy only"):
        Heads(backbone(), [Member(label_smoothing=0.1)], FEATURES, 1, "mse")
    heads = Heads(nn.Identity(), grid(hidden=[2, 3]), FEATURES, CLASSES)
    outputs = heads(torch.zeros(4, FEATURES))
    with pytest.raises(ValueError, match=r"whole class number for each of 4 rows; got \[4\] of torch.float32"):
        heads.losses(outputs, torch.zeros(4))
    with pytest.raises(ValueError, match=r"\[2 heads, rows, 3\]; got \[1, 4, 3\]"):
        heads.losses(outputs[:1], torch.zeros(4, dtype=torch.long))
    with pytest.raises(ValueError, match="no network 2: they are numbered from 0 to 1"):
        heads.extract(2)
    with pytest.raises(ValueError, match="at least one network has to stay"):
        heads.drop([0, 1])
    heads.drop(torch.tensor([1]))
    with pytest.raises(ValueError, match=r"network 1 was dropped; left are \[0\]"):
        heads.extract(1)
    with pytest.raises(TypeError, match=r"whole numbers; got 0\.5"):
        heads.drop([0.5])


class Odd(nn.Module):
    """A backbone with a tied weight and an embedding whose gradient is sparse."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.first, self.second = nn.Embedding(9, 6, sparse=True), nn.Linear(6, 6), nn.Linear(6, 6)
        self.second.weight = self.first.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.tanh(self.first(self.table(x))))


def test_a_backbone_with_tied_weights_and_sparse_gradients_trains_as_alone():
    x, y = torch.arange(12) % 9, torch.arange(12) % 3
    heads = Heads(Odd(), [Member(hidden=5, seed=3, learning_rate=0.1)], 6, 3)
    alone = heads.extract(0).train()
    for model, parameters in ((heads, heads.parameter_groups(lr=0.1)), (alone, alone.parameters())):
        optimizer = torch.optim.SGD(parameters, lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            output = model(x)
            loss = heads.losses(output, y).sum() if model is heads else functional.cross_entropy(output, y)
            loss.backward()
            optimizer.step()
    ours = heads.extract(0)
    assert ours[0].second.weight is ours[0].first.weight
    for one, other in zip(ours.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(one, other)
