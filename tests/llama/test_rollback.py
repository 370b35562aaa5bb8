"""Caches of every kind are cut, restored, interrupted and filled up, and then say what fresh ones say."""

import functools
from contextlib import closing
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llama_cpp import llama_cpp as lib

from specgguf.drafters.model import ModelDrafter
from specgguf.llama.context import LlamaContext
from specgguf.llama.model import Model
from specgguf.speculative.context import Part, Rollback
from specgguf.speculative.controller import Fixed, Plain
from tests import tiny, tiny_heads
from tests.contract import ContextContract, decode
from tests.llama.driving import PROMPT, SAMPLERS, Corrupted, Knowing, answer, interrupted, load, open_context, plain

MAX_ROWS = 8
TOLERANCE = 0.02
"""Of logits, of which those that count are a hundred times that; a wrong state moves them by more."""
LONG = PROMPT * 5
"""Longer than llama.cpp makes the cache of a window, which is some 256 cells."""
WRITE_QWEN35 = functools.partial(tiny_heads.write_qwen35, scale=0.3)
KINDS = {
    "llama": (tiny_heads.write_llama, Rollback.PARTIAL, {}),
    "gemma3": (tiny_heads.write_gemma3, Rollback.PARTIAL, {}),
    "gemma3 with cells for its window only": (tiny_heads.write_gemma3, Rollback.PARTIAL, {"swa_full": False}),
    "qwen35": (WRITE_QWEN35, Rollback.SNAPSHOTS, {}),
    "lfm2": (tiny_heads.write_lfm2, Rollback.SNAPSHOTS, {}),
    "qwen35 without snapshots": (WRITE_QWEN35, Rollback.CHECKPOINT, {"n_rs_seq": 0}),
    "jamba": (tiny_heads.write_jamba, Rollback.CHECKPOINT, {}),
    "mamba": (tiny.write_recurrent, Rollback.CHECKPOINT, {}),
}
"""How the file is written, what is found, and with what else the context is opened."""


class Kind(NamedTuple):
    model: Model
    context: LlamaContext
    """Rows for drafts."""
    draft: LlamaContext
    """As a draft model's."""
    plain: LlamaContext
    """For comparison."""
    rollback: Rollback
    window_only: bool


@pytest.fixture(scope="module", params=KINDS)
def kind(request, tmp_path_factory):
    write, rollback, extra = KINDS[request.param]
    with pytest.MonkeyPatch.context() as patch:
        _open_with(extra, patch)
        with (
            closing(load(write(tmp_path_factory.mktemp("kind") / "model.gguf"))) as model,
            closing(open_context(model, MAX_ROWS)) as context,
            closing(open_context(model)) as draft,
            closing(open_context(model)) as other,
        ):
            yield Kind(model, context, draft, other, rollback, "swa_full" in extra)


def _open_with(extra, patch):
    open_one = lib.llama_init_from_model

    def open_with(model, params):
        for name, value in extra.items():
            setattr(params, name, value)
        return open_one(model, params)

    patch.setattr(lib, "llama_init_from_model", open_with)


class TestEveryKind(ContextContract):
    tolerance = TOLERANCE

    @pytest.fixture
    def context(self, kind):
        with closing(open_context(kind.model, MAX_ROWS, n_ctx=64, n_batch=16, n_seq=2)) as context:
            yield context


def test_the_kind_is_found_when_a_context_opens(kind):
    assert kind.context.rollback is kind.rollback
    assert kind.draft.rollback is (
        Rollback.PARTIAL if kind.rollback is Rollback.PARTIAL else Rollback.CHECKPOINT
    )  # where one row at a time is wanted, no snapshots are kept


tokens = st.lists(st.integers(3, 40), min_size=1, max_size=12)
steps = st.one_of(
    st.tuples(st.just("decode"), tokens, st.integers(0, MAX_ROWS), st.integers(0, MAX_ROWS)),
    st.tuples(st.just("truncate"), st.integers(0, 12)),
    st.tuples(st.just("sync"), st.integers(0, 40), tokens),
)


