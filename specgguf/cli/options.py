"""Options that several commands share, as annotated types."""

from enum import StrEnum
from typing import Annotated

import typer


class Speculate(StrEnum):
    """How to draft."""

    AUTO = "auto"
    FIXED = "fixed"
    MODEL = "model"
    OFF = "off"


def _layers(value: str) -> int:
    if value == "all":
        return -1
    if not value.isdigit():
        raise typer.BadParameter(f"{value!r} is neither a number nor 'all'.")
    return int(value)


MAX_DRAFT = 511
"""One batch holds 512 tokens, and the last known one goes first."""

Pair = Annotated[
    str | None,
    typer.Option("--pair", "-p", metavar="NAME", help="A pair of models.toml."),
]
Target = Annotated[
    str | None,
    typer.Option(
        "--target",
        "-m",
        metavar="REF",
        help="Target: a GGUF file, MODEL[:QUANT] of models.toml, or hf:owner/repo[:QUANT].",
    ),
]
Draft = Annotated[
    str | None,
    typer.Option("--draft", "-d", metavar="REF", help="Draft: the same forms."),
]
Quant = Annotated[
    str | None,
    typer.Option(
        "--quant", "-q", metavar="TYPE", help="Quantization of the target; an unknown one lists what there is."
    ),
]
DraftQuant = Annotated[
    str | None,
    typer.Option("--draft-quant", metavar="TYPE", help="The same for the draft; made here where nobody publishes it."),
]
Offline = Annotated[
    bool,
    typer.Option(
        "--offline", envvar="HF_HUB_OFFLINE", help="Use what is on this machine; ask no one else for anything."
    ),
]
DraftMax = Annotated[
    int | None,
    typer.Option("--draft-max", "-k", min=1, max=MAX_DRAFT, metavar="N", help="Tokens to draft per round; default: 4."),
]
SpeculateMode = Annotated[
    Speculate,
    typer.Option(
        "--speculate",
        envvar="SPECGGUF_SPECULATE",
        help="auto, fixed and model draft with the draft model; off decodes plainly.",
    ),
]
MaxTokens = Annotated[
    int | None,
    typer.Option(
        "--max-tokens",
        "-n",
        min=1,
        metavar="N",
        help="End after N tokens; default: when the context is full.",
    ),
]
Temperature = Annotated[
    float, typer.Option("--temp", min=0.0, max=100.0, metavar="T", help="Temperature; 0 is greedy.")
]
TopK = Annotated[int, typer.Option("--top-k", min=0, metavar="N", help="Keep the N likeliest tokens; 0: all.")]
TopP = Annotated[
    float,
    typer.Option("--top-p", min=0.0, max=1.0, metavar="P", help="Keep the likeliest tokens of mass P; 1: all."),
]
MinP = Annotated[
    float,
    typer.Option("--min-p", min=0.0, max=1.0, metavar="P", help="Drop tokens below P times the likeliest; 0: none."),
]
RepeatPenalty = Annotated[
    float,
    typer.Option("--repeat-penalty", min=0.01, max=100.0, metavar="R", help="Penalty for the last 64 tokens; 1: none."),
]
Seed = Annotated[
    int | None,
    typer.Option("--seed", min=0, max=2**63 - 1, metavar="N", help="Seed; default: a new one every time."),
]
Stop = Annotated[
    list[str] | None,
    typer.Option("--stop", metavar="TEXT", help="End before this text; may be given several times."),
]
System = Annotated[str | None, typer.Option("--system", metavar="TEXT", help="System message.")]
Raw = Annotated[bool, typer.Option("--raw", help="No chat template: continue the text as it is.")]
GpuLayers = Annotated[
    int | None,
    typer.Option(
        "--gpu-layers", parser=_layers, metavar="N|all", help="Layers of the target on the GPU; default: all."
    ),
]
DraftGpuLayers = Annotated[
    int | None,
    typer.Option("--draft-gpu-layers", parser=_layers, metavar="N|all", help="The same for the draft."),
]
Threads = Annotated[
    int | None,
    typer.Option("--threads", "-t", min=1, max=512, metavar="N", help="Threads; default: the physical cores."),
]
Ctx = Annotated[
    int | None,
    typer.Option("--ctx", "-c", min=1, metavar="N", help="Context in tokens; default: what the task needs."),
]
CacheTypeK = Annotated[
    str | None,
    typer.Option("--cache-type-k", metavar="TYPE", help="Cells of the key cache: f16 (default), bf16, q8_0, ..."),
]
CacheTypeV = Annotated[
    str | None, typer.Option("--cache-type-v", metavar="TYPE", help="Cells of the value cache: the same types.")
]
Exact = Annotated[
    bool,
    typer.Option("--exact", help="Bit for bit the tokens of plain --exact decoding on this machine, whatever drafts."),
]
Json = Annotated[bool, typer.Option("--json", help="One JSON object instead of the text.")]
Stats = Annotated[
    bool | None,
    typer.Option("--stats/--no-stats", help="Statistics on stderr at the end; default: on a terminal."),
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="llama.cpp's log and the settings in effect.")]
