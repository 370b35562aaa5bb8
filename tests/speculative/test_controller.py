"""Adaptive drafting from two sources: never another text, and the better source where one is better."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from specgguf.drafters.model import ModelDrafter
from specgguf.drafters.ngram import NgramDrafter
from specgguf.sampling.sampler import Sampler
from specgguf.speculative.controller import Auto, Switch
from specgguf.speculative.policy.policy import Policy
from tests.speculative.toy import NUM_TOKENS, ToyContext, blend, reference, rounds, run, table


class TimedContext(ToyContext):
    """Takes as long as it is told: seconds by the width of a batch."""

    def __init__(self, logits_of, seconds, **settings):
        super().__init__(logits_of, **settings)
        self.seconds = seconds

    def _evaluate(self, parts):
        self.decode_s += self.seconds(sum(len(part.tokens) for part in parts))
        return super()._evaluate(parts)


def cheap(width):
    return 1.0 + 0.02 * width


def dear(width):
    return 1.0 * width


def auto(target, draft_logits, names, draft_s=0.1, on_change=lambda _: None):
    draft = TimedContext(draft_logits, lambda width: draft_s * width, max_rows=1)
    known = {"model": ModelDrafter(draft, NUM_TOKENS, ()), "ngram": NgramDrafter()}
    return Auto(Policy(target.max_rows - 1), [known[name] for name in names], on_change=on_change)


@settings(max_examples=100, deadline=None)
@given(
    seed=st.integers(0, 1000),
    temperature=st.sampled_from([0.0, 0.7]),
    agreement=st.sampled_from([0.0, 0.8, 1.0]),
    cost=st.sampled_from([cheap, dear]),
    sources=st.sampled_from([("model",), ("ngram",), ("model", "ngram"), ()]),
    prompt=st.lists(st.integers(0, NUM_TOKENS - 1), min_size=1, max_size=40),
)
def test_the_text_is_plain_decodings(seed, temperature, agreement, cost, sources, prompt):
    sampler = Sampler(temperature=temperature, seed=seed)
    target = TimedContext(table(seed), cost)
    controller = auto(target, blend(table(seed), table(seed + 1), agreement), sources)
    output = run(target, controller, sampler, prompt, max_tokens=60)
    assert output == reference(target.logits_of, sampler, prompt, (), 60)


def counted(cost, agreement, logits_of=None, sources=("model", "ngram"), draft_s=0.1):
    """How many tokens the rounds of a long text put out, and who drafted them."""
    logits_of = logits_of or table(3)
    target = TimedContext(logits_of, cost)
    controller = auto(target, blend(logits_of, table(4), agreement), sources, draft_s)
    found = list(rounds(target, controller, Sampler(), [1, 2, 3], max_tokens=400))
    return len(found), Counter(one.source for one in found if one.drafted)


def test_a_good_draft_is_used_where_wide_batches_are_cheap():
    count, sources = counted(cheap, 1.0, sources=("model",))
    assert count < 120
    assert sources["model"] > 0.8 * count


def test_and_hardly_ever_where_they_are_dear():
    count, sources = counted(dear, 1.0, sources=("model",))
    assert sources["model"] < 0.15 * count


def test_a_bad_draft_is_parked():
    count, sources = counted(cheap, 0.0, sources=("model",))
    assert sources["model"] < 0.15 * count


def test_a_change_of_mind_is_told_in_a_line():
    def sharp(seed):
        return lambda prefix: 8 * table(seed)(prefix)

    def draft(prefix):  # right at first, then never, then right again
        return sharp(4 if 40 < len(prefix) < 150 else 3)(prefix)

    told = []
    target = TimedContext(sharp(3), cheap)
    controller = auto(target, draft, ("model",), on_change=told.append)
    list(rounds(target, controller, Sampler(), [1, 2, 3], max_tokens=1200))
    assert ["parked" in line for line in told] == [True, False] * (len(told) // 2)
    assert 2 <= len(told) <= 10
    assert "the best draft would lose" in told[0]


def test_drafts_can_be_switched_off_and_on_in_the_midst_of_a_text():
    logits = table(3)
    is_on = [True]
    target = TimedContext(logits, cheap)
    controller = Switch(auto(target, logits, ["model"]), lambda: is_on[0])
    drafted, output = [], []
    for number, finished in enumerate(rounds(target, controller, Sampler(), [1], max_tokens=120)):
        drafted.append(finished.drafted)
        output += finished.output
        is_on[0] = number < 3 or number >= 8
    assert (any(drafted[:4]), any(drafted[4:9]), any(drafted[9:])) == (True, False, True)
    assert output == reference(logits, Sampler(), [1], (), 120)


def test_text_that_repeats_is_copied_rather_than_drafted():
    def repeating(prefix):
        logits = table(3)(prefix)
        logits[(1, 4, 2, 5, 3)[len(prefix) % 5]] += 50
        return logits

    count, sources = counted(cheap, 0.7, repeating, draft_s=0.5)
    assert count < 120
    assert sources["ngram"] > 0.7 * count