@settings(max_examples=60, deadline=None)
@given(prompt=tokens, history=st.lists(steps, max_size=8), more=tokens)
def test_logits_are_those_of_the_tokens_whatever_came_before(kind, prompt, history, more):
    context = kind.context
    context.clear()
    context.sync(0, prompt)
    for step, *details in history:
        held = context.tokens[0]
        if step == "decode":
            found, rows, width = details
            context.decode([Part(0, found, min(rows, len(found)))], width if rows + width <= MAX_ROWS else 0)
        elif step == "truncate":
            context.truncate(0, max(0, len(held) - details[0]))
        else:
            kept, found = details
            context.sync(0, [*held[:kept], *found])
    logits = decode(context, more, rows=1)
    text = list(context.tokens[0])
    kind.plain.clear()
    np.testing.assert_allclose(logits, kind.plain.sync(0, text, rows=1), rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("width", [0, MAX_ROWS])
@pytest.mark.parametrize("sampler", SAMPLERS, ids=["greedy", "sampled"])
def test_the_text_is_plain_decodings(kind, sampler, width):
    expected = plain(kind.model, PROMPT, 120, sampler)
    kind.context.clear()
    found = answer(kind.context, Knowing([*PROMPT, *expected], width), PROMPT, 120, sampler)
    assert found.tokens == expected
    assert len(set(map(len, (output for _, output in found.rounds)))) == 5  # all of a draft, none of it, and parts


def test_five_turns_of_which_some_edit_what_was_said(kind):
    kind.context.clear()
    prompt, found = PROMPT, []
    for kept, more in ((None, []), (130, [9, 9]), (90, [8, 7]), (40, [6]), (None, [5, 4]), (20, PROMPT[30:60])):
        text = [*prompt, *found][:kept]
        prompt = [*text, *more]
        expected = plain(kind.model, prompt, 60)
        found = answer(kind.context, Knowing([*prompt, *expected]), prompt, 60).tokens
        assert found == expected


def test_a_text_longer_than_the_window_and_back_to_its_beginning(kind):
    kind.context.clear()
    for prompt in (LONG, [*LONG[:340], 8], [*LONG[:150], 9], [*LONG[:10], 5]):
        expected = plain(kind.model, prompt, 60)
        assert answer(kind.context, Knowing([*prompt, *expected]), prompt, 60).tokens == expected


@pytest.mark.parametrize("call", [0, 1, 2, 3, 5, 8, 9])
def test_a_text_goes_on_wherever_a_signal_came(kind, call):
    expected = plain(kind.model, PROMPT, 60)
    kind.context.clear()
    with interrupted(call), pytest.raises(KeyboardInterrupt):
        answer(kind.context, Knowing([*PROMPT, *expected]), PROMPT, 60)
    held = len(kind.context.tokens[0])
    assert held < len(PROMPT) + 59
    for prompt in ([*PROMPT, *expected[:20]], [*PROMPT[:70], *expected[:9]]):
        more = plain(kind.model, prompt, 20)
        assert answer(kind.context, Knowing([*prompt, *more]), prompt, 20).tokens == more


def test_what_a_text_has_more_than_the_last_batch_can_be_cut(kind):
    kind.context.clear()
    kind.context.sync(0, PROMPT[:40])
    for end in range(40, 60, 4):
        decode(kind.context, PROMPT[end : end + 4], rows=4)
    for length in (57, 55, 43, 21):
        kind.context.truncate(0, length)
        kind.plain.clear()
        expected = kind.plain.sync(0, [*PROMPT[:length], 5], rows=1)
        np.testing.assert_allclose(decode(kind.context, [5], rows=1), expected, rtol=0, atol=TOLERANCE)
        kind.context.truncate(0, length)


@pytest.mark.parametrize("sampler", SAMPLERS, ids=["greedy", "sampled"])
def test_a_draft_model_of_every_kind_goes_on_from_what_was_right(kind, sampler):
    """The target drafts for itself: but for what is spoiled on the way, all of every draft is right."""
    kind.context.clear()
    kind.draft.clear()
    drafter = Corrupted(ModelDrafter(kind.draft, tiny.num_tokens(), ()))
    found = answer(kind.context, Fixed(drafter, 4), PROMPT, 70, sampler)
    assert found.tokens == plain(kind.model, PROMPT, 70, sampler)
    assert [len(output) - 1 for _, output in found.rounds] == [1, 4] * 10


def test_time_for_what_is_evaluated_again_is_counted_apart(kind):
    with closing(open_context(kind.model, MAX_ROWS)) as context:
        answer(context, Plain(), LONG, 10)
        assert context.rollback_s == 0
        answer(context, Plain(), [*LONG[:150], 5], 10)
        assert (context.rollback_s > 0) is (kind.rollback is not Rollback.PARTIAL or kind.window_only)
