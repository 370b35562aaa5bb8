"""An answer on its way to stdout."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from specgguf.cli.terminal import output
from specgguf.errors import INTERRUPTED, TERMINATED
from specgguf.text.thought import PLAIN, Said

if TYPE_CHECKING:
    from specgguf.cli.terminal.markdown import MarkdownView
    from specgguf.conversation.answer import Answer

_MARKS = {"model": ("green", "[", "]"), "ngram": ("magenta", "{", "}")}
"""How accepted draft tokens are shown, by the drafter's name: in colour, or between two characters."""
_OTHER_MARK = ("cyan", "<", ">")
_NO_MARK = ("", "", "")


def stream(answer: "Answer", write: Callable[[Said, str], object]) -> int:
    """Write an answer as it comes, after Ctrl-C or SIGTERM what there is of it; the exit code."""
    try:
        for said, source in answer:
            write(said, source)
    except (KeyboardInterrupt, SystemExit) as signal:  # SIGTERM raises the latter
        for said, source in answer.rest():
            write(said, source)
        return TERMINATED if isinstance(signal, SystemExit) else INTERRUPTED
    return 0


def note_end(answer: "Answer", is_full: bool, is_constrained: bool, hides_thought: bool) -> None:
    """Say why an answer is not what it might be. `is_full`: the end of the context ended it."""
    is_cut = answer.generation.finish_reason == "length"
    more = f": give a larger {'--ctx' if is_full else '--max-tokens'}" if is_cut else ""
    if hides_thought and answer.is_only_thought and answer.generation.finish_reason != "interrupted":
        output.note(f"there is nothing but a thought, which --no-think hides{more}")
    elif is_constrained and is_cut:
        output.note(f"the answer was cut off before it was complete{more}")
    elif is_full:
        output.note("the context is full: the answer ends here")


class AnswerWriter:
    """Writes an answer piece by piece: with `show_draft` accepted draft tokens are marked, and thought is dim.

    Marks are for terminals only. Where there are no styles, draft tokens stand in brackets and thought between its
    tags. With `markdown` an answer without marks is formatted, where there are styles.
    """

    def __init__(self, show_draft: bool, end_line: bool, show_thought: bool = False, markdown: bool = False) -> None:
        """`end_line`: whether the last line gets an end where the answer has none."""
        self._show_draft = show_draft and output.answers_on_terminal()
        self._end_line = end_line
        self._show_thought = show_thought
        self._styled = output.has_styles()
        self._markdown = markdown and not self._show_draft
        self._view: MarkdownView | None = None
        self._thinking = False
        self._last = ""

    def write(self, said: Said, source: str = "") -> None:
        """The next piece, as guessed by the drafter `source`."""
        if said.thought and self._show_thought:
            if not self._thinking and not self._styled:
                self._put(f"{PLAIN.opening}\n")
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

    def close(self) -> None:
        """Nothing more comes."""
        self._end_thought()
        if self._view:
            self._view.close()
        elif self._end_line:
            self._new_line()

    def _end_thought(self) -> None:
        if self._thinking:
            self._new_line()
            self._put("\n" if self._styled else f"{PLAIN.closing}\n\n")
        self._thinking = False

    def _new_line(self) -> None:
        if not self._last.endswith("\n"):
            self._put("\n")

    def _put(self, text: str, source: str = "", style: str = "") -> None:
        is_marked = self._show_draft and source
        colour, left, right = _MARKS.get(source, _OTHER_MARK) if is_marked else _NO_MARK
        self._last = text
        if self._styled:
            output.write(text, f"{style} {colour}".strip())
        else:
            output.write(f"{left}{text}{right}")
