"""Drafts from text already seen: what is proposed, how sure, and at what cost."""

import random
import re
import sys
from collections import Counter

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from specgguf.drafters import suffix
from specgguf.drafters.ngram import NgramDrafter
from specgguf.drafters.suffix import SuffixIndex
from specgguf.sampling.sampler import Sampler
from specgguf.speculative.controller import Fixed
from specgguf.speculative.drafter import while_possible
from specgguf.speculative.sequence import TokenSequence
from tests.speculative.toy import NUM_TOKENS, ToyContext, reference, rounds, run, table


def sequence_of(tokens):
    return TokenSequence(list(tokens), Sampler(), 10_000)


def propose(drafter, tokens, limit):
    return drafter.draft([sequence_of(tokens)], [limit], while_possible)[0]


def report_to(drafter, accepted, sent):
    drafter.accept(sequence_of([]), sent, accepted)


texts = st.integers(1, 4).flatmap(lambda size: st.lists(st.integers(0, size), max_size=30))


def occurrences(text, end):
    """Where in `text` the string `end` is followed by a token: the positions of those tokens."""
    return [i for i in range(len(end), len(text)) if text[i - len(end) : i] == end]


def best_match(stored, tokens):
    """Length of the longest end of `tokens` in one of `stored`, and the counts of what follows, latest last."""
    for length in range(len(tokens), 0, -1):
        followers = [text[i] for text in stored for i in occurrences(text, tokens[-length:])]
        if followers:
            return length, followers
    return 0, []


def favourite(followers):
    """The most frequent, of equally frequent ones the latest."""
    counts = Counter(followers)
    return max(counts, key=lambda token: (counts[token], len(followers) - followers[::-1].index(token)))


def naive_proposal(tokens, limit, others=(), eog=()):
    proposal = []
    while len(proposal) < limit and not (proposal and proposal[-1] in eog):
        (own, own_followers), (other, other_followers) = (
            best_match(stored, tokens + proposal) for stored in ([tokens], others)
        )
        if own == other == 0:
            break
        proposal.append(favourite(own_followers if own >= other else other_followers))
    return proposal


def snapshot(index):
    return (
        index.tokens,
        index.next,
        *map(list, (index.length, index.link, index.followed, index.best, index.best_count)),
        index.repeat().state,
    )


@settings(max_examples=300, deadline=None)
@given(tokens=texts, others=st.lists(texts, max_size=4), limit=st.integers(-1, 12), eog=st.sets(st.integers(0, 4)))
def test_proposals_follow_the_longest_then_most_frequent_then_latest_occurrence(tokens, others, limit, eog):
    drafter = NgramDrafter(eog)
    for text in others:
        drafter.add_text(text)
    proposal = propose(drafter, tokens, limit)
    assert proposal.tokens == naive_proposal(tokens, limit, others, eog)
    assert len(proposal.probabilities) == len(proposal.tokens)
    assert all(0 < probability < 1 for probability in proposal.probabilities)
    assert propose(drafter, tokens, limit).tokens == proposal.tokens


@settings(max_examples=150, deadline=None)
@given(tokens=texts)
def test_the_longest_earlier_occurrence_and_the_share_of_its_favourite(tokens):
    index = SuffixIndex()
    index.extend(tokens)
    match = index.repeat()
    length, followers = best_match([tokens], tokens)
    assert match.length == length
    if length:
        assert match.confidence == followers.count(favourite(followers)) / (len(followers) + 1)


@settings(max_examples=150, deadline=None)
@given(stored=st.lists(texts, max_size=4), tokens=texts)
def test_a_match_in_other_texts_crosses_no_border(stored, tokens):
    index = SuffixIndex()
    for text in stored:
        index.add_text(text)
    match = suffix.Match(index)
    for end, token in enumerate(tokens, 1):
        match.advance(token)
        assert match.length == best_match(stored, tokens[:end])[0]


def test_a_border_is_never_proposed():
    drafter = NgramDrafter()
    drafter.add_text([1, 2])
    drafter.add_text([2])
    drafter.add_text([3, 4])
    assert propose(drafter, [1], 9).tokens == [2]


def test_no_border_is_part_of_a_match():
    index = SuffixIndex()
    index.add_text([5, 1])
    index.add_text([5, 1])
    index.extend([5, 1])
    assert index.repeat().length == 2


