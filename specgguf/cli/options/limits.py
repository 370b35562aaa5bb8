"""Where an answer ends."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import typer

from specgguf.cli.options.texts import check_texts


@dataclass(frozen=True)
class Limits:
    """The options that end an answer."""

    max_tokens: Annotated[
        int | None,
        typer.Option(
            "--max-tokens",
            "-n",
            min=1,
            metavar="N",
            help="End after N tokens; default: when the context is full.",
        ),
    ] = None
    stop: Annotated[
        list[str] | None,
        typer.Option(
            "--stop", metavar="TEXT", help="End before this text or special token; may be given several times."
        ),
    ] = None

    @property
    def stops(self) -> Sequence[str]:
        """The texts of --stop; raises UsageError for one that is empty or no text."""
        check_texts("stop", self.stop or [])
        return self.stop or []
