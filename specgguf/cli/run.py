"""`specgguf run`: one answer."""

import secrets
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from specgguf.cli import options, output
from specgguf.cli.opening import Models, open_engine, open_store
from specgguf.cli.report import report
from specgguf.cli.sampling import parse_biases, read_grammar
from specgguf.cli.stdin import read_piped
from specgguf.errors import INTERRUPTED, TERMINATED, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from specgguf.engine import Generation


def run(
    prompt: Annotated[
        str | None,
        typer.Argument(metavar="PROMPT", help="The prompt. Text piped in follows it after a blank line."),
    ] = None,
    pair: options.Pair = None,
    target: options.Target = None,
    draft: options.Draft = None,
    quant: options.Quant = None,
    draft_quant: options.DraftQuant = None,
    draft_max: options.DraftMax = None,
    speculate: options.SpeculateMode = options.Speculate.AUTO,
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
    json: options.Json = False,
    jsonl: options.JsonLines = False,
    stats: options.Stats = None,
    verbose: options.Verbose = False,
) -> None:
    """Answer one prompt, greedily unless --temp says otherwise."""
    if json and jsonl:
        raise UsageError("--json and --jsonl exclude each other", "the last line of --jsonl is the object of --json")
    if raw and system is not None:
        raise UsageError("--raw and --system exclude each other", "a system message needs the chat template")
    stops = _texts("--stop", stop or [])
    system_texts = _texts("--system", [] if system is None else [system])
    text = _prompt(prompt, raw)
    begin = time.perf_counter()

    from specgguf.engine import EngineSettings
    from specgguf.llama.library import log_to

    if seed is None:
        seed = 0 if temperature == 0.0 else secrets.randbelow(2**32)
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
    store = open_store(offline)
    models = Models(pair, target, draft, quant, draft_quant)
    with open_engine(store, models, speculate, draft_max, settings) as engine:
        if raw:
            tokens = engine.tokenize(text)
        else:
            messages = [{"role": "system", "content": content} for content in system_texts]
            tokens = engine.tokenize_chat([*messages, {"role": "user", "content": text}])
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
            seed=seed,
        )
        generation = engine.generate(tokens, sampler, max_tokens, stops, grammar=constraint)
        load_s = time.perf_counter() - begin
        for line in engine.notices:
            output.note(line)
        if verbose:
            output.log("".join(f"{line}\n" for line in engine.describe()))
        code = _stream(generation, output.write_piece if jsonl else _drop if json else output.write)
        if json or jsonl:
            output.write_json(report(engine, store, generation, speculate, load_s))
        else:
            output.end_answer(generation.text)
        if output.on_terminal() if stats is None else stats:
            output.stats(generation, str(engine.exact_choice) if engine.exact_choice else None)
    raise typer.Exit(code)


def _texts(option: str, texts: Sequence[str]) -> Sequence[str]:
    for text in texts:
        if not text:
            raise UsageError(f"{option} is empty", f"give {option} some text, or leave it out")
        try:
            text.encode()
        except UnicodeEncodeError:
            raise UsageError(f"{option} is not UTF-8 text", "check the encoding of your terminal") from None
    return texts


def _prompt(argument: str | None, raw: bool) -> str:
    """The argument, then what is piped in, with a blank line between."""
    piped = read_piped(wait=not argument)
    if not raw:
        piped = piped.rstrip("\n")
    text = "\n\n".join(part for part in (argument, piped) if part)
    if not text.strip():
        raise UsageError("no prompt", 'give one as argument or on stdin: specgguf run "Why is the sky blue?"')
    _texts("PROMPT", [text])
    return text


def _drop(_: str) -> None:
    """For an answer that is not shown as it comes."""


def _stream(generation: "Generation", show: "Callable[[str], object]") -> int:
    """Show the answer as it comes, after Ctrl-C or SIGTERM what is there of it; the exit code."""
    try:
        for piece in generation:
            show(piece)
    except (KeyboardInterrupt, SystemExit) as signal:
        show(generation.flush())
        return TERMINATED if isinstance(signal, SystemExit) else INTERRUPTED
    return 0
