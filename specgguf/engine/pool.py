"""Many answers at once."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from specgguf.engine.engine import Engine
from specgguf.engine.generation import Generation
from specgguf.engine.settings import MAX_PARALLEL, N_BATCH, Mode
from specgguf.errors import ContextError
from specgguf.exact.neighbours import neighbours_matter
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


class Pool:
    """Texts that share a cache and its batches. When one ends, another may take its place.

    What prompts begin with alike is evaluated once. A text is what it would be alone, near-ties aside; in exact mode
    bit for bit.
    """

    def __init__(self, engine: Engine, num_parallel: int | None = None, mode: Mode | None = None) -> None:
        """`num_parallel`: texts at once at most; None: as the engine's settings say, which may be as many as pay.
        `mode`: how to draft; None: as the settings say.
        """
        self._engine = engine
        self._wanted = num_parallel or engine.settings.num_parallel
        self._mode = mode or engine.mode
        self._most = min(self._wanted or (1 if engine.drafts_alone else MAX_PARALLEL), engine.max_width)
        self._num_sequences = self._exact_width() if engine.widths else self._most
        self._cells = 0
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
        return most if self._wanted else self._engine.memory.policy.pace.costs.most_productive(most)

    def describe(self) -> str:
        """How many texts are answered at once, and why."""
        size, costs = self.size(), self._engine.memory.policy.pace.costs
        why = "as asked for" if self._wanted else f"of {self._most} at most"
        gain = f"about {costs.throughput(size):.0f} tokens/s, one alone {costs.throughput(1):.0f}"
        return f"{size} at once, {why}: {gain}; the cache has {self._cells} cells"

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
        context = self._open(sequence.end, prompt)
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
        if self._wanted:
            return min((width for width in engine.widths if width >= self._most), default=engine.max_width)
        return max(engine.widths, key=engine.memory.policy.pace.costs.throughput)

    def _open(self, need: int, prompt: Sequence[int]) -> LlamaContext:
        """A cache for as many texts like this as may be answered at once, if there is memory for that."""
        if self._context and (self._active or self._context.n_ctx >= need):
            return self._context
        engine, is_known = self._engine, self._context is not None
        self._context = self._largest(need)
        if self._context.apart and not is_known and neighbours_matter(self._context, prompt):
            engine.on_notice("on this device, texts in one batch change bits of each other: one at a time, then")
            self._num_sequences = 1
            self._context = self._largest(need)
        self._rounds, self._shared, self._num_begun = iter(()), [], 0
        kinds = (Rollback.PARTIAL,) if self._num_sequences > 1 else tuple(Rollback)
        can_draft = self._context.rollback in kinds and not self._context.apart
        self._controller = engine.controller(self._mode if can_draft else Mode.OFF)
        return self._context

    def _largest(self, need: int) -> LlamaContext:
        engine, count = self._engine, self._num_sequences
        wanted = int(_OTHERS * need) if engine.widths else int(_OTHERS * need * count)
        affordable = self._affordable_cells() // (count if engine.widths else 1)
        cells = max(need, N_BATCH, min(wanted, affordable))
        while True:
            try:
                context = engine.open(cells, count)
                self._cells = context.n_ctx * (count if engine.widths else 1)
                return context
            except ContextError:
                if cells <= max(need, N_BATCH):
                    raise
                cells = max(need, N_BATCH, cells // 2)

    def _affordable_cells(self) -> int:
        engine, types = self._engine, self._engine.cache_types
        models = [engine.target, *([engine.draft] if engine.draft else [])]
        each = sum(cell_bytes(model, *types) for model in models)
        return int(_MEMORY_SHARE * free_bytes(engine.num_gpu_layers) / max(1, each))
