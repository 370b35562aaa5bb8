"""What `bench` has measured as a chart and as a page: files of their own that need nothing else to be shown."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

Row = Mapping[str, Any]

_COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00")
"""Told apart by the colour-blind too (Okabe and Ito, 2008)."""
_LETTER, _WIDTH, _BAR, _GAP, _HEAD = 7, 560, 16, 12, 44
_PLAIN = "plain"

_environment = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "pages"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


def speeds(rows: Sequence[Row]) -> str:
    """An SVG chart: speed relative to plain decoding by category and arm, with intervals."""
    drafting = [row for row in rows if row["arm"] != _PLAIN]
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
        top=_HEAD,
        thickness=_BAR - 3,
    )


def page(result: Mapping[str, Any]) -> str:
    """An HTML page with the chart, the tables, the method and the machine."""
    rows = result["rows"]
    positions = [row for row in rows if row["category"] == "all" and row["per_position"]]
    most = max((len(row["per_position"]) for row in positions), default=0)
    return _environment.get_template("bench.html").render(
        result=result, positions=positions, most=most, chart=speeds(rows)
    )


def _ticks(most: float) -> list[float]:
    """Where the axis has numbers: some six of them."""
    step = next(step for step in (0.25, 0.5, 1.0, 2.0, 5.0, 10.0, most) if most / step <= 8)
    return [step * number for number in range(int(most / step) + 1)]
