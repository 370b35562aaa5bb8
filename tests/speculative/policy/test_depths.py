"""Costs by the depth of the context."""

import pytest

from specgguf.speculative.policy.depths import CostsByDepth, level_of


def test_every_depth_has_a_table_of_its_own_that_begins_with_the_nearest():
    costs = CostsByDepth(3)
    for width, seconds in ((1, 1.0), (2, 1.1), (3, 1.2), (4, 1.3)):
        costs.at(100).observe(width, seconds)
    assert costs.at(2047) is costs.at(100)
    deep = costs.at(5000)
    assert deep is costs.at(4096) is not costs.at(4095)
    assert deep.time(4) == pytest.approx(1.3)
    for _ in range(8):
        for width, seconds in ((1, 2.0), (4, 6.0)):
            deep.observe(width, seconds)
    assert deep.time(4) / deep.time(1) == pytest.approx(3, rel=0.1)
    assert costs.at(100).time(4) / costs.at(100).time(1) == pytest.approx(1.3)
    assert costs.at(9000).time(4) == pytest.approx(deep.time(4))


def test_what_was_learned_comes_back():
    costs = CostsByDepth(7, allowed=(1, 4, 8))
    costs.at(0).observe(1, 0.5)
    costs.at(3000).observe(4, 0.9)
    again = CostsByDepth(7, costs.tables(), allowed=(1, 4, 8))
    assert again.tables() == costs.tables()
    assert again.at(3000).time(4) == pytest.approx(0.9)
    assert again.at(0).cap == 7


def test_a_depth_seen_for_the_first_time_is_slower_as_a_whole():
    shallow = {"times": {1: 1.0, 2: 1.5, 16: 5.0}, "drafters": {"model": {"step": 0.5}}}
    costs = CostsByDepth(15, {level_of(0): shallow}).at(5000)
    costs.observe(1, 6.0)  # a hiccup
    for _ in range(2):
        costs.observe(1, 2.0)
    assert [costs.time(width) for width in (1, 2, 16)] == pytest.approx([2.0, 3.0, 10.0])
    assert costs.draft_step("model") == pytest.approx(1.0)
