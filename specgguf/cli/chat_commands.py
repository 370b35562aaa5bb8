"""The commands of a chat: what can be typed besides messages."""

import os
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from specgguf.cli.options.models import Models
from specgguf.cli.options.values import allowed
from specgguf.cli.terminal import output
from specgguf.conversation.transcript import SAMPLING, Transcript, load
from specgguf.engine.settings import Mode
from specgguf.errors import SpecggufError, UsageError
from specgguf.text.files import check_place, save

if TYPE_CHECKING:
    from specgguf.cli.session import Session

_SETTABLE = (*SAMPLING, "max_tokens", "no_think")
"""The parameters of the command line that /set changes."""
_NO_SYSTEM = "none"
"""What /system says to have no message."""


class ChatCommand(NamedTuple):
    """What a command does, the name of its argument or "", and what /help says."""

    run: Callable[["Session", str], None]
    argument: str
    summary: str


def completions(context: typer.Context, pairs: Iterable[str]) -> dict[str, Iterable[str]]:
    """The arguments that can be completed, by command."""
    settable = map(_spelled, _settable(context).values())
    known: dict[str, Iterable[str]] = {"/set": list(settable), "/speculate": list(Mode), "/model": pairs}
    return {name: known.get(name, ()) for name in COMMANDS}


def _help(session: "Session", argument: str) -> None:
    lines = [f"{f'{name} {command.argument}':20s} {command.summary}" for name, command in COMMANDS.items()]
    output.log("\n".join([*lines, "Alt-Enter begins a new line. Ctrl-C stops an answer, Ctrl-D leaves.", ""]))


def _system(session: "Session", argument: str) -> None:
    if argument:
        session.chat.set_system("" if argument == _NO_SYSTEM else argument)
    output.note(f"system message: {session.chat.transcript.system or _NO_SYSTEM}")


def _undo(session: "Session", argument: str) -> None:
    session.prepared = session.chat.undo()
    output.note("the last turn is taken back")


def _retry(session: "Session", argument: str) -> None:
    if session.chat.transcript.exchanges and session.chat.sampler().temperature == 0.0:
        output.note("at temperature 0 every seed gives the same answer: /set temp 0.8")
    session.answer(session.chat.retry)


def _clear(session: "Session", argument: str) -> None:
    session.chat.transcript.exchanges = ()
    output.note("a new conversation")


def _save(session: "Session", argument: str) -> None:
    path = _path("/save", argument)
    check_place(path)
    if path.exists() and path != session.file:
        if not session.reader.interactive:
            raise UsageError(f"{path} is there already", "choose another name")
        if not output.confirm(f"Overwrite {path}?"):
            return
    save(path, session.chat.transcript.dump())
    session.file = path
    output.note(f"saved {path}")


def _load(session: "Session", argument: str) -> None:
    path, chat = _path("/load", argument), session.chat
    found = read_transcript(path, session.context)
    if found.models != chat.transcript.models:
        output.note("that chat was held with other models; it goes on with the present ones")
    found.models = chat.transcript.models
    chat.resume(found)
    session.file = path
    note_loaded(found, path)


def note_loaded(transcript: Transcript, path: Path) -> None:
    """Note what was loaded."""
    turns = "1 turn" if len(transcript.exchanges) == 1 else f"{len(transcript.exchanges)} turns"
    output.note(f"{turns} of {path}")


def read_transcript(path: Path, context: typer.Context) -> Transcript:
    """What was saved there; raises UsageError if it is damaged, or samples as no option allows."""
    found = load(path)
    for name, parameter in _settable(context).items():
        if name in found.sampling:
            _parse(parameter, context, str(found.sampling[name]), f"{path}: sampling.{name}")
    return found


def _set(session: "Session", argument: str) -> None:
    chat, known = session.chat, {_spelled(parameter): parameter for parameter in _settable(session.context).values()}
    if not argument:
        now = {**asdict(chat.sampler()), "max_tokens": chat.answering.max_tokens, "no_think": not chat.answering.think}
        shown = {name: str(value).lower() if isinstance(value, bool) else value for name, value in now.items()}
        output.log("".join(f"{option:20s} {shown[parameter.name]}\n" for option, parameter in known.items()))
        return
    option, _, text = argument.partition(" ")
    if option not in known:
        hint = f"there is {', '.join(known)}; others are for the command line"
        raise UsageError(f"/set {option}: nothing that can be set in a chat", hint)
    value = _parse(known[option], session.context, text.strip(), f"/set {option}")
    if option == "max-tokens":
        chat.answering.max_tokens = value
    elif option == "no-think":
        chat.answering.think = not value
    else:
        chat.transcript.sampling[known[option].name] = value
    output.note(f"{option} is {value}")


