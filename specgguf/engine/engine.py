"""Composition root: opens a target and its draft, and generates with them."""

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specgguf.drafters.forced import ForcedDrafter
from specgguf.engine.checks import check_ctx, check_parity, has_own_heads, num_layers
from specgguf.engine.contexts import Contexts
from specgguf.engine.generation import Generation
from specgguf.engine.heads import load_draft
from specgguf.engine.memory import CostStore, Memory, TunedCosts
from specgguf.engine.settings import MAX_PARALLEL, EngineSettings, Mode
from specgguf.errors import ContextError, ModelError, UsageError, about
from specgguf.exact.choice import ExactChoice, WidthSurvey, candidates
from specgguf.exact.profiles import Profiles
from specgguf.headers.heads import DraftKind
from specgguf.llama import library
from specgguf.llama.context import LlamaContext, check_cache_type
from specgguf.llama.model import Model
from specgguf.llama.templates import ChatTemplate, Message
from specgguf.models.header import ModelHeader
from specgguf.sampling.sampler import Sampler
from specgguf.speculative.context import Rollback, common_prefix
from specgguf.speculative.controller import Auto, Controller, Fixed, Plain, Switch
from specgguf.speculative.drafter import Drafter
from specgguf.speculative.loop import Round, begin, speculate
from specgguf.speculative.sequence import Chooser, TokenSequence
from specgguf.speculative.together import Together

if TYPE_CHECKING:  # llguidance is loaded for a grammar only
    from specgguf.llama.grammar import GrammarText

_LEAST_CTX = 4096
_ENOUGH = 24
"""Draft tokens by which a drafter is judged."""
_CHANCE = 0.05
"""A drafter of which no more than this share is right guesses no better than by chance."""
_ROOM = 2048
"""Tokens of context kept free after a long prompt when the length of the answer is not limited."""


