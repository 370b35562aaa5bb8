"""`specgguf run`: one answer."""

import sys
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specgguf.cli.answer import AnswerWriter, stream
from specgguf.cli.habits import PAIR_HINT
from specgguf.cli.lines import answer_lines
from specgguf.cli.ngram_store import AnswerStore
from specgguf.cli.opening import engine_settings, log_engine, open_engine, open_store
from specgguf.cli.options.constraints import Constraints
from specgguf.cli.options.drafting import Drafting
from specgguf.cli.options.groups import grouped
from specgguf.cli.options.limits import Limits
from specgguf.cli.options.models import Models, Offline
from specgguf.cli.options.output import OutputForm
from specgguf.cli.options.prompt import PromptShape
from specgguf.cli.options.resources import Resources
from specgguf.cli.options.sampling import GreedySampling
from specgguf.cli.options.texts import is_utf8
from specgguf.cli.report import report
from specgguf.cli.stdin import PipedLines, read_piped, without_line_end
from specgguf.cli.terminal import output
from specgguf.errors import UsageError, about

if TYPE_CHECKING:
    from specgguf.conversation.answer import Answer
    from specgguf.engine.engine import Engine
    from specgguf.llama.grammar import GrammarText
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


@grouped
def run(
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

    from specgguf.llama.library import log_to

    stops, biases, grammar = limits.stops, constraints.parse_biases(), constraints.read_grammar()
    settings = engine_settings(drafting, resources, chat_template=shape.read_template())
    if form.verbose:
        log_to(output.log)
    answers = AnswerStore(drafting.ngram_store)
    store = open_store(offline)
    with closing(open_engine(store, models, settings)) as engine:
        answers.draft_from_all(engine)
        with about("logit-bias"):
            sampler = engine.sampler(**sampling.given(), logit_bias=biases)
        prompter = _Prompter(engine, shape, sampler, sampling.seed, limits.max_tokens, stops, grammar)
        answer = None if piped else prompter.ask(text)
        load_s = time.perf_counter() - begin
        exact = [f"exact: {engine.exact_choice}"] if engine.exact_choice else []
        if form.verbose:
            log_engine(engine)

        def answer_line(line: str) -> dict[str, Any]:
            answer = prompter.ask(_joined(text, line))
            for _ in answer:
                pass
            if form.stats:
                output.stats(answer.generation, *exact)
            answers.add(engine, answer.generation)
            return report(engine, store, answer, drafting.speculate, load_s)

        if piped:
            answer_lines(piped, batch.skip, answer_line, show_progress=not form.stats)
        if not answer:
            return
        code = _show(answer, form)
        if grammar and answer.generation.finish_reason == "length":
            output.note("the answer was cut off before it was complete: give a larger --max-tokens")
        if form.json or form.jsonl:
            output.write_json(report(engine, store, answer, drafting.speculate, load_s))
        if form.shows_stats:
            output.stats(answer.generation, *exact)
        answers.add(engine, answer.generation)
    raise typer.Exit(code)


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
        """What answers a text, while it is iterated. Thought is taken out only if it is to be hidden."""
        import secrets

        from specgguf.conversation.answer import Answer
        from specgguf.text.thought import opens_thought

        think = not self.shape.no_think
        if not self.shape.raw:
            system = [] if self.shape.system is None else [{"role": "system", "content": self.shape.system}]
            text = self.engine.template.render([*system, {"role": "user", "content": text}], think)
        drawn = 0 if self.sampler.temperature == 0.0 else secrets.randbelow(2**32)
        sampler = replace(self.sampler, seed=drawn if self.seed is None else self.seed)
        tokens = self.engine.target.vocab.tokenize(text)
        generation = self.engine.generate(tokens, sampler, self.max_tokens, self.stops, grammar=self.grammar)
        hides_thought = not think and self.grammar is None  # what a grammar allows is no thought
        return Answer(generation, opens_thought(text) if hides_thought else None)


def _check_batch(batch: Batch, form: OutputForm) -> None:
    if form.jsonl and batch.lines:
        raise UsageError("--jsonl and --lines exclude each other", "--lines writes an object a line by itself")
    if batch.skip and not batch.lines:
        raise UsageError("--skip is for --lines", "give both, or neither")


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
