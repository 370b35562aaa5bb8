"""`specgguf run --lines`: every line of stdin is a prompt of its own."""

import itertools
from collections.abc import Callable
from contextlib import closing
from typing import Any

from specgguf.cli.stdin import PipedLines, text_of, without_line_end
from specgguf.cli.terminal import output
from specgguf.cli.terminal.progress import TerminalProgress
from specgguf.errors import SpecggufError


def answer_lines(lines: PipedLines, skip: int, answer: Callable[[str], dict[str, Any]], show_progress: bool) -> None:
    """Write an object for each line after the first `skip`, as soon as there is one: the answer, or what is wrong.

    Blank lines have no object. A line that is interrupted has none either, so that a later call can go on after the
    last object. Raises SpecggufError at the end if anything was wrong.
    """
    done, written, failed = skip, 0, 0
    try:
        with closing(TerminalProgress()) as progress:
            for number, data in itertools.islice(lines, skip, None):
                if show_progress and not output.answers_on_terminal():
                    progress.show("answering", lines.bytes_read - len(data), lines.size, f"line {number}")
                try:
                    text = without_line_end(text_of(data, f"line {number}"))
                    found = answer(text) if text.strip() else None
                except SpecggufError as error:
                    failed += 1
                    found = {"error": error.message, "hint": error.hint}
                if found:
                    written += 1
                    output.write_json({"line": number, **found})
                done = number
    except (KeyboardInterrupt, SystemExit):
        output.note(f"ended after line {done}; --skip {done} goes on from there")
        raise
    if not written:
        output.note(f"there was nothing to answer{f' after line {skip}' if skip else ' on stdin'}")
    if failed:
        raise SpecggufError(f"lines without an answer: {failed}", 'their objects say why, under "error"')
