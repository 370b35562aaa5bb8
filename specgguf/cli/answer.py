"""An answer on its way to stdout."""

from typing import TYPE_CHECKING

from specgguf.cli.terminal import output
from specgguf.text.thought import CLOSE, OPEN, Said

if TYPE_CHECKING:
    from specgguf.cli.terminal.markdown import MarkdownView

_MARKS = {"": ("", "", ""), "model": ("green", "[", "]"), "ngram": ("magenta", "{", "}")}
"""How an accepted guess is shown, by its source: in colour, or between two characters."""


class AnswerWriter:
    """Writes an answer piece by piece: with `show_draft` the accepted guesses are marked, and thought is dim.

    Marks are for terminals only. Where there are no styles guesses stand in brackets, and thought between its tags.
    With `markdown` an answer without marks is formatted, where there are styles.
    """

    def __init__(self, show_draft: bool, show_thought: bool = True, markdown: bool = False) -> None:
        self._show_draft = show_draft and output.answers_on_terminal()
        self._show_thought = show_thought
        self._styled = output.has_styles()
        self._markdown = markdown and not self._show_draft
        self._view: MarkdownView | None = None
        self._thinking = False
        self._end = ""

    def write(self, said: Said, source: str = "") -> None:
        """The next piece, as guessed by `source`."""
        if said.thought and self._show_thought:
            if not self._thinking and not self._styled:
                self._put(f"{OPEN}\n")
            self._thinking = True
            self._put(said.thought, source, "dim")
        if said.answer:
            self._end_thought()
            if self._markdown and not self._view:
                self._view = output.open_markdown()
            if self._view:
                self._view.feed(said.answer)
            else:
                self._put(said.answer, source)

    def end(self, newline: bool) -> None:
        """No more comes: with `newline` the last line is ended."""
        self._end_thought()
        if self._view:
            self._view.close()
        elif newline:
            self._new_line()

    def _end_thought(self) -> None:
        if self._thinking:
            self._new_line()
            self._put("\n" if self._styled else f"{CLOSE}\n\n")
        self._thinking = False

    def _new_line(self) -> None:
        if not self._end.endswith("\n"):
            self._put("\n")

    def _put(self, text: str, source: str = "", style: str = "") -> None:
        colour, left, right = _MARKS[source if self._show_draft else ""]
        self._end = text
        if self._styled:
            output.write(text, f"{style} {colour}".strip())
        else:
            output.write(f"{left}{text}{right}")
