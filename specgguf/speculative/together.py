"""Draft tokens for several texts that share a batch."""

from collections import Counter
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
_TRUST_WEIGHT = 6.0
"""How many tokens of a text it takes to think otherwise of it than of others."""
_PATIENCE = 1.5
"""Rounds' time that drafts may lose without a gain before they pause."""
_PAUSE = 16
"""Rounds of the first pause; each further one, without a gain between, is twice as long."""
_FORGET = 0.002
"""What every round without its drafts takes back of what was learned of a drafter: so it is tried again."""


class _Judge:
    """How good a drafter's tokens are: how probabilities translate to acceptance, and what to make of it in a text."""

    def __init__(self) -> None:
        self.calibrator = Calibrator()
        self.mean = Mean(_HOPED, CONSTANTS.outlook_weight, CONSTANTS.acceptance_memory)
        """The acceptance of a token, in all texts."""
        self._trust: dict[int, Mean] = {}

    def begin(self, text: int) -> None:
        """A text of which nothing is known."""
        self._trust[text] = Mean(1.0, _TRUST_WEIGHT, CONSTANTS.share_memory)

    def hope(self, text: int) -> float:
        """The acceptance of a token that is not drafted yet."""
        return self.mean.value * self._trust[text].value

    def reaches(self, text: int, probabilities: Sequence[float]) -> list[float]:
        """For each token how likely it and all before it are accepted."""
        trust = self._trust[text].value
        return list(accumulate((min(trust * self.calibrator.acceptance(one), 1.0) for one in probabilities), mul))

    def observe(self, text: int, draft: Draft, accepted: int) -> None:
        """The draft was sent, and so many of its tokens were right."""
        for place, probability in enumerate(draft.probabilities[: min(accepted + 1, len(draft.tokens))]):
            right = place < accepted
            self._trust[text].observe(right / self.calibrator.acceptance(probability))
            self.calibrator.observe(probability, right)
            self.mean.observe(right)

    def pass_over(self) -> None:
        """A round without any of its drafts."""
        self.mean.value += (_HOPED - self.mean.value) * _FORGET


