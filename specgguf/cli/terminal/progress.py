"""Progress bars."""

from typing import TYPE_CHECKING

from specgguf.cli.terminal.output import console, on_terminal
from specgguf.text.printable import visible

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


class TerminalProgress:
    """Progress bars on stderr if that is a terminal, else nothing: one display for all of them."""

    def __init__(self) -> None:
        self._display: Progress | None = None
        self._bars: dict[str, TaskID] = {}

    def expect(self, what: str, num_bytes: int) -> None:
        """A bar for a file that is to be fetched."""
        self._bar(f"fetching {what} ({num_bytes / 1e9:.2f} GB)", what, num_bytes)

    def show(self, what: str, done: int, total: int | None, detail: str = "") -> None:
        """Move the bar of `what`; a total of None is not known yet."""
        self._bar(what, what, total)
        if self._display:
            self._display.start_task(self._bars[what])
            self._display.update(self._bars[what], completed=done)
            if detail:
                self._display.update(self._bars[what], description=f"{what} {detail}")

    def close(self) -> None:
        """Take the bars away."""
        if self._display:
            self._display.stop()
            self._display = None
            self._bars.clear()

    def _bar(self, text: str, what: str, total: int | None) -> None:
        if what in self._bars or not on_terminal():
            return
        stderr = console()
        if stderr.is_dumb_terminal:
            return
        if self._display is None:
            from rich import progress

            self._display = progress.Progress(
                progress.TextColumn("{task.description}", markup=False),
                progress.BarColumn(),
                progress.TaskProgressColumn(),
                progress.TimeRemainingColumn(),
                console=stderr,
                transient=True,
                redirect_stdout=False,  # that is data
                refresh_per_second=2,  # what is being measured wants the processor for itself
                speed_estimate_period=600,
            )
            self._display.start()
        self._bars[what] = self._display.add_task(visible(text), total=total, start=False)
