"""What batches cost, learned in several sittings: one slow minute must not decide next week's drafts."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median_low
from typing import Any

from specgguf.exact.timing import is_sensible

Table = Mapping[str, Any]
"""As `WidthCosts.table` gives it."""
Tables = Mapping[int, Table]
"""By depth, as `Policy.tables` gives them."""

_HOUR_S = 3600.0
"""Seconds that a sitting lasts, in however many runs."""
_KEPT = 5
"""Sittings that are remembered. A machine that has become slower for good is believed after three."""
_KNOWN = 3
"""Rounds after which a width's time is more than a guess."""


def add_sitting(sittings: Sequence[Mapping[str, Any]], tables: Tables, now: float) -> list[Mapping[str, Any]]:
    """Earlier `sittings` and what was learned just now: of one hour the least is kept."""
    if sittings and 0 <= now - sittings[-1]["at"] <= _HOUR_S:
        *earlier, last = sittings
        return [*earlier, {"at": last["at"], "tables": _combine([last["tables"], tables], min)}]
    return [*sittings, {"at": now, "tables": tables}][-_KEPT:]


def usual(sittings: Iterable[Tables]) -> dict[int, dict[str, Any]]:
    """What is believed: of one or two sittings the least time, of more what the quicker half of them agrees on.

    Times that make no sense beside each other are not believed.
    """
    found = _combine(list(sittings), median_low)
    return {level: table for level, table in found.items() if is_sensible(known_times(table))}


def known_times(table: Table) -> dict[int, float]:
    """Seconds by width, as far as they are more than guesses."""
    rounds = table.get("rounds", {})
    return {width: seconds for width, seconds in table["times"].items() if rounds.get(width, _KNOWN) >= _KNOWN}


def from_json(tables: Mapping[str, Table]) -> dict[int, dict[str, Any]]:
    """Tables as JSON has kept them: its names are texts."""
    return {
        int(level): {
            what: {int(width): number for width, number in known.items()} if what in ("times", "rounds") else known
            for what, known in table.items()
        }
        for level, table in tables.items()
    }


def _combine(sittings: Sequence[Tables], pick: Callable[[Iterable[float]], float]) -> dict[int, dict[str, Any]]:
    """Every time as `pick` chooses it among those of the sittings."""
    levels = dict.fromkeys(level for tables in sittings for level in tables)
    return {level: _pick([tables[level] for tables in sittings if level in tables], pick) for level in levels}


def _pick(tables: Sequence[Table], pick: Callable[[Iterable[float]], float]) -> dict[str, Any]:
    found: dict[str, Any] = {"times": {}, "rounds": {}, "drafters": {}}
    for width in sorted({width for table in tables for width in table["times"]}):
        seen = [_seen(table, width) for table in tables if width in table["times"]]
        most = max(rounds for _, rounds in seen)
        least = min(most, _KNOWN)
        found["times"][width] = pick(seconds for seconds, rounds in seen if rounds >= least)
        found["rounds"][width] = most
    for name in dict.fromkeys(name for table in tables for name in table["drafters"]):
        drafters = [table["drafters"][name] for table in tables if name in table["drafters"]]
        found["drafters"][name] = {
            what: pick(times[what] for times in drafters if what in times)
            for what in ("step", "catch_up")
            if any(what in times for times in drafters)
        }
    if rollbacks := [table["rollback"] for table in tables if "rollback" in table]:
        found["rollback"] = pick(rollbacks)
    return found


def _seen(table: Table, width: int) -> tuple[float, float]:
    """Seconds, and rounds that they stand on."""
    return table["times"][width], table.get("rounds", {}).get(width, _KNOWN)
