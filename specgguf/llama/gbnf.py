"""Finds mistakes in GBNF, llama.cpp's notation for grammars, before llama.cpp sees them.

llama.cpp prints a mistake to stderr, followed by the whole grammar. It also accepts some grammars that then make it use
up all memory or abort the process: rules that begin with themselves after something empty, and `{3,2}`.
Reference: its grammars/README.md and src/llama-grammar.cpp.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from specgguf.errors import UsageError

ROOT = "root"

_MOST_REPETITIONS = 2000
_NAME = re.compile(r"[a-zA-Z0-9-]+")
_CHAR = re.compile(r"""\\(?:[trn\\"\[\]-]|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8})|[^\\\0]""")
_SPACE = re.compile(r"(?:[ \t]|#[^\r\n\0]*)*")
_SPACE_AND_LINES = re.compile(r"(?:[ \t\r\n]|#[^\r\n\0]*)*")
_COUNTS = r"\{_([0-9]{1,19})_(?:(,)_(?:([0-9]{1,19})_)?)?\}"
_SIGNS: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}


@dataclass(slots=True)
class _Item:
    """Characters, or a rule."""

    rule: str | None
    optional: bool
    """Whether it may be nothing, whatever its rule."""
    repeatable: bool = True
    weight: int = 1
    """How many rules llama.cpp makes of it; their number is limited."""


@dataclass(slots=True)
class _Rule:
    place: int
    alternatives: list[list[_Item]] = field(default_factory=lambda: [[]])


def check(text: str) -> None:
    """Raise UsageError, with the line, if `text` is not a usable grammar."""
    try:
        reader = _Reader(text)
        rules = reader.rules()
        if ROOT not in rules:
            raise _Mistake(0, f"no rule is named {ROOT}, with which a text begins")
        for name, place in reader.names.items():
            if name not in rules:
                raise _Mistake(place, f"there is no rule {name}")
        _check_beginnings(rules)
    except _Mistake as mistake:
        line = text.count("\n", 0, mistake.place) + 1
        raise UsageError(
            f"the grammar, line {line}: {mistake.what}", "llama.cpp's grammars/README.md describes its notation, GBNF"
        ) from None


class _Mistake(Exception):  # noqa: N818 (never leaves this module)
    def __init__(self, place: int, what: str) -> None:
        self.place = place
        self.what = what


