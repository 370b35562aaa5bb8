"""Separates the thoughts of a reasoning model from its answer, as the text arrives."""

from typing import Literal, NamedTuple

from specgguf.text.stream import overlap

OPEN, CLOSE = "<think>", "</think>"


class Said(NamedTuple):
    """A piece of text: some thought, and then some answer. Either may be empty."""

    thought: str
    answer: str


def opens_thought(prompt: str) -> bool:
    """Whether a prompt ends with an opening tag, so that the text begins inside a thought."""
    return prompt.rstrip().endswith(OPEN)


def split(text: str, inside: bool | None) -> Said:
    """Thought and answer of a text, whole or cut off; `inside` as in `ThoughtStream`."""
    stream = ThoughtStream(inside)
    parts = (stream.feed(text), stream.flush())
    return Said(*("".join(part).strip() for part in zip(*parts, strict=True)))


class ThoughtStream:
    """Splits a text into thought and answer, without the tags and the white space around them.

    A tag opens a thought only at the beginning of the text: an answer may be about tags. Text is held back while it may
    be part of a tag.
    """

    def __init__(self, inside: bool | None) -> None:
        """`inside`: whether the text begins inside a thought; None if it has no thought at all."""
        self._part: Literal["unknown", "thought", "answer"] = (
            "answer" if inside is None else "thought" if inside else "unknown"
        )
        self._begins = bool(inside)  # white space is still to be dropped
        self._held = ""

    def feed(self, text: str) -> Said:
        """The next piece, as far as `text` settles what it is."""
        self._held += text
        if self._part == "unknown":
            start = self._held.lstrip()
            if len(start) < len(OPEN) and OPEN.startswith(start):
                return Said("", "")
            self._begins = start.startswith(OPEN)
            self._part = "thought" if self._begins else "answer"
            self._held = start.removeprefix(OPEN) if self._begins else self._held
        thought = self._think() if self._part == "thought" else ""
        return Said(thought, self._release(len(self._held)) if self._part == "answer" else "")

    def flush(self) -> Said:
        """The text still held back, when there is no more."""
        rest, self._held = self._held, ""
        return Said(rest, "") if self._part == "thought" else Said("", rest)

    def _think(self) -> str:
        end = self._held.find(CLOSE)
        if end < 0:
            return self._release(len(self._held) - overlap(self._held, CLOSE))
        thought = self._release(end)
        self._held = self._held.removeprefix(CLOSE)
        self._part, self._begins = "answer", True
        return thought

    def _release(self, length: int) -> str:
        """Take `length` characters from those held back, without white space before the first word of a part."""
        released, self._held = self._held[:length], self._held[length:]
        if self._begins:
            released = released.lstrip()
            self._begins = not released
        return released
