"""`specgguf run`: one answer."""

import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specgguf.cli import options
from specgguf.cli.answer import AnswerWriter
from specgguf.cli.lines import answer_lines
from specgguf.cli.ngramstore import Memory
from specgguf.cli.opening import Models, explain, open_engine, open_store
from specgguf.cli.report import report
from specgguf.cli.sampling import check_texts, parse_biases, read_file, read_grammar
from specgguf.cli.stdin import PipedLines, read_piped
from specgguf.cli.terminal import output
from specgguf.engine.settings import EngineSettings, Mode
from specgguf.errors import INTERRUPTED, TERMINATED, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from specgguf.engine.engine import Engine, Generation
    from specgguf.llama.grammar import GrammarText
    from specgguf.speculative.sampling import Sampler
    from specgguf.text.thought import Said


def run(
    prompt: Annotated[
        str,
        typer.Argument(metavar="PROMPT", help="The prompt. Text piped in follows it after a blank line."),
    ] = "",
    pair: options.Pair = None,
    target: options.Target = None,
    draft: options.Draft = None,
    quant: options.Quant = None,
    draft_quant: options.DraftQuant = None,
    draft_max: options.DraftMax = None,
    speculate: options.SpeculateMode = Mode.AUTO,
    ngram_store: options.NgramStore = None,
    exact: options.Exact = False,
    max_tokens: options.MaxTokens = None,
    temperature: options.Temperature = 0.0,
    top_k: options.TopK = None,
    top_p: options.TopP = None,
    min_p: options.MinP = None,
    typical_p: options.TypicalP = None,
    repeat_penalty: options.RepeatPenalty = None,
    presence_penalty: options.PresencePenalty = None,
    frequency_penalty: options.FrequencyPenalty = None,
    logit_bias: options.LogitBias = None,
    seed: options.Seed = None,
    grammar: options.Grammar = None,
    json_schema: options.JsonSchema = None,
    stop: options.Stop = None,
    system: options.System = None,
    chat_template: options.ChatTemplate = None,
    no_think: options.NoThink = False,
    raw: options.Raw = False,
    gpu_layers: options.GpuLayers = None,
    draft_gpu_layers: options.DraftGpuLayers = None,
    threads: options.Threads = None,
    ctx: options.Ctx = None,
    draft_ctx: options.DraftCtx = None,
    cache_type_k: options.CacheTypeK = None,
    cache_type_v: options.CacheTypeV = None,
    offline: options.Offline = False,
    lines: options.Lines = False,
    skip: options.Skip = 0,
    json: options.Json = False,
    jsonl: options.JsonLines = False,
    show_draft: options.ShowDraft = False,
    stats: options.Stats = None,
    verbose: options.Verbose = False,
) -> None:
    """Answer one prompt, or one a line, greedily unless --temp says otherwise."""
    _check_shape(raw, system, chat_template, json, jsonl, lines, skip)
    stops = check_texts("--stop", stop or [])
    check_texts("--system", [] if system is None else [system])
    piped = PipedLines() if lines else None
    text = prompt if lines else _prompt(prompt, raw)
    check_texts("PROMPT", [text] if text else [])
    begin = time.perf_counter()

    from specgguf.llama.library import log_to

    biases, constraint = parse_biases(logit_bias or []), read_grammar(grammar, json_schema)
    settings = EngineSettings(
        n_gpu_layers=gpu_layers,
        draft_n_gpu_layers=draft_gpu_layers,
        n_threads=threads,
        n_ctx=ctx,
        draft_n_ctx=draft_ctx,
        cache_type_k=cache_type_k,
        cache_type_v=cache_type_v,
        chat_template=read_file("--chat-template", chat_template) if chat_template else None,
        mode=speculate,
        num_draft=draft_max,
        exact=exact,
    )
    if verbose:
        log_to(output.log)
    memory = Memory(ngram_store)
    store = open_store(offline)
    models = Models(pair, target, draft, quant, draft_quant)
    with open_engine(store, models, settings) as engine:
        memory.recall(engine)
        sampler = engine.sampler(
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            min_p=min_p,
            typical_p=typical_p,
            repeat_penalty=repeat_penalty,
            presence_penalty=presence_penalty,
            frequency_penalty=frequency_penalty,
            logit_bias=biases,
        )
        prompter = _Prompter(engine, system, raw, not no_think, sampler, seed, max_tokens, stops, constraint)

        def answer(line: str) -> dict[str, Any]:
            generation, inside = prompter.ask(_joined(text, line))
            for _ in generation:
                pass
            _tell(engine)
            if stats:
                output.stats(generation, *exactly)
            memory.keep(engine, generation)
            return _without_thought(report(engine, store, generation, speculate, load_s), inside)

        asked = None if piped else prompter.ask(text)
        load_s = time.perf_counter() - begin
        exactly = [f"exact: {engine.exact_choice}"] if engine.exact_choice else []
        _tell(engine)
        if verbose:
            explain(engine)
        if piped:
            answer_lines(piped, skip, answer, show_progress=not stats)
        if not asked:
            return
        generation, inside = asked
        code = _write(generation, inside, json, jsonl, show_draft)
        if constraint and generation.finish_reason == "length":
            output.note("the answer was cut off before it was complete: give a larger --max-tokens")
        if json or jsonl:
            output.write_json(_without_thought(report(engine, store, generation, speculate, load_s), inside))
        if output.on_terminal() if stats is None else stats:
            output.stats(generation, *exactly)
        memory.keep(engine, generation)
    raise typer.Exit(code)


