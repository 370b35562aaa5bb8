"""Draft tokens for several texts that share a batch."""

from collections.abc import Callable, Collection, Sequence
from itertools import accumulate
from operator import mul

from specgguf.speculative.context import Evaluated
from specgguf.speculative.controller import Outcome, RoundTimes, agree
from specgguf.speculative.drafter import Draft, Drafter
from specgguf.speculative.policy.calibration import Calibrator, Mean
from specgguf.speculative.policy.constants import CONSTANTS
from specgguf.speculative.policy.policy import Policy
from specgguf.speculative.sequence import TokenSequence

_STEPS_AHEAD = 4
"""Steps that a plan to draft on looks ahead."""
_HOPED = 0.7
"""The acceptance of a drafter that is not known yet."""
_FORGET = 0.002
"""What every round without its drafts takes back of what was learned of a drafter: so it is tried again."""


class _Judge:
    """How good a drafter's tokens are, in all texts."""

    def __init__(self) -> None:
        self.calibrator = Calibrator()
        self.mean = Mean(_HOPED, CONSTANTS.outlook_weight, CONSTANTS.acceptance_memory)

    def reaches(self, probabilities: Sequence[float]) -> list[float]:
        """For each token how likely it and all before it are accepted."""
        return list(accumulate(map(self.calibrator.acceptance, probabilities), mul))

    def observe(self, draft: Draft, accepted: int) -> None:
        for place, probability in enumerate(draft.probabilities[: min(accepted + 1, len(draft.tokens))]):
            self.calibrator.observe(probability, place < accepted)
            self.mean.observe(place < accepted)

    def pass_over(self) -> None:
        self.mean.value += (_HOPED - self.mean.value) * _FORGET


