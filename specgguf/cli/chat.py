"""`specgguf chat`: a conversation in the terminal."""

from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from specgguf.cli.journal import Journalist
from specgguf.cli.ngram_store import AnswerStore
from specgguf.cli.opening import engine_settings, log_engine, open_engine, open_resolver, open_store
from specgguf.cli.options.constraints import Constraints
from specgguf.cli.options.drafting import Drafting
from specgguf.cli.options.groups import grouped, without
from specgguf.cli.options.journal import Journaling
from specgguf.cli.options.limits import Limits
from specgguf.cli.options.models import Models, Offline
from specgguf.cli.options.output import OutputForm
from specgguf.cli.options.prompt import PromptShape
from specgguf.cli.options.resources import ChatResources
from specgguf.cli.options.sampling import Sampling
from specgguf.cli.terminal import output
from specgguf.engine.settings import CHAT_CTX

if TYPE_CHECKING:
    from specgguf.engine.engine import Engine


@dataclass(frozen=True)
class Keeping:
    """The options for what is kept of a chat."""

    context_shift: Annotated[
        bool,
        typer.Option(
            "--context-shift/--no-context-shift",
            show_default=False,
            help="When the context is full, drop the oldest turns before the next answer, without asking.",
        ),
    ] = False
    load: Annotated[
        Path | None, typer.Option("--load", metavar="FILE", help="Go on with a chat that /save has written.")
    ] = None
    history: Annotated[
        Path | None,
        typer.Option("--history", metavar="FILE", help="Keep what is typed in this file; default: nowhere."),
    ] = None


@grouped
def chat(
    context: typer.Context,
    models: Models,
    drafting: Drafting,
    sampling: Sampling,
    constraints: Annotated[Constraints, without("logit_bias")],
    limits: Limits,
    shape: Annotated[PromptShape, without("raw")],
    resources: ChatResources,
    keeping: Keeping,
    form: Annotated[OutputForm, without("json", "jsonl")],
    journaling: Journaling,
    offline: Offline = False,
) -> None:
    """Talk with the model; /help lists what else can be typed. Without a terminal, each line of stdin is a message."""
    shape.check()
    journalist = Journalist(journaling, "chat", context.obj.guard)
    drafting = context.obj.drafting(context, drafting, journalist.route)

    import secrets

    from specgguf.cli.chat_commands import completions, note_loaded, read_transcript
    from specgguf.cli.session import Session
    from specgguf.cli.terminal.reader import open_reader
    from specgguf.conversation.chat import Answering, Chat
    from specgguf.conversation.transcript import Transcript
    from specgguf.llama.library import log_to

    transcript = read_transcript(keeping.load, context) if keeping.load else Transcript()
    if shape.system is not None:
        if keeping.load and transcript.system != shape.system:
            output.note(f"--system is used instead of the system message in {keeping.load}")
        transcript.system = shape.system
    transcript.sampling = {"seed": secrets.randbelow(2**32), **transcript.sampling, **sampling.given()}
    models = models.or_recorded(transcript.models)
    transcript.models = asdict(models)
    answering = Answering(
        limits.max_tokens,
        limits.stops,
        not shape.no_think,
        constraints.read_grammar(),
        context_shift=keeping.context_shift,
    )
    settings = engine_settings(drafting, resources, CHAT_CTX, shape.read_template())
    if form.verbose:
        log_to(output.log)
    answers = AnswerStore(drafting.ngram_store)
    store = open_store(offline)

    def open_models(models: Models) -> "Engine":
        engine = open_engine(store, models, settings, journalist.may_draft)
        journalist.begin(engine)
        answers.draft_from_all(engine)
        if form.verbose:
            log_engine(engine)
        return engine

    reader = open_reader(completions(context, open_resolver(store).catalogue.pairs), keeping.history)
    with closing(journalist), closing(open_models(models)) as engine:
        talk = Chat(engine, transcript, answering)
        session = Session(talk, reader, context, open_models, answers, journalist, form)
        with closing(session):
            session.file = keeping.load
            if reader.interactive:
                output.note(f"{engine.target.header.name}; /help lists the commands")
                if keeping.load:
                    note_loaded(transcript, keeping.load)
            session.run()
