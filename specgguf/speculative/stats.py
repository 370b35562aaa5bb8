"""Counters of speculation."""

from collections import Counter
from dataclasses import dataclass, field

from specgguf.speculative.loop import Round

EARLY = 50
"""Tokens that are the beginning of an answer: acceptance there may be another than later on."""


@dataclass(slots=True)
class Stats:
    """Raw counts, added up round by round; rates are derived and 0 when nothing happened."""

    rounds: int = 0
    output_tokens: int = 0
    undrafted: int = 0
    """Rounds without a draft."""
    drafted: Counter[str] = field(default_factory=Counter)
    """Draft tokens sent to verification, by source."""
    accepted: Counter[str] = field(default_factory=Counter)
    """Draft tokens accepted, by source."""
    drafted_at: Counter[tuple[str, int]] = field(default_factory=Counter)
    """Rounds in which this source drafted a token at this position of the draft, from 0."""
    accepted_at: Counter[tuple[str, int]] = field(default_factory=Counter)
    """Rounds in which its token at this position was accepted."""

    def observe(self, finished: Round) -> None:
        """Count one round."""
        self.rounds += 1
        self.output_tokens += len(finished.output)
        if not finished.drafted:
            self.undrafted += 1
            return
        self.drafted[finished.source] += finished.drafted
        self.accepted[finished.source] += finished.accepted
        self.drafted_at.update((finished.source, at) for at in range(finished.drafted))
        self.accepted_at.update((finished.source, at) for at in range(finished.accepted))

    def add(self, other: "Stats") -> None:
        """Count the rounds of another text too."""
        self.rounds += other.rounds
        self.output_tokens += other.output_tokens
        self.undrafted += other.undrafted
        self.drafted.update(other.drafted)
        self.accepted.update(other.accepted)
        self.drafted_at.update(other.drafted_at)
        self.accepted_at.update(other.accepted_at)

    @property
    def acceptance_rate(self) -> float:
        """Accepted / drafted."""
        return self.accepted.total() / max(1, self.drafted.total())

    @property
    def mean_acceptance_length(self) -> float:
        """Tokens a round yields, the recovered or bonus token included."""
        return self.output_tokens / max(1, self.rounds)

    @property
    def positions(self) -> list[tuple[int, int]]:
        """For each position the rounds that drafted a token there, and those that accepted it, whoever drafted."""
        drafted, accepted = Counter[int](), Counter[int]()
        for (_, at), count in self.drafted_at.items():
            drafted[at] += count
        for (_, at), count in self.accepted_at.items():
            accepted[at] += count
        return [(drafted[at], accepted[at]) for at in range(len(drafted))]

    @property
    def per_position(self) -> list[float]:
        """Share of the drafts reaching each position whose token there was accepted."""
        return [accepted / drafted for drafted, accepted in self.positions]
