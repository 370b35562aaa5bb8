"""Runs the speculative loop over llama.cpp, for the tests of caches and of heads."""

import itertools
import os
import random
import signal
from contextlib import contextmanager
from typing import NamedTuple

import pytest
from llama_cpp import llama_cpp as lib

from specgguf.llama.context import ContextSettings, LlamaContext
from specgguf.llama.model import Model
from specgguf.models.header import ModelHeader
from specgguf.sampling.sampler import Sampler
from specgguf.speculative.controller import Plain
from specgguf.speculative.drafter import Draft
from specgguf.speculative.loop import begin, speculate
from specgguf.speculative.sequence import TokenSequence
from tests.tiny import num_tokens

SAMPLERS = [Sampler(), Sampler(temperature=0.8, seed=3)]
_random = random.Random(5)
PROMPT = [1, *(_random.randrange(3, num_tokens()) for _ in range(75))]


class Answer(NamedTuple):
    tokens: list[int]
    rounds: list
    """Of each round, its draft and the tokens that it put out."""

    @property
    def accepted(self):
        return sum(len(output) - 1 for _, output in self.rounds)


def load(path, role="target", with_mtp=False):
    return Model(ModelHeader.of_file(path, role), 0, with_mtp=with_mtp, is_head=role == "draft")


def open_context(model, max_rows=1, n_ctx=512, n_batch=64, n_seq=1, taps=()):
    """Cells are F32, so that logits are the same in every batch but for some millionths."""
    return LlamaContext(model, ContextSettings(n_ctx, 1, "f32", "f32", max_rows, n_batch, n_seq, taps=taps))


def answer(context, controller, prompt, count, sampler=SAMPLERS[0], eog=()):
    """What follows the prompt; whatever the context holds of it is not evaluated again."""
    drafts, make = [], controller.draft

    def draft(sequences, limits):
        made = make(sequences, limits)
        drafts.append(made[0])
        return made

    controller.draft = draft
    sequence = TokenSequence(list(prompt), sampler, len(prompt) + count)
    try:
        begin(context, controller, sequence)
        rounds = [(drafts[-1], one.output) for one in speculate(context, controller, [sequence], eog) if one.output]
    finally:
        controller.draft = make
    return Answer(sequence.tokens[len(prompt) :], rounds)


def plain(model, prompt, count, sampler=SAMPLERS[0]):
    """The tokens of plain decoding on a context of its own."""
    context = open_context(model)
    try:
        return answer(context, Plain(), prompt, count, sampler).tokens
    finally:
        context.close()


class Knowing(Plain):
    """Drafts what it was told comes next, but for some tokens of its own: so whole drafts, none and parts are kept."""

    def __init__(self, text, width=0):
        """`width`: of all batches, filled up with padding."""
        super().__init__((width,) if width else ())
        self.text, self.random = text, random.Random(1)

    def draft(self, sequences, limits):
        (sequence,), (limit,) = sequences, limits
        at = len(sequence.tokens)
        known = self.text[at : at + min(limit, 4)]
        return [Draft("known", [token if self.random.random() < 0.7 else 7 for token in known])]


class Corrupted:
    """A drafter's drafts, of which every other one, from the first on, has a wrong token at its second place."""

    def __init__(self, drafter):
        self._drafter, self._is_next = drafter, False

    def __getattr__(self, name):
        return getattr(self._drafter, name)

    def draft(self, sequences, limits, go_on):
        (draft,) = drafts = self._drafter.draft(sequences, limits, go_on)
        self._is_next = not self._is_next
        if self._is_next and len(draft.tokens) > 1:
            draft.tokens[1] = (draft.tokens[1] + 1) % num_tokens()
        return drafts


@contextmanager
def interrupted(call):
    """A signal comes while llama.cpp decodes for the `call`-th time, counted from 0; it may take longer than that."""
    original, calls = lib.llama_decode, itertools.count()

    def decode(*arguments):
        if next(calls) == call:
            os.kill(os.getpid(), signal.SIGINT)
        return original(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lib, "llama_decode", decode)
        yield
