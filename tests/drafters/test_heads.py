"""Drafters that read what the target computes: their cells are those of a drafter that has read the text in one go."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specgguf.drafters.dflash import DflashDrafter
from specgguf.drafters.eagle3 import Eagle3Drafter
from specgguf.drafters.mtp import AssistantDrafter, MtpDrafter
from specgguf.drafters.unread import Unread
from specgguf.sampling.sampler import Sampler
from specgguf.speculative.context import NEXTN, Evaluated
from specgguf.speculative.drafter import while_possible
from specgguf.speculative.sequence import TokenSequence
from tests.drafters.toy_head import WIDTH, ToyHead, encoded, hidden_state
from tests.speculative.toy import NUM_TOKENS

TAPS = (1, 2, 3)
MASK = NUM_TOKENS - 1
BLOCK = 4


def eagle3():
    return Eagle3Drafter(ToyHead(), TAPS, ())


def dflash():
    return DflashDrafter(ToyHead(), TAPS, (), MASK, BLOCK, False)


def dspark():
    return DflashDrafter(ToyHead(), TAPS, (), MASK, BLOCK, True)


def mtp():
    return MtpDrafter(ToyHead(), ())


def mtp_of_three_layers():
    return MtpDrafter(ToyHead(n_layers=3), (), 3)


def assistant():
    return AssistantDrafter(ToyHead(has_cells=False), ())


DRAFTERS = [eagle3, dflash, dspark, mtp, mtp_of_three_layers, assistant]


def cells_of(drafter, tokens):
    """The cells that it has when it has drafted after these tokens, written down once more; the same in every layer."""
    known = range(1, len(tokens))  # the target has not evaluated the last one
    states = [
        np.concatenate([hidden_state(tokens[:end], tap) for tap in drafter.taps]).astype(np.float32) for end in known
    ]
    if isinstance(drafter, Eagle3Drafter):
        rows, fed = [encoded(state) for state in states], tokens[1:]
    elif isinstance(drafter, DflashDrafter):
        rows, fed = states, [None] * len(states)
    elif isinstance(drafter, MtpDrafter):
        rows, fed = [np.zeros(WIDTH), *states][:-1] if states else [], tokens[:-1]
    else:
        return []
    return [(token, tuple(row.tolist())) for token, row in zip(fed, rows, strict=True)]


class Reader:
    """Stands for the target and the loop: keeps the text, and tells the drafter of it as they do."""

    def __init__(self, drafter):
        self.drafter = drafter
        self.head = drafter._head
        self.held = []  # what the target's cache holds
        self.next = 1
        self.memory = np.zeros((64, WIDTH), np.float32)

    def turn(self, kept, tokens):
        """Another prompt: the first `kept` tokens of the one before, as far as there are any, and new ones."""
        prompt = [*self.held[:kept], *tokens]
        most = min(kept, len(self.held))
        count = self.drafter.begin(self.sequence(prompt), most)
        assert 0 <= count <= most
        del self.held[count:]
        *prompt, self.next = prompt
        while len(self.held) < len(prompt):
            self.read(prompt[len(self.held) :][:6], 6)

    def sequence(self, tokens):
        return TokenSequence(list(tokens), Sampler(), 1000)

    def round(self, guesses, num_right, num_drafted):
        """Evaluates the last token and some guesses, of which the first are right; drafts before that, or not."""
        draft = None
        if num_drafted:
            draft = self.draft(num_drafted)
        self.read([self.next, *guesses], 1 + min(num_right, len(guesses)))
        self.next = (self.next + 1) % NUM_TOKENS
        return draft

    def draft(self, limit):
        return self.drafter.draft([self.sequence([*self.held, self.next])], [limit], while_possible)[0]

    def read(self, tokens, kept):
        """The rows are in memory that is used again."""
        ends = range(len(self.held) + 1, len(self.held) + len(tokens) + 1)
        text, hidden = [*self.held, *tokens], {}
        for tap in self.drafter.taps:
            hidden[tap] = np.array([hidden_state(text[:end], tap) for end in ends])
        evaluated = Evaluated(0, len(self.held), tokens, np.empty((0, NUM_TOKENS)), hidden)
        self.held += tokens
        self.drafter.read(evaluated, min(kept, len(tokens)))
        del self.held[evaluated.start + kept :]
        for rows in hidden.values():
            rows[:] = np.nan


def fresh(make, tokens):
    """A reader that has been told of this text and nothing else."""
    reader = Reader(make())
    reader.turn(0, tokens)
    return reader


def check(make, reader, limit):
    """The draft, and the cells afterwards, are those of a drafter to which the text is new."""
    text = [*reader.held, reader.next]
    found = reader.draft(limit)
    other = fresh(make, text)
    expected = other.draft(limit)
    assert (found.tokens, found.probabilities) == (expected.tokens, expected.probabilities)
    cells = cells_of(reader.drafter, text)
    assert all(of_layer[: len(cells)] == cells for of_layer in reader.head.cells)
    assert len(found.tokens) == expected_length(reader.drafter, text, limit)


def expected_length(drafter, text, limit):
    if isinstance(drafter, Eagle3Drafter | AssistantDrafter) and len(text) == 1:
        return 0  # they need something that the target has computed
    if isinstance(drafter, DflashDrafter):
        return min(limit, BLOCK if drafter._from_anchor else BLOCK - 1)
    if isinstance(drafter, MtpDrafter):
        return min(limit, len(drafter._head.cells) if len(drafter._head.cells) > 1 else limit)
    return limit


tokens = st.integers(0, NUM_TOKENS - 1)
turns = st.tuples(st.just("turn"), st.integers(0, 40), st.lists(tokens, min_size=1, max_size=14))
batches = st.tuples(st.just("round"), st.lists(tokens, max_size=5), st.integers(0, 5), st.integers(0, 3))
histories = st.lists(st.one_of(turns, batches, batches), max_size=12)


@pytest.mark.parametrize("make", DRAFTERS)
@settings(max_examples=120, deadline=None)
@given(prompt=st.lists(tokens, min_size=1, max_size=14), history=histories, limit=st.integers(1, 3))
def test_cells_and_drafts_are_those_of_the_text_whatever_came_before(make, prompt, history, limit):
    reader = fresh(make, prompt)
    for kind, *details in history:
        getattr(reader, kind)(*details)
    check(make, reader, limit)


@pytest.mark.parametrize("make", DRAFTERS)
@settings(max_examples=120, deadline=None)
@given(
    prompt=st.lists(tokens, min_size=1, max_size=14),
    history=histories,
    calls=st.integers(0, 12),
    after=st.booleans(),
    kept=st.integers(0, 60),
    more=st.lists(tokens, min_size=1, max_size=9),
    limit=st.integers(1, 3),
)
def test_an_interrupted_call_leaves_no_trace(make, prompt, history, calls, after, kept, more, limit):
    reader = fresh(make, prompt)
    reader.head.interruption, reader.head.interrupted_after = calls, after
    try:
        for kind, *details in history:
            getattr(reader, kind)(*details)
        reader.draft(limit)
    except KeyboardInterrupt:
        pass
    reader.head.interruption = None
    reader.turn(kept, more)
    check(make, reader, limit)


@pytest.mark.parametrize(("make", "starts"), [(eagle3, [3, 4, 5]), (mtp, [4, 5, 6]), (assistant, [4, 4, 4])])
def test_each_step_goes_on_from_the_one_before(make, starts):
    reader = fresh(make, [1, 2, 3, 4, 5])
    drafted = reader.draft(3).tokens
    steps = reader.head.batches[-3:]
    assert [tokens for _, _, tokens, _, _ in steps] == [[token] for token in (5, *drafted[:2])]
    assert [start for _, start, _, _, _ in steps] == starts  # an assistant reads where the target's cells end
    last = np.concatenate([hidden_state([1, 2, 3, 4], tap) for tap in reader.drafter.taps])
    expected = [encoded(last) if make is eagle3 else last, *(made[-1] for *_, made in steps)]
    for i, (_, _, _, rows, _) in enumerate(steps):
        np.testing.assert_array_equal(rows, expected[i][None])


def test_of_several_layers_each_drafts_the_token_of_its_number():
    reader = fresh(mtp_of_three_layers, [1, 2, 3, 4, 5])
    drafted = reader.draft(9).tokens
    found = [(layer, start, tokens) for layer, start, tokens, _, _ in reader.head.batches[-3:]]
    assert found == [(0, 4, [5]), (1, 4, [5, drafted[0]]), (2, 4, [5, *drafted[:2]])]
    *_, (_, _, _, rows, _) = reader.head.batches
    made = [batch[-1][-1] for batch in reader.head.batches[-3:-1]]
    np.testing.assert_array_equal(rows, [hidden_state([1, 2, 3, 4], NEXTN), *made])


@pytest.mark.parametrize(("make", "masks", "first"), [(dflash, 3, 1), (dspark, 2, 0)])
def test_a_block_is_filled_at_once(make, masks, first):
    reader = fresh(make, [1, 2, 3, 4, 5])
    drafted = reader.draft(3).tokens
    _, start, tokens, rows, _ = reader.head.batches[-1]
    assert (start, tokens, rows) == (4, [5, *[MASK] * masks], None)
    assert drafted == reader.head._logits[first:].argmax(1).tolist()


@pytest.mark.parametrize("make", DRAFTERS)
def test_who_reads_late_drafts_nothing_for_a_text_that_it_does_not_know_to_the_end(make):
    reader = fresh(make, [1, 2, 3, 4, 5])
    reader.held.append(3)  # nobody told the drafter
    assert reader.draft(3).tokens == []


@pytest.mark.parametrize("make", DRAFTERS)
def test_one_that_does_not_draft_decodes_a_batch_at_a_time_at_most(make):
    reader = fresh(make, [1])
    for _ in range(50):
        reader.round([2, 3], 2, 0)
        assert reader.drafter.backlog(reader.sequence([*reader.held, reader.next])) < reader.head.n_batch


@pytest.mark.parametrize("make", DRAFTERS)
def test_a_draft_ends_with_an_end_token_and_where_the_context_ends(make):
    reader = fresh(make, [1, 2, 3, 4, 5])
    free = reader.draft(3).tokens
    ending = make()
    ending._eog = {free[0]}
    other = Reader(ending)
    other.turn(0, [1, 2, 3, 4, 5])
    assert other.draft(3).tokens == free[:1]
    reader.head.n_ctx = 7
    assert len(reader.draft(3).tokens) == 2
    reader.head.n_ctx = 5
    assert reader.draft(3).tokens == []


@pytest.mark.parametrize("make", DRAFTERS)
def test_a_draft_of_which_nothing_is_wanted_costs_nothing(make):
    reader = fresh(make, [1, 2, 3])
    before = len(reader.head.batches)
    assert reader.drafter.draft([reader.sequence([1, 2, 3])], [3], lambda _: ())[0].tokens == []
    assert len(reader.head.batches) == before


def test_what_is_unread_has_no_gaps():
    unread = Unread()
    unread.add(0, [5, 6], np.ones((2, 3)))
    assert (unread.start, unread.end) == (0, 2)
    for start in (1, 3):
        with pytest.raises(ValueError, match=f"read up to 2, told of {start}"):
            unread.add(start, [7], np.ones((1, 3)))


@given(parts=st.lists(st.lists(tokens, min_size=1, max_size=4), min_size=1, max_size=5), kept=st.integers(0, 20))
def test_what_is_unread_is_there_in_order_until_it_is_done(parts, kept):
    unread = Unread()
    rows = np.random.default_rng(1).normal(0, 1, (sum(map(len, parts)), 3))
    for part in parts:
        start = unread.end
        view = rows[start : start + len(part)].copy()
        unread.add(start, part, view)
        view[:] = 0  # memory that is used again
    assert unread.tokens == [token for part in parts for token in part]
    np.testing.assert_array_equal(unread.rows, rows)
    unread.done()
    assert (unread.start, unread.end, unread.tokens) == (len(rows), len(rows), [])
    unread.rewind(kept)
    assert (unread.start, unread.end) == (kept, kept)
    unread.add(kept, [1], rows[:1])
    assert unread.tokens == [1]
