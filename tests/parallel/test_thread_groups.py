"""Messages between threads: from a given sender or from anyone, in any order, none is waited for in vain."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.parallel.groups.threads import Rendezvous, Threads


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 3), st.booleans()), max_size=12), st.randoms())
def test_any_sender_is_heard_after_messages_from_given_ones(messages, random):
    rendezvous = Rendezvous(4, timeout=1.0)
    server, vector = Threads(rendezvous, 0), torch.zeros(1)
    for number, (sender, _) in enumerate(messages):
        Threads(rendezvous, sender).send(torch.tensor([float(number)]), 0)
    left = {sender: [k for k, (one, _) in enumerate(messages) if one == sender] for sender in (1, 2, 3)}
    for sender, from_anyone in messages:
        waiting = [one for one in left if left[one]]
        source = None if from_anyone else sender if left[sender] else random.choice(waiting)
        found = server.receive(vector, source)
        assert found in waiting
        assert vector.item() == left[found].pop(0)
    assert not any(left.values())


def test_a_message_that_never_comes_is_an_error():
    with pytest.raises(RuntimeError, match="has not answered in time"):
        Threads(Rendezvous(2, timeout=0.3), 0).receive(torch.zeros(1))
