"""How to draft."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from specgguf.engine.settings import DRAFT_MAX, DRAFT_MAX_FIXED, MAX_DRAFT, Mode

DraftMax = Annotated[
    int | None,
    typer.Option(
        "--draft-max",
        "-k",
        min=1,
        max=MAX_DRAFT,
        metavar="N",
        help=f"Draft tokens per round at most; default: {DRAFT_MAX}, fixed: {DRAFT_MAX_FIXED}.",
    ),
]


@dataclass(frozen=True)
class Drafting:
    """The options that say how to draft."""

    draft_max: DraftMax = None
    speculate: Annotated[
        Mode,
        typer.Option(
            "--speculate",
            envvar="SPECGGUF_SPECULATE",
            help="auto: as many draft tokens as pay, from what promises most; model, mtp, eagle3, dflash, ngram: from "
            "a draft model, a head of that kind, or text already seen only; fixed: always -k; off: plain decoding.",
        ),
    ] = Mode.AUTO
    ngram_store: Annotated[
        Path | None,
        typer.Option(
            "--ngram-store",
            metavar="FILE",
            help="Draft from the answers stored here too, and add the new ones; default: none.",
        ),
    ] = None
    exact: Annotated[
        bool,
        typer.Option(
            "--exact/--no-exact",
            show_default=False,
            help="The same tokens, bit for bit, as plain decoding with --exact on this machine.",
        ),
    ] = False
