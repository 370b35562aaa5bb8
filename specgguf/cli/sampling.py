"""The options that say how tokens are chosen."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from specgguf.errors import UsageError

if TYPE_CHECKING:
    from specgguf.llama.grammar import GrammarText


def parse_biases(texts: Sequence[str]) -> tuple[tuple[int, float], ...]:
    """What --logit-bias says; raises UsageError if it is not ID=BIAS."""
    biases = []
    for text in texts:
        token, _, bias = text.partition("=")
        try:
            value = float(bias)
        except ValueError:
            value = math.nan
        if not token.isdecimal() or math.isnan(value) or value == math.inf:
            raise UsageError(f"--logit-bias {text}: not ID=BIAS", "give a token id and a number, such as 42=-1.5")
        biases.append((int(token), value))
    return tuple(biases)


def read_grammar(grammar: Path | None, json_schema: str | None) -> "GrammarText | None":
    """What --grammar or --json-schema asks for; raises UsageError if it cannot be."""
    if grammar is None and json_schema is None:
        return None
    from specgguf.llama.grammar import GrammarText

    if grammar is not None:
        if json_schema is not None:
            raise UsageError("--grammar and --json-schema exclude each other", "give one of them")
        return GrammarText.parse(read_file("--grammar", grammar))
    (text,) = check_texts("--json-schema", [json_schema or ""])
    if not text.lstrip().startswith("{"):
        text = read_file("--json-schema", Path(text), "check the path; a schema given as text begins with {")
    return GrammarText.from_schema(text)


def read_file(option: str, path: Path, hint: str = "check the path") -> str:
    """The text of a file that an option names; raises UsageError, with this hint, if there is none."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise UsageError(f"{option}: {path} is not UTF-8 text", "convert it first") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"{option}: cannot read {path}: {reason}", hint) from None


def check_texts(option: str, texts: Sequence[str]) -> Sequence[str]:
    """The texts that an option was given; raises UsageError for one that is empty or not UTF-8."""
    for text in texts:
        if not text:
            raise UsageError(f"{option} is empty", f"give {option} some text, or leave it out")
        try:
            text.encode()
        except UnicodeEncodeError:
            raise UsageError(f"{option} is not UTF-8 text", "check the encoding of your terminal") from None
    return texts