class Together:
    """A row of the batch goes where it is most likely to be kept.

    Every text's own next token is certain. Draft tokens of any text follow, in the order of the probability that they
    are reached and accepted, as long as the width that they need pays for them; jumps in its cost are looked across.
    The more texts there are, the wider the batch is without drafts, and the less is drafted.
    """

    def __init__(self, policy: Policy, drafters: Sequence[Drafter], most: int | None = None) -> None:
        """`policy`: knows what batches cost; `most`: draft tokens of a text in a round, as in `Auto`."""
        self._policy = policy
        self._most = policy.cap if most is None else most
        self._drafters = drafters
        self._judges = {drafter.name: _Judge() for drafter in drafters if not drafter.is_free}
        self._tokens = self._steps = CONSTANTS.first_tokens  # as in `Pace`, a step being a token's time without drafts
        self._backlog: dict[str, int] = {}
        self._lost = 0.0  # rounds' time that drafts have lost
        self._pause, self._pauses = 0, 0  # rounds that are left of this pause, and pauses since drafts last gained

    def begin(self, sequence: TokenSequence, num_kept: int) -> int:
        """As many as all drafters can go on from."""
        for judge in self._judges.values():
            judge.begin(sequence.id)
        return agree(self._drafters, sequence, num_kept)

    def read(self, evaluated: Evaluated, num_kept: int) -> None:
        """Hand it on to all drafters, whoever has drafted."""
        for drafter in self._drafters:
            drafter.read(evaluated, num_kept)

    def draft(self, sequences: Sequence[TokenSequence], limits: Sequence[int]) -> list[Draft]:
        """The most likely tokens of all drafts, as many as pay."""
        limits = [min(limit, self._most) for limit in limits]
        self._policy.costs_at(max(len(sequence.tokens) for sequence in sequences))
        extras = self._extras(len(sequences))
        worth = self._worth(len(sequences))
        best = [Draft() for _ in sequences]
        if self._pause:
            self._pause -= 1
            return best
        reaches: list[list[float]] = [[] for _ in sequences]
        for drafter in sorted(self._drafters, key=lambda drafter: not drafter.is_free):
            judge = self._judges.get(drafter.name)
            asked = [
                place
                for place, known in enumerate(reaches)
                if limits[place] > 0 and not (judge and known and known[0] >= judge.hope(sequences[place].id))
            ]
            if not asked:
                continue
            chosen = [sequences[place] for place in asked]
            others = [reach for place, known in enumerate(reaches) if place not in asked for reach in known]
            go_on = self._plan(drafter, chosen, others, extras, worth) if judge else _unless_hopeless(extras, worth)
            drafts = drafter.draft(chosen, [limits[place] for place in asked], go_on)
            for place, draft in zip(asked, drafts, strict=True):
                text = sequences[place].id
                found = (
                    judge.reaches(text, draft.probabilities) if judge else list(accumulate(draft.probabilities, mul))
                )
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
            num_sent = sum(len(outcome.draft.tokens) for outcome in outcomes)
            num_output = sum(len(outcome.verdict.output) for outcome in outcomes)
            costs.observe(costs.width(count + num_sent), times.verify_s)
            draft_s = times.rollback_s + sum(outcome.draft.seconds for outcome in outcomes)
            self._policy.pace.compare(times.verify_s, draft_s, num_sent, num_output, count)
            steps = (times.verify_s + draft_s) * count / costs.padded(count)
            self._tokens += num_output - self._tokens / CONSTANTS.rate_memory
            self._steps += steps - self._steps / CONSTANTS.rate_memory
            if any(outcome.draft.probabilities for outcome in outcomes):
                self._weigh((steps - num_output) / count)
        for drafter in self._drafters:
            made = [outcome for outcome in outcomes if outcome.draft.source == drafter.name]
            for sequence, draft, verdict in made:
                drafter.accept(sequence, len(draft.tokens), verdict.accepted)
            if judge := self._judges.get(drafter.name):
                self._judge(drafter, judge, made)

    def _weigh(self, lost: float) -> None:
        """A round with drafts took the time of so many more without."""
        self._lost = max(0.0, self._lost + lost)
        if self._lost == 0.0:
            self._pauses = 0
        elif self._lost > _PATIENCE:
            self._lost, self._pause, self._pauses = 0.0, _PAUSE << self._pauses, self._pauses + 1

    def _judge(self, drafter: Drafter, judge: _Judge, made: Sequence[Outcome]) -> None:
        steps = max((len(outcome.draft.probabilities) for outcome in made), default=0)
        if not steps:
            judge.pass_over()
            return
        for sequence, draft, verdict in made:
            judge.observe(sequence.id, draft, verdict.accepted)
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

    def _step_s(self, drafter: Drafter, count: int) -> float:
        """Seconds of a step for so many texts; until that is seen, from those for more, or for fewer."""
        costs = self._policy.pace.costs
        known = {many: costs.step(_shared(drafter, many)) for many in _COUNTS}
        if more := [seconds for many, seconds in known.items() if seconds is not None and many >= count]:
            return more[0]
        fewer = [(many, seconds) for many, seconds in known.items() if seconds is not None]
        if fewer:
            return fewer[-1][1] * costs.padded(count) / costs.padded(fewer[-1][0])
        return costs.draft_step(drafter.name) * costs.padded(count) / costs.plain

    def _plan(
        self,
        drafter: Drafter,
        sequences: Sequence[TokenSequence],
        others: Sequence[float],
        extras: Sequence[float],
        worth: float,
    ) -> Callable[[Sequence[Sequence[float]]], Collection[int]]:
        """Which drafts to continue: those that make the best plan for some steps, if any gains more than it costs.

        `others`: how likely the tokens are accepted that are drafted already, of other texts.
        """
        costs, judge = self._policy.pace.costs, self._judges[drafter.name]
        backlogs = [drafter.backlog(sequence) for sequence in sequences]
        reading_s = [costs.catch_up(drafter.name) * backlog / CONSTANTS.rounds for backlog in backlogs]
        hopes = [judge.hope(sequence.id) for sequence in sequences]
        counts = [count for count in _TRIED if count < len(sequences)] + [len(sequences)]
        step_s = {count: self._step_s(drafter, count) for count in counts}
        self._backlog[drafter.name] = sum(backlogs) if max(backlogs) > _STEPS_AHEAD else 0

        def go_on(probabilities: Sequence[Sequence[float]]) -> Collection[int]:
            reaches = [judge.reaches(one.id, known) for one, known in zip(sequences, probabilities, strict=True)]
            pool = [*others, *(reach for known in reaches for reach in known)]
            _, now = _best_cut(pool, extras, worth)
            nexts = [(known[-1] if known else 1.0) * hope for known, hope in zip(reaches, hopes, strict=True)]
            waits = [0.0 if known else reading for known, reading in zip(reaches, reading_s, strict=True)]
            order = sorted(range(len(nexts)), key=lambda place: waits[place] - nexts[place] * worth)
            best, chosen = 0.0, 0
            for count in counts:
                going, new = order[:count], list[float]()
                for steps in range(1, _STEPS_AHEAD + 1):
                    new += [nexts[place] * hopes[place] ** (steps - 1) for place in going]
                    _, then = _best_cut([*pool, *new], extras, worth)
                    gain = then - now - steps * step_s[count] - sum(waits[place] for place in going)
                    if gain > best:
                        best, chosen = gain, count
            return order[:chosen]

        return go_on


_TRIED = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48)
"""How many texts' drafts are continued, apart from all."""
_COUNTS = [1 << power for power in range(8)]
"""Of texts, by which the costs of a step for several are told apart."""


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


def _best_cut(reaches: Collection[float], extras: Sequence[float], worth: float) -> tuple[int, float]:
    """How many of these tokens to send, the likeliest first, and the seconds that gains."""
    gains = accumulate((reach * worth for reach in sorted(reaches, reverse=True)), initial=0.0)
    return max(
        ((count, gain - extra) for count, (gain, extra) in enumerate(zip(gains, extras, strict=False))),
        key=lambda found: found[1],
    )


def _cut(
    drafts: Sequence[Draft], reaches: Sequence[Sequence[float]], extras: Sequence[float], worth: float
) -> list[Draft]:
    """The drafts, with no more tokens than those that pay together."""
    pool = sorted(((-reach, place) for place, known in enumerate(reaches) for reach in known))
    sent, _ = _best_cut([-reach for reach, _ in pool], extras, worth)
    counts = Counter(place for _, place in pool[:sent])
    for place, draft in enumerate(drafts):
        draft.tokens, draft.unsent = draft.tokens[: counts[place]], draft.tokens[counts[place] :]
    return list(drafts)