class _Reader:
    """Reads from left to right.

    A group in parentheses becomes a rule with a name that no rule in the text can have. Open groups are on a stack: a
    JSON schema with a long string nests them too deeply for recursion.
    """

    def __init__(self, text: str) -> None:
        self.names: dict[str, int] = {}
        """The first position of each name."""
        self._text = text + "\0"
        self._place = 0
        self._num_made = 0

    def rules(self) -> dict[str, _Rule]:
        """All rules; a group comes before the rule it is in."""
        rules: dict[str, _Rule] = {}
        self._skip(_SPACE_AND_LINES)
        while self._place < len(self._text) - 1:
            place = self._place
            name = self._name()
            self._skip(_SPACE)
            if not self._text.startswith("::=", self._place):
                raise self._expected("::=")
            self._place += 3
            self._skip(_SPACE_AND_LINES)
            rules.update(self._body(name, place))
            if self._ahead not in "\r\n\0":
                raise self._expected("the end of the line")
            self._skip(_SPACE_AND_LINES)
        if not rules:
            raise _Mistake(0, "it is empty")
        return rules

    def _body(self, name: str, place: int) -> Iterator[tuple[str, _Rule]]:
        open_rules = [(name, _Rule(place), 0)]
        while True:
            title, rule, num_before = open_rules[-1]
            sequence = rule.alternatives[-1]
            char, place = self._ahead, self._place
            lines = len(open_rules) > 1  # in a group a line may end anywhere
            if char == "|":
                rule.alternatives.append([])
                self._place += 1
                lines = True
            elif char == "(":
                open_rules.append((f"({place}", _Rule(place), self._num_rules()))
                self._num_made += 1
                self._place += 1
                lines = True
            elif char == ")" and lines:
                yield open_rules.pop()[:2]
                weight = max(1, self._num_rules() - num_before)
                open_rules[-1][1].alternatives[-1].append(_Item(title, False, weight=weight))
                self._place += 1
                lines = len(open_rules) > 1
            elif char in "*+?{":
                self._repeat(sequence, lines)
            elif char in '"[':
                empty = self._characters("]" if char == "[" else '"') == 0
                sequence.append(_Item(None, empty, not empty))
            elif char == ".":
                sequence.append(_Item(None, False))
                self._place += 1
            elif char in "<!":
                raise _Mistake(place, "tokens by name or number, as <token>, are not supported: write their text")
            elif _NAME.match(char):
                sequence.append(_Item(self._name(), False))
            elif lines:
                raise self._expected(")")
            else:
                yield title, rule
                return
            self._skip(_SPACE_AND_LINES if lines else _SPACE)

    def _characters(self, end: str) -> int:
        """Read a literal or a class, and return how many characters it names."""
        begin = self._place
        self._place += 2 if self._text.startswith("[^", self._place) else 1
        count = 0
        while self._ahead != end:
            self._character(begin)
            count += 1
            if end == "]" and self._ahead == "-" and self._text[self._place + 1] != "]":
                self._place += 1
                self._character(begin)
        self._place += 1
        return count

    def _character(self, begin: int) -> None:
        found = _CHAR.match(self._text, self._place)
        if found is None and self._ahead == "\0":
            raise _Mistake(begin, f"the end of what begins with {self._text[begin]} is missing")
        if found is None:
            raise _Mistake(self._place, f"unknown escape {self._text[self._place : self._place + 2]}")
        self._place = found.end()

    def _repeat(self, sequence: list[_Item], lines: bool) -> None:
        place = self._place
        if self._ahead in _SIGNS:
            least, most = _SIGNS[self._ahead]
            self._place += 1
        else:
            space = _SPACE_AND_LINES if lines else _SPACE
            found = re.compile(_COUNTS.replace("_", space.pattern)).match(self._text, place)
            if found is None:
                raise self._expected("{number}, {number,} or {number,number}")
            least = int(found[1])
            most = least if found[2] is None else int(found[3]) if found[3] else None
            self._place = found.end()
        if not sequence or not sequence[-1].repeatable:
            raise _Mistake(place, f"nothing before {self._text[place]} that could be repeated")
        if most is not None and most < least:
            raise _Mistake(place, f"{most} repetitions at most are fewer than {least} at least")
        if most is not None and most > _MOST_REPETITIONS:
            most = None  # so does llama.cpp
        item = sequence[-1]
        item.weight *= most or least or 1
        if max(least, item.weight) > _MOST_REPETITIONS:
            raise _Mistake(place, f"too many repetitions: llama.cpp makes {_MOST_REPETITIONS} rules of one at most")
        item.optional |= least == 0
        item.repeatable = most != 0
        self._num_made += 1 if most is None else most - least

    def _num_rules(self) -> int:
        return len(self.names) + self._num_made

    def _name(self) -> str:
        found = _NAME.match(self._text, self._place)
        if found is None:
            raise self._expected("a rule (name ::= ...)")
        self.names.setdefault(found[0], self._place)
        self._place = found.end()
        return found[0]

    @property
    def _ahead(self) -> str:
        return self._text[self._place]

    def _skip(self, space: re.Pattern[str]) -> None:
        found = space.match(self._text, self._place)
        self._place = found.end() if found else self._place

    def _expected(self, what: str) -> _Mistake:
        rest = self._text[self._place :].splitlines()[0].rstrip("\0")[:40]
        return _Mistake(self._place, f"expected {what} at {rest!r}" if rest else f"expected {what} at the end")


def _check_beginnings(rules: dict[str, _Rule]) -> None:
    """Check that no rule begins with itself, directly or through others, even after something empty."""
    optional: set[str] = set()
    found = True
    while found:
        found = False
        for name, rule in rules.items():
            if name not in optional and any(all(_optional(i, optional) for i in items) for items in rule.alternatives):
                optional.add(name)
                found = True
    begins = {name: set(_beginnings(rule, optional)) for name, rule in rules.items()}
    while leaves := {name for name, others in begins.items() if not others}:
        begins = {name: others - leaves for name, others in begins.items() if name not in leaves}
    if begins:  # every rule that is left leads to a circle
        path = [next(iter(begins))]
        while (following := next(iter(begins[path[-1]]))) not in path:
            path.append(following)
        circle = [name for name in path[path.index(following) :] if not name.startswith("(")]
        raise _Mistake(rules[circle[0]].place, f"rule {circle[0]} begins with itself (left recursion)")


def _optional(item: _Item, optional: set[str]) -> bool:
    return item.optional or item.rule in optional


def _beginnings(rule: _Rule, optional: set[str]) -> Iterator[str]:
    for items in rule.alternatives:
        for item in items:
            if item.rule is not None:
                yield item.rule
            if not _optional(item, optional):
                break
