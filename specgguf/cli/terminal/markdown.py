"""An answer's markdown, formatted on the terminal while it comes."""

from markdown_it import MarkdownIt
from rich.console import Console, Group
from rich.live import Live
from rich.markdown import Markdown
from rich.segment import SegmentLines
from rich.text import Text

from specgguf.text.printable import visible

_ROOM = 2
"""Lines of the terminal left to what stands above an unfinished block."""


class MarkdownView:
    """Prints every block formatted once it is finished, and below it the next one as far as it has come.

    What is finished is never touched again, and of the rest only as much is redrawn as the terminal holds: so nothing
    flickers, and nothing is lost above.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._blocks = MarkdownIt()
        self._rest = ""
        self._is_first = True
        self._live = Live(console=console, transient=True, auto_refresh=False)
        self._live.start()

    def feed(self, text: str) -> None:
        """The next piece."""
        self._rest += visible(text)
        finished = self._num_finished()
        if finished:
            self._print(self._rest[:finished])
            self._rest = self._rest[finished:]
        lines = Text(self._rest).wrap(self._console, self._console.width)
        self._live.update(Group(*lines[-max(1, self._console.height - _ROOM) :]), refresh=True)

    def close(self) -> None:
        """Nothing more comes: what there is of the last block is formatted too."""
        self._live.update(Text(""))
        self._live.stop()
        if self._rest.strip():
            self._print(self._rest)
        self._rest = ""

    def _num_finished(self) -> int:
        """How many characters stand before the last block: a later line cannot change them any more."""
        starts = [token.map[0] for token in self._blocks.parse(self._rest) if token.level == 0 and token.map]
        return len("".join(f"{line}\n" for line in self._rest.split("\n")[: starts[-1]])) if starts else 0

    def _print(self, text: str) -> None:
        if not self._is_first:
            self._console.print()
        self._is_first = False
        # Links would be the model's to name: their addresses are shown instead.
        lines = self._console.render_lines(Markdown(text, hyperlinks=False), pad=False)
        while lines and not any(segment.text.strip() for segment in lines[0]):  # above a list there is one already
            lines.pop(0)
        self._console.print(SegmentLines(lines, new_lines=True), end="")
