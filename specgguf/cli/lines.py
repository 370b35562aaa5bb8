"""`specgguf run --lines`: every line of stdin is a prompt of its own."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from specgguf.cli.stdin import PipedLines, text_of, without_line_end
from specgguf.cli.terminal import output
from specgguf.cli.terminal.progress import TerminalProgress
from specgguf.errors import SpecggufError

if TYPE_CHECKING:
    from specgguf.conversation.answer import Answer
    from specgguf.engine.pool import Pool

_AHEAD = 512
"""Answers at most that wait for the one of an earlier line."""


class LinePrompt(Protocol):
    """A line, ready to be answered."""

    @property
    def num_tokens(self) -> int:
        """Of the prompt."""

    @property
    def max_tokens(self) -> int | None:
        """Of the answer at most."""

    def begin(self, pool: "Pool") -> "Answer":
        """Begin the answer; raises SpecggufError for a line that cannot be answered."""


class Answering(Protocol):
    """How lines become prompts, and answers objects."""

    def prepare(self, line: str) -> LinePrompt:
        """Raises SpecggufError for a line that cannot be answered."""

    def finish(self, answer: "Answer") -> dict[str, Any]:
        """The object of an answer that is complete."""


Found = dict[str, Any] | None
"""The object of a line; None for a blank one."""


@dataclass(slots=True)
class _Written:
    """What has been written."""

    unordered: bool
    through: int
    """All lines up to this one are done."""
    waiting: dict[int, Found]
    """Lines that are done, after one that is not; if `unordered`, they have been written."""
    objects: int = 0
    failures: int = 0

    def take(self, number: int, found: Found) -> None:
        """Write an object, if it is its turn, and those that have waited for it."""
        self.waiting[number] = found
        if self.unordered:
            self._write(number, found)
        while self.through + 1 in self.waiting:
            self.through += 1
            found = self.waiting.pop(self.through)
            if not self.unordered:
                self._write(self.through, found)

    def _write(self, number: int, found: Found) -> None:
        if found:
            self.objects += 1
            self.failures += "error" in found
            output.write_json({"line": number, **found})


def answer_lines(
    lines: PipedLines, skip: int, answering: Answering, pool: "Pool", unordered: bool, show_progress: bool
) -> None:
    """Write an object for each line after the first `skip`: the answer, or what is wrong.

    They come in the order of the lines as soon as those before them are done, or, `unordered`, as they end. Blank lines
    have no object. A line that is interrupted has none either, so that a later call can go on after the last object.
    Raises SpecggufError at the end if anything was wrong.
    """
    written = _Written(unordered, skip, {})
    try:
        with closing(TerminalProgress()) as progress:
            for number, found in _answers(lines, answering, pool, written):
                written.take(number, found)
                if show_progress and not output.answers_on_terminal():
                    progress.show("answering", lines.bytes_taken, lines.size, f"line {written.through}")
    except (KeyboardInterrupt, SystemExit):
        beyond = ", ".join(map(str, sorted(written.waiting))) if unordered else ""
        also = f"; of those after it, these are written: {beyond}" if beyond else ""
        output.note(f"ended after line {written.through}; --skip {written.through} goes on from there{also}")
        raise
    if not written.objects:
        output.note(f"there was nothing to answer{f' after line {skip}' if skip else ' on stdin'}")
    if written.failures:
        raise SpecggufError(f"lines without an answer: {written.failures}", 'their objects say why, under "error"')


def _answers(lines: PipedLines, answering: Answering, pool: "Pool", written: _Written) -> Iterator[tuple[int, Found]]:
    """The objects of lines as they end. A line begins as soon as it is there and has room beside those at hand."""
    prompt: tuple[int, LinePrompt] | None = None
    active: dict[int, tuple[int, Answer]] = {}
    skip = written.through
    while active or prompt or not lines.ended:
        while not prompt and not lines.ended:
            line = lines.take(wait=not active)
            if line is None:
                break
            number, data = line
            if number <= skip:
                continue
            try:
                text = without_line_end(text_of(data, f"line {number}"))
                if text.strip():
                    prompt = number, answering.prepare(text)
                else:
                    yield number, None
            except SpecggufError as error:
                yield number, _failed(error)
        if prompt and _may_begin(*prompt, pool, written):
            (number, ready), prompt = prompt, None
            try:
                answer = ready.begin(pool)
                active[id(answer.generation)] = number, answer
            except SpecggufError as error:
                yield number, _failed(error)
        elif active:
            for generation, problem in pool.step():
                number, answer = active.pop(id(generation))
                yield number, _failed(problem) if problem else answering.finish(answer)


def _may_begin(number: int, prompt: LinePrompt, pool: "Pool", written: _Written) -> bool:
    return number - written.through <= _AHEAD and pool.has_room(prompt.num_tokens, prompt.max_tokens)


def _failed(error: SpecggufError) -> dict[str, Any]:
    return {"error": error.message, "hint": error.hint}
