"""Turns the bytes of tokens into text."""

import codecs
import re
from collections.abc import Sequence

_SILENT = 0xD800
_SILENT_CHARACTERS = re.compile("[\ud800-\udfff]")


def silent(number: int) -> str:
    """A character, one of 2048, that prints nothing and is in no text in UTF-8: `feed` takes it for a control token."""
    return chr(_SILENT + number)


class TextStream:
    """Turns bytes into text, piece by piece, and ends it before a stop string.

    A character that is split over tokens is held back until it is complete. Bytes that are not UTF-8 become U+FFFD.
    Of one that never is complete there is no text: an answer may be cut anywhere.
    Text is held back while it may be the beginning of a stop string. A stop string may have `silent` characters.
    """

    def __init__(self, stops: Sequence[str] = ()) -> None:
        self._stops = stops
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""
        self.stopped = False
        """Whether a stop string was found. Nothing may be fed after that."""

    def feed(self, data: bytes, after: str = "") -> str:
        """The next piece of text, as far as `data`, and `after` it a silent character, settle it."""
        return self._release(self._held + self._decoder.decode(data) + after)

    def flush(self) -> str:
        """The text still held back, when there is no more data."""
        rest, self._held = self._held, ""
        return _audible(rest)

    def _release(self, text: str) -> str:
        found = [at for stop in self._stops if (at := text.find(stop)) >= 0]
        if found:
            self.stopped, self._held = True, ""
            return _audible(text[: min(found)])
        keep = max((overlap(text, stop) for stop in self._stops), default=0)
        self._held = text[len(text) - keep :]
        return _audible(text[: len(text) - keep])


def _audible(text: str) -> str:
    return _SILENT_CHARACTERS.sub("", text)


def overlap(text: str, stop: str) -> int:
    """Length of the longest end of `text` with which `stop` begins; less than all of `stop`."""
    longest = min(len(text), len(stop) - 1)
    return next((n for n in range(longest, 0, -1) if text.endswith(stop[:n])), 0)