class Together:
    """A row of the batch goes where it is most likely to be kept.

    Every text's own next token is certain. Draft tokens of any text follow, in the order of the probability that they
    are reached and accepted, as long as the width that they need pays for them; jumps in its cost are looked across.
    The more texts there are, the wider the batch is without drafts, and the less is drafted.
    """

    def __init__(self, policy: Policy, drafters: Sequence[Drafter]) -> None:
        """`policy`: knows what batches cost."""
        self._policy = policy
        self._drafters = drafters
        self._judges = {drafter.name: _Judge() for drafter in drafters if not drafter.is_free}
        self._tokens = self._steps = CONSTANTS.first_tokens  # as in `Pace`, a step being a token's time without drafts
        self._backlog: dict[str, int] = {}

    def begin(self, sequence: TokenSequence, num_kept: int) -> int:
        """As many as all drafters can go on from."""
        return agree(self._drafters, sequence, num_kept)

    def read(self, evaluated: Evaluated, num_kept: int) -> None:
        """Hand it on to all drafters, whoever has drafted."""
        for drafter in self._drafters:
            drafter.read(evaluated, num_kept)

    def draft(self, sequences: Sequence[TokenSequence], limits: Sequence[int]) -> list[Draft]:
        """The most likely tokens of all drafts, as many as pay."""
        self._policy.costs_at(max(len(sequence.tokens) for sequence in sequences))
        extras = self._extras(len(sequences))
        worth = self._worth(len(sequences))
        best = [Draft() for _ in sequences]
        reaches: list[list[float]] = [[] for _ in sequences]
        for drafter in sorted(self._drafters, key=lambda drafter: not drafter.is_free):
            judge = self._judges.get(drafter.name)
            asked = [
                place
                for place, known in enumerate(reaches)
                if limits[place] > 0 and not (judge and known and known[0] >= judge.mean.value)
            ]
            if not asked:
                continue
            chosen = [sequences[place] for place in asked]
            others = sum(len(known) for place, known in enumerate(reaches) if place not in asked)
            go_on = self._plan(drafter, chosen, extras[others:], worth) if judge else _unless_hopeless(extras, worth)
            drafts = drafter.draft(chosen, [limits[place] for place in asked], go_on)
            for place, draft in zip(asked, drafts, strict=True):
                found = judge.reaches(draft.probabilities) if judge else list(accumulate(draft.probabilities, mul))
                if sum(found) > sum(reaches[place]):
                    best[place], reaches[place] = draft, found
        return _cut(best, reaches, extras, worth)

    def width(self, rows: int) -> int:
        """The cheapest width with room for the rows."""
        return self._policy.pace.costs.width(rows)

    def observe(self, outcomes: Sequence[Outcome], times: RoundTimes) -> None:
        """Learn what batches and drafts cost, and how good the drafts were."""
        if not outcomes:
            return
        costs, count = self._policy.pace.costs, len(outcomes)
        if not times.num_read:
            costs.observe(costs.width(sum(1 + len(outcome.draft.tokens) for outcome in outcomes)), times.verify_s)
            seconds = times.verify_s + times.rollback_s + sum(outcome.draft.seconds for outcome in outcomes)
            steps = seconds * count / costs.padded(count)
            self._tokens += (
                sum(len(outcome.verdict.output) for outcome in outcomes) - self._tokens / CONSTANTS.rate_memory
            )
            self._steps += steps - self._steps / CONSTANTS.rate_memory
        for drafter in self._drafters:
            made = [outcome for outcome in outcomes if outcome.draft.source == drafter.name]
            for sequence, draft, verdict in made:
                drafter.accept(sequence, len(draft.tokens), verdict.accepted)
            if judge := self._judges.get(drafter.name):
                self._judge(drafter, judge, made)

    def _judge(self, drafter: Drafter, judge: _Judge, made: Sequence[Outcome]) -> None:
        steps = max((len(outcome.draft.probabilities) for outcome in made), default=0)
        if not steps:
            judge.pass_over()
            return
        for _, draft, verdict in made:
            judge.observe(draft, verdict.accepted)
        seconds, missed = sum(outcome.draft.seconds for outcome in made), self._backlog.pop(drafter.name, 0)
        self._policy.pace.costs.observe_draft(_shared(drafter, len(made)), steps, seconds, missed)

    def _extras(self, count: int) -> list[float]:
        """For 0, 1, 2, ... draft tokens, the seconds that their batch takes longer than one of `count` next tokens."""
        costs = self._policy.pace.costs
        return [costs.padded(rows) - costs.padded(count) for rows in range(count, costs.cap + 2)]

    def _worth(self, count: int) -> float:
        """Seconds in which a token comes at present, never more than without drafts."""
        rate = max(CONSTANTS.margin, self._tokens / self._steps)
        return self._policy.pace.costs.padded(count) / count / rate

    def _plan(
        self, drafter: Drafter, sequences: Sequence[TokenSequence], extras: Sequence[float], worth: float
    ) -> Callable[[Sequence[Sequence[float]]], Collection[int]]:
        """Which drafts to continue: those that make the best plan for some steps, if any gains more than it costs."""
        costs, judge = self._policy.pace.costs, self._judges[drafter.name]
        backlogs = [drafter.backlog(sequence) for sequence in sequences]
        step_s = [costs.draft_step(_shared(drafter, count), count) for count in range(1, len(sequences) + 1)]
        reading_s = [costs.catch_up(_shared(drafter, 1)) * backlog / CONSTANTS.rounds for backlog in backlogs]
        self._backlog[drafter.name] = sum(backlogs) if max(backlogs) > _STEPS_AHEAD else 0

        def go_on(probabilities: Sequence[Sequence[float]]) -> Collection[int]:
            drafted = sum(map(len, probabilities))
            gains = [
                ((judge.reaches(known)[-1] if known else 1.0) * worth, 0.0 if known else reading)
                for known, reading in zip(probabilities, reading_s, strict=True)
            ]
            order = sorted(range(len(gains)), key=lambda place: gains[place][1] - gains[place][0])
            best, chosen, value, reading = 0.0, 0, 0.0, 0.0
            for count, place in enumerate(order, 1):
                value, reading = value + gains[place][0], reading + gains[place][1]
                share = 0.0
                for steps in range(1, _STEPS_AHEAD + 1):
                    share += judge.mean.value**steps
                    rows = drafted + count * steps
                    if rows >= len(extras):
                        break
                    gain = value * share - (extras[rows] - extras[drafted]) - steps * step_s[count - 1] - reading
                    if gain > best:
                        best, chosen = gain, count
            return order[:chosen]

        return go_on


def _shared(drafter: Drafter, count: int) -> str:
    """What the costs call a drafter's step for so many texts, rounded up to a power of two."""
    return drafter.name if count == 1 else f"{drafter.name} x{1 << (count - 1).bit_length()}"


def _unless_hopeless(extras: Sequence[float], worth: float) -> Callable[[Sequence[Sequence[float]]], Collection[int]]:
    """Continue all drafts whose next token may still be worth its row."""
    least = min((extra / count for count, extra in enumerate(extras) if count), default=worth) / worth

    def go_on(probabilities: Sequence[Sequence[float]]) -> Collection[int]:
        reaches = [list(accumulate(known, mul)) for known in probabilities]
        return [place for place, known in enumerate(reaches) if not known or known[-1] > least]

    return go_on


def _cut(
    drafts: Sequence[Draft], reaches: Sequence[Sequence[float]], extras: Sequence[float], worth: float
) -> list[Draft]:
    """The drafts, with no more tokens than those that pay together."""
    pool = sorted((-reach, place) for place, known in enumerate(reaches) for reach in known)[: len(extras) - 1]
    gains = list(accumulate((-reach * worth for reach, _ in pool), initial=0.0))
    sent = max(range(len(gains)), key=lambda count: gains[count] - extras[count])
    counts = [0] * len(drafts)
    for _, place in pool[:sent]:
        counts[place] += 1
    for draft, count in zip(drafts, counts, strict=True):
        draft.tokens, draft.unsent = draft.tokens[:count], draft.tokens[count:]
    return list(drafts)
