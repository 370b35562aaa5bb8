"""The journal's file: an SQLite database that many processes write to at once."""

import json
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from specgguf.errors import JournalError
from specgguf.journal.guard import Guard, Judged, losing
from specgguf.journal.row import Pair, Row

MOST = 100_000
"""Rows that are kept, the latest."""
MOST_TEXTS = 10_000
"""The same for texts, where they are kept at all."""
_PATIENCE_S = 10.0
"""How long to wait for other processes' turns."""
_AT_ONCE = 1000
"""Rows in memory: a hundred thousand tuples would keep the garbage collector busy."""
_VERSION = 1
_SCHEMA = """
CREATE TABLE answers (
    id INTEGER PRIMARY KEY, time REAL, route TEXT, target TEXT, target_fingerprint TEXT, draft TEXT,
    draft_fingerprint TEXT, mode TEXT, texts INTEGER, prompt_tokens INTEGER, cached_tokens INTEGER,
    output_tokens INTEGER, rounds INTEGER, undrafted INTEGER, drafted INTEGER, accepted INTEGER, prefill_s REAL,
    first_token_s REAL, last_token_s REAL, decode_s REAL, tokens_per_s REAL, judged_s REAL, plain_s REAL,
    finish_reason TEXT
);
CREATE INDEX by_route ON answers (route, target_fingerprint, draft_fingerprint);
CREATE TABLE details (id INTEGER PRIMARY KEY, settings TEXT, counters TEXT);
CREATE TABLE texts (id INTEGER PRIMARY KEY, prompt TEXT, answer TEXT);
CREATE TABLE guards (
    route TEXT, target_fingerprint TEXT, draft_fingerprint TEXT, off_since REAL, speed REAL, answers INTEGER,
    judged_after INTEGER, PRIMARY KEY (route, target_fingerprint, draft_fingerprint)
);
"""
_OF_PAIR = "route = ? AND target_fingerprint = ? AND draft_fingerprint = ?"


class Columns(NamedTuple):
    """What `specgguf stats` adds up of the answers of one route by one pair: a column each, oldest first."""

    target: list[str]
    draft: list[str]
    output_tokens: list[int]
    rounds: list[int]
    undrafted: list[int]
    drafted: list[int]
    accepted: list[int]
    judged_s: list[float]
    plain_s: list[float]
    last_token_s: list[float]


@dataclass(frozen=True, slots=True)
class Off:
    """A route that its guard has switched off for a pair."""

    route: str
    pair: Pair
    since: float
    """Seconds since 1970."""
    speed: float
    """Against plain decoding, over the last `answers` answers before that."""
    answers: int


class Journal:
    """Rows of answers, and which routes their guards have switched off.

    All methods raise JournalError for a file that cannot be used: no room, no right, no database. Whatever ends the
    process in the midst of writing, rows are there whole or not at all.
    """

    def __init__(self, path: Path) -> None:
        """Nothing is opened yet."""
        self._path = path
        self._held: sqlite3.Connection | None = None

    def add(self, row: Row, guard: Guard | None = None) -> Off | None:
        """Add a row; the oldest go where there are too many. What the guard switches off because of it."""
        with self._writing() as database:
            values = _columns(row)
            number = database.execute(
                f"INSERT INTO answers ({', '.join(values)}) VALUES ({', '.join('?' * len(values))})",
                tuple(values.values()),
            ).lastrowid
            assert number is not None
            details = json.dumps(row.settings), json.dumps(row.counters)
            database.execute("INSERT INTO details VALUES (?, ?, ?)", (number, *details))
            for table, most in (("answers", MOST), ("details", MOST), ("texts", MOST_TEXTS)):
                database.execute(f"DELETE FROM {table} WHERE id <= ?", (number - most,))
            if row.prompt is not None:
                database.execute("INSERT INTO texts VALUES (?, ?, ?)", (number, row.prompt, row.answer))
            return _judge(database, row, guard) if guard else None

    def judged(self, route: str, pair: Pair, most: int) -> list[Judged]:
        """Of the latest answers of a route, `most` of those that a guard judges by."""
        with self._reading() as database:
            return _judged(database, route, pair, most) if database else []

    def is_off(self, route: str, pair: Pair) -> bool:
        """Whether a guard has switched the route off for this pair."""
        return any((off.route, off.pair) == (route, pair) for off in self.off())

    def off(self) -> list[Off]:
        """What guards have switched off."""
        with self._reading() as database:
            if not database:
                return []
            found = database.execute(
                "SELECT route, target_fingerprint, draft_fingerprint, off_since, speed, answers FROM guards "
                "WHERE off_since IS NOT NULL ORDER BY off_since"
            )
            return [Off(route, Pair(target, draft), *rest) for route, target, draft, *rest in found]

    def reset(self, route: str) -> bool:
        """Switch a route on again; answers until now are no longer held against it. Whether it was off."""
        if not self._path.exists():
            return False
        with self._writing() as database:
            changed = database.execute(
                "UPDATE guards SET off_since = NULL, judged_after = (SELECT max(id) FROM answers) "
                "WHERE route = ? AND off_since IS NOT NULL",
                (route,),
            )
            return changed.rowcount > 0

    def answers(self, since: float = 0.0, route: str | None = None) -> dict[tuple[str, Pair], Columns]:
        """What there is of answers, by route and pair; `since`: seconds since 1970."""
        groups: dict[tuple[str, Pair], Columns] = {}
        with self._reading() as database:
            if not database:
                return {}
            found = database.execute(
                f"SELECT {', '.join(Columns._fields)}, route, target_fingerprint, draft_fingerprint FROM answers "
                "WHERE time >= ? AND (? IS NULL OR route = ?) ORDER BY id",
                (since, route, route),
            )
            while rows := found.fetchmany(_AT_ONCE):
                parts: dict[tuple[str, str, str], list[tuple[Any, ...]]] = {}
                for row in rows:
                    parts.setdefault(row[-3:], []).append(row)
                for (of_route, *pair), part in parts.items():
                    empty = Columns(*([] for _ in Columns._fields))
                    columns: tuple[list[Any], ...] = groups.setdefault((of_route, Pair(*pair)), empty)
                    for column, values in zip(columns, zip(*part, strict=True), strict=False):
                        column.extend(values)
        return groups

    def close(self) -> None:
        """The file is left to others."""
        if self._held:
            self._held.close()
        self._held = None

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """The database, locked until all is written; nothing is, if anything fails."""
        with self._failures():
            self._held = self._held or _open(self._path)
            with _whole(self._held):
                yield self._held

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection | None]:
        """The database; None where nothing has been written yet."""
        with self._failures():
            if not self._held and self._path.exists():
                self._held = _open(self._path)
            yield self._held

    @contextmanager
    def _failures(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            hint = "check the folder and its permissions"
            raise JournalError(f"cannot use the journal {self._path}: {error.strerror}", hint) from None
        except sqlite3.OperationalError as error:
            hint = "check the folder, its permissions, and the room on its disk"
            raise JournalError(f"cannot use the journal {self._path}: {error}", hint) from None
        except sqlite3.Error as error:
            hint = "move it away: the next answer begins a new one"
            raise JournalError(f"the journal {self._path} is damaged: {error}", hint) from None


def _open(path: Path) -> sqlite3.Connection:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))  # with its texts it is nobody else's business
    database = sqlite3.connect(path, timeout=_PATIENCE_S, isolation_level=None)
    try:
        database.execute("PRAGMA synchronous = NORMAL")
        if (found := _version(database)) != _VERSION:
            _check(database, path, found)
            _create(database)
    except BaseException:
        database.close()
        raise
    return database


