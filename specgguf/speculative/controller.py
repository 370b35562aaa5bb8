"""How many tokens to draft, by whom, and in batches of which width they are verified."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, Protocol

from specgguf.speculative.context import Evaluated
from specgguf.speculative.drafter import Draft, Drafter, while_possible
from specgguf.speculative.policy.length import LengthRule
from specgguf.speculative.policy.policy import Policy
from specgguf.speculative.sequence import TokenSequence
from specgguf.speculative.verify import Verdict


class RoundTimes(NamedTuple):
    """Seconds that the target has spent in a round.

    `rollback_s`: on evaluating again what the rejection of an earlier draft had taken along. `num_read`: tokens of
    prompts that were evaluated in the same batch.
    """

    verify_s: float
    rollback_s: float
    num_read: int = 0


class Outcome(NamedTuple):
    """What came of a draft."""

    sequence: TokenSequence
    draft: Draft
    verdict: Verdict


class Controller(Protocol):
    """Decides round by round; nothing it does can change the text."""

    def begin(self, sequence: TokenSequence, num_kept: int) -> int:
        """A text begins or goes on; the target's cache holds the first `num_kept` tokens of its sequence.

        How many of them it may keep: a drafter may need some of them to be evaluated once more.
        """

    def read(self, evaluated: Evaluated, num_kept: int) -> None:
        """The target has evaluated tokens, of which the first `num_kept` stay; nothing has been rolled back yet."""

    def draft(self, sequences: Sequence[TokenSequence], limits: Sequence[int]) -> list[Draft]:
        """What is worth verifying of what may follow each sequence, at most as many tokens as its limit."""

    def width(self, rows: int) -> int:
        """How wide a batch of so many rows is made."""

    def observe(self, outcomes: Sequence[Outcome], times: RoundTimes) -> None:
        """Learn from a round: what came of the drafts, and how long it took."""


class Plain:
    """Never drafts: the loop is then plain decoding."""

    def __init__(self, widths: Sequence[int] = ()) -> None:
        """`widths`: the only ones to decode, all if empty."""
        self._widths = widths

    def begin(self, sequence: TokenSequence, num_kept: int) -> int:
        """All of them."""
        return num_kept

    def read(self, evaluated: Evaluated, num_kept: int) -> None:
        """Nobody reads it."""

    def draft(self, sequences: Sequence[TokenSequence], limits: Sequence[int]) -> list[Draft]:
        """No tokens."""
        return [Draft() for _ in sequences]

    def width(self, rows: int) -> int:
        """The next width there is."""
        return min((width for width in self._widths if width >= rows), default=rows)

    def observe(self, outcomes: Sequence[Outcome], times: RoundTimes) -> None:
        """Learns nothing."""


class Fixed(Plain):
    """The same number of tokens in every round, from one drafter."""

    def __init__(self, drafter: Drafter, num_draft: int, widths: Sequence[int] = ()) -> None:
        super().__init__(widths)
        self._drafter = drafter
        self._num_draft = num_draft

    def begin(self, sequence: TokenSequence, num_kept: int) -> int:
        """As many as the drafter can go on from."""
        return self._drafter.begin(sequence, num_kept)

    def read(self, evaluated: Evaluated, num_kept: int) -> None:
        """Hand it on to the drafter."""
        self._drafter.read(evaluated, num_kept)

    def draft(self, sequences: Sequence[TokenSequence], limits: Sequence[int]) -> list[Draft]:
        """As many as allowed."""
        return self._drafter.draft(sequences, [min(limit, self._num_draft) for limit in limits], while_possible)

    def observe(self, outcomes: Sequence[Outcome], times: RoundTimes) -> None:
        """Tell the drafter what came of it."""
        for sequence, draft, verdict in outcomes:
            self._drafter.accept(sequence, len(draft.tokens), verdict.accepted)


class Auto:
    """As many tokens as pay for one sequence, in every round from the drafter that promises most."""

    def __init__(
        self,
        policy: Policy,
        drafters: Sequence[Drafter],
        most: int | None = None,
        on_change: Callable[[str], object] = lambda _: None,
    ) -> None:
        """`most`: draft tokens in a round; None: as many as the policy's widths have room for. `on_change` is told in a
        line when a drafter is given up, and when it is taken up again.
        """
        self._policy = policy
        self._most = policy.cap if most is None else min(most, policy.cap)
        self._drafters = [(drafter, policy.rule(drafter)) for drafter in drafters]
        self._on_change = on_change

    def begin(self, sequence: TokenSequence, num_kept: int) -> int:
        """As many as all drafters can go on from."""
        self._policy.begin(len(sequence.tokens))
        num_kept = agree([drafter for drafter, _ in self._drafters], sequence, num_kept)
        for drafter, rule in self._drafters:
            rule.begin(drafter.backlog(sequence))
        return num_kept

    def read(self, evaluated: Evaluated, num_kept: int) -> None:
        """Hand it on to all drafters, whoever has drafted."""
        for drafter, _ in self._drafters:
            drafter.read(evaluated, num_kept)

    def draft(self, sequences: Sequence[TokenSequence], limits: Sequence[int]) -> list[Draft]:
        """The proposal with the greatest value, cut to its most valuable beginning; none if nothing pays."""
        (sequence,), (limit,) = sequences, limits
        self._policy.costs_at(len(sequence.tokens))
        return [self._best(sequence, min(limit, self._most))]

    def _best(self, sequence: TokenSequence, limit: int) -> Draft:
        """Drafters are asked in the order of what they promise, as long as that is more than what there is.

        A draft that took time to make is sent, as far as it pays: it had promised more than the free ones hold.
        """
        best, gain = Draft(), 0.0
        promises = [(rule.promise(), drafter, rule) for drafter, rule in self._drafters]
        for promise, drafter, rule in sorted(promises, key=lambda entry: -entry[0]):
            if gain > promise:
                break
            (draft,) = drafter.draft([sequence], [limit], partial(_go_on, rule))
            count, worth = rule.choose(draft.probabilities)
            if draft.probabilities and (worth > gain or not drafter.is_free):
                draft.tokens, draft.unsent = draft.tokens[:count], draft.tokens[count:]
                best, gain = draft, worth
                if not drafter.is_free:
                    break
        return best

    def width(self, rows: int) -> int:
        """The cheapest width with room for the rows."""
        return self._policy.pace.costs.width(rows)

    def observe(self, outcomes: Sequence[Outcome], times: RoundTimes) -> None:
        """Hand on what was learned."""
        pace = self._policy.pace
        for sequence, draft, verdict in outcomes:
            lost = pace.observe(len(draft.tokens), len(verdict.output), times.verify_s, draft.seconds, times.rollback_s)
            for drafter, rule in self._drafters:
                parked = rule.parked
                if draft.source == drafter.name:
                    rule.observe(draft, verdict, lost)
                    drafter.accept(sequence, len(draft.tokens), verdict.accepted)
                else:
                    rule.pass_over(len(verdict.output))
                if rule.parked is not parked:
                    self._on_change(f"{drafter.name}: {rule.explain()}")


class Switch:
    """A controller whose drafts can be switched off and on at any time. Drafters read along all the while."""

    def __init__(self, inner: Controller, is_on: Callable[[], bool]) -> None:
        """`is_on` is asked in every round."""
        self._inner = inner
        self._is_on = is_on
        self.begin, self.read = inner.begin, inner.read
        self.width, self.observe = inner.width, inner.observe

    def draft(self, sequences: Sequence[TokenSequence], limits: Sequence[int]) -> list[Draft]:
        """No tokens while it is off."""
        return self._inner.draft(sequences, limits) if self._is_on() else [Draft() for _ in sequences]


def agree(drafters: Sequence[Drafter], sequence: TokenSequence, num_kept: int) -> int:
    """A text begins or goes on: how many of the tokens that the target has kept all drafters can go on from."""
    most = -1
    while num_kept != most:  # whoever was asked before one that needs more goes back further, too
        most = num_kept
        for drafter in drafters:
            num_kept = drafter.begin(sequence, num_kept)
    return num_kept


def _go_on(rule: LengthRule, probabilities: Sequence[Sequence[float]]) -> Sequence[int]:
    return (0,) if rule.go_on(probabilities[0]) else ()