@dataclass(frozen=True, slots=True)
class _Prompter:
    """How every prompt is answered."""

    engine: "Engine"
    system: str | None
    raw: bool
    think: bool
    sampler: "Sampler"
    seed: int | None
    max_tokens: int | None
    stops: Sequence[str]
    grammar: "GrammarText | None"

    def ask(self, text: str) -> "tuple[Generation, bool | None]":
        """What answers a text; and where thought is to be hidden, whether the answer begins inside one."""
        from specgguf.text.thought import opens_thought

        if not self.raw:
            system = [] if self.system is None else [{"role": "system", "content": self.system}]
            text = self.engine.render_chat([*system, {"role": "user", "content": text}], self.think)
        drawn = 0 if self.sampler.temperature == 0.0 else secrets.randbelow(2**32)
        sampler = replace(self.sampler, seed=drawn if self.seed is None else self.seed)
        tokens = self.engine.tokenize(text)
        generation = self.engine.generate(tokens, sampler, self.max_tokens, self.stops, grammar=self.grammar)
        hide = not self.think and self.grammar is None  # what a grammar allows is no thought
        return generation, opens_thought(text) if hide else None


def _check_shape(
    raw: bool, system: str | None, chat_template: Path | None, json: bool, jsonl: bool, lines: bool, skip: int
) -> None:
    if raw and system is not None:
        raise UsageError("--raw and --system exclude each other", "a system message needs the chat template")
    if raw and chat_template is not None:
        raise UsageError("--raw and --chat-template exclude each other", "give one of them")
    if jsonl and json:
        raise UsageError("--jsonl and --json exclude each other", "the last object of --jsonl is that of --json")
    if jsonl and lines:
        raise UsageError("--jsonl and --lines exclude each other", "--lines writes an object a line by itself")
    if skip and not lines:
        raise UsageError("--skip is for --lines", "give both, or neither")


def _tell(engine: "Engine") -> None:
    """What the user should know and has not been told yet."""
    while engine.notices:
        output.note(engine.notices.pop(0))


def _joined(*parts: str) -> str:
    """The parts that say something, with a blank line between."""
    return "\n\n".join(part for part in parts if part)


def _prompt(prompt: str, raw: bool) -> str:
    """The argument, then what is piped in."""
    piped = read_piped(wait=not prompt)
    text = _joined(prompt, piped if raw else piped.rstrip("\n"))
    if not text.strip():
        raise UsageError("no prompt", 'give one as argument or on stdin: specgguf run "Why is the sky blue?"')
    return text


def _write(generation: "Generation", inside: bool | None, json: bool, jsonl: bool, show_draft: bool) -> int:
    """Write the answer as it comes, as far as it is written before its end; the exit code."""
    if json:
        return _stream(generation, inside, lambda *_: None)
    if jsonl:
        return _stream(generation, inside, lambda said, _: output.write_piece(said.answer))
    writer = AnswerWriter(show_draft)
    code = _stream(generation, inside, writer.write)
    writer.end(newline=output.answers_on_terminal())
    return code


def _without_thought(found: dict[str, Any], inside: bool | None) -> dict[str, Any]:
    """The object of --json, its text as `_stream` shows it."""
    from specgguf.text.thought import split

    return found if inside is None else {**found, "text": split(found["text"], inside).answer}


def _stream(generation: "Generation", inside: bool | None, show: "Callable[[Said, str], object]") -> int:
    """Show the answer as it comes, after Ctrl-C or SIGTERM what is there of it; the exit code.

    Without its thought, unless `inside` is None; it says whether the answer begins inside one.
    """
    from specgguf.text.thought import Said, ThoughtStream

    thoughts, code = ThoughtStream(inside), 0

    def answer(text: str) -> Said:
        return Said("", thoughts.feed(text).answer)

    try:
        for text, source in generation.pieces():
            show(answer(text), source)
    except (KeyboardInterrupt, SystemExit) as signal:
        show(answer(generation.flush()), "")
        code = TERMINATED if isinstance(signal, SystemExit) else INTERRUPTED
    show(Said("", thoughts.flush().answer), "")
    return code
