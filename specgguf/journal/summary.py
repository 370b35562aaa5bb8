"""What the journal says of routes."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil

from specgguf.journal.row import Pair
from specgguf.journal.store import Columns

PARTS = 12
"""How many parts, one after the other, a trend has."""
_BARS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True, slots=True)
class Summary:
    """The answers of one route by one pair. Rates are None where nothing tells them."""

    route: str
    target: str
    draft: str
    pair: Pair
    answers: int
    tokens: int
    acceptance: float | None
    """Draft tokens accepted / drafted."""
    trend: list[float | None]
    """The same of the answers in up to `PARTS` parts, oldest first."""
    tokens_per_round: float
    speed: float | None
    """Against plain decoding, where it was estimated."""
    undrafted: float
    """Share of the rounds without a draft."""
    last_token_p50_s: float
    last_token_p95_s: float


def summarize(answers: Mapping[tuple[str, Pair], Columns]) -> list[Summary]:
    """In the order of the routes."""
    return [_summary(route, pair, answers[route, pair]) for route, pair in sorted(answers)]


def sparkline(rates: Iterable[float | None]) -> str:
    """A character for each rate from 0 to 1; a space where there is none."""
    return "".join(
        " " if rate is None else _BARS[min(int(rate * len(_BARS)), len(_BARS) - 1)] for rate in rates
    ).rstrip()


def _summary(route: str, pair: Pair, columns: Columns) -> Summary:
    count = len(columns.rounds)
    rounds, tokens, times = max(1, sum(columns.rounds)), sum(columns.output_tokens), sorted(columns.last_token_s)
    size = ceil(count / PARTS)
    parts = [slice(start, start + size) for start in range(0, count, size)]
    return Summary(
        route,
        columns.target[-1],
        columns.draft[-1],
        pair,
        count,
        tokens,
        _acceptance(columns.drafted, columns.accepted),
        [_acceptance(columns.drafted[part], columns.accepted[part]) for part in parts],
        tokens / rounds,
        sum(columns.plain_s) / sum(columns.judged_s) if any(columns.judged_s) else None,
        sum(columns.undrafted) / rounds,
        times[ceil(count * 0.5) - 1],
        times[ceil(count * 0.95) - 1],
    )


def _acceptance(drafted: Sequence[int], accepted: Sequence[int]) -> float | None:
    return sum(accepted) / sum(drafted) if any(drafted) else None
