"""`specgguf run`: one answer."""

import secrets
import time
from typing import TYPE_CHECKING, Annotated

import typer

from specgguf.cli import options, output
from specgguf.cli.answer import AnswerWriter
from specgguf.cli.opening import Models, open_engine, open_store
from specgguf.cli.report import report
from specgguf.cli.sampling import check_texts, parse_biases, read_file, read_grammar
from specgguf.cli.stdin import read_piped
from specgguf.errors import INTERRUPTED, UsageError

if TYPE_CHECKING:
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
    chat_template: options.ChatTemplate = None,
    no_think: options.NoThink = False,
    raw: options.Raw = False,
    gpu_layers: options.GpuLayers = None,
    draft_gpu_layers: options.DraftGpuLayers = None,
    threads: options.Threads = None,
    ctx: options.Ctx = None,
    cache_type_k: options.CacheTypeK = None,
    cache_type_v: options.CacheTypeV = None,
    offline: options.Offline = False,
    json: options.Json = False,
    show_draft: options.ShowDraft = False,
    stats: options.Stats = None,
    verbose: options.Verbose = False,
) -> None:
    """Answer one prompt, greedily unless --temp says otherwise."""
    if raw and system is not None:
        raise UsageError("--raw and --system exclude each other", "a system message needs the chat template")
    if raw and chat_template is not None:
        raise UsageError("--raw and --chat-template exclude each other", "give one of them")
    stops = check_texts("--stop", stop or [])
    system_texts = check_texts("--system", [] if system is None else [system])
    text = _prompt(prompt, raw)
    begin = time.perf_counter()

    from specgguf.core.thought import opens_thought, split
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
        chat_template=read_file("--chat-template", chat_template) if chat_template else None,
        exact=exact,
    )
    if verbose:
        log_to(output.log)
    store = open_store(offline)
    models = Models(pair, target, draft, quant, draft_quant)
    with open_engine(store, models, speculate, draft_max, settings) as engine:
        if not raw:
            messages = [{"role": "system", "content": content} for content in system_texts]
            text = engine.render_chat([*messages, {"role": "user", "content": text}], think=not no_think)
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
        generation = engine.generate(engine.tokenize(text), sampler, max_tokens, stops, grammar=constraint)
        load_s = time.perf_counter() - begin
        for line in engine.notices:
            output.note(line)
        if verbose:
            output.log("".join(f"{line}\n" for line in engine.describe()))
        # What a grammar allows is no thought.
        inside = opens_thought(text) if no_think and not constraint else None
        _stream(generation, None if json else AnswerWriter(show_draft), inside)
        if json:
            found = report(engine, store, generation, speculate, load_s)
            output.write_json(found if inside is None else {**found, "text": split(generation.text, inside).answer})
        if output.on_terminal() if stats is None else stats:
            output.stats(generation, *([f"exact: {engine.exact_choice}"] if engine.exact_choice else []))
    if generation.finish_reason == "interrupted":
        raise typer.Exit(INTERRUPTED)


def _prompt(argument: str | None, raw: bool) -> str:
    """The argument, then what is piped in, with a blank line between."""
    piped = read_piped(wait=not argument)
    if not raw:
        piped = piped.rstrip("\n")
    text = "\n\n".join(part for part in (argument, piped) if part)
    if not text.strip():
        raise UsageError("no prompt", 'give one as argument or on stdin: specgguf run "Why is the sky blue?"')
    check_texts("PROMPT", [text])
    return text


def _stream(generation: "Generation", writer: AnswerWriter | None, inside: bool | None) -> None:
    """Write the answer as it comes; after Ctrl-C, what is there of it.

    Thought is left out unless `inside` is None; it says whether the answer begins inside a thought.
    """
    from specgguf.core.thought import Said, ThoughtStream

    thoughts = None if inside is None else ThoughtStream(inside)

    def show(text: str, source: str = "") -> None:
        answer = thoughts.feed(text).answer if thoughts else text
        if writer:
            writer.write(Said("", answer), source)

    try:
        for piece in generation.pieces():
            show(*piece)
    except KeyboardInterrupt:
        show(generation.flush())
    if writer:
        if thoughts:
            writer.write(Said("", thoughts.flush().answer))
        writer.end(newline=output.answers_on_terminal())
