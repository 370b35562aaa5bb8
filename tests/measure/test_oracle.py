"""The best way to cut an answer into rounds."""

import random
from itertools import product

import pytest

from specgguf.measure.oracle import run_lengths, shortest_time
from specgguf.speculative.policy.costs import WidthCosts
from tests.speculative.replay import TRACES, machine
from tests.speculative.replay import oracle as yardstick


def test_a_run_ends_before_the_first_miss():
    assert run_lengths([True, True, False, True]) == [2, 1, 0, 1]
    assert run_lengths([]) == []


def shortest(drafted, copied, costs):
    return shortest_time({"model": drafted, "ngram": copied}, {"ngram"}, costs)


def every_way(drafted, copied, costs):
    """Try all numbers of tokens in all rounds."""
    total = len(drafted)
    best = float("inf")
    for counts in product(range(costs.cap + 1), repeat=total):
        at, seconds = 0, 0.0
        for count in counts:
            if at == total:
                break
            source = drafted if count > copied[at] else copied
            accepted = min(source[at], count, total - at - 1)
            seconds += costs.padded(count + 1) + (count > copied[at]) * count * costs.draft_step("model")
            at += accepted + 1
        if at == total:
            best = min(best, seconds)
    return best


@pytest.mark.parametrize("seed", range(30))
def test_no_way_is_faster(seed):
    dice = random.Random(seed)
    costs = WidthCosts(3, {n: dice.uniform(0.5, 3) for n in range(1, 5)}, {"model": {"step": dice.uniform(0, 0.5)}})
    drafted = [dice.randrange(4) for _ in range(5)]
    copied = [dice.choice([0, 0, 2]) for _ in range(5)]
    assert shortest(drafted, copied, costs) == pytest.approx(every_way(drafted, copied, costs))


def test_copies_are_free_and_the_cap_holds():
    costs = WidthCosts(2, {1: 1.0, 2: 1.0, 3: 1.0}, {"model": {"step": 10.0}})
    assert shortest([9] * 6, [0] * 6, costs) == 6.0
    assert shortest([0] * 6, [9] * 6, costs) == 2.0
    assert shortest([], [], costs) == 0.0


@pytest.mark.parametrize("name", ["bf16-2core", "gpu-like"])
def test_at_least_as_fast_as_the_yardsticks_oracle(name):
    on = machine(name)
    theirs = yardstick(on)
    for text, trace in TRACES["prompts"].items():
        matched = trace["matched"]
        mine = len(matched) * on.plain / shortest(matched, [0] * len(matched), on.costs())
        assert 0.999 < mine / theirs[text] < 1.1