def test_a_text_that_comes_later_is_matched_from_the_beginning_of_the_conversation():
    drafter = NgramDrafter()
    drafter.add_text([1, 1, 5, 1, 6])
    assert propose(drafter, [1], 1).tokens == [6]
    drafter.add_text([8])
    assert propose(drafter, [1], 1).tokens == [6]


def test_the_own_conversation_comes_first_at_equal_length_and_others_at_greater():
    drafter = NgramDrafter()
    drafter.add_text([1, 2, 9])
    assert propose(drafter, [0, 2, 8, 5, 2], 1).tokens == [8]
    assert propose(drafter, [0, 2, 8, 1, 2], 1).tokens == [9]


@pytest.mark.parametrize(
    ("tokens", "proposal"),
    [
        ([], []),
        ([1], []),
        ([1, 2, 3], []),
        ([1, 1], [1] * 6),
        ([1, 2, 1, 2], [1, 2] * 3),
        ([1, 2, 3, 1, 2, 4, 1, 2, 3, 5, 1, 2], [3, 5, 1, 2, 3, 5]),  # the frequent one
        ([1, 2, 3, 1, 2, 4, 1, 2], [4, 1, 2, 4, 1, 2]),  # the recent one
        ([7, 1, 2, 3, 1, 2, 4, 1, 2, 4, 7, 1, 2], [3, 1, 2, 4, 1, 2]),  # the longer one
    ],
)
def test_examples(tokens, proposal):
    assert propose(NgramDrafter(), tokens, 6).tokens == proposal


edits = st.lists(st.tuples(st.integers(0, 12), texts.map(lambda text: text[:8])), max_size=6)


