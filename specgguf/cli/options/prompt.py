"""What stands around the user's text in a prompt."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from specgguf.cli.options.precedence import unless_overridden
from specgguf.cli.options.texts import check_texts, read_file
from specgguf.errors import UsageError


@dataclass(frozen=True)
class PromptShape:
    """The options for the shape of a prompt."""

    system: Annotated[
        str | None, typer.Option("--system", metavar="TEXT", help="System message.", callback=unless_overridden)
    ] = None
    chat_template: Annotated[
        Path | None,
        typer.Option(
            "--chat-template",
            metavar="FILE",
            help="A jinja chat template instead of the model's own.",
            callback=unless_overridden,
        ),
    ] = None
    no_think: Annotated[
        bool,
        typer.Option(
            "--no-think/--think",
            show_default=False,
            help="Hide the thoughts of a reasoning model; if its chat template can, tell it not to think.",
        ),
    ] = False
    raw: Annotated[
        bool,
        typer.Option(
            "--raw/--no-raw",
            show_default=False,
            help="No chat template: continue the text as it is.",
            callback=unless_overridden,
        ),
    ] = False

    def check(self) -> None:
        """Raises UsageError for options that exclude each other, and for a system message that is no text."""
        if self.raw and self.system is not None:
            raise UsageError("--raw and --system exclude each other", "a system message needs the chat template")
        if self.raw and self.chat_template is not None:
            raise UsageError("--raw and --chat-template exclude each other", "give one of them")
        check_texts("system", [] if self.system is None else [self.system])

    def read_template(self) -> str | None:
        """The chat template that is given instead of the model's own; raises UsageError if it cannot be read."""
        return read_file("chat-template", self.chat_template) if self.chat_template else None
