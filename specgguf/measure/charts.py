"""What `bench` has measured as a chart and as a page: files of their own that need nothing else to be shown."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from specgguf.measure.prompts import ALL

Row = Mapping[str, Any]

_MOST = 32
"""Positions in a draft that a page shows."""

_COLUMNS = {
    "category": "{category}",
    "arm": "{arm}",
    "at once": "{at_once}",
    "tokens/s": "{tokens_per_s:.1f}",
    "speed": "{speed:.2f}",
    "interval": "{speed_low:.2f} - {speed_high:.2f}",
    "worst": "{speed_worst:.2f}",
    "of oracle": "{of_oracle:.0%}",
    "length": "{mean_acceptance_length:.2f}",
    "accepted": "{acceptance_rate:.0%}",
    "undrafted": "{undrafted:.0%}",
    "first s": "{first_token_s:.2f}",
    "p50 s": "{last_token_s_p50:.1f}",
    "p95 s": "{last_token_s_p95:.1f}",
    "outside": "{outside:.2%}",
    "counted": "{counted_by}",
}
"""What a table shows: times to the first and the last token in seconds, shares, and speed relative to the first arm."""

_COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00")
"""Told apart by the colour-blind too (Okabe and Ito, 2008)."""
_LETTER, _WIDTH, _BAR, _GAP, _HEAD = 7, 560, 16, 12, 44

_environment = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "pages"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


def table(rows: Sequence[Row], columns: Sequence[str] = tuple(_COLUMNS)) -> list[list[str]]:
    """A head, then the rows; columns of which nothing is known are left out."""
    cells = {}
    for name in columns:
        with suppress(KeyError):
            cells[name] = [_COLUMNS[name].format(**row) for row in rows]
    return [list(cells), *map(list, zip(*cells.values(), strict=True))]


def positions(rows: Sequence[Row], most: int) -> list[list[str]]:
    """Acceptance by position in the draft, over all categories: a head, then a row for each arm that has drafted."""
    shares = {row["arm"]: row.get("per_position", [])[:most] for row in rows if row["category"] == ALL}
    width = max(map(len, shares.values()), default=0)
    lines = [
        [arm, *(f"{share:.0%}" for share in found), *[""] * (width - len(found))]
        for arm, found in shares.items()
        if found
    ]
    return [["accepted at", *map(str, range(1, width + 1))], *lines] if lines else []


def speeds(rows: Sequence[Row]) -> str:
    """An SVG chart: speed relative to the first arm by category and arm, with intervals."""
    base = rows[0]["arm"]
    drafting = [row for row in rows if row["arm"] != base]
    arms = list(dict.fromkeys(row["arm"] for row in drafting))
    most = max([1.0, *(row["speed_high"] for row in drafting)])
    unit = _WIDTH / most
    left = 24 + _LETTER * max((len(row["category"]) for row in drafting), default=0)
    categories, bars, y = [], [], _HEAD
    for category, group in groupby(drafting, key=lambda row: row["category"]):
        begin = y
        for row in group:
            bars.append({**row, "y": y, "colour": _COLOURS[arms.index(row["arm"]) % len(_COLOURS)]})
            y += _BAR
        categories.append({"name": category, "y": (begin + y) / 2})
        y += _GAP
    return _environment.get_template("speeds.svg").render(
        arms=list(zip(arms, _COLOURS * len(arms), strict=False)),
        bars=bars,
        categories=categories,
        ticks=_ticks(most),
        unit=unit,
        left=left,
        width=left + _WIDTH + 64,
        height=y + 24,
        base=base,
        top=_HEAD,
        thickness=_BAR - 3,
    )


def title(result: Mapping[str, Any]) -> str:
    """What was measured."""
    if "endpoint" in result:
        return " against ".join(f"{result[arm]['model']} at {result[arm]['url']}" for arm in ("endpoint", "baseline"))
    return f"{result['target']}, " + (f"drafts from {result['draft']}" if result["draft"] else "no draft model")


def page(result: Mapping[str, Any]) -> str:
    """An HTML page with the chart, the tables, the method and the machine."""
    rows = result["rows"]
    tables = [lines for lines in (table(rows), positions(rows, most=_MOST)) if lines]
    return _environment.get_template("bench.html").render(
        title=title(result), result=result, tables=tables, chart=speeds(rows)
    )


def _ticks(most: float) -> list[float]:
    """Where the axis has numbers: some six of them."""
    step = next(step for step in (0.25, 0.5, 1.0, 2.0, 5.0, 10.0, most) if most / step <= 8)
    return [step * number for number in range(int(most / step) + 1)]
