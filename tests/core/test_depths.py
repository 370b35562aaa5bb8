"""Costs by the depth of the context."""

import pytest

from specgguf.core.depths import CostsByDepth


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
