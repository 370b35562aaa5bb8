"""Composition root: opens a target and its draft, and generates with them."""

import functools
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from specgguf.engine.settings import EngineSettings, Mode
from specgguf.errors import ContextError, ModelError, ParityError, UsageError, about
from specgguf.exact.choice import MAX_WIDTH, Arithmetic, Prover, candidates
from specgguf.exact.classes import Measurement
from specgguf.exact.profiles import Fingerprint, Profiles
from specgguf.llama import library
from specgguf.llama.context import ContextSettings, LlamaContext, check_cache_type
from specgguf.llama.grammar import GrammarText
from specgguf.llama.model import ALL_LAYERS, Model
from specgguf.llama.templates import ChatTemplate, Message
from specgguf.models.header import Header
from specgguf.models.parity import Parity, ParityReport, compare
from specgguf.speculative.context import common_prefix
from specgguf.speculative.controller import Auto, Controller, Fixed, Plain
from specgguf.speculative.drafters.model import ModelDrafter
from specgguf.speculative.drafters.ngram import SuffixDrafter
from specgguf.speculative.loop import Step, speculate
from specgguf.speculative.policy.costs import WidthCosts, time_widths
from specgguf.speculative.policy.depths import CostsByDepth, level_of
from specgguf.speculative.policy.length import Adaptive
from specgguf.speculative.sampling import Sampler
from specgguf.speculative.stats import Stats
from specgguf.speculative.verify import Chooser
from specgguf.text.closing import Closing
from specgguf.text.stream import TextStream

_LEAST_CTX = 4096
_ROOM = 2048
"""Tokens of context kept free behind a long prompt when the length of the answer is not limited."""


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


@dataclass(slots=True)
class Generation:
    """One answer: iterate to get its text as it is committed. The other fields grow meanwhile."""

    prompt_tokens: int
    cached_tokens: int
    """Tokens of the prompt that the target's cache held already."""
    sampler: Chooser
    _engine: "Engine"
    _steps: Iterator[Step]
    _stream: TextStream
    text: str = ""
    tokens: list[int] = field(default_factory=list)
    finish_reason: str = "interrupted"
    """stop, stop_string, length, or interrupted: what it is until the end is reached."""
    stats: Stats = field(default_factory=Stats)
    timings: Timings = field(default_factory=Timings)
    _fresh: deque[Piece] = field(default_factory=deque)
    """Pieces not yielded yet."""

    def __iter__(self) -> Iterator[str]:
        return (piece.text for piece in self.pieces())

    def pieces(self) -> Iterator[Piece]:
        """The text as it is committed, with who guessed it."""
        begin = time.perf_counter()
        first_end = first_llama = 0.0
        first_tokens = 0
        try:
            for step in self._steps:
                self.stats.observe(step)
                self._commit(step)
                if not first_tokens:
                    first_end, first_llama = time.perf_counter(), self._engine.llama_s
                    first_tokens = len(self.tokens)
                    self.timings.first_token_s = first_end - begin
                while self._fresh:
                    yield self._fresh.popleft()
                if self.finish_reason == "stop_string":
                    break
            else:
                ended = self.tokens and self.tokens[-1] in self._engine.eog
                self.finish_reason = "stop" if ended else "length"
            yield Piece(self.flush())
        finally:
            if first_tokens:
                timings = self.timings
                timings.prefill_s = self._engine.prefill_s
                timings.decode_s = time.perf_counter() - first_end
                timings.llama_s = self._engine.llama_s - first_llama
                timings.tokens_per_s = (len(self.tokens) - first_tokens) / max(timings.decode_s, 1e-9)

    def flush(self) -> str:
        """Text not yielded yet. After an interruption: what is left of the answer."""
        self._add(self._stream.flush(), "")
        rest = "".join(piece.text for piece in self._fresh)
        self._fresh.clear()
        return rest

    def _commit(self, step: Step) -> None:
        for number, token in enumerate(step.output):
            self.tokens.append(token)
            text = self._stream.feed(self._engine.piece(token))
            self._add(text, step.source if number < step.accepted else "")
            if self._stream.stopped:
                self.finish_reason = "stop_string"
                return

    def _add(self, text: str, source: str) -> None:
        self.text += text
        if self._fresh and self._fresh[-1].source == source:
            text = self._fresh.pop().text + text
        self._fresh.append(Piece(text, source))


