"""Prompts to record, compare and measure with: the built-in ones, or a file of the user's."""

import json
from collections.abc import Container, Mapping
from dataclasses import dataclass
from pathlib import Path

from specgguf.errors import UsageError
from specgguf.text import jsontext

BUILT_IN = Path(__file__).parent / "prompts.jsonl"

ALL = "all"
"""Not the category of a prompt: that of all together in a report."""

GOLDEN = frozenset(
    {"chat", "code", "edit", "extraction", "summary", "translation", "maths", "long", "scripts", "whitespace"}
)
"""Categories of the built-in prompts that golden files hold."""

BENCH = frozenset({"chat", "code", "edit", "summary", "extraction", "maths", "translation", "story"})
"""Categories of the built-in prompts that speed is measured with."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A text to answer, and what kind of text it is."""

    category: str
    prompt: str


def built_in(categories: Container[str]) -> list[Prompt]:
    """The built-in prompts of these categories."""
    return [prompt for prompt in read_prompts(BUILT_IN) if prompt.category in categories]


def read_prompts(path: Path) -> list[Prompt]:
    """One JSON object a line, with `category` and `prompt`; raises UsageError that names the line of a mistake."""
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not UTF-8 text", "convert it first") from None
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", "check the path") from None
    prompts = [_prompt(path, number, line) for number, line in enumerate(lines, 1) if line.strip()]
    if not prompts:
        raise UsageError(f"{path} has no prompts", _FORM)
    return prompts


_FORM = 'each line is an object like {"category": "chat", "prompt": "Why is the sky blue?"}'


def _prompt(path: Path, number: int, line: str) -> Prompt:
    where = f"{path}, line {number}"
    try:
        entry = jsontext.parse(line)
    except json.JSONDecodeError as error:
        raise UsageError(f"{where}, column {error.colno}: {error.msg}", _FORM) from None
    except ValueError as error:
        raise UsageError(f"{where}: {error}", _FORM) from None
    if not isinstance(entry, Mapping):
        raise UsageError(f"{where}: no object", _FORM)
    for key in ("category", "prompt"):
        if not isinstance(entry.get(key), str) or not entry[key]:
            raise UsageError(f"{where}: {key} must be a text, and not empty", _FORM)
    if entry["category"] == ALL:
        raise UsageError(f"{where}: the category {ALL!r} is that of all prompts together", "choose another name")
    return Prompt(entry["category"], entry["prompt"])
