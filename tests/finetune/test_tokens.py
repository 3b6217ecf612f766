"""Texts as tokens, and the batches that workers share."""

from __future__ import annotations

from itertools import chain

import pytest
from support.finetune import ROWS

from shoal.finetune import models, tokens

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytestmark = pytest.mark.filterwarnings("ignore")  # of libraries that are not ours


def test_cut_texts_are_counted(tiny):
    tokenizer = models.load_tokenizer(tiny)
    whole = tokens.encode(ROWS, tokenizer, 1000)
    lengths = [len(whole[row]) for row in range(len(ROWS))]
    cut = tokens.encode(ROWS, tokenizer, lengths[0])
    assert whole.cut == 0
    assert all(whole[row][-1] == tokenizer.eos_token_id for row in range(len(ROWS)))
    assert tokenizer.decode(whole[3][:-1], clean_up_tokenization_spaces=False) == ROWS[3]
    assert cut.cut == sum(length > lengths[0] for length in lengths) > 0
    assert max(len(cut[row]) for row in range(len(ROWS))) == lengths[0]


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_batches_do_not_depend_on_the_number_of_workers(size):
    from shoal.finetune.trainer import WorkerBatches

    orders = [WorkerBatches(11, 4, seed=3, rank=rank, size=size) for rank in range(size)]
    whole = list(WorkerBatches(11, 4, seed=3, rank=0, size=1))
    shares = list(zip(*orders, strict=True))
    assert [sorted(chain(*parts)) for parts in shares] == [sorted(batch) for batch in whole]
    assert sorted(chain(*whole)) == list(range(11)), "every row once"
    assert [orders[0].rows_in(step) for step in range(4)] == [4, 4, 3, 4]
    orders[0].epoch = 1
    assert list(chain(*orders[0])) != list(chain(*(batch[::size] for batch in whole))), (
        "another order in the next epoch"
    )


def test_a_worker_without_rows_adds_nothing(tiny):
    model = models.load_model(tiny)
    inputs = tokens.batch([], padding=0)
    loss = model(**inputs, num_items_in_batch=torch.tensor(7)).loss
    loss.backward()
    assert float(loss.detach()) == 0
    assert all(parameter.grad is not None and not parameter.grad.any() for parameter in model.parameters())
