"""Draft heads over llama.cpp: the text is plain decoding's, and the drafts are those of a head that read it afresh."""

import itertools
from contextlib import ExitStack, closing
from typing import NamedTuple

import pytest

from specgguf.drafters.dflash import DflashDrafter
from specgguf.drafters.eagle3 import Eagle3Drafter
from specgguf.drafters.mtp import AssistantDrafter, MtpDrafter
from specgguf.drafters.ngram import NgramDrafter
from specgguf.llama.context import LlamaContext
from specgguf.llama.head import HeadSettings, LlamaHead
from specgguf.llama.model import Model
from specgguf.speculative.context import NEXTN
from specgguf.speculative.controller import Auto, Fixed
from specgguf.speculative.drafter import Drafter
from specgguf.speculative.policy.policy import Policy
from tests.llama.driving import PROMPT, SAMPLERS, Corrupted, answer, interrupted, load, open_context, plain
from tests.tiny_heads import BLOCK, HEADS_AND_TARGETS, MASK, TAPS

NUM_DRAFT = 4


class Pair(NamedTuple):
    """A target, and what drafts for it: twice, as `context` and `drafter` go from text to text."""

    model: Model
    context: LlamaContext
    drafter: Drafter
    fresh_context: LlamaContext
    fresh_drafter: Drafter

    def answer(self, prompt, count, sampler=SAMPLERS[0], eog=()):
        """What follows, drafted for as before and as if the text was the first one: they have to be the same."""
        found = answer(self.context, Fixed(self.drafter, NUM_DRAFT), prompt, count, sampler, eog)
        self.forget(self.fresh_context, self.fresh_drafter)
        fresh = answer(self.fresh_context, Fixed(self.fresh_drafter, NUM_DRAFT), prompt, count, sampler, eog)
        assert found.tokens == fresh.tokens
        assert_same_drafts(found, fresh)
        return found

    def start_over(self):
        self.forget(self.context, self.drafter)

    @staticmethod
    def forget(context, drafter):
        context.clear()
        drafter._rewind(0)


def assert_same_drafts(one, other):
    """The same but for roundings: of two tokens that are equally likely either may be drafted, and others follow."""
    for (draft, output), (expected, expected_output) in zip(one.rounds, other.rounds, strict=False):
        assert len(draft.tokens) == len(expected.tokens)
        for i, token in enumerate(draft.tokens):
            assert draft.probabilities[i] == pytest.approx(expected.probabilities[i], abs=0.005)
            if token != expected.tokens[i]:
                break
        if output != expected_output:
            break


@pytest.fixture(scope="module", params=HEADS_AND_TARGETS)
def pair(request, toy_heads):
    name, target = request.param, HEADS_AND_TARGETS[request.param]
    with ExitStack() as stack:
        model = stack.enter_context(closing(load(toy_heads[target], with_mtp=name == target)))
        is_mtp = target not in ("llama", "terse")
        own = model if name == target else stack.enter_context(closing(load(toy_heads[name], "draft", is_mtp)))
        contexts, drafters = [], []
        for n_batch in (16, 64):  # in how many batches a head reads is no matter
            taps = (NEXTN,) if is_mtp else TAPS
            contexts.append(stack.enter_context(closing(open_context(model, NUM_DRAFT + 1, taps=taps))))
            head, drafter = opened(name, own, contexts[-1], n_batch)
            stack.enter_context(closing(head))
            drafters.append(drafter)
        yield Pair(model, contexts[0], drafters[0], contexts[1], drafters[1])


def opened(name, model, context, n_batch):
    if name == "eagle3":
        head = LlamaHead(model, context, HeadSettings(n_batch, 1, 1))
        return head, Eagle3Drafter(head, TAPS, ())
    if name in ("dflash", "dspark"):
        head = LlamaHead(model, context, HeadSettings(n_batch, 1, BLOCK, is_causal=False, gives_rows=name == "dspark"))
        return head, DflashDrafter(head, TAPS, (), MASK, BLOCK, name == "dspark")
    if name == "assistant":
        head = LlamaHead(model, context, HeadSettings(n_batch, 1, 1, is_mtp=True, shares_cells=True))
        return head, AssistantDrafter(head, ())
    layers = 3 if name in ("mimo2 of 3", "mimo2's 3 layers") else 1
    head = LlamaHead(model, context, HeadSettings(n_batch, 1, layers, is_mtp=True))
    return head, MtpDrafter(head, (), layers)


@pytest.mark.parametrize("sampler", SAMPLERS, ids=["greedy", "sampled"])
def test_the_text_is_plain_decodings(pair, sampler):
    pair.start_over()
    found = pair.answer(PROMPT, 100, sampler)
    assert found.tokens == plain(pair.model, PROMPT, 100, sampler)
    assert found.accepted > 5
    assert any(len(draft.tokens) > len(output) - 1 for draft, output in found.rounds)