class Engine:
    """A target, perhaps with a draft model, ready to generate. Close it at the end."""

    drafting = True
    """Whether there may be drafts at present: may be changed at any time, and holds from the next round on."""

    def __init__(
        self,
        target: Path,
        draft: Path | None,
        settings: EngineSettings,
        profiles: Profiles,
        on_progress: Callable[[str, int, int], object] = lambda *_: None,
        on_notice: Callable[[str], object] = lambda _: None,
    ) -> None:
        """Judge the files, compare tokenizers, then load the weights.

        In exact mode the batch widths are compared first, unless `profiles` remembers them; that takes minutes,
        and `on_progress` is told what is done. `on_notice` is told what the user should know, a line each, whenever it
        turns out. Raises ModelError for an unusable file, ParityError for a draft with another tokenizer, UsageError
        for GPU layers without a GPU, for a longer context than a model knows, or where there are no exact widths.
        """
        self.settings = settings
        self.on_change: Callable[[str], object] = lambda _: None
        """Is told in a line when a drafter is given up while generating, and when it is taken up again."""
        self.on_notice = on_notice
        self._arithmetics = candidates(settings.cache_type_k, settings.cache_type_v)
        with about("cache-type-k"):
            check_cache_type("--cache-type-k", self._arithmetics[0].cache_type_k)
        with about("cache-type-v"):
            check_cache_type("--cache-type-v", self._arithmetics[0].cache_type_v)
        self.num_gpu_layers = layers = num_layers("--gpu-layers", settings.n_gpu_layers)
        draft_layers = num_layers("--draft-gpu-layers", settings.draft_n_gpu_layers)
        with about("target"):
            target_header = ModelHeader.of_file(target, "target")
        with about("draft"):
            draft_header = ModelHeader.of_file(draft, "draft") if draft else None
        self._has_own_heads = settings.own_heads and settings.mode.uses_model and has_own_heads(target_header)
        if self._has_own_heads and draft == target:
            draft_header = None  # no need of a second copy
        if draft_header and draft_header.kind is DraftKind.MTP:
            self._has_own_heads = False  # what is given takes their place
        self.parity = check_parity(target_header, draft_header, on_notice)
        self.num_threads = settings.n_threads or library.num_physical_cores()
        survey = WidthSurvey(target_header, layers, self.num_threads, profiles, on_progress)
        self.exact_choice = self._choose(survey) if settings.exact else None
        """The widths and settings of exact mode."""
        self.widths = self.exact_choice.widths if self.exact_choice else ()
        """The only widths that batches may have; all if empty."""
        self._arithmetic = self.exact_choice.arithmetic if self.exact_choice else self._arithmetics[0]
        measured = survey.known(self._arithmetic)
        self.is_exact = settings.exact or (measured is not None and measured.agree(settings.draft_max + 1))
        """Whether drafting is known not to change a bit."""
        with ExitStack() as resources:
            target_model = Model(target_header, layers, self._arithmetic.repack, with_mtp=self._has_own_heads)
            self.target = resources.enter_context(closing(target_model))
            check_ctx("--ctx", settings.n_ctx, self.target)
            self.draft: Model | None = None
            """None also where the draft could not be used: `on_notice` was told why."""
            if draft_header:
                self.draft = resources.enter_context(closing(load_draft(draft_header, draft_layers)))
                check_ctx("--draft-ctx", settings.draft_n_ctx, self.draft)
            self._models = resources.pop_all()
        usual = self._arithmetics[0]
        self.contexts = Contexts(
            self.target,
            self._has_own_heads,
            settings,
            self.num_threads,
            usual,
            self.exact_choice,
            self.max_width,
        )
        self._told: set[str] = set()  # modes said to have no drafter, drafters said to be hardly ever right
        self.costs = CostStore(survey, self._arithmetic, profiles)
        vocab = self.target.vocab
        tables = self.costs.load(self.draft.header.path if self.draft else None, measured)
        self.memory = Memory(self.max_width - 1, self.widths, vocab.eog, vocab.num_tokens, tables)
        """What is remembered from text to text."""

    def _choose(self, survey: WidthSurvey) -> ExactChoice:
        """The widths and settings of exact mode; the user should know where they are no longer those of before."""
        before, choice = survey.kept(self._arithmetics), survey.choose(self._arithmetics)
        if before and before != choice.kept:
            self.on_notice(f"--exact: measured anew; from now on {choice.settings}: near-ties may now go another way")
        return choice

    @property
    def cache_types(self) -> tuple[str, str]:
        """Of the cells of keys and of values."""
        return self._arithmetic.cache_type_k, self._arithmetic.cache_type_v

    @property
    def mode(self) -> Mode:
        """How drafts are made where a text does not say otherwise."""
        context = self.contexts.target
        return Mode.OFF if context and context.rollback is Rollback.NONE else self.settings.mode

    @property
    def speculative(self) -> bool:
        """Whether there is a draft model in use."""
        return self.draft is not None and self.mode.uses_model

    @property
    def drafts_alone(self) -> bool:
        """Whether nothing but a head may draft, which does so for one text at a time."""
        kind = self.draft.header.kind if self.draft else DraftKind.MTP if self._has_own_heads else DraftKind.MODEL
        return self.mode.needs_model and kind is not DraftKind.MODEL

    @property
    def max_width(self) -> int:
        """The widest batch of the target that gives logits for all its tokens."""
        num_parallel = MAX_PARALLEL if self.settings.num_parallel is None else self.settings.num_parallel
        together = MAX_PARALLEL if num_parallel > 1 else 1
        return max(self.widths, default=max(self.settings.draft_max + 1, together))

    @functools.cached_property
    def template(self) -> ChatTemplate:
        """Of `settings`, or else the target's own; raises ModelError where there is none."""
        vocab, header = self.target.vocab, self.target.header
        if self.settings.chat_template is not None:
            return ChatTemplate(self.settings.chat_template, "the template of --chat-template", vocab)
        if header.chat_template is None:
            raise ModelError(
                f"{header.path} has no chat template",
                "give one with --chat-template FILE; specgguf run --raw does without",
            )
        return ChatTemplate(header.chat_template, f"the chat template of {header.path}", vocab)

    def tokenize_chat(self, messages: Sequence[Message]) -> list[int]:
        """Ids of a conversation in the chat template, ready for the next answer."""
        return self.target.vocab.tokenize(self.template.render(messages))

    def sampler(self, **given: Any) -> Sampler:  # noqa: ANN401
        """How to choose tokens: as given, the rest (what is None) as the model's file says, or else as usual.

        Raises UsageError for a logit bias of a token that the target does not have.
        """
        header, num_tokens = self.target.header, self.target.vocab.num_tokens
        if header.odd_sampling and not self._told & {"sampling"}:
            self._told.add("sampling")
            advice = ", ".join(header.odd_sampling)
            self.on_notice(f"{header.path.name} advises {advice}, which no option allows: that is ignored")
        for token, _ in given.get("logit_bias") or ():
            if token >= num_tokens:
                raise UsageError(
                    f"--logit-bias {token}: the target has no such token", f"its ids are 0 to {num_tokens - 1}"
                )
        return Sampler(**{**header.sampling, **{k: v for k, v in given.items() if v is not None}})

    def n_ctx_for(self, num_prompt: int, max_tokens: int | None) -> int:
        """The context that a text needs."""
        if self.settings.n_ctx:
            return self.settings.n_ctx
        if self.settings.usual_ctx:
            return min(self.target.n_ctx_train, self.settings.usual_ctx)
        wanted = num_prompt + (_ROOM if max_tokens is None else max_tokens)
        return min(self.target.n_ctx_train, max(_LEAST_CTX, wanted))

    def open(self, n_ctx: int, n_seq: int = 1) -> LlamaContext:
        """The target's context, for at least `n_ctx` tokens of `n_seq` sequences; the drafters' are opened with it.

        Where a context is too small, a new one has at least twice its size, so that it seldom happens. A draft for
        which there is no memory is dropped. Raises ContextError where there is none for the target.
        """
        held = self.contexts.target
        if held and held.n_ctx >= n_ctx and held.settings.n_seq == n_seq:
            return held
        if held and n_seq == 1:
            n_ctx = min(self.target.n_ctx_train, max(n_ctx, 2 * held.n_ctx))
        num_shared = self.parity.num_shared if self.parity else 0
        return self.contexts.open(n_ctx, self.draft, num_shared, self._drop_draft, n_seq)

    def generate(
        self,
        prompt: Sequence[int],
        sampler: Sampler,
        max_tokens: int | None = None,
        stops: Sequence[str] = (),
        num_draft: int | None = None,
        mode: Mode | None = None,
        chooser: Chooser | None = None,
        grammar: "GrammarText | None" = None,
    ) -> Generation:
        """Continue `prompt`; the work is done while the result is iterated.

        `mode` and `num_draft` are for this text instead of those of the settings; `num_draft` alone is a fixed draft
        length, 0 plain decoding. `chooser` stands around `sampler` for the target's choices. `grammar` is what the
        answer must be of. Raises UsageError for an empty prompt, ContextError for a prompt longer than the context.
        """
        sequence = self.sequence(prompt, sampler, max_tokens, grammar)
        sequence.chooser = chooser
        context = self.open(self.n_ctx_for(len(prompt), max_tokens))
        mode = mode or (Mode.FIXED if num_draft is not None else self.mode)
        controller = self.controller(mode if context.rollback is not Rollback.NONE else Mode.OFF, num_draft)
        cached = common_prefix(context.tokens[0], prompt[:-1])

        def rounds() -> Iterator[Round]:
            begin(context, controller, sequence)
            return speculate(context, controller, [sequence], self.target.vocab.eog)

        return Generation(sequence, cached, self.target.vocab, stops, lambda: self.contexts.seconds, rounds)

    def sequence(
        self, prompt: Sequence[int], sampler: Sampler, max_tokens: int | None, grammar: "GrammarText | None"
    ) -> TokenSequence:
        """A text that begins with `prompt`. Errors as in `generate`."""
        if not prompt:
            raise UsageError("the prompt has no tokens", "give some text")
        n_ctx = self.n_ctx_for(len(prompt), max_tokens)
        if len(prompt) > n_ctx:
            most = self.target.n_ctx_train
            larger = f" or give a larger --ctx: the model knows {most}" if n_ctx < most else ": the model knows no more"
            raise ContextError(f"the prompt has {len(prompt)} tokens, the context {n_ctx}", f"shorten it{larger}")
        if grammar:
            sampler = replace(sampler, grammar=grammar.begin(self.target.vocab, len(prompt)))
        # As many as if this were the first text, whatever earlier ones have made of the context.
        end = n_ctx + 1 if max_tokens is None else min(len(prompt) + max_tokens, n_ctx + 1)
        return TokenSequence(list(prompt), sampler, end)

    def drafters(self, mode: Mode = Mode.AUTO) -> list[Drafter]:
        """Who drafts in this mode, as far as contexts are open."""
        drafters: list[Drafter] = [ForcedDrafter(), self.memory.ngram, *self.contexts.drafters]
        if mode is Mode.FIXED:
            return [drafter for drafter in drafters if not drafter.is_free]
        return [drafter for drafter in drafters if mode is Mode.AUTO or drafter.name == mode]

    def draft_from(self, texts: Iterable[Sequence[int]]) -> None:
        """Draft from these texts too, as far as the mode drafts from text already seen."""
        if self.mode in (Mode.AUTO, Mode.NGRAM):
            self.memory.add_texts(texts)

    def learn_costs(self, found: TunedCosts) -> None:
        """Start with these costs from now on, and forget what was learned about drafts."""
        draft = self.draft.header.path if self.draft else None
        self.costs.hash_files(draft)
        self.costs.save_tuned(draft, found)
        self.memory.learn_anew(found.tables)

    def describe(self) -> list[str]:
        """The settings in effect, a line each."""
        lines = [f"llama.cpp {library.version()}, GPU {'available' if library.gpu_available() else 'not available'}"]
        if self.parity:
            lines.append(f"tokenizers {self.parity.verdict}: {'; '.join(self.parity.reasons) or 'no difference'}")
        if self.exact_choice:
            lines.append(f"exact: {self.exact_choice}")
        lines += [f"drafts: {line}" for line in self.memory.policy.explain()]
        lines += [f"{context.role} {context.settings}, rollback: {context.rollback}" for context in self.contexts.all]
        return lines

    def close(self) -> None:
        """Free the contexts, then the models; what batches cost is remembered. Closing again does nothing."""
        if self.mode.is_adaptive and self.contexts.all:
            self.costs.save(self.draft.header.path if self.draft else None, self.memory.policy.tables())
        self.contexts.close()
        self._models.close()

    def controller(self, mode: Mode, num_draft: int | None = None) -> Controller:
        """Who decides how much is drafted, for the contexts that are open."""
        drafters = self.drafters(mode)
        num_draft = self.settings.draft_max if num_draft is None else num_draft
        if mode.needs_model and num_draft and not drafters and mode not in self._told:
            self._told.add(mode)
            self.on_notice(f"--speculate {mode}: there is no such draft here, so nothing is drafted")
        controller: Controller = Plain(self.widths)
        if mode.is_adaptive and self.contexts.target and self.contexts.target.settings.n_seq > 1:
            controller = Together(self.memory.policy, drafters, num_draft)
        elif mode.is_adaptive:
            controller = Auto(self.memory.policy, drafters, num_draft, self._changed)
        elif mode is Mode.FIXED and drafters and num_draft:
            controller = Fixed(drafters[0], num_draft, self.widths)
        return Switch(controller, lambda: self.drafting)

    def _changed(self, line: str) -> None:
        """A drafter was given up or taken up again. One that is hardly ever right may be made for another model."""
        self.on_change(line)
        for drafter in self.contexts.drafters:
            rule, draft = self.memory.policy.rule(drafter), self.draft or self.target
            if (
                drafter.name not in self._told
                and rule.num_judged >= _ENOUGH
                and rule.num_right <= _CHANCE * rule.num_judged
            ):
                self._told.add(drafter.name)
                self.on_notice(
                    f"{draft.header.name} guessed {rule.num_right} of {rule.num_judged} tokens right: "
                    f"is it made for {self.target.header.name}?"
                )

    def _drop_draft(self, reason: str) -> None:
        if self.draft:
            self.on_notice(f"no draft model: {reason}")
            self.draft.close()
        self.draft = None


def open_survey(target: Path, n_gpu_layers: int | None, n_threads: int | None, profiles: Profiles) -> WidthSurvey:
    """What knows, or finds out, the widths of equal bits of a target; it shows no progress."""
    layers = num_layers("--gpu-layers", n_gpu_layers)
    threads = n_threads or library.num_physical_cores()
    return WidthSurvey(ModelHeader.of_file(target, "target"), layers, threads, profiles, lambda *_: None)
