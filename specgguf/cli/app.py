"""The program: registers the commands, and catches what goes wrong in them."""

import sys
from typing import Any, NoReturn

import typer
from typer.core import TyperGroup, TyperOption

from specgguf.cli import habits
from specgguf.cli.bench import bench
from specgguf.cli.chat import chat
from specgguf.cli.check import check
from specgguf.cli.config import config
from specgguf.cli.defaults import ConfiguredCommand, load_defaults
from specgguf.cli.doctor import doctor
from specgguf.cli.golden import golden
from specgguf.cli.options.values import allowed
from specgguf.cli.pairs import pairs
from specgguf.cli.pull import pull
from specgguf.cli.quantize import quantize
from specgguf.cli.run import run
from specgguf.cli.stats import stats
from specgguf.cli.terminal import output
from specgguf.cli.terminal.streams import ReaderGoneError, prepare
from specgguf.cli.tune import tune
from specgguf.cli.version import Version
from specgguf.errors import INTERRUPTED, ConfigError, SpecggufError, UsageError

_ALONE = ("--version", "--install-completion", "--show-completion")
"""What the program does instead of a command."""


class Program(TyperGroup):
    """All commands."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 (click's own)
        """Raises UsageError for an argument that would be ignored, SpecggufError if completion cannot be installed."""
        if args[:1] and args[0] in _ALONE and args[1:] and not ctx.resilient_parsing:
            raise UsageError(f"{args[0]} takes no argument: {args[1]}", "leave it out")
        if not ctx.resilient_parsing:
            habits.check(args)
        try:
            return super().parse_args(ctx, args)
        except typer.Exit:  # which is a RuntimeError
            raise
        except (OSError, RuntimeError) as error:  # there is no home, or it cannot be written to
            hint = "specgguf --show-completion prints it, to be put where your shell reads it"
            raise SpecggufError(f"cannot install completion: {error}", hint) from None


app = typer.Typer(
    cls=Program,
    name="specgguf",
    help="Speculative decoding for GGUF draft/target pairs: llama.cpp's answers, sooner, with the same words.",
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
for command, summary in (
    (run, "One answer."),
    (chat, "A conversation in the terminal."),
    (pairs, "The catalogue: what there is, what is on this machine, which drafts fit a target."),
    (pull, "Fetch and verify models."),
    (check, "Whether a draft's tokenizer fits a target's."),
    (quantize, "Make another quantization of a model on this machine."),
    (bench, "Plain against speculative decoding on this machine."),
    (config, "The value of every option, and its source."),
    (tune, "Measure what batches cost on this machine, and remember it."),
    (stats, "How answers went, by route, as the journal has it."),
    (doctor, "Devices, threads, and what was measured of a target."),
):
    app.command(short_help=summary, cls=ConfiguredCommand)(command)
app.add_typer(golden, name="golden", short_help="Regression tests of the text itself.")


@app.callback()
def specgguf(ctx: typer.Context, version: Version = False) -> None:
    """Speculative decoding for GGUF draft/target pairs: llama.cpp's answers, sooner, with the same words."""
    try:
        ctx.default_map, ctx.obj = load_defaults(ctx)
    except ConfigError as mistake:
        ctx.obj = mistake  # raised by whatever command is run: its --help works all the same


def main() -> NoReturn:
    """Run the command line and leave with its exit code."""
    prepare()
    sys.exit(_main())


def _main() -> int:
    try:
        return int(app(prog_name="specgguf", standalone_mode=False) or 0)
    except ReaderGoneError:
        return 0
    except SpecggufError as error:
        output.error(error.message, error.hint)
        return error.exit_code
    except typer.TyperException as error:
        output.error(*_described(error))
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED


def _described(error: typer.TyperException) -> tuple[str, str]:
    """Its message, or for a value that is not allowed: the option or variable, and what it may be; and a hint."""
    usual = "see specgguf --help, or --help of the command"
    option = getattr(error, "param", None)
    if not isinstance(error, typer.BadParameter) or not isinstance(option, TyperOption):
        unknown = str(getattr(error, "option_name", ""))
        return error.format_message(), habits.hint_for_option(unknown) or usual
    source = error.ctx and error.ctx.get_parameter_source(option.name)
    spelled = max(option.opts, key=len)
    name = option.envvar if source and source.name == "ENVIRONMENT" else spelled
    return f"{name} must be {allowed(option)}", habits.hint_for_value(spelled) or usual