def test_five_turns_of_which_some_edit_what_was_said(pair):
    pair.start_over()
    prompt, found = PROMPT, []
    for kept, more in (
        (None, []),
        (None, [9, 9]),
        (110, [8, 7]),
        (40, PROMPT[3:50]),
        (None, [5]),
        (None, []),
        (3, [4]),
    ):
        prompt = [*[*prompt, *found][:kept], *more]
        found = pair.answer(prompt, 25).tokens
        assert found == plain(pair.model, prompt, 25)


def test_a_text_ends_with_an_end_token_even_inside_a_block(pair):
    pair.start_over()
    free = pair.answer(PROMPT, 100, SAMPLERS[1])
    at = 0
    for _, output in free.rounds:
        new = [token for token in output[:-1] if token not in free.tokens[:at]]
        if new:  # accepted, and never said before
            break
        at += len(output)
    pair.start_over()
    found = pair.answer(PROMPT, 100, SAMPLERS[1], {new[0]})
    assert found.tokens == free.tokens[: free.tokens.index(new[0]) + 1]
    prompt = [*PROMPT, *found.tokens, 5, 6]
    assert pair.answer(prompt, 20).tokens == plain(pair.model, prompt, 20)


def test_a_caller_that_stops_inside_a_block_goes_on_from_there(pair):
    """A stop string ends the text in the middle of what a round has put out."""
    pair.start_over()
    found = pair.answer(PROMPT, 60)
    ends = itertools.accumulate(len(output) for _, output in found.rounds)
    end = next(end for end, (_, output) in zip(ends, found.rounds, strict=True) if len(output) > 1)
    pair.start_over()
    answer(pair.context, Fixed(pair.drafter, NUM_DRAFT), PROMPT, end)
    prompt = [*PROMPT, *found.tokens[: end - 1], 5]
    assert pair.answer(prompt, 10).tokens == plain(pair.model, prompt, 10)


@pytest.mark.parametrize("call", [0, 1, 2, 5, 8, 12])
def test_a_text_goes_on_wherever_a_signal_came(pair, call):
    pair.start_over()
    with interrupted(call), pytest.raises(KeyboardInterrupt):
        answer(pair.context, Fixed(pair.drafter, NUM_DRAFT), PROMPT, 60)
    text = [*PROMPT, *plain(pair.model, PROMPT, 20)]
    for prompt in (text[: len(pair.context.tokens[0]) + 1], [*text[:70], 5]):
        assert pair.answer(prompt, 10).tokens == plain(pair.model, prompt, 10)


def test_what_is_drafted_after_a_spoiled_draft_is_drafted_from_what_was_right(pair):
    pair.start_over()
    found = answer(pair.context, Fixed(Corrupted(pair.drafter), NUM_DRAFT), PROMPT, 60)
    assert found.tokens == plain(pair.model, PROMPT, 60)
    text = [*PROMPT, *found.tokens]
    assert pair.answer([*text, 5], 30).tokens == plain(pair.model, [*text, 5], 30)


class Turns(Fixed):
    """Several drafters one after the other, each of them for a few rounds; all of them read."""

    def __init__(self, drafters):
        super().__init__(drafters[0], NUM_DRAFT)
        self.drafters, self.count = drafters, 0

    def begin(self, sequence, num_kept):
        for _ in self.drafters:
            num_kept = min(drafter.begin(sequence, num_kept) for drafter in self.drafters)
        return num_kept

    def read(self, evaluated, num_kept):
        for drafter in self.drafters:
            drafter.read(evaluated, num_kept)

    def draft(self, sequences, limits):
        self.count += 1
        self._drafter = self.drafters[self.count // 5 % len(self.drafters)]
        return super().draft(sequences, limits)


@pytest.mark.parametrize("sampler", SAMPLERS, ids=["greedy", "sampled"])
@pytest.mark.parametrize("make", [Turns, lambda drafters: Auto(Policy(NUM_DRAFT), drafters)], ids=["turns", "auto"])
def test_several_drafters_together(pair, make, sampler):
    pair.start_over()
    controller, prompt = make([pair.drafter, NgramDrafter()]), PROMPT
    for _ in range(2):
        expected = plain(pair.model, prompt, 60, sampler)
        assert answer(pair.context, controller, prompt, 60, sampler).tokens == expected
        prompt = [*prompt[:60], *expected, 5]
    assert pair.answer(prompt, 30).tokens == plain(pair.model, prompt, 30)


def test_a_prompt_of_one_token(pair):
    pair.start_over()
    assert pair.answer([1], 20).tokens == plain(pair.model, [1], 20)
