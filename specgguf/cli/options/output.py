"""What is shown, and how."""

from dataclasses import dataclass
from typing import Annotated

import typer

from specgguf.cli.options.precedence import unless_overridden
from specgguf.cli.terminal import output
from specgguf.errors import UsageError

Json = Annotated[
    bool,
    typer.Option("--json/--no-json", show_default=False, help="JSON instead of text.", callback=unless_overridden),
]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask before something is deleted or overwritten.")]


@dataclass(frozen=True)
class OutputForm:
    """The options for what is shown of an answer."""

    json: Json = False
    jsonl: Annotated[
        bool,
        typer.Option(
            "--jsonl/--no-jsonl",
            show_default=False,
            help="A JSON object a line: the text piece by piece, then the object of --json.",
            callback=unless_overridden,
        ),
    ] = False
    show_draft: Annotated[
        bool,
        typer.Option(
            "--show-draft/--no-show-draft",
            show_default=False,
            help="Mark accepted draft tokens on a terminal: green or [] from the draft model, magenta or {} "
            "from text already seen.",
        ),
    ] = False
    stats: Annotated[
        bool | None,
        typer.Option("--stats/--no-stats", help="Statistics on stderr at the end; default: on a terminal."),
    ] = None
    verbose: Annotated[
        bool,
        typer.Option(
            "--verbose/--no-verbose",
            "-v",
            show_default=False,
            help="llama.cpp's log, the settings, and when drafting is given up or taken up again.",
        ),
    ] = False

    def check(self) -> None:
        """Raises UsageError for options that exclude each other."""
        if self.jsonl and self.json:
            raise UsageError("--jsonl and --json exclude each other", "the last object of --jsonl is that of --json")

    @property
    def shows_stats(self) -> bool:
        """Whether statistics follow an answer."""
        return output.on_terminal() if self.stats is None else self.stats
