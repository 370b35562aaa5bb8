"""What an answer may be."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from specgguf.cli.options.precedence import unless_overridden
from specgguf.cli.options.texts import check_texts, read_file
from specgguf.errors import UsageError, about

if TYPE_CHECKING:
    from specgguf.llama.grammar import GrammarText


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
            help="The answer must be of this grammar (GBNF).",
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
            biases.append((int(token), value))
        return tuple(biases)

    def read_grammar(self) -> "GrammarText | None":
        """What --grammar or --json-schema asks for; raises UsageError for one with a mistake."""
        if self.grammar is None and self.json_schema is None:
            return None
        from specgguf.llama.grammar import GrammarText

        if self.grammar is not None:
            if self.json_schema is not None:
                raise UsageError("--grammar and --json-schema exclude each other", "give one of them")
            with about("grammar"):
                return GrammarText.parse(read_file("grammar", self.grammar))
        text = self.json_schema or ""
        check_texts("json-schema", [text])
        if not text.lstrip().startswith("{"):
            text = read_file("json-schema", Path(text), "check the path; a schema given as text begins with {")
        with about("json-schema"):
            return GrammarText.from_schema(text)
