"""The one place that prints: answers to stdout as bytes, everything else to stderr."""

import functools
import os
import shutil
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from specgguf.errors import UsageError
from specgguf.text.printable import visible

if TYPE_CHECKING:
    from rich.console import Console

    from specgguf.cli.terminal.markdown import MarkdownView
    from specgguf.engine.generation import Generation
    from specgguf.speculative.stats import Stats


_LEAST_BAR, _LONGEST_BAR = 8, 40
"""Columns of the terminal."""


def write(text: str, style: str = "") -> None:
    """A piece of the answer, at once; raises what the stream raises that cannot be written.

    Control characters are made visible on a terminal; pipes get the bytes as they are. `style`, as rich names it, has
    an effect only where there are styles.
    """
    if answers_on_terminal():
        text = visible(text)
    if style and text and has_styles():
        from rich.color import ColorSystem
        from rich.style import Style

        text = Style.parse(style).render(text, color_system=ColorSystem.STANDARD)
    sys.stdout.write(text)
    sys.stdout.flush()


@functools.cache
def has_styles() -> bool:
    """Whether stdout is a terminal that shows colours, and may."""
    return answers_on_terminal() and console(stderr=False).color_system is not None


def open_markdown() -> "MarkdownView | None":
    """What formats markdown on stdout; None where there are no styles."""
    if not has_styles():
        return None
    from specgguf.cli.terminal.markdown import MarkdownView

    return MarkdownView(console(stderr=False))


def answers_on_terminal() -> bool:
    """Whether a person reads stdout."""
    return sys.stdout.isatty()


def write_piece(text: str) -> None:
    """A piece of the answer as an object on a line of its own; nothing for an empty one."""
    if text:
        write_json({"text": text})


def write_json(value: object) -> None:
    """One object on one line."""
    import json

    write(json.dumps(value, ensure_ascii=False) + "\n")


def table(rows: Sequence[Sequence[str]], left: int, bars: Sequence[float] = ()) -> None:
    """Rows below a head, the first `left` columns aligned left; on a terminal wide enough, a bar for each row."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(
            cell.ljust(width) if place < left else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    room = shutil.get_terminal_size().columns - sum(widths) - 2 * len(widths) - 1
    if bars and room >= _LEAST_BAR and answers_on_terminal():
        unit = min(room, _LONGEST_BAR) / max(*bars, 1e-9)
        lines[1:] = [f"{line}  {'█' * round(unit * bar)}" for line, bar in zip(lines[1:], bars, strict=True)]
    write("".join(f"{line}\n" for line in lines))


def on_terminal() -> bool:
    """Whether a person reads stderr."""
    return sys.stderr.isatty()


def note(text: str) -> None:
    """Something the user should know."""
    _say("note:", "bold", text)


def log(text: str) -> None:
    """Details that were asked for."""
    sys.stderr.write(visible(text) if on_terminal() else text)


def can_ask() -> bool:
    """Whether somebody could answer a question."""
    return on_terminal() and sys.stdin is not None and sys.stdin.isatty()


def confirm(question: str) -> bool:
    """Ask on the terminal, Ctrl-D being no; raises UsageError where nobody can answer."""
    if not can_ask():
        raise UsageError(f"{question} There is no terminal to ask", "give --yes to agree")
    from rich.prompt import Confirm

    try:
        return Confirm.ask(question, console=console(), default=False)
    except EOFError:
        return False


def error(message: str, hint: str) -> None:
    """A failure: what happened, and what to do about it."""
    _say("error:", "bold red", message)
    _say("hint:", "bold", hint)


def stats(generation: "Generation", *notes: str) -> None:
    """The line of statistics that follows an answer, and what else there is to say about it."""
    speed = generation.timings.tokens_per_s
    line = f"{len(generation.tokens)} tokens" + (f", {speed:.1f} tokens/s" if speed else "")
    summary([line, *counts(generation.stats), *notes])


def summary(parts: Sequence[str]) -> None:
    """A line on stderr; a narrow terminal gets several, which end between words."""
    console().print("; ".join(parts), style="dim", soft_wrap=not on_terminal())


def counts(stats: "Stats") -> list[str]:
    """What speculation did, in words; nothing if it did nothing."""
    if not stats.drafted:
        return []
    sources = (f"{source} {stats.accepted[source]}/{drafted}" for source, drafted in stats.drafted.items())
    return [
        f"acceptance rate {stats.acceptance_rate:.0%}, mean acceptance length {stats.mean_acceptance_length:.2f}",
        f"{', '.join(sources)} accepted in {stats.rounds - stats.undrafted} of {stats.rounds} rounds",
    ]


def _say(label: str, style: str, text: str) -> None:
    stderr = console()
    stderr.print(label, style=style, end=" ")
    stderr.print(visible(" ".join(text.splitlines())))


def console(stderr: bool = True) -> "Console":
    """What prints on stderr or stdout, with colours where they may be."""
    from rich.console import Console

    # With NO_COLOR rich by itself leaves out colours, but not bold.
    plain = bool(os.environ.get("NO_COLOR"))
    # Texts are shown as they are: markup, :emoji: codes and highlighting would change paths and models' words.
    return Console(
        stderr=stderr,
        soft_wrap=True,
        highlight=False,
        markup=False,
        emoji=False,
        color_system=None if plain else "auto",
        # With FORCE_COLOR rich by itself would put colours into files.
        force_terminal=(sys.stderr if stderr else sys.stdout).isatty(),
    )
