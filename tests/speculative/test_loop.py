"""Whatever drafts, however much: the text is plain decoding's."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specgguf.drafters.model import ModelDrafter
from specgguf.sampling.sampler import Sampler
from specgguf.speculative.controller import Fixed, Plain
from specgguf.speculative.drafter import Draft
from specgguf.speculative.loop import begin, speculate
from specgguf.speculative.sequence import TokenSequence
from tests.speculative.toy import NUM_TOKENS, PLAIN, ToyContext, blend, reference, rounds, run, table


class Guesser(Plain):
    """Drafts at random."""

    def __init__(self, seed, most):
        super().__init__()
        self.random = random.Random(seed)
        self.most = most

    def draft(self, sequences, limits):
        counts = [self.random.randint(0, max(0, min(limit, self.most))) for limit in limits]
        return [Draft("guess", [self.random.randrange(NUM_TOKENS) for _ in range(count)]) for count in counts]


samplers = st.builds(
    Sampler,
    temperature=st.sampled_from([0.0, 0.3, 1.0, 2.0]),
    top_k=st.sampled_from([0, 1, 3]),
    top_p=st.sampled_from([0.5, 0.9, 1.0]),
    min_p=st.sampled_from([0.0, 0.1]),
    repeat_penalty=st.sampled_from([1.0, 1.3]),
    seed=st.integers(0, 2**63 - 1),
)
prompts = st.lists(st.integers(0, NUM_TOKENS - 1), min_size=1, max_size=40)
eogs = st.sets(st.integers(0, NUM_TOKENS - 1), max_size=1)


@settings(max_examples=300, deadline=None)
@given(
    seed=st.integers(0, 1000),
    sampler=samplers,
    prompt=prompts,
    eog=eogs,
    num_draft=st.integers(1, 12),
    agreement=st.sampled_from([0.0, 0.6, 0.9, 1.0]),
    draft_tokens=st.sampled_from([NUM_TOKENS - 1, NUM_TOKENS, NUM_TOKENS + 2]),
    max_tokens=st.integers(1, 60),
    n_ctx=st.integers(40, 120),
    draft_n_ctx=st.integers(16, 120),
)
def test_a_draft_model_changes_nothing(
    seed, sampler, prompt, eog, num_draft, agreement, draft_tokens, max_tokens, n_ctx, draft_n_ctx
):
    logits_of = table(seed)
    other = table(seed + 1, draft_tokens)
    draft_logits_of = other if draft_tokens != NUM_TOKENS else blend(logits_of, other, agreement)
    target = ToyContext(logits_of, n_ctx=n_ctx)
    draft = ToyContext(draft_logits_of, n_ctx=draft_n_ctx, max_rows=1)
    drafter = ModelDrafter(draft, min(NUM_TOKENS, draft_tokens), eog)
    output = run(target, Fixed(drafter, num_draft), sampler, prompt, eog, max_tokens)
    assert output == reference(logits_of, sampler, prompt, eog, max_tokens, n_ctx)


@settings(max_examples=200, deadline=None)
@given(seed=st.integers(0, 1000), sampler=samplers, prompt=prompts, eog=eogs, num_draft=st.integers(1, 12))
def test_guesses_change_nothing(seed, sampler, prompt, eog, num_draft):
    target = ToyContext(table(seed))
    output = run(target, Guesser(seed, num_draft), sampler, prompt, eog)
    assert output == reference(target.logits_of, sampler, prompt, eog, max_tokens=50)


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 1000), sampler=samplers, prompt=prompts, eog=eogs)
def test_no_draft_is_plain_decoding(seed, sampler, prompt, eog):
    target = ToyContext(table(seed))
    output = run(target, PLAIN, sampler, prompt, eog)
    assert output == reference(target.logits_of, sampler, prompt, eog, max_tokens=50)
    assert target.evaluated == list(range(len(prompt) + len(output) - 1))


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 1000), num_rounds=st.integers(0, 5), prompt=prompts)
def test_an_abandoned_loop_leaves_contexts_that_can_go_on(seed, num_rounds, prompt):
    sampler = Sampler(temperature=1.0, seed=seed)
    target = ToyContext(table(seed))
    draft = ToyContext(blend(table(seed), table(seed + 1), 0.8), max_rows=1)
    drafter = ModelDrafter(draft, NUM_TOKENS, ())
    tokens = list(prompt)
    loop = rounds(target, Fixed(drafter, 3), sampler, prompt, (), 50)
    for _, one in zip(range(num_rounds), loop, strict=False):
        tokens += one.output
    loop.close()
    more = run(target, Fixed(drafter, 3), sampler, tokens, max_tokens=20)
    assert more == reference(target.logits_of, sampler, tokens, (), 20)


def test_a_perfect_draft_is_accepted_whole_and_decodes_no_token_twice():
    sampler = Sampler(temperature=1.0, seed=3)
    target, draft = ToyContext(table(5)), ToyContext(table(5), max_rows=1)
    drafter = ModelDrafter(draft, NUM_TOKENS, ())
    found = list(rounds(target, Fixed(drafter, 4), sampler, [1, 2, 3], (), 40))
    assert [one.accepted for one in found] == [4] * 8
    assert [len(one.output) for one in found] == [5] * 8
    assert draft.evaluated == list(range(3 + 40 - 2))  # not the last draft token, nor the last bonus token


def test_a_rejected_draft_is_replaced_without_decoding_the_accepted_part_again():
    sampler = Sampler()
    target = ToyContext(table(5))
    draft = ToyContext(blend(table(5), table(6), 0.7), max_rows=1)
    drafter = ModelDrafter(draft, NUM_TOKENS, ())
    tokens = [1, 2, 3]
    for one in rounds(target, Fixed(drafter, 4), sampler, tokens, (), 60):
        begin = len(tokens)
        tokens += one.output
        seen, draft.evaluated = draft.evaluated, []
        # Each position once a round, and of the earlier ones only the last draft token and its successor.
        assert seen == sorted(set(seen))
        assert len(seen) <= one.drafted + 1 or begin == 3
        assert all(position >= begin - 2 for position in seen) or begin == 3


@pytest.mark.parametrize("num_draft", [1, 2, 5, 7])
def test_the_draft_keeps_to_its_limits(num_draft):
    sampler = Sampler()
    target = ToyContext(table(5), n_ctx=30, max_rows=6)
    drafter = ModelDrafter(ToyContext(table(5), max_rows=1), NUM_TOKENS, ())
    found = list(rounds(target, Fixed(drafter, num_draft), sampler, [1] * 10, (), 100))
    assert sum(len(one.output) for one in found) == 21  # the context, and one token more that needs no place
    assert max(one.drafted for one in found) == min(num_draft, 5)
    assert all(one.accepted == one.drafted for one in found)


def test_a_draft_whose_context_is_full_stops_and_the_text_goes_on():
    sampler = Sampler()
    target = ToyContext(table(5))
    drafter = ModelDrafter(ToyContext(table(5), n_ctx=20, max_rows=1), NUM_TOKENS, ())
    found = list(rounds(target, Fixed(drafter, 4), sampler, [1, 2], (), 60))
    assert found[0].drafted == 4
    assert found[-1].drafted == 0
    assert sum(len(one.output) for one in found) == 60


def test_a_text_ends_with_the_first_end_token_even_inside_an_accepted_block():
    sampler = Sampler()
    target = ToyContext(table(5))
    free = reference(target.logits_of, sampler, [1, 2], (), 40)
    end = free[10]
    drafter = ModelDrafter(ToyContext(table(5), max_rows=1), NUM_TOKENS, {end})
    output = run(target, Fixed(drafter, 7), sampler, [1, 2], {end}, 40)
    assert output == free[: free.index(end) + 1]


@settings(max_examples=100, deadline=None)
@given(
    seed=st.integers(0, 1000),
    samplers=st.lists(samplers, min_size=3, max_size=3),
    prompts=st.lists(prompts, min_size=1, max_size=3),
    eog=eogs,
    lengths=st.lists(st.integers(1, 40), min_size=3, max_size=3),
    num_draft=st.integers(0, 4),
    beside=st.sampled_from([0, 3, 128]),
)
def test_sequences_that_share_a_batch_say_what_each_says_alone(
    seed, samplers, prompts, eog, lengths, num_draft, beside
):
    target = ToyContext(table(seed), n_ctx=70, max_rows=12, n_seq=3)
    draft = ToyContext(blend(table(seed), table(seed + 1), 0.8), n_ctx=70, max_rows=3, n_seq=3)
    controller = Fixed(ModelDrafter(draft, NUM_TOKENS, eog), num_draft) if num_draft else PLAIN
    sequences = [
        TokenSequence(list(prompt), sampler, len(prompt) + length, id=number)
        for number, (prompt, sampler, length) in enumerate(zip(prompts, samplers, lengths, strict=False))
    ]
    for sequence in sequences:
        begin(target, controller, sequence)
    for one in speculate(target, controller, list(sequences), eog, beside):
        if one.output:
            assert target.tokens[one.sequence] == sequences[one.sequence].tokens[:-1]
    for number, prompt in enumerate(prompts):
        alone = reference(target.logits_of, samplers[number], prompt, eog, lengths[number], target.n_ctx)
        assert sequences[number].tokens == [*prompt, *alone]


def test_sequences_share_their_batches():
    target = ToyContext(table(5), n_seq=3)
    sequences = [TokenSequence([1, 2, number], Sampler(), 3 + 10 * (number + 1), id=number) for number in range(3)]
    for sequence in sequences:
        begin(target, PLAIN, sequence)
    batches, decode = [], target.decode
    target.decode = lambda parts, width=0: batches.append(len(parts)) or decode(parts, width)
    list(speculate(target, PLAIN, sequences, ()))
    assert batches == [3] + [3] * 10 + [2] * 10 + [1] * 10
