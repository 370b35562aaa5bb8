"""One answer."""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from specgguf.llama.vocab import Vocab
from specgguf.speculative.loop import Round
from specgguf.speculative.sequence import TokenSequence
from specgguf.speculative.stats import EARLY, Stats
from specgguf.text.stream import TextStream, silent


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
        cached_tokens: int,
        vocab: Vocab,
        stops: Sequence[str],
        llama_s: Callable[[], float],
        rounds: Callable[[], Iterable[Round]] = lambda: (),
    ) -> None:
        """`cached_tokens`: tokens of the prompt that the target's cache holds already; `llama_s` tells the seconds that
        all contexts together have spent inside llama.cpp so far; `rounds` begins the work, where it is one answer's.
        """
        self.seed = sequence.sampler.seed
        self.prompt_tokens = len(sequence.tokens)
        self.cached_tokens = cached_tokens
        self.text = ""
        self.tokens: list[int] = []
        self.finish_reason = "interrupted"
        """stop, stop_string, length, or interrupted: what it is until the end is reached."""
        self.stats = Stats()
        self.early = Stats()
        """Of the rounds that began within the first `EARLY` tokens."""
        self.timings = Timings()
        self._sequence = sequence
        self._vocab = vocab
        controls = sorted({token for stop in stops for token in vocab.silent_in(stop)})
        self._silent = {token: silent(number) for number, token in enumerate(controls)}
        """Control tokens that stop strings name."""
        self._stream = TextStream([*stops, *map(self._with_silent, stops)])
        self._llama_s = llama_s
        self._rounds = rounds
        self._begin_s = time.perf_counter()
        self._first: tuple[float, float, int] | None = None
        """When the first round ended, the seconds inside llama.cpp by then, and how many tokens there were."""
        self._fresh = deque[Piece]()  # not yielded yet

    def __iter__(self) -> Iterator[str]:
        return (piece.text for piece in self.pieces())

    def pieces(self) -> Iterator[Piece]:
        """The text as it is committed, with who guessed it. Raises ContextError where it cannot go on."""
        self._begin_s = time.perf_counter()
        for finished in self._rounds():
            self.take(finished)
            while self._fresh:
                yield self._fresh.popleft()
            if finished.error:
                raise finished.error
            if self.finish_reason == "stop_string":
                break
        else:
            self.end()
        yield Piece(self.flush())

    def take(self, finished: Round) -> None:
        """Take in what a round has brought."""
        if not finished.output:
            self.timings.prefill_s = time.perf_counter() - self._begin_s
            return
        self.stats.observe(finished)
        if len(self.tokens) < EARLY:
            self.early.observe(finished)
        self._commit(finished)
        timings, now, llama_s = self.timings, time.perf_counter(), self._llama_s()
        if not self._first:
            self._first = now, llama_s, len(self.tokens)
            timings.first_token_s = now - self._begin_s
        first_s, first_llama_s, num_first = self._first
        timings.decode_s, timings.llama_s = now - first_s, llama_s - first_llama_s
        timings.tokens_per_s = (len(self.tokens) - num_first) / max(timings.decode_s, 1e-9)

    @property
    def is_bound(self) -> bool:
        """Whether a grammar says what the answer must be of."""
        return self._sequence.sampler.grammar is not None

    @property
    def temperature(self) -> float:
        """At which tokens are chosen."""
        return self._sequence.sampler.temperature

    @property
    def prompt(self) -> str:
        """The text of the prompt's tokens, without control tokens."""
        tokens = self._sequence.tokens[: self.prompt_tokens]
        return b"".join(map(self._vocab.piece, tokens)).decode("utf-8", "replace")

    def end(self) -> None:
        """No round follows: say why, unless a stop string has ended it."""
        if self.finish_reason != "stop_string":
            ended = self.tokens and self.tokens[-1] in self._vocab.eog
            self.finish_reason = "stop" if ended else "length"

    def has_filled(self, n_ctx: int) -> bool:
        """Whether the end of a context of so many tokens has ended it."""
        return self.finish_reason == "length" and self.prompt_tokens + len(self.tokens) > n_ctx

    def flush(self) -> str:
        """Text not yielded yet. After an interruption: what is left of the answer."""
        self._add(self._stream.flush(), "")
        rest = "".join(piece.text for piece in self._fresh)
        self._fresh.clear()
        return rest

    def _commit(self, finished: Round) -> None:
        for number, token in enumerate(finished.output):
            self.tokens.append(token)
            text = self._stream.feed(self._vocab.shown(token), self._silent.get(token, ""))
            self._add(text, finished.source if number < finished.accepted else "")
            if self._stream.stopped:
                self.finish_reason = "stop_string"
                return

    def _with_silent(self, stop: str) -> str:
        for token, character in self._silent.items():
            stop = stop.replace(self._vocab.text(token), character)
        return stop

    def _add(self, text: str, source: str) -> None:
        self.text += text
        if self._fresh and self._fresh[-1].source == source:
            text = self._fresh.pop().text + text
        self._fresh.append(Piece(text, source))
