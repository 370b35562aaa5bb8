"""Options that several commands share, as annotated types."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperOption

from specgguf.cli.completion import draft_quants, pair_names, references, target_quants
from specgguf.engine.settings import CHAT_CTX, CHAT_TEMPERATURE, DRAFT_MAX, DRAFT_MAX_FIXED, MAX_DRAFT, Mode

SETS_ASIDE = {
    "pair": ("target",),
    "target": ("pair",),
    "draft": ("pair", "target"),
    "quant": ("pair", "target"),
    "draft_quant": ("pair", "target", "draft"),
    "grammar": ("json_schema",),
    "json_schema": ("grammar",),
    "system": ("raw",),
    "chat_template": ("raw",),
    "raw": ("system", "chat_template"),
    "json": ("jsonl",),
    "jsonl": ("json", "lines"),
}
"""Parameters, and those that set aside what config.toml says of them; both ways: they exclude each other."""

_KINDS = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    list[str]: "a list of texts",
    Path: "the path of a file",
}


def allowed(option: TyperOption) -> str:
    """What an option may be, in words."""
    kind = option.type_descriptor
    if kind.parameter_info.parser is _layers:
        return "a whole number, 0 or more, or all"
    if kind.choices:
        *most, last = kind.choices
        return f"{', '.join(most)} or {last}"
    bounds = [f"{bound:g}" if isinstance(bound, float) else str(bound) for bound in (option.min, option.max)]
    if option.min is None:
        return _KINDS[kind.annotation]
    return f"{_KINDS[kind.annotation]}, {f'{bounds[0]} or more' if option.max is None else ' to '.join(bounds)}"


def is_set(value: object) -> bool:
    """Whether a value asks for something, as --no-raw does not."""
    return value is not None and value is not False


def _give_way(ctx: typer.Context, param: typer.CallbackParam, value: Any) -> Any:  # noqa: ANN401
    """The value, unless it is of config.toml and something on the command line, which comes first, sets it aside."""

    def source(name: str) -> str:
        return found.name if (found := ctx.get_parameter_source(name)) else ""

    given = [ctx.params.get(other) for other in SETS_ASIDE[param.name] if source(other) == "COMMANDLINE"]
    return param.default if source(param.name) == "DEFAULT_MAP" and any(map(is_set, given)) else value


def _layers(value: str | int) -> int:
    """Of the command line, or of config.toml."""
    if value == "all":
        return -1
    if not str(value).isdecimal():
        raise typer.BadParameter(f"{value!r} is neither a number nor 'all'.")
    return int(value)


Pair = Annotated[
    str | None,
    typer.Option(
        "--pair",
        "-p",
        metavar="NAME",
        help="A pair of models.toml.",
        autocompletion=pair_names,
        callback=_give_way,
    ),
]
Target = Annotated[
    str | None,
    typer.Option(
        "--target",
        "-m",
        metavar="REF",
        help="Target: a GGUF file, MODEL[:QUANT] of models.toml, or hf:owner/repo[:QUANT].",
        autocompletion=references,
        callback=_give_way,
    ),
]
Draft = Annotated[
    str | None,
    typer.Option(
        "--draft",
        "-d",
        metavar="REF",
        help="Draft: the same forms.",
        autocompletion=references,
        callback=_give_way,
    ),
]
Quant = Annotated[
    str | None,
    typer.Option(
        "--quant",
        "-q",
        metavar="TYPE",
        help="Quantization of the target; an unknown one lists what there is.",
        autocompletion=target_quants,
        callback=_give_way,
    ),
]
DraftQuant = Annotated[
    str | None,
    typer.Option(
        "--draft-quant",
        metavar="TYPE",
        help="The same for the draft; made here where nobody publishes it.",
        autocompletion=draft_quants,
        callback=_give_way,
    ),
]
Offline = Annotated[
    bool,
    typer.Option(
        "--offline/--no-offline",
        show_default=False,
        envvar="HF_HUB_OFFLINE",
        help="Use what is on this machine; ask no one else for anything.",
    ),
]
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
SpeculateMode = Annotated[
    Mode,
    typer.Option(
        "--speculate",
        envvar="SPECGGUF_SPECULATE",
        help="auto: as many drafts as pay, from the draft model or from text already seen; model, ngram: from one of "
        "them only; fixed: always -k; off: plain decoding.",
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
AnswerTokens = Annotated[
    int, typer.Option("--max-tokens", "-n", min=1, metavar="N", help="End an answer after N tokens.")
]
FirstSeed = Annotated[int, typer.Option("--seed", min=0, max=2**62, metavar="N", help="Seed of the first answer.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask before something is deleted or overwritten.")]
Temperature = Annotated[
    float, typer.Option("--temp", min=0.0, max=100.0, metavar="T", help="Temperature; 0 is greedy.")
]
ChatTemperature = Annotated[
    float | None,
    typer.Option(
        "--temp",
        min=0.0,
        max=100.0,
        metavar="T",
        help=f"Temperature; 0 is greedy; default: the model's, or else {CHAT_TEMPERATURE}.",
    ),
]
# The defaults of these are the model's own, if its file has some, or else llama.cpp's.
TopK = Annotated[
    int | None, typer.Option("--top-k", min=0, metavar="N", help="Keep the N likeliest tokens; 0: all; default: 40.")
]
TopP = Annotated[
    float | None,
    typer.Option("--top-p", min=0.0, max=1.0, metavar="P", help="Keep the likeliest of mass P; 1: all; default: 0.95."),
]
MinP = Annotated[
    float | None,
    typer.Option(
        "--min-p", min=0.0, max=1.0, metavar="P", help="Drop those below P times the likeliest; default: 0.05."
    ),
]
TypicalP = Annotated[
    float | None,
    typer.Option(
        "--typical-p", min=0.0, max=1.0, metavar="P", help="Keep the most typical of mass P; default: 1, all."
    ),
]
RepeatPenalty = Annotated[
    float | None,
    typer.Option(
        "--repeat-penalty", min=0.01, max=100.0, metavar="R", help="For the last 64 tokens; default: 1, none."
    ),
]
PresencePenalty = Annotated[
    float | None,
    typer.Option("--presence-penalty", min=-100.0, max=100.0, metavar="A", help="For each token seen; default: 0."),
]
FrequencyPenalty = Annotated[
    float | None,
    typer.Option("--frequency-penalty", min=-100.0, max=100.0, metavar="A", help="For each time it was; default: 0."),
]
LogitBias = Annotated[
    list[str] | None,
    typer.Option("--logit-bias", metavar="ID=BIAS", help="Added to a token's logit; -inf bans it; repeatable."),
]
Grammar = Annotated[
    Path | None,
    typer.Option(
        "--grammar",
        metavar="FILE",
        help="The answer must be of this grammar (GBNF).",
        callback=_give_way,
    ),
]
JsonSchema = Annotated[
    str | None,
    typer.Option(
        "--json-schema",
        metavar="SCHEMA",
        help="The answer must be JSON of this schema: a text, or a file.",
        callback=_give_way,
    ),
]
Seed = Annotated[
    int | None,
    typer.Option("--seed", min=0, max=2**63 - 1, metavar="N", help="Seed; default: a new one every time."),
]
Stop = Annotated[
    list[str] | None,
    typer.Option("--stop", metavar="TEXT", help="End before this text; may be given several times."),
]
System = Annotated[str | None, typer.Option("--system", metavar="TEXT", help="System message.", callback=_give_way)]
Raw = Annotated[
    bool,
    typer.Option(
        "--raw/--no-raw", show_default=False, help="No chat template: continue the text as it is.", callback=_give_way
    ),
]
ChatTemplate = Annotated[
    Path | None,
    typer.Option(
        "--chat-template",
        metavar="FILE",
        help="A jinja chat template instead of the model's own.",
        callback=_give_way,
    ),
]
NoThink = Annotated[
    bool,
    typer.Option(
        "--no-think/--think",
        show_default=False,
        help="Hide the thoughts of a reasoning model; none, where its template can.",
    ),
]
ShowDraft = Annotated[
    bool,
    typer.Option(
        "--show-draft/--no-show-draft",
        show_default=False,
        help="Mark on a terminal what was guessed right: green or [] by the draft, magenta or {} from text seen.",
    ),
]
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
ChatCtx = Annotated[
    int | None,
    typer.Option(
        "--ctx", "-c", min=1, metavar="N", help=f"Context in tokens; default: {CHAT_CTX}, or what the model knows."
    ),
]
DraftCtx = Annotated[
    int | None,
    typer.Option(
        "--draft-ctx",
        min=64,
        metavar="N",
        help="Context of the draft; default: the target's. Longer texts are not drafted for by the model.",
    ),
]
CacheTypeK = Annotated[
    str | None,
    typer.Option("--cache-type-k", metavar="TYPE", help="Cells of the key cache: f16 (default), bf16, q8_0, ..."),
]
CacheTypeV = Annotated[
    str | None, typer.Option("--cache-type-v", metavar="TYPE", help="Cells of the value cache: the same types.")
]
Prompts = Annotated[
    Path | None,
    typer.Option("--prompts", metavar="FILE", help="Prompts: a JSON object a line, with category and prompt."),
]
NgramStore = Annotated[
    Path | None,
    typer.Option(
        "--ngram-store", metavar="FILE", help="Draft from answers stored here too, and store this one; default: none."
    ),
]
Exact = Annotated[
    bool,
    typer.Option(
        "--exact/--no-exact",
        show_default=False,
        help="Bit for bit the tokens of plain --exact decoding on this machine, whatever drafts.",
    ),
]
Json = Annotated[
    bool, typer.Option("--json/--no-json", show_default=False, help="JSON instead of text.", callback=_give_way)
]
JsonLines = Annotated[
    bool,
    typer.Option(
        "--jsonl/--no-jsonl",
        show_default=False,
        help="An object a line: the text piece by piece, at last the object of --json.",
        callback=_give_way,
    ),
]
Lines = Annotated[
    bool,
    typer.Option("--lines", help="Each line piped in is a prompt of its own, put after PROMPT; an object a line."),
]
Skip = Annotated[
    int,
    typer.Option(
        "--skip", min=0, max=sys.maxsize, metavar="N", show_default=False, help="With --lines: begin after line N."
    ),
]
Stats = Annotated[
    bool | None,
    typer.Option("--stats/--no-stats", help="Statistics on stderr at the end; default: on a terminal."),
]
Verbose = Annotated[
    bool,
    typer.Option(
        "--verbose/--no-verbose",
        "-v",
        show_default=False,
        help="llama.cpp's log, the settings, and each change of mind about drafting.",
    ),
]
