"""TOML files that people write: errors name the file, the line and the key."""

import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from specgguf.errors import ConfigError
from specgguf.text.suggestions import suggest

_TYPES: dict[type, str] = {str: "a string", int: "a whole number", list: "an array of tables", dict: "a table"}
Where = tuple[str | int, ...]
"""The path to a value in the file: keys, and indices in arrays."""


class TomlFile:
    """A parsed file. It checks values, and finds the lines of mistakes."""

    def __init__(self, path: Path, help_: str) -> None:
        """Raises ConfigError if the file cannot be read or parsed. `help_` is the hint for mistakes in it."""
        self._path = path
        self._help = help_
        try:
            self._text = path.read_text(encoding="utf-8-sig")  # Windows editors put a byte order mark first
            self.root: dict[str, Any] = tomllib.loads(self._text)
        except UnicodeDecodeError as error:
            line = error.object[: error.start].count(b"\n") + 1
            raise ConfigError(f"{path}, line {line}: not UTF-8 text", "correct the file, or move it away") from None
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            raise ConfigError(f"{path}: {error}", "correct the file, or move it away") from None
        except OSError as error:
            raise ConfigError(f"cannot read {path}: {error.strerror}", "check the path and its permissions") from None

    def table(self, where: Where, value: Any, known: Sequence[str] = ()) -> dict[str, Any]:  # noqa: ANN401
        """`value`, after checking that it is a table, and if `known` is given, that it has no other keys."""
        if not isinstance(value, dict):
            raise self.mistake(where, "must be a table")
        for key in value:
            if known and key not in known:
                raise self.mistake((*where, key), "unknown key", suggest(key, known, self._help))
        return value

    def get(self, where: Where, table: Mapping[Any, Any], type_: type) -> Any:  # noqa: ANN401
        """The value under the last key of `where`, after checking its type."""
        value = table.get(where[-1])
        if not isinstance(value, type_) or isinstance(value, bool):
            raise self.mistake(where, f"must be {_TYPES[type_]}" if where[-1] in table else "is missing")
        return value

    def mistake(self, where: Where, what: str, hint: str | None = None) -> ConfigError:
        """An error that says where in the file it is."""
        return ConfigError(f"{self.place(where)}: {what}", hint or self._help)

    def place(self, where: Where) -> str:
        """The file, the line and the key."""
        return f"{self._path}, line {self._line(where)}: {'.'.join(map(str, where))}"

    def _line(self, where: Where) -> int:
        """The line of a table or key, or else of the table it belongs to.

        The parser does not tell lines, so it gets the file line by line.
        """
        best, depth = 1, 0
        header: Where = ()
        tables = Counter[Where]()
        for number, line in enumerate(self._text.splitlines(), 1):
            try:
                found = _keys(tomllib.loads(line))
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


def _keys(value: object) -> Where:
    """The keys in a parsed line: a and b in [a.b], [[a.b]] or a.b = 1."""
    path: Where = ()
    while isinstance(value, dict | list) and len(value) == 1:
        if isinstance(value, dict):
            key, value = next(iter(value.items()))
            path += (key,)
        else:
            value = value[0]
    return path
