"""What the journal keeps of an answer."""

from dataclasses import dataclass
from typing import Annotated

import typer


@dataclass(frozen=True)
class Journaling:
    """The options for the journal."""

    route: Annotated[
        str | None,
        typer.Option(
            "--route", metavar="NAME", help="What the journal counts the answers under; default: the command."
        ),
    ] = None
    journal: Annotated[
        bool,
        typer.Option(
            "--journal/--no-journal",
            show_default=False,
            help="Keep counters and times of each answer for specgguf stats; no text. Usual.",
        ),
    ] = True
    journal_text: Annotated[
        bool,
        typer.Option(
            "--journal-text/--no-journal-text",
            show_default=False,
            help="Keep the text of prompt and answer there too.",
        ),
    ] = False
