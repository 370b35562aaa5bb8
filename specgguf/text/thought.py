"""Separates the thoughts of a reasoning model from its answer, as the text arrives."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from specgguf.text.stream import overlap


class Marks(NamedTuple):
    """What stands around the thoughts of a family of models."""

    opening: str
    closing: str
    tokens: Sequence[str] = ()
    """Tokens that the marks are made of: a vocabulary that has them all uses these marks."""
    between: Sequence[str] = ()
    """What may stand between one thought and the next."""


PLAIN = Marks("<think>", "</think>", ("<think>", "</think>"))
FORMATS = (
    PLAIN,
    Marks("[THINK]", "[/THINK]", ("[THINK]", "[/THINK]")),  # Magistral
    Marks("<|channel>thought", "<channel|>", ("<|channel>", "<channel|>")),  # Gemma 4
    Marks("<|START_THINKING|>", "<|END_THINKING|>", ("<|START_THINKING|>", "<|END_THINKING|>")),  # Command A
    Marks("<seed:think>", "</seed:think>", ("<seed:think>", "</seed:think>")),  # Seed-OSS
    Marks(  # gpt-oss
        "<|channel|>",
        "final<|message|>",
        ("<|channel|>", "<|message|>", "<|start|>", "<|end|>"),
        ("analysis<|message|>", "commentary<|message|>", "<|end|>", "<|start|>assistant", "<|channel|>"),
    ),
)


class Said(NamedTuple):
    """A piece of text: some thought, and then some answer. Either may be empty."""

    thought: str
    answer: str


def opened(prompt: str) -> Marks | None:
    """The marks of the thought that the end of a prompt opens, so that the text begins inside of it."""
    end = prompt.rstrip()
    return next(
        (marks for marks in FORMATS if any(end.endswith(marks.opening + part) for part in ("", *marks.between))), None
    )


def split(text: str, prompt: str | None) -> Said:
    """Thought and answer of a text, whole or cut off; `prompt` as in `ThoughtStream`."""
    stream = ThoughtStream(prompt)
    parts = (stream.feed(text), stream.flush())
    return Said(*("".join(part).strip() for part in zip(*parts, strict=True)))


class ThoughtStream:
    """Splits a text into thought and answer, without the marks and the white space around them.

    A mark opens a thought only at the beginning of the text: an answer may be about marks. Text is held back while it
    may be part of a mark.
    """

    def __init__(self, prompt: str | None) -> None:
        """`prompt`: what the text follows; None if it has no thought at all."""
        marks = None if prompt is None else opened(prompt)
        self._part: Literal["unknown", "thought", "answer"] = (
            "answer" if prompt is None else "thought" if marks else "unknown"
        )
        self._marks = marks or PLAIN
        self._begins = bool(marks)  # white space is still to be dropped
        self._held = ""

    def feed(self, text: str) -> Said:
        """The next piece, as far as `text` settles what it is."""
        self._held += text
        if self._part == "unknown":
            start = self._held.lstrip()
            if any(len(start) < len(marks.opening) and marks.opening.startswith(start) for marks in FORMATS):
                return Said("", "")
            found = next((marks for marks in FORMATS if start.startswith(marks.opening)), None)
            self._begins = found is not None
            self._part = "thought" if found else "answer"
            if found:
                self._marks, self._held = found, start.removeprefix(found.opening)
        thought = self._think() if self._part == "thought" else ""
        return Said(thought, self._release(len(self._held)) if self._part == "answer" else "")

    def flush(self) -> Said:
        """The text still held back, when there is no more."""
        rest, self._held = self._held, ""
        return Said(rest, "") if self._part == "thought" else Said("", rest)

    def _think(self) -> str:
        marks, thought = (self._marks.closing, *self._marks.between), ""
        while self._part == "thought":
            found = [(at, mark) for mark in marks if (at := self._held.find(mark)) >= 0]
            if not found:
                return thought + self._release(len(self._held) - max(overlap(self._held, mark) for mark in marks))
            at, mark = min(found)
            thought += self._release(at)
            self._held = self._held.removeprefix(mark)
            self._begins = True
            if mark == self._marks.closing:
                self._part = "answer"
        return thought

    def _release(self, length: int) -> str:
        """Take `length` characters from those held back, without white space before the first word of a part."""
        released, self._held = self._held[:length], self._held[length:]
        if self._begins:
            released = released.lstrip()
            self._begins = not released
        return released
