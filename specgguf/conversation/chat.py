"""A conversation with a model. It knows no terminal."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from specgguf.conversation.answer import Answer
from specgguf.conversation.transcript import Exchange, Transcript
from specgguf.engine.engine import Engine
from specgguf.engine.generation import Generation
from specgguf.engine.settings import CHAT_TEMPERATURE, Mode
from specgguf.errors import ContextError, ContextFullError, UsageError
from specgguf.sampling.sampler import Sampler
from specgguf.speculative.stats import Stats
from specgguf.text.thought import Said

if TYPE_CHECKING:
    from specgguf.llama.grammar import GrammarText

_SMALL_PART = 16
"""An answer needs at least this fraction of the context, or the chat is full."""


@dataclass(slots=True)
class Answering:
    """How questions are answered, apart from the choice of tokens, which the transcript keeps."""

    max_tokens: int | None = None
    stops: Sequence[str] = ()
    think: bool = True
    grammar: "GrammarText | None" = None
    """What every answer must be of."""
    mode: Mode | None = None
    """How to draft, if not as the engine was opened for."""
    num_draft: int | None = None
    context_shift: bool = False
    """Whether the oldest exchanges are dropped without a question when the context is full."""


class Turn:
    """One answer: iterate to get it as it comes. When it is closed, what is there of it is in the transcript."""

    def __init__(
        self, transcript: Transcript, generation: Generation, n_ctx: int, prompt: str | None, dropped: int
    ) -> None:
        """`prompt` as in `Answer`."""
        self.generation = generation
        self.answer = Answer(generation, prompt)
        self.n_ctx = n_ctx
        self.dropped = dropped
        """How many of the oldest exchanges went to make room."""
        self._transcript = transcript

    def __iter__(self) -> Iterator[tuple[Said, str]]:
        """Pieces of the answer, and who guessed them."""
        return iter(self.answer)

    @property
    def used(self) -> int:
        """Tokens of the context that are in use."""
        return self.generation.prompt_tokens + len(self.generation.tokens)

    @property
    def cut(self) -> bool:
        """Whether the end of the context ended the answer."""
        return self.generation.has_filled(self.n_ctx)

    def close(self) -> None:
        """Keep the answer."""
        self.generation.flush()
        thought, answer = self.answer.split()
        *before, last = self._transcript.exchanges
        self._transcript.exchanges = [*before, Exchange(last.question, answer, thought)]


class Chat:
    """A transcript and what continues it.

    The prompt of every turn is the whole transcript, rendered and tokenized anew, as a chat begun from its file would
    do it. Both contexts keep the longest common beginning of it and what they hold, and decode the rest: after a turn
    that is the next question, after /undo or /retry nothing but what follows.
    """

    def __init__(self, engine: Engine, transcript: Transcript, answering: Answering) -> None:
        """Raises ModelError if the target has no chat template that works, ContextError as `set_system` does."""
        self.transcript = transcript
        self.answering = answering
        self.stats = Stats()
        """Counts of all turns."""
        self.use(engine)

    def use(self, engine: Engine) -> None:
        """Go on with another engine; errors as in `__init__`."""
        self._check(engine, self.transcript.system)
        self.engine = engine

    def resume(self, transcript: Transcript) -> None:
        """Go on with another chat; errors as in `__init__`."""
        self._check(self.engine, transcript.system)
        self.transcript = transcript

    def set_system(self, text: str) -> None:
        """Another system message; raises ContextError for one that leaves no room for an answer."""
        self._check(self.engine, text)
        self.transcript.system = text

    def sampler(self) -> Sampler:
        """How tokens are chosen: as set, or as the model's file says."""
        usual = self.engine.target.header.sampling.get("temperature", CHAT_TEMPERATURE)
        return self.engine.sampler(**{"temperature": usual, **self.transcript.sampling})

    def ask(self, question: str, shift: bool = False) -> Turn:
        """Answer a question; one before it that has no answer is asked with it.

        Raises ContextFullError where too little context is left for an answer, unless the oldest exchanges may be
        dropped (`shift`). The transcript is then as it was, as after any other error.
        """
        *before, last = self.transcript.exchanges or [Exchange("")]
        if not last.answer:
            question = "\n\n".join(part for part in (last.question, question) if part)
        else:
            before.append(last)
        return self._answer([*before, Exchange(question)], shift)

    def retry(self, shift: bool = False) -> Turn:
        """Answer the last question once more, with another seed; errors as in `ask`."""
        if not self.transcript.exchanges:
            raise UsageError("there is no answer to try again", "ask something first")
        *before, last = self.transcript.exchanges
        seed = self.transcript.sampling.get("seed", 0)
        self.transcript.sampling["seed"] = seed + 1
        try:
            return self._answer([*before, Exchange(last.question)], shift)
        except BaseException:
            self.transcript.sampling["seed"] = seed
            raise

    def undo(self) -> str:
        """Take the last exchange back; its question."""
        if not self.transcript.exchanges:
            raise UsageError("there is nothing to take back", "ask something first")
        *self.transcript.exchanges, last = self.transcript.exchanges
        return last.question

    def _answer(self, exchanges: Sequence[Exchange], shift: bool) -> Turn:
        most = self.answering.max_tokens
        prompt, tokens = self._prompt(exchanges)
        kept, n_ctx = exchanges, self.engine.n_ctx_for(len(tokens), most)
        if self._is_full(len(tokens), n_ctx) and len(kept) > 1:
            if not (shift or self.answering.context_shift):
                raise ContextFullError(
                    f"the context is full: {len(tokens)} of {n_ctx} tokens, with this question",
                    "drop the oldest turns (--context-shift does without asking), /clear, or give a larger --ctx",
                )
            while len(kept) > 1 and len(tokens) > n_ctx // 2:  # half: the rest is decoded anew, so not at every turn
                kept = kept[1:]
                prompt, tokens = self._prompt(kept)
        answering = self.answering
        generation = self.engine.generate(
            tokens,
            self.sampler(),
            most,
            answering.stops,
            answering.num_draft,
            answering.mode,
            grammar=answering.grammar,
        )
        self.transcript.exchanges = kept
        thinks = not answering.grammar  # what a grammar allows is no thought
        return Turn(self.transcript, generation, n_ctx, prompt if thinks else None, len(exchanges) - len(kept))

    def _is_full(self, num_tokens: int, n_ctx: int) -> bool:
        return num_tokens > n_ctx - min(self.answering.max_tokens or n_ctx, n_ctx // _SMALL_PART)

    def _check(self, engine: Engine, system: str) -> None:
        """A template that fails, or a system message that no question fits after, is an error now."""
        prompt = engine.template.render(Transcript(system, [Exchange("?")]).messages())
        num_tokens = len(engine.target.vocab.tokenize(prompt))
        n_ctx = engine.n_ctx_for(num_tokens, self.answering.max_tokens)
        if system and self._is_full(num_tokens, n_ctx):
            raise ContextError(
                f"the system message is too long: with a question it takes {num_tokens} of {n_ctx} tokens of context",
                "shorten it, or give a larger --ctx",
            )

    def _prompt(self, exchanges: Sequence[Exchange]) -> tuple[str, list[int]]:
        messages = replace(self.transcript, exchanges=exchanges).messages()
        prompt = self.engine.template.render(messages, self.answering.think)
        return prompt, self.engine.target.vocab.tokenize(prompt)
