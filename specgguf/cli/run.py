"""`specgguf run`: one answer."""

import secrets
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specgguf.cli import options, output
from specgguf.cli.lines import answer_lines
from specgguf.cli.opening import Models, open_engine, open_store
from specgguf.cli.report import report
from specgguf.cli.sampling import parse_biases, read_grammar
from specgguf.cli.stdin import PipedLines, read_piped
from specgguf.errors import INTERRUPTED, TERMINATED, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from specgguf.engine import Engine, Generation
    from specgguf.ngramstore import NgramStore


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
    speculate: options.SpeculateMode = options.Speculate.AUTO,
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
    raw: options.Raw = False,
    gpu_layers: options.GpuLayers = None,
    draft_gpu_layers: options.DraftGpuLayers = None,
    threads: options.Threads = None,
    ctx: options.Ctx = None,
    cache_type_k: options.CacheTypeK = None,
    cache_type_v: options.CacheTypeV = None,
    offline: options.Offline = False,
    lines: options.Lines = False,
    skip: options.Skip = 0,
    json: options.Json = False,
    jsonl: options.JsonLines = False,
    stats: options.Stats = None,
    verbose: options.Verbose = False,
) -> None:
    """Answer one prompt, or one a line, greedily unless --temp says otherwise."""
    _check_shape(raw and system is not None, json, jsonl, lines, skip)
    stops = _texts("--stop", stop or [])
    messages = [
        {"role": "system", "content": content} for content in _texts("--system", [] if system is None else [system])
    ]
    piped = PipedLines() if lines else None
    text = prompt if lines else _prompt(prompt, raw)
    _texts("PROMPT", [text] if text else [])
    begin = time.perf_counter()

    from specgguf.engine import EngineSettings
    from specgguf.llama.library import log_to
    from specgguf.ngramstore import NgramStore

    biases, constraint = parse_biases(logit_bias or []), read_grammar(grammar, json_schema)
    settings = EngineSettings(
        n_gpu_layers=gpu_layers,
        draft_n_gpu_layers=draft_gpu_layers,
        n_threads=threads,
        n_ctx=ctx,
        cache_type_k=cache_type_k,
        cache_type_v=cache_type_v,
        exact=exact,
    )
    if verbose:
        log_to(output.log)
    answers = NgramStore(ngram_store) if ngram_store else None
    store = open_store(offline)
    models = Models(pair, target, draft, quant, draft_quant)
    with open_engine(store, models, speculate, draft_max, settings) as engine:
        keep = _memory(engine, answers)
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

        def ask(text: str) -> "Generation":
            user = {"role": "user", "content": text}
            tokens = engine.tokenize(text) if raw else engine.tokenize_chat([*messages, user])
            drawn = 0 if temperature == 0.0 else secrets.randbelow(2**32)
            seeded = replace(sampler, seed=drawn if seed is None else seed)
            return engine.generate(tokens, seeded, max_tokens, stops, grammar=constraint)

        def answer(line: str) -> dict[str, Any]:
            generation = ask(_joined(text, line))
            for _ in generation:
                pass
            _tell(engine)
            if stats:
                output.stats(generation, exactly)
            return report(engine, store, keep(generation), speculate, load_s)

        generation = None if piped else ask(text)
        load_s = time.perf_counter() - begin
        exactly = str(engine.exact_choice) if engine.exact_choice else None
        _tell(engine)
        if verbose:
            output.log("".join(f"{line}\n" for line in engine.describe()))
        if piped:
            answer_lines(piped, skip, answer, show_progress=not stats)
        if not generation:
            return
        code = _stream(generation, output.write_piece if jsonl else _drop if json else output.write)
        if json or jsonl:
            output.write_json(report(engine, store, generation, speculate, load_s))
        else:
            output.end_answer(generation.text)
        if output.on_terminal() if stats is None else stats:
            output.stats(generation, exactly)
        keep(generation)
    raise typer.Exit(code)


def _check_shape(raw_with_system: bool, json: bool, jsonl: bool, lines: bool, skip: int) -> None:
    if raw_with_system:
        raise UsageError("--raw and --system exclude each other", "a system message needs the chat template")
    if jsonl and (json or lines):
        other = "--json" if json else "--lines"
        raise UsageError(f"--jsonl and {other} exclude each other", "the last object of --jsonl is that of --json")
    if skip and not lines:
        raise UsageError("--skip is for --lines", "give both, or neither")


def _tell(engine: "Engine") -> None:
    """What the user should know and has not been told yet."""
    while engine.notices:
        output.note(engine.notices.pop(0))


def _texts(option: str, texts: Sequence[str]) -> Sequence[str]:
    for text in texts:
        if not text:
            raise UsageError(f"{option} is empty", f"give {option} some text, or leave it out")
        try:
            text.encode()
        except UnicodeEncodeError:
            raise UsageError(f"{option} is not UTF-8 text", "check the encoding of your terminal") from None
    return texts


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


def _drop(_: str) -> None:
    """For an answer that is not shown as it comes."""


def _memory(engine: "Engine", answers: "NgramStore | None") -> "Callable[[Generation], Generation]":
    """Drafts from the answers that are stored; what is given each new one stores it, and drafts from it too."""
    if answers is None:
        return lambda generation: generation
    fingerprint = engine.target_header.tokenizer.fingerprint
    engine.draft_from(answers.texts(fingerprint))

    def keep(generation: "Generation") -> "Generation":
        answers.add(fingerprint, generation.tokens)
        engine.draft_from([generation.tokens])
        return generation

    return keep


def _stream(generation: "Generation", show: "Callable[[str], object]") -> int:
    """Show the answer as it comes, after Ctrl-C or SIGTERM what is there of it; the exit code."""
    try:
        for piece in generation:
            show(piece)
    except (KeyboardInterrupt, SystemExit) as signal:
        show(generation.flush())
        return TERMINATED if isinstance(signal, SystemExit) else INTERRUPTED
    return 0
