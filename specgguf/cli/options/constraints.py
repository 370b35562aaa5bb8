"""What an answer may be."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from specgguf.cli.options.precedence import unless_overridden
from specgguf.cli.options.texts import check_texts, read_file
from specgguf.cli.terminal import output
from specgguf.errors import UsageError, about

if TYPE_CHECKING:
    from specgguf.llama.grammar import GrammarText

MAX_BIAS = 1e30
"""Far above any logit, and with penalties still in the range of a logit's type."""


@dataclass(frozen=True)
class Constraints:
    """The options that rule out tokens."""

    logit_bias: Annotated[
        list[str] | None,
        typer.Option("--logit-bias", metavar="ID=BIAS", help="Added to a token's logit; -inf bans it; repeatable."),
    ] = None
    grammar: Annotated[
        Path | None,
        typer.Option(
            "--grammar",
            metavar="FILE",
            help="The answer must be of this grammar, in llama.cpp's notation (GBNF).",
            callback=unless_overridden,
        ),
    ] = None
    json_schema: Annotated[
        str | None,
        typer.Option(
            "--json-schema",
            metavar="SCHEMA",
            help="The answer must be JSON of this schema: a text, or a file.",
            callback=unless_overridden,
        ),
    ] = None
    regex: Annotated[
        str | None,
        typer.Option(
            "--regex",
            metavar="TEXT",
            help="The whole answer must match this regular expression.",
            callback=unless_overridden,
        ),
    ] = None
    lark: Annotated[
        Path | None,
        typer.Option(
            "--lark",
            metavar="FILE",
            help="The answer must be of this grammar, in llguidance's notation (Lark).",
            callback=unless_overridden,
        ),
    ] = None

    def parse_biases(self) -> tuple[tuple[int, float], ...]:
        """Tokens with what is added to their logits; raises UsageError for what is not ID=BIAS."""
        biases = []
        for text in self.logit_bias or []:
            token, _, bias = text.partition("=")
            try:
                value = float(bias)
            except ValueError:
                value = math.nan
            if not token.isdecimal() or math.isnan(value) or value == math.inf:
                hint = "give a token id and a number, such as 42=-1.5"
                raise UsageError(f"--logit-bias {text}: not ID=BIAS", hint, ("logit-bias",))
            if MAX_BIAS < abs(value) < math.inf:
                hint = f"give at most {MAX_BIAS:g}, at least {-MAX_BIAS:g}, or -inf, which bans the token"
                raise UsageError(f"--logit-bias {text}: a logit has no room for that", hint, ("logit-bias",))
            biases.append((int(token), value))
        return tuple(biases)

    def read_grammar(self) -> "GrammarText | None":
        """What the answer must be of; raises UsageError for a mistake in it. What is not as it says is told."""
        given = [name for name in ("grammar", "json-schema", "regex", "lark") if self._value(name) is not None]
        if not given:
            return None
        if len(given) > 1:
            raise UsageError(f"--{given[0]} and --{given[1]} exclude each other", "give one of them", tuple(given[:2]))
        from specgguf.llama.grammar import GrammarText

        readers = {
            "grammar": GrammarText.from_gbnf,
            "json-schema": GrammarText.from_schema,
            "regex": GrammarText.from_regex,
            "lark": GrammarText.from_lark,
        }
        with about(given[0]):
            grammar = readers[given[0]](self._text(given[0]))
        for line in grammar.notes:
            output.note(line)
        return grammar

    def _value(self, option: str) -> str | Path | None:
        value: str | Path | None = getattr(self, option.replace("-", "_"))
        return value

    def _text(self, option: str) -> str:
        """What the option says, or the file that it names."""
        value, hint = self._value(option), "check the path"
        if isinstance(value, str):
            check_texts(option, [value])
            if option == "regex" or value.lstrip().startswith("{"):
                return value
            hint = "check the path; a schema given as text begins with {"
        return read_file(option, Path(value or ""), hint)
