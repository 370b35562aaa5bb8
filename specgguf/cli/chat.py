"""`specgguf chat`: a conversation in the terminal."""

import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from specgguf.cli import options
from specgguf.cli.ngramstore import Memory
from specgguf.cli.opening import Models, explain, open_engine, open_resolver, open_store
from specgguf.cli.sampling import check_texts, read_file, read_grammar
from specgguf.cli.terminal import output
from specgguf.engine.settings import CHAT_CTX, EngineSettings, Mode

if TYPE_CHECKING:
    from specgguf.engine.engine import Engine


def chat(
    context: typer.Context,
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
    temperature: options.ChatTemperature = None,
    top_k: options.TopK = None,
    top_p: options.TopP = None,
    min_p: options.MinP = None,
    typical_p: options.TypicalP = None,
    repeat_penalty: options.RepeatPenalty = None,
    presence_penalty: options.PresencePenalty = None,
    frequency_penalty: options.FrequencyPenalty = None,
    seed: options.Seed = None,
    grammar: options.Grammar = None,
    json_schema: options.JsonSchema = None,
    stop: options.Stop = None,
    system: options.System = None,
    chat_template: options.ChatTemplate = None,
    no_think: options.NoThink = False,
    gpu_layers: options.GpuLayers = None,
    draft_gpu_layers: options.DraftGpuLayers = None,
    threads: options.Threads = None,
    ctx: options.ChatCtx = None,
    draft_ctx: options.DraftCtx = None,
    context_shift: Annotated[
        bool,
        typer.Option(
            "--context-shift/--no-context-shift",
            show_default=False,
            help="When the context is full, drop the oldest turns before the next answer, without asking.",
        ),
    ] = False,
    cache_type_k: options.CacheTypeK = None,
    cache_type_v: options.CacheTypeV = None,
    load: Annotated[
        Path | None, typer.Option("--load", metavar="FILE", help="Go on with a chat that /save has written.")
    ] = None,
    history: Annotated[
        Path | None,
        typer.Option("--history", metavar="FILE", help="Keep what is typed in this file; default: nowhere."),
    ] = None,
    offline: options.Offline = False,
    show_draft: options.ShowDraft = False,
    stats: options.Stats = None,
    verbose: options.Verbose = False,
) -> None:
    """Talk with the model; /help lists what else can be typed. Without a terminal, each line of stdin is a message."""
    stops = check_texts("--stop", stop or [])
    check_texts("--system", [] if system is None else [system])

    from specgguf.cli.commands import completions, read_transcript, tell_loaded
    from specgguf.cli.session import Session
    from specgguf.cli.terminal.reader import open_reader
    from specgguf.conversation.chat import Answering, Chat
    from specgguf.conversation.transcript import SAMPLING, Transcript
    from specgguf.llama.library import log_to

    transcript = read_transcript(load, context) if load else Transcript()
    transcript.system = transcript.system if system is None else system
    given = {name: value for name in SAMPLING if (value := context.params[name]) is not None}
    transcript.sampling = {"seed": secrets.randbelow(2**32), **transcript.sampling, **given}
    models = Models(pair, target, draft, quant, draft_quant)
    if models.pair is None and models.target is None:  # the target of the transcript, perhaps with another draft
        models = Models(*(value or transcript.models.get(name) for name, value in models._asdict().items()))
    transcript.models = models._asdict()
    answering = Answering(
        max_tokens, stops, not no_think, read_grammar(grammar, json_schema), context_shift=context_shift
    )
    settings = EngineSettings(
        n_gpu_layers=gpu_layers,
        draft_n_gpu_layers=draft_gpu_layers,
        n_threads=threads,
        n_ctx=ctx,
        draft_n_ctx=draft_ctx,
        usual_ctx=CHAT_CTX,
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

    def open_models(models: Models) -> "Engine":
        engine = open_engine(store, models, settings)
        for line in engine.notices:
            output.note(line)
        memory.recall(engine)
        if verbose:
            explain(engine)
        return engine

    reader = open_reader(completions(context, open_resolver(store).catalogue.pairs), history)
    with open_models(models) as engine:
        talk = Chat(engine, transcript, answering)
        show_stats = output.on_terminal() if stats is None else stats
        with Session(talk, reader, context, open_models, memory, show_draft, show_stats) as session:
            session.file = load
            if reader.interactive:
                output.note(f"{engine.target_header.name}; /help lists the commands")
                if load:
                    tell_loaded(transcript, load)
            session.run()