def _stats(session: "Session", argument: str) -> None:
    stats = session.chat.stats
    output.summary([f"{stats.output_tokens} tokens", *output.counts(stats)])


def _draft(session: "Session", argument: str) -> None:
    session.show_draft = not session.show_draft
    shown = "is marked: green or [] by the draft model, magenta or {} from text seen"
    output.note(f"what was guessed right {shown if session.show_draft else 'is no longer marked'}")


def _speculate(session: "Session", argument: str) -> None:
    if not argument:
        output.note(f"speculate is {session.chat.answering.mode or session.chat.engine.settings.mode}")
        return
    parameter = next(parameter for parameter in session.context.command.params if parameter.name == "speculate")
    mode: Mode = _parse(parameter, session.context, argument, "/speculate")
    answering = session.chat.answering
    answering.mode = mode
    fixed = session.context.params["draft_max"] or mode.draft_max
    answering.num_draft = fixed if mode is Mode.FIXED else None
    output.note(f"speculate is {mode.value}")


def _model(session: "Session", argument: str) -> None:
    if not argument:
        output.note(f"target {session.chat.engine.target.header.path}")
        return
    models = Models(pair=argument)
    old, new = session.chat.engine, session.open_models(models)
    try:
        session.chat.use(new)
    except SpecggufError:
        new.close()
        raise
    old.close()
    session.chat.transcript.models = asdict(models)
    output.note(f"the next answer is of {new.target.header.path.name}")


def _exit(session: "Session", argument: str) -> None:
    session.done = True


COMMANDS = {
    "/help": ChatCommand(_help, "", "this"),
    "/system": ChatCommand(_system, "[TEXT]", f"set or show the system message; {_NO_SYSTEM}: remove it"),
    "/undo": ChatCommand(_undo, "", "take the last turn back, to edit its question"),
    "/retry": ChatCommand(_retry, "", "another answer, with another seed"),
    "/clear": ChatCommand(_clear, "", "forget what was said"),
    "/save": ChatCommand(_save, "FILE", "write the chat to a file"),
    "/load": ChatCommand(_load, "FILE", "go on with a chat that was saved"),
    "/set": ChatCommand(_set, "[OPTION VALUE]", "change an option: /set temp 0.5; alone: show them all"),
    "/stats": ChatCommand(_stats, "", "what speculation did in this chat"),
    "/draft": ChatCommand(_draft, "", "mark what was guessed right, or stop marking it"),
    "/speculate": ChatCommand(_speculate, "[MODE]", f"how to draft: {', '.join(Mode)}"),
    "/model": ChatCommand(_model, "[PAIR]", "go on with another pair of the catalogue"),
    "/exit": ChatCommand(_exit, "", "leave; so do Ctrl-D, and Ctrl-C twice"),
}


def _path(command: str, argument: str) -> Path:
    if not argument:
        raise UsageError("no file is named", f"give one: {command} chat.json")
    return Path(os.path.expanduser(argument))  # Path's own raises for a user it does not know


def _settable(context: typer.Context) -> dict[str, Any]:
    """The parameters of the command line that /set changes, by name."""
    return {parameter.name: parameter for parameter in context.command.params if parameter.name in _SETTABLE}


def _spelled(parameter: Any) -> str:  # noqa: ANN401 (one of click's)
    return str(max(parameter.opts, key=len).removeprefix("--"))


def _parse(parameter: Any, context: typer.Context, text: str, what: str) -> Any:  # noqa: ANN401
    """What the command line would make of it; raises UsageError if it would refuse it."""
    try:
        return parameter.process_value(context, text)
    except typer.TyperException:
        hint = "specgguf chat --help tells what it means"
        raise UsageError(f"{what} must be {allowed(parameter)}", hint) from None
