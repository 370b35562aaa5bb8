"""What a row of the journal says."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple


class Pair(NamedTuple):
    """Which models: the fingerprints of their files. Without a draft model the draft's is empty."""

    target: str
    draft: str


@dataclass(frozen=True, slots=True)
class Row:
    """One answer. Times are seconds."""

    time: float
    """When it ended, since 1970."""
    route: str
    target: str
    draft: str
    """Names of the models."""
    pair: Pair
    mode: str
    """How drafts were made: a mode of --speculate; off where a guard has seen to it."""
    texts: int
    """How many texts were answered at once when it ended, this one included."""
    settings: Mapping[str, Any]
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    rounds: int
    undrafted: int
    """Rounds without a draft."""
    drafted: int
    accepted: int
    counters: Mapping[str, Mapping[str, Mapping[str, list[int]]]]
    """How often a draft had a token at each position, and how often it was accepted: `drafted` and `accepted`, by the
    drafter's name, in the `first` fifty tokens and in the `rest`.
    """
    prefill_s: float
    first_token_s: float
    last_token_s: float
    decode_s: float
    tokens_per_s: float
    judged_s: float
    plain_s: float
    """Of rounds since the last row, those of other answers too: seconds, and what plain decoding would have taken,
    estimated. Both are 0 where that is not known.
    """
    finish_reason: str
    prompt: str | None = None
    answer: str | None = None
    """Texts, where they are to be kept."""
