"""What measuring needs of an engine beyond answers: timing, replaying, starting cold."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from specgguf.engine.engine import Engine
from specgguf.exact.choice import MAX_WIDTH
from specgguf.exact.timing import time_widths
from specgguf.sampling.sampler import Sampler
from specgguf.speculative.context import Part
from specgguf.speculative.controller import Fixed, Plain
from specgguf.speculative.drafter import Drafter
from specgguf.speculative.loop import begin
from specgguf.speculative.sequence import TokenSequence


class Workbench:
    """An engine whose contexts are open for at least so many tokens."""

    def __init__(self, engine: Engine, n_ctx: int) -> None:
        """Raises ContextError where there is too little memory."""
        self.engine = engine
        self._target = engine.open(n_ctx)

    @property
    def n_ctx(self) -> int:
        """Tokens that the target's context holds."""
        return self._target.n_ctx

    def drafters(self) -> list[Drafter]:
        """Those that have to earn the time of their steps."""
        return [drafter for drafter in self.engine.drafters() if not drafter.is_free]

    def follow(
        self, prompt: Sequence[int], answer: Sequence[int], sampler: Sampler, drafter: Drafter
    ) -> Iterator[TokenSequence]:
        """A known answer token by token: each time the drafter has read all that the target computes before it."""
        sequence = TokenSequence(list(prompt), sampler, len(prompt) + len(answer))
        controller = Fixed(drafter, 0)
        begin(self._target, controller, sequence)
        for evaluated in self._target.feed(sequence.id, sequence.tokens[:-1]):
            controller.read(evaluated, len(evaluated.tokens))
        for token in answer:
            yield sequence
            (evaluated,) = self._target.decode([Part(0, sequence.tokens[-1:], 1)], Plain(self.engine.widths).width(1))
            controller.read(evaluated, 1)
            sequence.tokens.append(token)

    def start_cold(self) -> None:
        """Empty all caches, and forget texts and what was learned about drafts; costs stay known."""
        self.engine.contexts.clear()
        self.engine.memory.learn_anew(self.engine.memory.policy.tables())

    def replay(
        self, prompt: Sequence[int], output: Sequence[int], width: int, chunk: int = 0
    ) -> Iterator[NDArray[np.float32]]:
        """The target's logits, shape (n_vocab,), at every token of an answer that is known already.

        The answer is decoded in batches of `width` tokens, or the next exact width; `chunk`: so is the prompt, in
        batches of that many tokens, even if the cache holds it. A row is valid until the next one.
        """
        width_of = Plain(self.engine.widths).width
        tokens = [*prompt, *output[:-1]]
        if chunk:
            self._target.truncate(0, 0)
            for end in range(chunk, len(prompt) - 1, chunk):
                self._target.sync(0, tokens[:end])
        self._target.sync(0, tokens[: len(prompt) - 1])
        for start in range(len(prompt) - 1, len(tokens), width):
            part = tokens[start : start + width]
            (evaluated,) = self._target.decode([Part(0, part, len(part))], width_of(width))
            yield from evaluated.logits

    def time_widths(self, tokens: Sequence[int]) -> dict[int, float]:
        """Seconds of a batch of the target by width: the last of `tokens`, decoded once more after the others.

        All widths up to the usual cap, of wider ones a few.
        """
        widths = [
            width
            for width in self.engine.widths or range(1, self.engine.max_width + 1)
            if width <= MAX_WIDTH or width.bit_count() == 1 or width == self.engine.max_width
        ]
        tokens = list(tokens) * -(-(self.engine.max_width + 1) // len(tokens))
        return time_widths(self._target, tokens[: self.n_ctx], widths)
