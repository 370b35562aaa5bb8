"""`specgguf run`: one answer."""

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specgguf.cli.answer import AnswerWriter, note_end, stream
from specgguf.cli.habits import PAIR_HINT
from specgguf.cli.journal import Journalist
from specgguf.cli.lines import answer_lines
from specgguf.cli.ngram_store import AnswerStore
from specgguf.cli.opening import engine_settings, log_engine, open_engine, open_store
from specgguf.cli.options.constraints import Constraints
from specgguf.cli.options.drafting import Drafting
from specgguf.cli.options.groups import grouped
from specgguf.cli.options.journal import Journaling
from specgguf.cli.options.limits import Limits
from specgguf.cli.options.models import Models, Offline
from specgguf.cli.options.output import OutputForm
from specgguf.cli.options.prompt import PromptShape
from specgguf.cli.options.resources import Resources
from specgguf.cli.options.sampling import GreedySampling
from specgguf.cli.options.texts import is_utf8
from specgguf.cli.options.values import num_texts
from specgguf.cli.report import report
from specgguf.cli.stdin import PipedLines, read_piped, without_line_end
from specgguf.cli.terminal import output
from specgguf.errors import UsageError, about

if TYPE_CHECKING:
    from specgguf.conversation.answer import Answer
    from specgguf.engine.engine import Engine
    from specgguf.engine.generation import Generation
    from specgguf.engine.pool import Pool
    from specgguf.llama.grammar import GrammarText
    from specgguf.models.hub.store import Store
    from specgguf.sampling.sampler import Sampler


@dataclass(frozen=True)
class Batch:
    """The options for many prompts."""

    lines: Annotated[
        bool,
        typer.Option(
            "--lines", help="Each line of stdin is a prompt of its own, after PROMPT; writes a JSON object a line."
        ),
    ] = False
    skip: Annotated[
        int,
        typer.Option(
            "--skip", min=0, max=sys.maxsize, metavar="N", show_default=False, help="With --lines: begin after line N."
        ),
    ] = 0
    parallel: Annotated[
        int | None,
        typer.Option(
            "--parallel",
            parser=num_texts,
            metavar="N|auto",
            help="With --lines: answer up to N lines in one batch; default: auto, as many as pay.",
        ),
    ] = None
    unordered: Annotated[
        bool,
        typer.Option("--unordered", help="With --lines: write answers as they end, not in the order of the lines."),
    ] = False

    @property
    def num_parallel(self) -> int | None:
        """As in `EngineSettings`."""
        return (self.parallel or None) if self.lines else 1


@grouped
def run(
    context: typer.Context,
    prompt: Annotated[
        str,
        typer.Argument(metavar="PROMPT", help="The prompt. Text piped in follows it after a blank line."),
    ] = "",
    *,
    models: Models,
    drafting: Drafting,
    sampling: GreedySampling,
    constraints: Constraints,
    limits: Limits,
    shape: PromptShape,
    resources: Resources,
    batch: Batch,
    form: OutputForm,
    journaling: Journaling,
    offline: Offline = False,
) -> None:
    """Answer one prompt, or one a line, greedily unless --temp says otherwise."""
    shape.check()
    form.check()
    _check_batch(batch, form)
    piped = PipedLines() if batch.lines else None
    text = prompt if piped else _with_stdin(prompt, shape.raw, models)
    if not is_utf8(text):
        raise UsageError("PROMPT is not UTF-8 text", "check the encoding of your terminal")
    begin = time.perf_counter()
    journalist = Journalist(journaling, "run", context.obj.guard)
    drafting = context.obj.drafting(context, drafting, journalist.route)

    from specgguf.llama.library import log_to

    stops, biases, grammar = limits.stops, constraints.parse_biases(), constraints.read_grammar()
    settings = engine_settings(drafting, resources, chat_template=shape.read_template())
    settings = replace(settings, num_parallel=batch.num_parallel)
    if form.verbose:
        log_to(output.log)
    answers = AnswerStore(drafting.ngram_store)
    store = open_store(offline)
    with closing(journalist), closing(open_engine(store, models, settings, journalist.may_draft)) as engine:
        journalist.begin(engine)
        answers.draft_from_all(engine)
        with about("logit-bias"):
            sampler = engine.sampler(**sampling.given(), logit_bias=biases)
        prompter = _Prompter(engine, shape, sampler, sampling.seed, limits.max_tokens, stops, grammar)
        answer = None if piped else prompter.ask(text)
        ending = _Ending(engine, store, form, answers, journalist, time.perf_counter() - begin)
        if form.verbose:
            log_engine(engine)
        if piped:
            from specgguf.engine.pool import Pool

            pool = Pool(engine)
            answering = _LineAnswering(prompter, text, lambda answer: ending.of_line(answer, pool.num_active + 1))
            answer_lines(piped, batch.skip, answering, pool, batch.unordered, show_progress=not form.stats)
            if form.verbose:
                output.log(f"lines: {pool.describe()}\n")
        if not answer:
            return
        code = ending.of_one(answer, prompter)
    raise typer.Exit(code)


