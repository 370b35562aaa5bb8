"""Many answers at once."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from specgguf.engine.engine import Engine
from specgguf.engine.generation import Generation
from specgguf.engine.settings import MAX_PARALLEL, N_BATCH, Mode
from specgguf.errors import ContextError
from specgguf.llama.context import LlamaContext
from specgguf.llama.memory import cell_bytes, free_bytes
from specgguf.sampling.sampler import Sampler
from specgguf.speculative.context import Rollback, common_prefix
from specgguf.speculative.loop import BESIDE, Round, begin, speculate
from specgguf.speculative.sequence import TokenSequence

if TYPE_CHECKING:  # llguidance is loaded for a grammar only
    from specgguf.llama.grammar import GrammarText

_MEMORY_SHARE = 0.5
"""Of the memory that is free, what the cells of all texts may take."""
_OTHERS = 1.5
"""How much larger than the first text the others may be on average."""
_GAIN = 1.03
"""How much more has to come of a batch for more texts."""


class Pool:
    """Texts that share a cache and its batches. When one ends, another may take its place.

    What prompts begin with alike is evaluated once. A text is what it would be alone, near-ties aside; in exact mode
    bit for bit.
    """

    def __init__(self, engine: Engine) -> None:
        """At most as many texts at once as the engine's settings say, or as pay."""
        self._engine = engine
        usual = 1 if engine.drafts_alone else MAX_PARALLEL
        self._most = min(engine.settings.num_parallel or usual, engine.max_width)
        self._num_sequences = self._exact_width() if engine.widths else self._most
        self._active: dict[int, tuple[TokenSequence, Generation]] = {}
        self._sequences: list[TokenSequence] = []
        self._rounds: Iterator[Round] = iter(())
        self._context: LlamaContext | None = None
        self._num_begun = 0
        self._shared: list[int] = []
        """What all prompts so far begin with. Sequences that are not in use hold that and no more."""

    @property
    def num_active(self) -> int:
        """How many texts are being answered."""
        return len(self._active)

    def has_room(self, num_prompt: int, max_tokens: int | None) -> bool:
        """Whether a text with a prompt of so many tokens can begin now."""
        if not self._active:
            return True
        if self._num_begun == 1 and not next(iter(self._active.values()))[1].tokens:
            return False  # what the other prompts share with the first is not in the cache yet
        return len(self._active) < self.size() and self._fits(self._need(num_prompt, max_tokens))

    def size(self) -> int:
        """How many texts are answered at once at present: as many as were asked for, or as pay."""
        most = min(self._most, self._num_sequences)
        if self._engine.settings.num_parallel is not None:
            return most
        costs = self._engine.memory.policy.pace.costs
        speeds = [count / costs.padded(count) for count in range(1, most + 1)]
        return next(count for count, speed in enumerate(speeds, 1) if speed * _GAIN >= max(speeds))

    def add(
        self,
        prompt: Sequence[int],
        sampler: Sampler,
        max_tokens: int | None = None,
        stops: Sequence[str] = (),
        grammar: "GrammarText | None" = None,
    ) -> Generation:
        """Begin a text, for which there must be room; `step` continues it. Errors as in `Engine.generate`."""
        engine = self._engine
        sequence = engine.sequence(prompt, sampler, max_tokens, grammar)
        context = self._open(sequence.end)
        sequence.id = next(one for one in range(self._most) if one not in self._active)
        self._num_begun += 1
        begin(context, self._controller, sequence, N_BATCH if engine.widths else 1)
        cached = len(context.tokens[sequence.id])
        self._shared = self._shared[: common_prefix(self._shared, prompt)] if self._num_begun > 1 else list(prompt)
        generation = Generation(sequence, cached, engine.target.vocab, stops, lambda: engine.contexts.seconds)
        self._active[sequence.id] = sequence, generation
        self._sequences.append(sequence)
        return generation

    def step(self) -> list[tuple[Generation, ContextError | None]]:
        """Go on by a batch or less: the texts that have ended with it, and why, if they could not go on.

        There must be some text.
        """
        try:
            finished = next(self._rounds, None) or next(self._begin_rounds())
        except ContextError as error:  # of the batch as a whole
            return self._fail(error)
        sequence, generation = self._active[finished.sequence]
        generation.take(finished)
        if generation.finish_reason == "stop_string" and sequence in self._sequences:
            self._sequences.remove(sequence)
        if sequence in self._sequences:
            return []
        if not finished.error:
            generation.end()
        generation.flush()
        self._leave(sequence)
        return [(generation, finished.error)]

    def _begin_rounds(self) -> Iterator[Round]:
        """The loop ends when all texts have ended; for new ones it begins again."""
        assert self._context is not None
        beside, eog = 0 if self._engine.widths else BESIDE, self._engine.target.vocab.eog
        self._rounds = speculate(self._context, self._controller, self._sequences, eog, beside)
        return self._rounds

    def _fail(self, error: ContextError) -> list[tuple[Generation, ContextError | None]]:
        failed = list(self._active.values())
        self._sequences.clear()
        for sequence, _ in failed:
            self._leave(sequence)
        return [(generation, error) for _, generation in failed]

    def _leave(self, sequence: TokenSequence) -> None:
        del self._active[sequence.id]
        if self._context:
            held = self._context.tokens[sequence.id]
            self._context.truncate(sequence.id, common_prefix(held, self._shared))

    def _need(self, num_prompt: int, max_tokens: int | None) -> int:
        n_ctx = self._engine.n_ctx_for(num_prompt, max_tokens)
        return n_ctx if max_tokens is None else min(n_ctx, num_prompt + max_tokens)

    def _fits(self, need: int) -> bool:
        assert self._context is not None
        if self._context.apart:
            return need <= self._context.n_ctx
        taken = len(self._shared) + sum(sequence.end for sequence, _ in self._active.values())
        return need <= self._context.n_ctx - taken

    def _exact_width(self) -> int:
        """All batches have this width: the next that is allowed, or the one that yields most."""
        engine = self._engine
        if engine.settings.num_parallel:
            return min((width for width in engine.widths if width >= self._most), default=engine.max_width)
        costs = engine.memory.policy.pace.costs
        return max(engine.widths, key=lambda width: width / costs.padded(width))

    def _open(self, need: int) -> LlamaContext:
        """A cache for as many texts like this as may be answered at once, if there is memory for that."""
        if self._context and (self._active or self._context.n_ctx >= need):
            return self._context
        engine, count = self._engine, self._num_sequences
        wanted = int(_OTHERS * need) if engine.widths else int(_OTHERS * need * count)
        affordable = self._affordable_cells() // (count if engine.widths else 1)
        cells = max(need, N_BATCH, min(wanted, affordable))
        while True:
            try:
                self._context = engine.open(cells, count)
                break
            except ContextError:
                if cells <= max(need, N_BATCH):
                    raise
                cells = max(need, N_BATCH, cells // 2)
        self._rounds, self._shared, self._num_begun = iter(()), [], 0
        kinds = (Rollback.PARTIAL,) if count > 1 else tuple(Rollback)
        can_draft = self._context.rollback in kinds and not self._context.apart
        self._controller = engine.controller(engine.mode if can_draft else Mode.OFF)
        return self._context

    def _affordable_cells(self) -> int:
        engine, types = self._engine, self._engine.cache_types
        models = [engine.target, *([engine.draft] if engine.draft else [])]
        each = sum(cell_bytes(model, *types) for model in models)
        return int(_MEMORY_SHARE * free_bytes(engine.num_gpu_layers) / max(1, each))