@settings(max_examples=150, deadline=None)
@given(tokens=texts, edits=edits, other=texts)
def test_after_any_edits_all_is_as_if_never_edited(tokens, edits, other):
    index, drafter = SuffixIndex(), NgramDrafter()
    for number, (back, more) in enumerate([(0, []), *edits]):
        before, tokens = tokens, tokens[: max(0, len(tokens) - back)] + more
        assert index.sync(tokens) == (number == 0 or tokens[: len(before)] == before)
        fresh = SuffixIndex()
        fresh.extend(tokens)
        assert snapshot(index) == snapshot(fresh)
        proposed = propose(drafter, tokens, 8).tokens
        if number == len(edits) // 2:
            drafter.add_text(other)  # in the middle of a conversation
        assert proposed == naive_proposal(tokens, 8, [other] if number > len(edits) // 2 else [])


class Interrupted(list):
    """Tokens during which somebody presses Ctrl-C."""

    def __iter__(self):
        yield from self[:-1]
        raise KeyboardInterrupt


def test_after_an_interruption_all_is_as_if_never_interrupted():
    index, fresh, drafter = SuffixIndex(), SuffixIndex(), NgramDrafter()
    with pytest.raises(KeyboardInterrupt):
        index.extend(Interrupted([1, 2, 1, 2]))
    for one in index, fresh:
        one.sync([1, 2, 1, 2])
    assert snapshot(index) == snapshot(fresh)

    drafter.add_text([1, 2, 3])
    propose(drafter, [1, 2], 1)
    with pytest.raises(KeyboardInterrupt):
        drafter.add_text(Interrupted([4, 5]))
    drafter.add_text([1, 2, 4])
    assert propose(drafter, [1, 2], 1).tokens == [4]


@settings(max_examples=150, deadline=None)
@given(tokens=texts, limit=st.integers(1, 12))
@example(tokens=[1, 2, 2, 2, 0, 2, 2, 0], limit=8)
def test_where_few_states_are_counted_proposals_still_occur_and_chances_are_chances(tokens, limit):
    index = SuffixIndex()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(suffix, "_DEPTH", 2)
        proposal = propose(NgramDrafter(), tokens, limit)
        index.extend(tokens)
    assert all(count <= followed for count, followed in zip(index.best_count, index.followed, strict=True))
    assert all(0 < probability < 1 for probability in proposal.probabilities)
    for end, token in enumerate(proposal.tokens):
        assert token in best_match([tokens], tokens + proposal.tokens[:end])[1]


def kinds(length):
    draw = random.Random(1).randrange
    half = [draw(1000) for _ in range(length // 2)]
    fibonacci = [0], [0, 1]
    while len(fibonacci[1]) < length:
        fibonacci = fibonacci[1], fibonacci[1] + fibonacci[0]
    return {
        "random": [draw(1000) for _ in range(length)],
        "binary": [draw(2) for _ in range(length)],
        "edited copy": half + [token if draw(20) else draw(1000) for token in half],
        "one token": [1] * length,
        "period": [1, 2, 3] * (length // 3),
        "end of periods": ([1] * 20 + [2]) * (length // 21),
        "fibonacci": fibonacci[1][:length],
    }


def lines_run(function):
    """How many lines of suffix.py it takes: a clock that does not depend on the machine."""
    count = 0

    def trace(frame, event, _):
        nonlocal count
        count += event == "line"
        return trace if frame.f_code.co_filename == suffix.__file__ else None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function()
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("kind", kinds(0))
def test_time_and_space_are_linear(kind):
    steps = []
    for length in (1000, 4000):
        tokens, index = kinds(length)[kind], SuffixIndex()
        steps.append(lines_run(lambda index=index, tokens=tokens: index.extend(tokens)) / len(tokens))
        assert len(index.next) <= 2 * len(tokens)
        assert sum(map(len, index.next)) <= 3 * len(tokens)
    assert steps[1] < 1.3 * steps[0]


@pytest.mark.parametrize("kind", kinds(0))
def test_a_round_costs_its_own_tokens_however_long_the_history(kind):
    tokens, drafter, costs = kinds(4000)[kind], NgramDrafter(), []
    drafter.add_text(tokens[::-1])
    for history in (1000, 3900):
        propose(drafter, tokens[:history], 16)
        ends = range(history + 4, history + 84, 4)
        costs.append(lines_run(lambda ends=ends: [propose(drafter, tokens[:end], 16) for end in ends]))
    assert costs[1] < 1.3 * costs[0]


def copy_rounds(drafter, prompt, output, limit):
    """Rounds that a perfect copier needs for `output`: each puts out what was right and one token more."""
    tokens, whole, rounds = list(prompt), prompt + output, 0
    while len(tokens) < len(whole):
        draft = propose(drafter, tokens, min(limit, len(whole) - len(tokens) - 1)).tokens
        accepted = 0
        while accepted < len(draft) and draft[accepted] == whole[len(tokens) + accepted]:
            accepted += 1
        report_to(drafter, accepted, len(draft))
        tokens = whole[: len(tokens) + accepted + 1]
        rounds += 1
    return rounds


def source_of(lines):
    """A file of 40 lines that differ, in tokens."""
    ids = {}
    return [ids.setdefault(word, len(ids)) for word in re.findall(r"\w+|\s+|.", "\n".join(lines))]


def test_a_file_returned_with_one_line_changed_takes_few_rounds():
    lines = [f"    value_{i} = compute({i}, old[{i % 7}], scale={i * i})" for i in range(40)]
    edited = [*lines[:20], "    value_20 = measure(other, twice=True)", *lines[21:]]
    # One dictionary of words for both.
    whole = source_of([*lines, "<answer>", *edited])
    size = len(source_of(lines))
    prompt, output = whole[: size + 4], whole[size + 4 :]
    for limit, least in ((16, 13.5), (64, 34)):  # 17 and 65 without the change
        assert len(output) / copy_rounds(NgramDrafter(), prompt, output, limit) > least


def test_matches_that_fail_lose_trust_and_gain_it_again():
    drafter = NgramDrafter()
    text = [1, 2, 3, 1]

    def chance():
        return propose(drafter, text, 1).probabilities[0]

    first = chance()
    for _ in range(50):
        chance()
        report_to(drafter, 0, 1)
    assert chance() < first / 4
    for _ in range(50):
        chance()
        report_to(drafter, 1, 1)
    assert 0.4 < chance() < 0.8
    for _ in range(2000):
        chance()
        report_to(drafter, 1, 1)
    assert 0.9 < chance() < 1
    for _ in range(200):  # what was learned long ago is forgotten
        chance()
        report_to(drafter, 0, 1)
    assert chance() < 0.3


def test_other_texts_have_their_own_chances():
    drafter = NgramDrafter()
    drafter.add_text([4, 5, 6])
    own, other = propose(drafter, [1, 2, 3, 1], 1).probabilities, propose(drafter, [1, 2, 4], 1).probabilities
    assert own == other
    for _ in range(20):
        propose(drafter, [1, 2, 4], 1)
        report_to(drafter, 0, 1)
    assert propose(drafter, [1, 2, 3, 1], 1).probabilities == own
    assert propose(drafter, [1, 2, 4], 1).probabilities < other


def test_long_matches_are_trusted_more_than_short_ones_and_learn_apart():
    drafter = NgramDrafter()
    text = [*range(20), 50, *range(12)]
    chances = propose(drafter, text, 8).probabilities
    assert chances == sorted(chances)
    assert propose(drafter, [1, 2, 3, 1], 1).probabilities[0] < 0.4
    assert chances[0] > 0.8
    for _ in range(50):
        propose(drafter, [1, 2, 3, 1], 1)
        report_to(drafter, 0, 1)
    assert propose(drafter, text, 8).probabilities == chances


@settings(max_examples=100, deadline=None)
@given(reports=st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), max_size=40))
def test_chances_stay_chances_whatever_is_reported(reports):
    drafter = NgramDrafter()
    text = [*range(12), 50, 4, *range(12)]
    for accepted, sent in reports:
        size = len(propose(drafter, text, 8).tokens)
        if accepted <= sent <= size:
            report_to(drafter, accepted, sent)
        else:
            with pytest.raises(ValueError, match="accepted of"):
                report_to(drafter, accepted, sent)
        assert all(0 < chance < 1 for chance in propose(drafter, text, 8).probabilities)


def test_nothing_proposed_nothing_to_report():
    drafter = NgramDrafter()
    report_to(drafter, 0, 0)
    assert propose(drafter, [1, 2], 8).tokens == []
    report_to(drafter, 0, 0)


def chances_after(*uses):
    """The chances after one proposal of [1, 2, 3, 4] and what was done with it."""
    drafter, text = NgramDrafter(), [0, 1, 2, 3, 4, 5, 0]
    assert propose(drafter, text, 4).tokens == [1, 2, 3, 4]
    for use in uses:
        use(drafter, text)
    return propose(drafter, text, 4).probabilities


def report(accepted, sent):
    return lambda drafter, text: report_to(drafter, accepted, sent)


def continue_with(*tokens):
    return lambda drafter, text: propose(drafter, [*text, *tokens], 0)


def test_a_proposal_that_was_not_sent_is_judged_by_what_came_instead():
    assert chances_after(continue_with(1, 2, 9)) == chances_after(report(2, 3))
    assert chances_after(continue_with(1, 2)) == chances_after(report(2, 2))
    assert chances_after(continue_with(1, 2)) > chances_after() > chances_after(continue_with(9))


def test_what_was_reported_is_not_judged_again():
    assert chances_after(report(1, 2), continue_with(1, 9)) == chances_after(report(1, 2))
    assert chances_after(report(1, 1), continue_with(1, 2, 9)) == chances_after(report(2, 3))
    assert chances_after(report(4, 4), continue_with(1, 2, 3, 4, 5)) == chances_after(report(4, 4))


def test_a_wrong_token_ends_what_can_be_learned_of_a_proposal():
    assert chances_after(report(0, 3), continue_with(9, 2, 3)) == chances_after(report(0, 1))
    assert chances_after(continue_with(9, 2, 3)) == chances_after(report(0, 1))


def test_a_conversation_that_goes_back_says_nothing_about_a_proposal():
    def go_back(drafter, text):
        propose(drafter, [*text[:-1], 9, 1, 2], 0)

    assert chances_after(go_back) == chances_after()


def recent(seed):
    """Logits by the last two tokens only: texts that repeat themselves."""
    logits_of = table(seed)
    return lambda prefix: logits_of(prefix[-2:])


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 1000),
    temperature=st.sampled_from([0.0, 0.5, 1.0]),
    prompt=st.lists(st.integers(0, NUM_TOKENS - 1), min_size=1, max_size=40),
    eog=st.sets(st.integers(0, NUM_TOKENS - 1), max_size=1),
    num_draft=st.integers(1, 12),
    repeats=st.booleans(),
)
def test_the_text_is_plain_decodings(seed, temperature, prompt, eog, num_draft, repeats):
    sampler = Sampler(temperature=temperature, seed=seed)
    target = ToyContext(recent(seed) if repeats else table(seed))
    drafter = NgramDrafter(eog)
    for _ in range(2):  # the second time with what the first has taught, and a conversation that goes back
        target.clear()
        output = run(target, Fixed(drafter, num_draft), sampler, prompt, eog)
        assert output == reference(target.logits_of, sampler, prompt, eog, max_tokens=50)


def test_a_text_that_repeats_itself_is_copied():
    target = ToyContext(recent(1))
    found = list(rounds(target, Fixed(NgramDrafter(), 7), Sampler(), [1, 2], max_tokens=200))
    assert sum(len(one.output) for one in found) == 200
    assert len(found) < 50
    assert {one.source for one in found} == {"ngram"}