@dataclass(frozen=True, slots=True)
class _Ending:
    """What is shown and kept of an answer that ends."""

    engine: "Engine"
    store: "Store"
    form: OutputForm
    answers: AnswerStore
    journalist: Journalist
    load_s: float

    def of_one(self, answer: "Answer", prompter: "_Prompter") -> int:
        """Write an answer as it comes, and what follows it; the exit code."""
        generation = answer.generation
        try:
            code = _show(answer, self.form)
            is_full = generation.has_filled(self.engine.n_ctx_for(generation.prompt_tokens, prompter.max_tokens))
            note_end(answer, is_full, prompter.grammar is not None, hides_thought=prompter.shape.no_think)
            if self.form.json or self.form.jsonl:
                output.write_json(report(self.engine, self.store, answer, self.load_s))
            if self.form.shows_stats:
                self._write_stats(answer)
            self.answers.add(self.engine, generation)
        finally:  # also when nobody reads it any longer
            self.journalist.add(self.engine, generation)
        return code

    def of_line(self, answer: "Answer", num_texts: int) -> dict[str, Any]:
        """The object of an answer that is complete; so many were under way at once."""
        if self.form.stats:
            self._write_stats(answer)
        self.answers.add(self.engine, answer.generation)
        found = report(self.engine, self.store, answer, self.load_s)
        self.journalist.add(self.engine, answer.generation, num_texts)
        return found

    def _write_stats(self, answer: "Answer") -> None:
        exact = self.engine.exact_choice
        output.stats(answer.generation, *([f"exact: {exact}"] if exact else []))


@dataclass(frozen=True, slots=True)
class _Prompter:
    """How every prompt is answered."""

    engine: "Engine"
    shape: PromptShape
    sampler: "Sampler"
    seed: int | None
    max_tokens: int | None
    stops: Sequence[str]
    grammar: "GrammarText | None"

    def ask(self, text: str) -> "Answer":
        """What answers a text, while it is iterated."""
        return self.prepare(text).answer()

    def prepare(self, text: str) -> "_Prompt":
        """The prompt that asks for an answer to a text. Thought is taken out only if it is to be hidden."""
        import secrets

        think = not self.shape.no_think
        if not self.shape.raw:
            system = [] if self.shape.system is None else [{"role": "system", "content": self.shape.system}]
            text = self.engine.template.render([*system, {"role": "user", "content": text}], think)
        drawn = 0 if self.sampler.temperature == 0.0 else secrets.randbelow(2**32)
        sampler = replace(self.sampler, seed=drawn if self.seed is None else self.seed)
        hides_thought = not think and self.grammar is None  # what a grammar allows is no thought
        tokens = self.engine.target.vocab.tokenize(text)
        return _Prompt(self, tokens, sampler, text if hides_thought else None)


@dataclass(frozen=True, slots=True)
class _Prompt:
    """`text`: as in `Answer`."""

    prompter: _Prompter
    tokens: Sequence[int]
    sampler: "Sampler"
    text: str | None

    @property
    def num_tokens(self) -> int:
        """Of the prompt."""
        return len(self.tokens)

    @property
    def max_tokens(self) -> int | None:
        """Of the answer."""
        return self.prompter.max_tokens

    def answer(self) -> "Answer":
        """By itself."""
        return self._answer(self.prompter.engine.generate)

    def begin(self, pool: "Pool") -> "Answer":
        """Beside others."""
        return self._answer(pool.add)

    def _answer(self, generate: "Callable[..., Generation]") -> "Answer":
        from specgguf.conversation.answer import Answer

        asked = self.prompter
        generation = generate(self.tokens, self.sampler, asked.max_tokens, asked.stops, grammar=asked.grammar)
        return Answer(generation, self.text)


@dataclass(frozen=True, slots=True)
class _LineAnswering:
    """Lines follow `before`."""

    prompter: _Prompter
    before: str
    finish: "Callable[[Answer], dict[str, Any]]"

    def prepare(self, line: str) -> _Prompt:
        """As in `Answering`."""
        return self.prompter.prepare(_joined(self.before, line))


def _check_batch(batch: Batch, form: OutputForm) -> None:
    if form.jsonl and batch.lines:
        raise UsageError("--jsonl and --lines exclude each other", "--lines writes an object a line by itself")
    given = {"skip": batch.skip, "parallel": batch.parallel is not None, "unordered": batch.unordered}
    for name in (name for name, is_given in given.items() if is_given and not batch.lines):
        raise UsageError(f"--{name} is for --lines", "give both, or neither", (name,))


def _joined(*parts: str) -> str:
    """The parts that are not empty, with a blank line between."""
    return "\n\n".join(part for part in parts if part)


def _with_stdin(prompt: str, raw: bool, models: Models) -> str:
    """The argument, then what is piped in."""
    piped = read_piped(wait=not prompt)
    if not raw:
        piped = without_line_end(piped)
    text = _joined(prompt, piped)
    if prompt and piped:
        num_lines = len(piped.splitlines())
        output.note(f"{num_lines} {'line of stdin was' if num_lines == 1 else 'lines of stdin were'} added to PROMPT")
    if not text.strip():
        usual = 'give one as argument or on stdin: specgguf run "Why is the sky blue?"'
        raise UsageError("no prompt", PAIR_HINT if models.pair and " " in models.pair else usual)
    return text


def _show(answer: "Answer", form: OutputForm) -> int:
    """Write the answer as it comes, unless its form is one object at the end; the exit code."""
    if form.json:
        return stream(answer, lambda *_: None)
    if form.jsonl:
        return stream(answer, lambda said, _: output.write_piece(said.answer))
    with closing(AnswerWriter(form.show_draft, end_line=output.answers_on_terminal())) as writer:
        return stream(answer, writer.write)
