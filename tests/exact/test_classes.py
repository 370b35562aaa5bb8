"""Batches that are rounded by their width: which widths agree is found, and keeping to them keeps the text."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specgguf.drafters.model import ModelDrafter
from specgguf.exact.classes import expected_speed, measure
from specgguf.sampling.sampler import Sampler
from specgguf.speculative.controller import Fixed, Plain
from tests.contract import decode
from tests.speculative.toy import NUM_TOKENS, ToyContext, blend, rounds, table

CLASSES = ((1, 2, 3), (4, 6), (5,), (7, 8))


class RoundingContext(ToyContext):
    """Its logits depend on the class of the batch's width, and from a depth on on width 1 or not."""

    def __init__(self, logits_of, classes=CLASSES, depth=10_000, **settings):
        super().__init__(logits_of, **settings)
        self.classes = classes
        self.depth = depth
        self.widths: list[int] = []

    def _evaluate(self, parts):
        ((_, tokens, rows),), start = parts, len(self.tokens[0])
        logits, hidden = super()._evaluate(parts)
        if rows:
            self.widths.append(len(tokens))
            self.decode_s += 1.0
            logits += next(i for i, widths in enumerate(self.classes) if len(tokens) in widths)
            logits[:, 0] += 0.5 * (start >= self.depth and len(tokens) == 1)
        return logits * logits, hidden  # not a shift, so that choices differ


def measured(context, depths=(3, 12)):
    done = []
    text = [i % NUM_TOKENS for i in range(40)]
    found = measure(context, text, depths, 8, lambda *progress: done.append(progress))
    assert done[:24] == [(i, 24) for i in range(1, 25)]
    assert done[24:] == [(3, 4)]  # one more round of timing
    assert found.timing.seconds == dict.fromkeys(range(1, 9), 1.0)
    return found.classes


def test_widths_of_equal_bits_are_found():
    assert measured(RoundingContext(table(1))) == CLASSES


def test_a_change_with_depth_is_found():
    assert measured(RoundingContext(table(1), depth=12)) == ((1,), (2, 3), *CLASSES[1:])
    assert measured(RoundingContext(table(1), depth=13)) == ((1,), (2, 3), *CLASSES[1:])
    assert measured(RoundingContext(table(1), depth=500)) == CLASSES


def test_a_width_that_does_not_repeat_itself_is_in_no_class():
    class Restless(RoundingContext):
        def _evaluate(self, parts):
            logits, hidden = super()._evaluate(parts)
            if len(parts[0].tokens) == 5:
                logits[0, 0] += len(self.widths)
            return logits, hidden

    assert measured(Restless(table(1))) == ((1, 2, 3), (4, 6), (7, 8))


@settings(max_examples=100, deadline=None)
@given(
    seed=st.integers(0, 1000),
    temperature=st.sampled_from([0.0, 1.0]),
    widths=st.sampled_from(CLASSES),
    num_draft=st.integers(1, 7),
    agreement=st.sampled_from([0.0, 0.8, 1.0]),
)
def test_inside_a_class_a_draft_changes_nothing(seed, temperature, widths, num_draft, agreement):
    def run(controller):
        target = RoundingContext(table(seed), n_ctx=50, max_rows=max(widths))
        found = rounds(target, controller, sampler, [1, 2, 3], max_tokens=60)
        tokens = [token for one in found for token in one.output]
        assert set(target.widths) <= set(widths)
        return tokens

    sampler = Sampler(temperature=temperature, seed=seed)
    draft = ToyContext(blend(table(seed), table(seed + 1), agreement), max_rows=1)
    plain = run(Plain(widths))
    assert len(plain) == 48
    assert run(Fixed(ModelDrafter(draft, NUM_TOKENS, ()), num_draft, widths)) == plain


def test_filling_up_needs_room_for_rows():
    context = ToyContext(table(1), max_rows=4)
    assert decode(context, [1, 2], rows=2, width=4).shape == (2, NUM_TOKENS)
    assert (context.tokens, context.cache) == ([[1, 2]], [1, 2, 2, 2])
    decode(context, [3], rows=1)
    assert context.cache == [1, 2, 3]
    with pytest.raises(ValueError, match="at most 4"):
        decode(context, [1, 2], rows=2, width=5)


def test_the_speed_to_be_expected_counts_cheap_wide_batches():
    seconds = {1: 1.0, 2: 1.1, 3: 1.15, 4: 9.0}
    assert expected_speed((1,), seconds, 1.0) == pytest.approx(1.0)
    assert expected_speed((1, 2, 3), seconds, 1.0) > expected_speed((1, 2), seconds, 1.0) > 1.0
    assert expected_speed((3,), seconds, 1.0) > 1.0
    assert expected_speed((1, 4), seconds, 1.0) == pytest.approx(1.0)
    # A little slower for single tokens is worth it where copied text can be verified at all.
    assert expected_speed((1, 2, 3), {1: 1.05, 2: 1.5, 3: 1.9}, 1.0) > expected_speed((1,), {1: 1.0}, 1.0)
