"""TOML files that people write: mistakes are named by file, line and key."""

import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from specgguf.errors import ConfigError

_KINDS: dict[type, str] = {str: "a text", int: "a number", list: "a list of tables", dict: "a table"}
Where = tuple[str | int, ...]
"""Keys, and places in arrays, that lead to something in the file."""

_MANY = 12
"""So many names are not listed in a hint."""


class TomlFile:
    """A file being read: checks what is in it, and knows the lines of mistakes."""

    def __init__(self, path: Path, help_: str) -> None:
        """`help_` says where the form of the file is shown."""
        self._path = path
        self._help = help_
        try:
            self._text = path.read_text(encoding="utf-8-sig")  # Windows editors begin with a mark
            self.root: dict[str, Any] = tomllib.loads(self._text)
        except UnicodeDecodeError as error:
            line = error.object[: error.start].count(b"\n") + 1
            raise ConfigError(f"{path}, line {line}: not UTF-8 text", "correct the file, or move it away") from None
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            raise ConfigError(f"{path}: {error}", "correct the file, or move it away") from None
        except OSError as error:
            raise ConfigError(f"cannot read {path}: {error.strerror}", "it must be a file you may read") from None

    def table(self, where: Where, value: Any, known: Sequence[str] = ()) -> dict[str, Any]:  # noqa: ANN401
        """`value`, which must be a table, and with `known` may have these keys only."""
        if not isinstance(value, dict):
            raise self.mistake(where, "must be a table")
        for key in value:
            if known and key not in known:
                raise self.mistake((*where, key), "is no key here", nearest(key, known, self._help))
        return value

    def get(self, where: Where, table: Mapping[Any, Any], kind: type) -> Any:  # noqa: ANN401
        """The value under the last key of `where`."""
        value = table.get(where[-1])
        if not isinstance(value, kind) or isinstance(value, bool):
            raise self.mistake(where, f"must be {_KINDS[kind]}" if where[-1] in table else "is missing")
        return value

    def mistake(self, where: Where, what: str, hint: str | None = None) -> ConfigError:
        """An error that says where in the file."""
        return ConfigError(f"{self.place(where)}: {what}", hint or self._help)

    def place(self, where: Where) -> str:
        """The file, the line and the key."""
        return f"{self._path}, line {self._line(where)}: {'.'.join(map(str, where))}"

    def _line(self, where: Where) -> int:
        """Where the table or key stands, or else what it should be in; the parser keeps no lines, so it gets them
        one by one.
        """
        best, depth = 1, 0
        header: Where = ()
        tables = Counter[Where]()
        for number, line in enumerate(self._text.splitlines(), 1):
            try:
                found = _only_path(tomllib.loads(line))
            except tomllib.TOMLDecodeError:
                continue
            path = (*header, *found)
            if line.lstrip().startswith("["):
                path = header = found
            if line.lstrip().startswith("[["):
                path = header = (*found, tables[found])
                tables[found] += 1
            if len(path) > depth and path == where[: len(path)]:
                best, depth = number, len(path)
        return best


def _only_path(value: object) -> Where:
    """The keys that lead into a table of one line: a.b of [a.b], [[a.b]] or a.b = 1."""
    path: Where = ()
    while isinstance(value, dict | list) and len(value) == 1:
        if isinstance(value, dict):
            key, value = next(iter(value.items()))
            path += (key,)
        else:
            value = value[0]
    return path


def nearest(name: str, known: Iterable[str], otherwise: str = "specgguf pairs lists what there is") -> str:
    """A hint for a name that is not among those known; `otherwise` where many are and none is near."""
    known = list(known)
    near = get_close_matches(name, known, n=3)
    if near:
        return f"did you mean {' or '.join(near)}?"
    return f"there is {', '.join(known)}" if len(known) < _MANY else otherwise
