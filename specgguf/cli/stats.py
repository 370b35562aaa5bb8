"""`specgguf stats`: what the journal says of routes."""

import time
from collections.abc import Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specgguf.cli.options.output import Json
from specgguf.cli.options.values import moment
from specgguf.cli.terminal import output
from specgguf.errors import UsageError
from specgguf.models.locations import journal_file

if TYPE_CHECKING:
    from specgguf.journal.store import Journal, Off
    from specgguf.journal.summary import Summary

_HEAD = ("route", "pair", "answers", "tokens", "accepted", "trend", "a round", "speed", "undrafted", "p50 s", "p95 s")


def stats(
    since: Annotated[
        float | None,
        typer.Option("--since", parser=moment, metavar="WHEN", help="Only answers since then: 24h, 7d, or a date."),
    ] = None,
    route: Annotated[str | None, typer.Option("--route", metavar="NAME", help="Only answers of this route.")] = None,
    prometheus: Annotated[
        bool, typer.Option("--prometheus", help="Prometheus's text format, for a node exporter's file collector.")
    ] = False,
    reset_guard: Annotated[
        str | None,
        typer.Option("--reset-guard", metavar="ROUTE", help="Let a route draft again that its guard has switched off."),
    ] = None,
    json: Json = False,
) -> None:
    """Show how answers went, by route and pair of models, as the journal has it.

    Accepted: draft tokens accepted / drafted, and the trend of that, oldest answers first. A round: tokens per round.
    Speed: against plain decoding, where it could be estimated. Undrafted: rounds without a draft. p50, p95: seconds
    until the last token.
    """
    if prometheus and json:
        raise UsageError("--prometheus and --json exclude each other", "give one of them")

    from specgguf.journal.prometheus import exposition
    from specgguf.journal.store import Journal
    from specgguf.journal.summary import summarize

    with closing(Journal(journal_file())) as journal:
        if reset_guard is not None:
            _reset(journal, reset_guard)
            return
        summaries = summarize(journal.answers(since or 0.0, route))
        off = [one for one in journal.off() if route in (None, one.route)]
    if prometheus:
        output.write(exposition(summaries, off))
    elif json:
        output.write_json({"routes": list(map(_described, summaries)), "guards": list(map(_guard, off))})
    elif summaries:
        _show(summaries, off)
    else:
        output.note("the journal has no such answers" if since or route else "the journal has no answers yet")


def _reset(journal: "Journal", route: str) -> None:
    if not journal.reset(route):
        known = ", ".join(sorted({one.route for one in journal.off()}))
        hint = f"these are: {known}" if known else "no route is"
        raise UsageError(f"--reset-guard {route}: no guard has switched that route off", hint, ("reset-guard",))
    output.note(f"route {route} drafts again")


def _show(summaries: Sequence["Summary"], off: Sequence["Off"]) -> None:
    from specgguf.journal.summary import sparkline

    rows = [
        (
            one.route,
            f"{one.target} + {one.draft}" if one.draft else one.target,
            str(one.answers),
            str(one.tokens),
            _shown(one.acceptance, ".0%"),
            sparkline(one.trend),
            f"{one.tokens_per_round:.2f}",
            _shown(one.speed, ".2f"),
            f"{one.undrafted:.0%}",
            f"{one.last_token_p50_s:.2f}",
            f"{one.last_token_p95_s:.2f}",
        )
        for one in summaries
    ]
    output.table([_HEAD, *rows], left=2)
    for one in off:
        since = time.strftime("%Y-%m-%d %H:%M", time.localtime(one.since))
        output.write(
            f"\n{one.route}: switched off by its guard on {since}, at {one.speed:.2f} times the speed of plain "
            f"decoding in {one.answers} answers\n"
        )


def _described(one: "Summary") -> dict[str, Any]:
    draft = {"name": one.draft, "fingerprint": one.pair.draft}
    return {
        "route": one.route,
        "target": {"name": one.target, "fingerprint": one.pair.target},
        "draft": draft if one.draft else None,
        "answers": one.answers,
        "output_tokens": one.tokens,
        "acceptance_rate": one.acceptance,
        "trend": one.trend,
        "mean_acceptance_length": one.tokens_per_round,
        "speed": one.speed,
        "undrafted": one.undrafted,
        "last_token_s": {"p50": one.last_token_p50_s, "p95": one.last_token_p95_s},
    }


def _guard(off: "Off") -> dict[str, Any]:
    pair = {"target_fingerprint": off.pair.target, "draft_fingerprint": off.pair.draft}
    return {"route": off.route, **pair, "since": off.since, "speed": off.speed, "answers": off.answers}


def _shown(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
