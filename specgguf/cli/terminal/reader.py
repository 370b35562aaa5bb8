"""Where a chat's messages come from: a person at the keyboard, or lines of stdin."""

import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Protocol

from prompt_toolkit import PromptSession
from prompt_toolkit.application import create_app_session
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.output import create_output

from specgguf.cli.stdin import text_of, without_line_end
from specgguf.errors import UsageError, about
from specgguf.text.files import check_file

_PROMPT = "> "


class Reader(Protocol):
    """Gives messages."""

    interactive: bool
    """Whether a person is there, who sees what happens and can be asked."""

    @property
    def discarded(self) -> str:
        """What was on the line when Ctrl-C was pressed."""

    def read(self, prepared: str = "") -> str:
        """The next message; `prepared` is what a person finds on the line. Raises EOFError when there are no more."""


def open_reader(completions: Mapping[str, Iterable[str]], history: Path | None) -> Reader:
    """The keyboard if stdin is a terminal, else the lines of stdin."""
    if sys.stdin is not None and sys.stdin.isatty():
        return Keyboard(completions, history)
    return Lines()


class Lines:
    """A message a line, blank ones left out."""

    interactive = False
    discarded = ""

    def __init__(self) -> None:
        self._number = 0

    def read(self, prepared: str = "") -> str:
        """The next line; raises UsageError if it is no text."""
        while sys.stdin is not None and (line := sys.stdin.buffer.readline()):
            self._number += 1
            text = without_line_end(text_of(line, f"line {self._number} of stdin"))
            if text.strip():
                return text
        raise EOFError


class Keyboard:
    """A line with editing, history and completion. Alt-Enter begins a new line, and so does one that is pasted."""

    interactive = True

    def __init__(self, completions: Mapping[str, Iterable[str]], history: Path | None) -> None:
        """`completions`: arguments by command. What was typed is kept in a file only if there is one."""
        keys = KeyBindings()

        @keys.add("escape", "enter")
        def _(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text("\n")

        # The line is shown where somebody sees it. Were that output the session's own, the library would forget that a
        # terminal may be dumb.
        with create_app_session(output=None if sys.stdout.isatty() else create_output(always_prefer_tty=True)):
            self._session: PromptSession[str] = PromptSession(
                completer=_Commands(completions),
                history=_history(history),
                key_bindings=keys,
                prompt_continuation=" " * len(_PROMPT),
            )

    def read(self, prepared: str = "") -> str:
        """What was typed; raises EOFError for Ctrl-D, KeyboardInterrupt for Ctrl-C."""
        while not (text := self._session.prompt(_PROMPT, default=prepared)).strip():
            prepared = ""
        return text.encode(errors="surrogateescape").decode(errors="replace")  # keys that are not UTF-8

    @property
    def discarded(self) -> str:
        """What was on the line when Ctrl-C was pressed."""
        return self._session.default_buffer.text


class _Commands(Completer):
    def __init__(self, completions: Mapping[str, Iterable[str]]) -> None:
        self._completions = completions

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        """Commands for a message that begins as one, then their arguments."""
        command, space, argument = document.text_before_cursor.partition(" ")
        if not command.startswith("/"):
            return
        known = self._completions.get(command, ()) if space else self._completions
        begun = argument if space else command
        yield from (Completion(name, -len(begun)) for name in known if name.startswith(begun))


def _history(path: Path | None) -> FileHistory | InMemoryHistory:
    if path is None:
        return InMemoryHistory()
    with about("history"):
        check_file(path)
    try:
        path.touch(mode=0o600)
    except OSError as error:
        raise UsageError(f"--history: cannot write {path}: {error.strerror}", "choose another place") from None
    return FileHistory(path)