class Engine(Closing):
    """A target, perhaps with a draft, ready to generate. Close it, or use it in a `with` statement."""

    def __init__(
        self,
        target: Path,
        draft: Path | None,
        settings: EngineSettings,
        profiles: Profiles,
        on_progress: Callable[[str, int, int], object],
    ) -> None:
        """Judge the files, compare tokenizers, then load the weights.

        In exact mode the batch widths are compared first, unless `profiles` remembers them; that takes minutes,
        and `on_progress` is told what is done. Raises ModelError for an unusable file, ParityError for a draft with
        another tokenizer, UsageError for GPU layers without a GPU, for a longer context than a model knows, or where
        there are no exact widths.
        """
        self.settings = settings
        self.notices: list[str] = []
        """What the user should be told, a line each."""
        self.on_change: Callable[[str], object] = lambda _: None
        """Is told in a line when drafting is given up while generating, and when it is taken up again."""
        self._arithmetics = candidates(settings.cache_type_k, settings.cache_type_v)
        with about("cache-type-k"):
            check_cache_type("--cache-type-k", self._arithmetics[0].cache_type_k)
        with about("cache-type-v"):
            check_cache_type("--cache-type-v", self._arithmetics[0].cache_type_v)
        layers = num_layers("--gpu-layers", settings.n_gpu_layers)
        draft_layers = num_layers("--draft-gpu-layers", settings.draft_n_gpu_layers)
        with about("target"):
            self.target_header = Header.of_file(target, "target")
        with about("draft"):
            self.draft_header = Header.of_file(draft, "draft") if draft else None
        self.parity = _check_parity(self.target_header, self.draft_header)
        self.num_threads = settings.n_threads or library.num_physical_cores()
        prover = Prover(self.target_header, layers, self.num_threads, profiles, on_progress)
        self.exact_choice = prover.choose(self._arithmetics) if settings.exact else None
        """The widths and settings of exact mode."""
        self._arithmetic = self.exact_choice.arithmetic if self.exact_choice else self._arithmetics[0]
        self._widths = self.exact_choice.widths if self.exact_choice else ()
        measured = prover.known(self._arithmetic)
        self.is_exact = settings.exact or (measured is not None and measured.agree(settings.draft_max + 1))
        """Whether drafting is known not to change a bit."""
        with ExitStack() as resources:
            self._target = resources.enter_context(Model(self.target_header, layers, self._arithmetic.repack))
            _check_ctx("--ctx", settings.n_ctx, self._target)
            self._draft: Model | None = None
            if self.draft_header:
                self._draft = resources.enter_context(Model(self.draft_header, draft_layers))
                _check_ctx("--draft-ctx", settings.draft_n_ctx, self._draft)
            self._resources = resources.pop_all()
        self._contexts: list[LlamaContext] = []
        self._mode = settings.mode
        self._drop_draft_without_rollback()
        self._profiles = profiles
        self._prover = prover
        self._costs_key = self._key_of_costs()
        self._learn_anew(self._remembered_costs(measured))
        self.prefill_s = 0.0
        """Seconds the last prefill of the target took."""

    def _drop_draft_without_rollback(self) -> None:
        if not self._target.can_roll_back:
            self._mode = Mode.OFF
        for model in (self._target, self._draft):
            if self._draft and model and not model.can_roll_back:
                self._drop_draft(f"the {model.header.role} is a recurrent model, whose cache cannot be rolled back yet")

    def _drop_draft(self, reason: str) -> None:
        self.notices.append(f"no draft model: {reason}")
        if self._draft:
            self._draft.close()
        self._draft = None

    @property
    def eog(self) -> frozenset[int]:
        """The ids that end a text: the target's."""
        return self._target.vocab.eog

    @property
    def has_draft(self) -> bool:
        """Whether there is a draft model, in use or not."""
        return self._draft is not None

    @property
    def speculative(self) -> bool:
        """Whether there is a draft in use."""
        return self._draft is not None and self._mode.uses_model

    @property
    def adaptive(self) -> bool:
        """Whether the draft length follows what pays."""
        return self._mode.is_adaptive

    @property
    def n_ctx(self) -> int:
        """Tokens that the target's context holds; `generate` must have been called before."""
        return self._contexts[0].n_ctx

    @property
    def llama_s(self) -> float:
        """Seconds spent inside llama.cpp's decoding so far."""
        return sum(context.decode_s for context in self._contexts)

    @property
    def plain_tokens_per_s(self) -> float | None:
        """What plain decoding would yield at present, estimated; None where it is not known."""
        costs = self._policy.costs
        return 1 / costs.plain if costs.plain_known else None

    def sampler(self, **given: Any) -> Sampler:  # noqa: ANN401
        """How to choose tokens: as given, the rest (what is None) as the model's file says, or else as usual.

        Raises UsageError for a logit bias of a token that the target does not have.
        """
        for token, _ in given.get("logit_bias") or ():
            if token >= self._target.vocab.num_tokens:
                most = self._target.vocab.num_tokens - 1
                raise UsageError(f"--logit-bias {token}: the target has no such token", f"its ids are 0 to {most}")
        return Sampler(**{**self.target_header.sampling, **{k: v for k, v in given.items() if v is not None}})

    def piece(self, token: int) -> bytes:
        """The bytes a token stands for."""
        return self._target.vocab.piece(token)

    def tokenize(self, text: str) -> list[int]:
        """Ids of a text given to the model as it is."""
        return self._target.vocab.tokenize(text)

    def render_chat(self, messages: Sequence[Message], think: bool = True) -> str:
        """A conversation in the chat template, ready for the next answer; `think` as in `ChatTemplate.render`."""
        return self._template.render(messages, think)

    def tokenize_chat(self, messages: Sequence[Message]) -> list[int]:
        """Ids of that."""
        return self.tokenize(self.render_chat(messages))

    @functools.cached_property
    def _template(self) -> ChatTemplate:
        vocab, path = self._target.vocab, self.target_header.path
        if self.settings.chat_template is not None:
            return ChatTemplate(self.settings.chat_template, "the template of --chat-template", vocab)
        if self.target_header.chat_template is None:
            raise ModelError(
                f"{path} has no chat template",
                "give one with --chat-template FILE; specgguf run --raw does without",
            )
        return ChatTemplate(self.target_header.chat_template, f"the chat template of {path}", vocab)

    def generate(
        self,
        prompt: Sequence[int],
        sampler: Sampler,
        max_tokens: int | None = None,
        stops: Sequence[str] = (),
        num_draft: int | None = None,
        mode: Mode | None = None,
        chooser: Chooser | None = None,
        grammar: GrammarText | None = None,
    ) -> Generation:
        """Continue `prompt`; the work is done while the result is iterated.

        `mode` and `num_draft` are for this text instead of those of the settings; `num_draft` alone is a fixed draft
        length, 0 plain decoding.
        `chooser` stands around `sampler` for the target's choices. `grammar` is what the answer must be of.
        Raises UsageError for an empty prompt, ContextError for a prompt longer than the context.
        """
        if not prompt:
            raise UsageError("the prompt has no tokens", "give some text")
        n_ctx = self.n_ctx_for(len(prompt), max_tokens)
        if len(prompt) > n_ctx:
            most = self._target.n_ctx_train
            larger = f" or give a larger --ctx: the model knows {most}" if n_ctx < most else ": the model knows no more"
            raise ContextError(f"the prompt has {len(prompt)} tokens, the context {n_ctx}", f"shorten it{larger}")
        if not self._contexts or self._contexts[0].n_ctx < n_ctx:
            self._open_contexts(n_ctx)
        if not self._target.can_roll_back:
            self._contexts[0].truncate(0)
        cached = common_prefix(self._contexts[0].tokens, prompt[:-1])
        if grammar:
            sampler = replace(sampler, grammar=grammar.begin(self._target.vocab, len(prompt)))
        mode = mode or (Mode.FIXED if num_draft is not None else self._mode)
        controller = self._controller(sampler, mode if self._target.can_roll_back else Mode.OFF, num_draft)
        # As many as if this were the first text, whatever earlier ones have made of the context.
        most = n_ctx + 1 - len(prompt) if max_tokens is None else max_tokens
        steps = self._steps(prompt, chooser or sampler, controller, most)
        return Generation(len(prompt), cached, sampler, self, steps, TextStream(stops))

    @property
    def max_width(self) -> int:
        """The widest batch of the target that gives logits for all its tokens."""
        return max(self._widths, default=self.settings.draft_max + 1)

    def replay(self, prompt: Sequence[int], output: Sequence[int], width: int) -> Iterator[NDArray[np.float32]]:
        """The target's logits, shape (n_vocab,), at every token of an answer that is known already.

        The answer is decoded in batches of `width` tokens, or the next exact width; `generate` must have been
        called before. A row is valid until the next one.
        """
        target, width_of = self._contexts[0], Plain(self._widths).width
        tokens = [*prompt, *output[:-1]]
        target.sync(tokens[: len(prompt) - 1])
        for start in range(len(prompt) - 1, len(tokens), width):
            part = tokens[start : start + width]
            yield from target.decode(part, rows=len(part), width=width_of(width))

    def _steps(
        self, prompt: Sequence[int], sampler: Chooser, controller: Controller, max_tokens: int
    ) -> Iterator[Step]:
        target = self._contexts[0]
        begin = time.perf_counter()
        target.sync(prompt[:-1])
        self.prefill_s = time.perf_counter() - begin
        yield from speculate(target, controller, sampler, prompt, self.eog, max_tokens)

    def drafter(self, sampler: Sampler) -> ModelDrafter | None:
        """What drafts with the draft model; None if there is none. `generate` must have been called before."""
        if self.parity and len(self._contexts) > 1:
            return ModelDrafter(self._contexts[1], sampler, self.parity.num_shared, self.eog)
        return None

    def time_widths(self, tokens: Sequence[int]) -> dict[int, float]:
        """Seconds of a batch of the target by width: the last of `tokens`, decoded once more behind the others.

        All widths up to the usual cap, of wider ones a few. `generate` must have been called before.
        """
        widths = [
            width
            for width in self._widths or range(1, self.max_width + 1)
            if width <= MAX_WIDTH or width.bit_count() == 1 or width == self.max_width
        ]
        tokens = list(tokens) * -(-(self.max_width + 1) // len(tokens))
        return time_widths(self._contexts[0], tokens[: self.n_ctx], widths)

    def costs(self, times: Mapping[int, float], draft_step: float | None) -> WidthCosts:
        """What batches cost with these settings if they take so long by width, and a step of the draft so long."""
        return WidthCosts(self.max_width - 1, times, draft_step, allowed=self._widths or None)

    def _controller(self, sampler: Sampler, mode: Mode, num_draft: int | None) -> Controller:
        num_draft = self.settings.draft_max if num_draft is None else num_draft
        model = None if mode is Mode.NGRAM else self.drafter(sampler)
        if mode.is_adaptive:
            suffix = self._suffix if mode is not Mode.MODEL else None
            return Auto(self._policy, self._costs, model, suffix, self.on_change)
        return (
            Fixed(model, num_draft, self._widths) if model and num_draft and mode is Mode.FIXED else Plain(self._widths)
        )

    def draft_from(self, texts: Iterable[Sequence[int]]) -> None:
        """Draft from these texts too, as far as the mode drafts from text already seen."""
        if self._mode in (Mode.AUTO, Mode.NGRAM):
            for text in texts:
                self._suffix.add_text([token for token in text if token < self._target.vocab.num_tokens])

    def start_cold(self) -> None:
        """Empty the caches, and forget texts and what was learned about drafts; costs stay known."""
        for context in self._contexts:
            context.truncate(0)
        self._learn_anew(self._costs.tables())

    def _learn_anew(self, costs: Mapping[int, Mapping[str, Any]]) -> None:
        """`costs`: what is known of them, in the form of `CostsByDepth.tables`."""
        self._costs = CostsByDepth(self.max_width - 1, costs, self._widths or None)
        self._policy = Adaptive(self._costs.at(0))
        self._suffix = SuffixDrafter(self.eog)

    def remember_costs(self, tables: Mapping[int, Mapping[str, Any]], draft: Path | None = None) -> None:
        """Start with these costs from now on: with the draft in use, or with `draft` if that is another one.

        `tables`: by depth of the context, what `WidthCosts` takes: `times`, and `draft_step` if there is a draft.
        """
        path = draft or (self.draft_header.path if self.draft_header else None)
        for file in filter(None, (self.target_header.path, path)):
            self._profiles.digest_of(file)
        known = {level_of(depth): dict(table) for depth, table in tables.items()}
        if draft is None:
            self._learn_anew(known)
            self._costs_key = self._key_of_costs()
        key = self._key_of_costs(draft)
        if key:
            self._profiles.save(key, known)

    def _key_of_costs(self, draft: Path | None = None) -> Fingerprint | None:
        """Under what the costs are remembered; None where a file would have to be read to know its hash."""
        path = draft or (self.draft_header.path if self.draft_header else None)
        digests = [self._profiles.known_digest(file) for file in (self.target_header.path, path) if file]
        if None in digests:
            return None
        return {**self._prover.fingerprint(self._arithmetic), "draft": str(digests[1:]), "what": "costs by depth"}

    def _remembered_costs(self, measured: Measurement | None) -> dict[int, dict[str, Any]]:
        found = self._profiles.load(self._costs_key) if self._costs_key else None
        if found:
            return {
                int(level): {**table, "times": {int(width): seconds for width, seconds in table["times"].items()}}
                for level, table in found.items()
            }
        return {level_of(0): {"times": measured.seconds}} if measured else {}

    def n_ctx_for(self, num_prompt: int, max_tokens: int | None) -> int:
        """The context that a text needs."""
        if self.settings.n_ctx:
            return self.settings.n_ctx
        if self.settings.usual_ctx:
            return min(self._target.n_ctx_train, self.settings.usual_ctx)
        wanted = num_prompt + (_ROOM if max_tokens is None else max_tokens)
        return min(self._target.n_ctx_train, max(_LEAST_CTX, wanted))

    def _open_contexts(self, n_ctx: int) -> None:
        """Contexts of `n_ctx` tokens instead of smaller ones, and then of twice theirs, so that it seldom happens."""
        if self._contexts:
            n_ctx = min(self._target.n_ctx_train, max(n_ctx, 2 * self._contexts[0].n_ctx))
        while self._contexts:
            self._contexts.pop().close()
        self._contexts.append(self._open_context(self._target, n_ctx, self.max_width, self._arithmetic))
        if self._draft:
            try:
                n_ctx = min(n_ctx, self._draft.n_ctx_train, self.settings.draft_n_ctx or n_ctx)
                context = self._open_context(self._draft, n_ctx, 1, self._arithmetics[0])
            except ContextError as error:
                self._drop_draft(error.message)
            else:
                self._contexts.append(context)

    def _open_context(self, model: Model, n_ctx: int, max_rows: int, arithmetic: Arithmetic) -> LlamaContext:
        settings = ContextSettings(
            n_ctx=n_ctx,
            n_threads=self.num_threads,
            cache_type_k=arithmetic.cache_type_k,
            cache_type_v=arithmetic.cache_type_v,
            max_rows=max_rows,
        )
        return self._resources.enter_context(LlamaContext(model, settings))

    def describe(self) -> list[str]:
        """The settings in effect, a line each."""
        lines = [f"llama.cpp {library.version()}, GPU {'available' if library.gpu_available() else 'not available'}"]
        if self.parity:
            lines.append(f"tokenizers {self.parity.verdict}: {'; '.join(self.parity.reasons) or 'no difference'}")
        if self.exact_choice:
            lines.append(f"exact: {self.exact_choice}")
        if self.adaptive:
            lines.append(f"drafts: {self._policy.explain()}")
        lines += [f"{context.role} {context.settings}" for context in self._contexts]
        return lines

    def close(self) -> None:
        """Free the contexts, then the models; what batches cost is remembered."""
        if self._costs_key and self.adaptive and self._contexts:
            self._profiles.save(self._costs_key, self._costs.tables())
        self._resources.close()


def open_prover(target: Path, n_gpu_layers: int | None, n_threads: int | None, profiles: Profiles) -> Prover:
    """What knows, or finds out, the widths of equal bits of a target; it shows no progress."""
    layers = num_layers("--gpu-layers", n_gpu_layers)
    threads = n_threads or library.num_physical_cores()
    return Prover(Header.of_file(target, "target"), layers, threads, profiles, lambda *_: None)


def num_layers(option: str, wanted: int | None) -> int:
    """Layers to place on a GPU: as `wanted`, else all if there is one; raises UsageError if there is none."""
    if wanted is None:
        return ALL_LAYERS if library.gpu_available() else 0
    if wanted != 0 and not library.gpu_available():
        raise UsageError(
            f"{option}: this build of llama.cpp has no GPU to place layers on",
            "leave it out, or rebuild with CMAKE_ARGS for your GPU (README.md, Install)",
            (option.removeprefix("--"),),
        )
    return wanted


def _check_ctx(option: str, n_ctx: int | None, model: Model) -> None:
    if n_ctx and n_ctx > model.n_ctx_train:
        raise UsageError(
            f"{option} {n_ctx}: the {model.header.role} was trained with {model.n_ctx_train} tokens",
            "give at most that, or leave it out",
            (option.removeprefix("--"),),
        )


def _check_parity(target: Header, draft: Header | None) -> ParityReport | None:
    if draft is None:
        return None
    report = compare(target.tokenizer, draft.tokenizer)
    if report.verdict is Parity.INCOMPATIBLE:
        raise ParityError(
            f"{draft.path} cannot draft for {target.path}: {report.summary}",
            "choose a draft of the same model family, or --speculate off",
            ("target", "draft"),
        )
    return report
