"""The one place that prints: answers to stdout as bytes, everything else to stderr."""

import json
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from specgguf.errors import SpecggufError

if TYPE_CHECKING:
    from rich.console import Console

    from specgguf.engine import Generation


class ReaderGoneError(Exception):
    """Whoever read our stdout has closed it: the work is done."""


def write(text: str) -> None:
    """A piece of the answer, at once; raises ReaderGoneError, or SpecggufError if it cannot be written."""
    if sys.stdout is None:
        raise SpecggufError("cannot write the answer: stdout is closed", "redirect it to /dev/null instead")
    try:
        sys.stdout.buffer.write(text.encode(errors="replace"))
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise ReaderGoneError from None
    except OSError as error:
        raise SpecggufError(
            f"cannot write the answer: {error.strerror}", "check what stdout is redirected to"
        ) from None


def end_answer(text: str) -> None:
    """After a streamed answer: a newline on a terminal, nothing in a pipe."""
    if sys.stdout.isatty() and not text.endswith("\n"):
        write("\n")


def write_json(value: object) -> None:
    """One object on one line."""
    write(json.dumps(value, ensure_ascii=False) + "\n")


def on_terminal() -> bool:
    """Whether a person reads stderr."""
    return sys.stderr.isatty()


def note(text: str) -> None:
    """Something the user should know."""
    _say("note:", "bold", text)


def log(text: str) -> None:
    """Details asked for with -v, as they are."""
    sys.stderr.write(text)


def error(message: str, hint: str) -> None:
    """A failure: what happened, and what to do."""
    _say("error:", "bold red", message)
    _say("hint:", "bold", hint)


def stats(generation: "Generation") -> None:
    """The line of statistics that follows an answer."""
    counts = generation.stats
    line = f"{len(generation.tokens)} tokens"
    if generation.timings.tokens_per_s:
        line += f", {generation.timings.tokens_per_s:.1f} tokens/s"
    if counts.drafted:
        line += (
            f"; acceptance rate {counts.acceptance_rate:.0%}"
            f", mean acceptance length {counts.mean_acceptance_length:.2f}"
        )
    _console().print(line, style="dim")


class TerminalProgress:
    """A progress bar on stderr if that is a terminal, else nothing."""

    def begin(self, what: str, total: int | None) -> Callable[[int], object]:
        """Show a bar for `total` bytes, or a spinner for None."""
        if not on_terminal():
            return lambda _: None
        from rich import progress

        columns: list[progress.ProgressColumn] = [progress.TextColumn("{task.description}", markup=False)]
        if total is None:
            columns.append(progress.SpinnerColumn("line"))
        else:
            columns += [
                progress.BarColumn(),
                progress.DownloadColumn(),
                progress.TransferSpeedColumn(),
                progress.TimeRemainingColumn(),
            ]
        self._bar = progress.Progress(*columns, console=_console(), transient=True)
        task = self._bar.add_task(what, total=total)
        self._bar.start()
        return lambda done: self._bar.update(task, completed=done)

    def end(self) -> None:
        """Take the bar away."""
        if on_terminal():
            self._bar.stop()


def _say(label: str, style: str, text: str) -> None:
    console = _console()
    console.print(label, style=style, end=" ")
    console.print(" ".join(text.splitlines()))


def _console() -> "Console":
    from rich.console import Console

    # With NO_COLOR rich by itself leaves out colours, but not bold.
    plain = bool(os.environ.get("NO_COLOR"))
    # Texts are shown as they are: markup, :emoji: codes and highlighting would change paths and models' words.
    return Console(
        stderr=True, soft_wrap=True, highlight=False, markup=False, emoji=False, color_system=None if plain else "auto"
    )
