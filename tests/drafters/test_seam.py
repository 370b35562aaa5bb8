"""What a new drafter needs: a file of its own (oracle.py here), and a place in the controller's list."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specgguf.drafters.model import ModelDrafter
from specgguf.drafters.ngram import NgramDrafter
from specgguf.sampling.sampler import Sampler
from specgguf.speculative.controller import Auto, Fixed
from specgguf.speculative.policy.policy import Policy
from specgguf.speculative.stats import Stats
from tests.drafters.oracle import OracleDrafter
from tests.speculative.test_controller import TimedContext, cheap, dear
from tests.speculative.toy import NUM_TOKENS, blend, reference, rounds, run, table


def drafters(logits_of, third, agreement=0.7, draft_s=0.1):
    draft = TimedContext(blend(logits_of, table(99), agreement), lambda width: draft_s, max_rows=1)
    return [NgramDrafter(), ModelDrafter(draft, NUM_TOKENS, ()), third]


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 1000),
    temperature=st.sampled_from([0.0, 0.8]),
    cost=st.sampled_from([cheap, dear]),
    num_right=st.sampled_from([0, 2, 100]),
    prompt=st.lists(st.integers(0, NUM_TOKENS - 1), min_size=1, max_size=40),
)
def test_a_third_drafter_changes_no_text_and_reads_all_that_is_kept(seed, temperature, cost, num_right, prompt):
    sampler = Sampler(temperature=temperature, seed=seed)
    target, third = TimedContext(table(seed), cost), OracleDrafter(table(seed), num_right)
    policy = Policy(target.max_rows - 1)
    tokens = list(prompt)
    for _ in range(2):  # a second turn goes on where the first one ended
        controller = Auto(policy, drafters(table(seed), third))
        output = run(target, controller, sampler, tokens, max_tokens=40)
        assert output == reference(target.logits_of, sampler, tokens, (), 40)
        tokens += [*output, 1, 2]
    assert third.calls.count("begin") == 2


@pytest.mark.parametrize(
    ("third", "best"), [(OracleDrafter(table(3)), "oracle"), (OracleDrafter(table(3), 0), "model")]
)
def test_every_round_takes_the_drafter_that_promises_most(third, best):
    target = TimedContext(table(3), cheap)
    controller = Auto(Policy(target.max_rows - 1), drafters(table(3), third, agreement=0.95))
    stats = Stats()
    for one in rounds(target, controller, Sampler(), [1, 2, 3], max_tokens=600):
        stats.observe(one)
    assert stats.drafted[best] > 0.8 * stats.drafted.total()


def test_drafters_take_turns_in_one_answer():
    """Text that repeats itself for a while is copied; before and after that the third one drafts."""

    def sometimes_repeating(prefix):
        logits = table(3)(prefix)
        if 150 < len(prefix) < 350:
            logits[(1, 4, 2, 5, 3)[len(prefix) % 5]] += 50
        return logits

    target, third = TimedContext(sometimes_repeating, cheap), OracleDrafter(sometimes_repeating, step_s=0.2)
    controller = Auto(Policy(target.max_rows - 1), drafters(sometimes_repeating, third, agreement=0.0))
    at, sources = 3, {"before": Counter(), "while": Counter(), "after": Counter()}
    for one in rounds(target, controller, Sampler(), [1, 2, 3], max_tokens=600):
        at += len(one.output)
        sources["before" if at < 150 else "while" if 170 < at < 350 else "after"][one.source] += one.accepted
    assert [counts.most_common(1)[0][0] for counts in sources.values()] == ["oracle", "ngram", "oracle"]


def test_what_a_step_costs_is_learned_for_each_drafter():
    target, third = TimedContext(table(3), cheap), OracleDrafter(table(3), step_s=0.05)
    policy = Policy(target.max_rows - 1)
    slow = drafters(table(3), third, agreement=1.0, draft_s=0.3)
    for drafter in (slow[1], third):
        list(rounds(target, Auto(policy, [drafter]), Sampler(), [1, 2, 3], max_tokens=100))
        target.clear()
        third.states.clear()
    costs = policy.pace.costs
    assert costs.draft_step("oracle") == pytest.approx(0.05, rel=0.2)
    assert costs.draft_step("model") == pytest.approx(0.3, rel=0.2)
    assert Policy(7, policy.tables()).pace.costs.draft_step("model") == pytest.approx(0.3, rel=0.2)


def test_fixed_lengths_take_any_drafter():
    target, third = TimedContext(table(3), cheap), OracleDrafter(table(3))
    found = list(rounds(target, Fixed(third, 4), Sampler(), [1, 2, 3], max_tokens=40))
    assert [(one.source, one.accepted) for one in found] == [("oracle", 4)] * 8
    assert third.calls == ["begin", *[(4, 4)] * 8]
