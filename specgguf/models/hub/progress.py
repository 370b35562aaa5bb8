"""How the store reports what it is doing."""

from typing import Protocol


class Progress(Protocol):
    """Shows the user what is being waited for: several things, one after the other."""

    def expect(self, what: str, num_bytes: int) -> None:
        """Announce a download."""

    def show(self, what: str, done: int, total: int) -> None:
        """Say how much of it is done."""

    def close(self) -> None:
        """The wait is over."""
