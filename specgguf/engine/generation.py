"""One answer."""

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from specgguf.llama.vocab import Vocab
from specgguf.speculative.context import Context, common_prefix
from specgguf.speculative.controller import Controller
from specgguf.speculative.loop import Round, prefill, speculate
from specgguf.speculative.sequence import TokenSequence
from specgguf.speculative.stats import Stats
from specgguf.text.stream import TextStream


@dataclass(slots=True)
class Timings:
    """Seconds. `decode_s` is the time after the first round, `llama_s` the part of it inside llama.cpp."""

    prefill_s: float = 0.0
    first_token_s: float = 0.0
    decode_s: float = 0.0
    llama_s: float = 0.0
    tokens_per_s: float = 0.0
    """Tokens after the first round per second of `decode_s`."""


class Piece(NamedTuple):
    """A part of an answer: `source` is who guessed it, or empty where the target chose without an accepted guess."""

    text: str
    source: str = ""


class Generation:
    """One answer: iterate to get its text as it is committed. What is there of it can be read any time, also later."""

    def __init__(
        self,
        sequence: TokenSequence,
        target: Context,
        controller: Controller,
        vocab: Vocab,
        stops: Sequence[str],
        llama_s: Callable[[], float],
    ) -> None:
        """`llama_s` tells the seconds that all contexts together have spent inside llama.cpp so far."""
        self.seed = sequence.sampler.seed
        self.prompt_tokens = len(sequence.tokens)
        self.cached_tokens = common_prefix(target.tokens[sequence.id], sequence.tokens[:-1])
        """Tokens of the prompt that the target's cache held already."""
        self.text = ""
        self.tokens: list[int] = []
        self.finish_reason = "interrupted"
        """stop, stop_string, length, or interrupted: what it is until the end is reached."""
        self.stats = Stats()
        self.timings = Timings()
        self._sequence = sequence
        self._target = target
        self._controller = controller
        self._vocab = vocab
        self._stream = TextStream(stops)
        self._llama_s = llama_s
        self._fresh = deque[Piece]()  # not yielded yet

    def __iter__(self) -> Iterator[str]:
        return (piece.text for piece in self.pieces())

    def pieces(self) -> Iterator[Piece]:
        """The text as it is committed, with who guessed it."""
        timings, begin = self.timings, time.perf_counter()
        prefill(self._target, self._controller, self._sequence)
        timings.prefill_s = time.perf_counter() - begin
        first_end = first_llama = 0.0
        first_tokens = 0
        try:
            for finished in speculate(self._target, self._controller, [self._sequence], self._vocab.eog):
                self.stats.observe(finished)
                self._commit(finished)
                if not first_tokens:
                    first_end, first_llama = time.perf_counter(), self._llama_s()
                    first_tokens = len(self.tokens)
                    timings.first_token_s = first_end - begin
                while self._fresh:
                    yield self._fresh.popleft()
                if self.finish_reason == "stop_string":
                    break
            else:
                ended = self.tokens and self.tokens[-1] in self._vocab.eog
                self.finish_reason = "stop" if ended else "length"
            yield Piece(self.flush())
        finally:
            if first_tokens:
                timings.decode_s = time.perf_counter() - first_end
                timings.llama_s = self._llama_s() - first_llama
                timings.tokens_per_s = (len(self.tokens) - first_tokens) / max(timings.decode_s, 1e-9)

    def flush(self) -> str:
        """Text not yielded yet. After an interruption: what is left of the answer."""
        self._add(self._stream.flush(), "")
        rest = "".join(piece.text for piece in self._fresh)
        self._fresh.clear()
        return rest

    def _commit(self, finished: Round) -> None:
        for number, token in enumerate(finished.output):
            self.tokens.append(token)
            text = self._stream.feed(self._vocab.piece(token))
            self._add(text, finished.source if number < finished.accepted else "")
            if self._stream.stopped:
                self.finish_reason = "stop_string"
                return

    def _add(self, text: str, source: str) -> None:
        self.text += text
        if self._fresh and self._fresh[-1].source == source:
            text = self._fresh.pop().text + text
        self._fresh.append(Piece(text, source))
