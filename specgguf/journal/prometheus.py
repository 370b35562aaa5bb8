"""The journal in the text format that Prometheus reads."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from specgguf.journal.row import Pair
from specgguf.journal.store import Off
from specgguf.journal.summary import Summary

_QUANTILES = "Seconds until the last token of an answer."
_GUARD = "1 where a guard has switched a route off, by the fingerprints of the models' files."


def exposition(summaries: Sequence[Summary], off: Sequence[Off]) -> str:
    """A gauge for each number: rows leave the journal, so none of them only grows."""
    by_name: dict[str, tuple[str, Callable[[Summary], float | None]]] = {
        "answers": ("Answers in the journal.", lambda one: one.answers),
        "output_tokens": ("Tokens of these answers.", lambda one: one.tokens),
        "acceptance_ratio": ("Draft tokens accepted / drafted.", lambda one: one.acceptance),
        "tokens_per_round": ("Tokens a round.", lambda one: one.tokens_per_round),
        "speed_ratio": ("Speed against plain decoding, estimated.", lambda one: one.speed),
        "undrafted_rounds_ratio": ("Share of the rounds without a draft.", lambda one: one.undrafted),
    }
    lines: list[str] = []
    for name, (help_, value) in by_name.items():
        lines += _metric(name, help_, ((_labels(one), value(one)) for one in summaries))
    lines += _metric("last_token_seconds", _QUANTILES, _quantiles(summaries))
    lines += _metric("guard_off", _GUARD, (({"route": one.route, **_fingerprints(one.pair)}, 1) for one in off))
    return "".join(f"{line}\n" for line in lines)


def _labels(one: Summary) -> dict[str, str]:
    return {"route": one.route, "target": one.target, "draft": one.draft, **_fingerprints(one.pair)}


def _fingerprints(pair: Pair) -> dict[str, str]:
    return {"target_fingerprint": pair.target, "draft_fingerprint": pair.draft}


def _quantiles(summaries: Sequence[Summary]) -> Iterator[tuple[dict[str, str], float]]:
    for one in summaries:
        yield {**_labels(one), "quantile": "0.5"}, one.last_token_p50_s
        yield {**_labels(one), "quantile": "0.95"}, one.last_token_p95_s


def _metric(name: str, help_: str, values: Iterable[tuple[Mapping[str, str], float | None]]) -> list[str]:
    lines = [f"# HELP specgguf_{name} {help_}", f"# TYPE specgguf_{name} gauge"]
    for labels, value in values:
        if value is not None:
            shown = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
            lines.append(f"specgguf_{name}{{{shown}}} {value:.10g}")
    return lines


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
