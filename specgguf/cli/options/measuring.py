"""Options of commands that answer many prompts to measure or record something."""

from pathlib import Path
from typing import Annotated

import typer

Prompts = Annotated[
    Path | None,
    typer.Option("--prompts", metavar="FILE", help="Prompts: a JSON object a line, with category and prompt."),
]
AnswerTokens = Annotated[
    int, typer.Option("--max-tokens", "-n", min=1, metavar="N", help="End an answer after N tokens.")
]