def _version(database: sqlite3.Connection) -> int:
    return int(database.execute("PRAGMA user_version").fetchone()[0])


def _check(database: sqlite3.Connection, path: Path, version: int) -> None:
    """Raises JournalError for what is no empty database, and was not made by this version."""
    if version > _VERSION:
        raise JournalError(f"the journal {path} is of a newer specgguf", "use that one, or move the file away")
    # In one statement: another process may just be making the tables.
    others = "SELECT 1 FROM sqlite_schema, pragma_user_version WHERE user_version = 0"
    if database.execute(others).fetchone():
        raise JournalError(f"the journal {path} is some other program's database", "move it away")


def _create(database: sqlite3.Connection) -> None:
    """Whoever comes first makes the tables."""
    _in_turn(database, "PRAGMA journal_mode = WAL")
    with _whole(database):
        if _version(database) != _VERSION:
            for statement in filter(str.strip, _SCHEMA.split(";")):
                database.execute(statement)
            database.execute(f"PRAGMA user_version = {_VERSION}")


@contextmanager
def _whole(database: sqlite3.Connection) -> Iterator[None]:
    """All that is written inside, or nothing. Other processes wait."""
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
        database.execute("COMMIT")
    except BaseException:
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise


def _in_turn(database: sqlite3.Connection, statement: str) -> None:
    """Execute what SQLite does not wait with, but fails at once where others have the file."""
    end = time.monotonic() + _PATIENCE_S
    while True:
        try:
            database.execute(statement)
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > end:
                raise
            time.sleep(0.01)


def _columns(row: Row) -> dict[str, Any]:
    """Those of the table of answers; the others have their own."""
    elsewhere = ("pair", "settings", "counters", "prompt", "answer")
    values = {name: getattr(row, name) for name in Row.__dataclass_fields__ if name not in elsewhere}
    return {**values, "target_fingerprint": row.pair.target, "draft_fingerprint": row.pair.draft}


def _judged(database: sqlite3.Connection, route: str, pair: Pair, most: int) -> list[Judged]:
    after = database.execute(f"SELECT judged_after FROM guards WHERE {_OF_PAIR}", (route, *pair)).fetchone()
    found = database.execute(
        f"SELECT mode = 'off', tokens_per_s, judged_s, plain_s FROM answers WHERE {_OF_PAIR} AND id > ? "
        "AND (judged_s > 0 OR mode = 'off' AND texts = 1 AND tokens_per_s > 0) ORDER BY id DESC LIMIT ?",
        (route, *pair, (after and after[0]) or 0, most),
    )
    return [Judged(bool(is_plain), *rest) for is_plain, *rest in found]


def _judge(database: sqlite3.Connection, row: Row, guard: Guard) -> Off | None:
    """Switch the route off if it loses and is on."""
    speed = losing(_judged(database, row.route, row.pair, guard.window), guard)
    if speed is None:
        return None
    switched = database.execute(
        "INSERT INTO guards VALUES (?, ?, ?, ?, ?, ?, NULL) ON CONFLICT DO UPDATE SET off_since = excluded.off_since, "
        "speed = excluded.speed, answers = excluded.answers WHERE off_since IS NULL",
        (row.route, *row.pair, row.time, speed, guard.window),
    )
    return Off(row.route, row.pair, row.time, speed, guard.window) if switched.rowcount else None
