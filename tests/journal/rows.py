"""Rows for the journal's tests and for scripts/journal-trial."""

from dataclasses import replace

from specgguf.journal.row import Pair, Row

PAIR = Pair("target0", "draft0")
_AT = {"model": {"drafted": [40] * 8, "accepted": [30, 20, 10, 5, 4, 3, 2, 1]}}
ROW = Row(
    time=1_800_000_000.0,
    route="run",
    target="big",
    draft="small",
    pair=PAIR,
    mode="auto",
    texts=1,
    settings={"draft_max": 16, "exact": False, "temperature": 0.0, "threads": 2},
    prompt_tokens=12,
    cached_tokens=0,
    output_tokens=100,
    rounds=40,
    undrafted=10,
    drafted=80,
    accepted=60,
    counters={"first": _AT, "rest": _AT},
    prefill_s=0.1,
    first_token_s=0.2,
    last_token_s=2.2,
    decode_s=2.0,
    tokens_per_s=49.5,
    judged_s=1.9,
    plain_s=3.8,
    finish_reason="stop",
)


def row(**changes):
    return replace(ROW, **changes)
