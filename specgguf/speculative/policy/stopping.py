"""Draft length where every draft token takes time: an optimal-stopping problem."""

from collections.abc import Iterator, Sequence
from math import inf

from specgguf.speculative.drafter import Draft
from specgguf.speculative.policy.calibration import Calibrator
from specgguf.speculative.policy.constants import CONSTANTS
from specgguf.speculative.policy.outlook import Outlook
from specgguf.speculative.policy.pace import Pace
from specgguf.speculative.verify import Verdict


class OptimalStopping:
    """Drafts on while some number of further tokens is expected to be worth more than it costs.

    What it costs: their draft steps and the wider batch, jumps in its cost looked across. Then the most valuable
    beginning is sent. Where not even the first step is expected to pay, drafting is parked: no work but a rare probe.

    Two things are learned about the draft: how its probabilities translate to acceptance (slowly, for that belongs
    to the pair), and whether it is at present the draft of which this was learned (`_trust`, within a few tokens).
    """

    def __init__(self, drafter: str, pace: Pace) -> None:
        self._drafter = drafter
        self._pace = pace
        self._calibrator = Calibrator()
        self._trust = CONSTANTS.trust
        self._spent_s = 0.0  # what probes have cost
        self._failures = 0  # probes lost since drafting last won
        self._lost = 0.0  # plain steps that drafting has lost since it last won
        self._idle = 0  # parked rounds since the last probe
        self.num_judged = self.num_right = 0
        """Of all texts: draft tokens whose predecessors were accepted, and how many of them were accepted."""
        self.begin()

    def begin(self, backlog: int = 0) -> None:
        """A new text. The last one says little about it."""
        self._backlog = self._unread = backlog
        self._outlook = Outlook()
        self._park()

    @property
    def parked(self) -> bool:
        """Whether drafting is given up for now."""
        return self._parked

    def promise(self) -> float:
        """The best plan's gain; none while parked."""
        return 0.0 if self._parked else max(0.0, self._ahead())

    def go_on(self, probabilities: Sequence[float]) -> bool:
        """Whether one more draft step pays."""
        if not probabilities:
            return self._probing or (not self._parked and self._pace.costs.plain_known)
        return any(gain > 0 for gain in self._plans(self._acceptances(probabilities)))

    def choose(self, probabilities: Sequence[float]) -> tuple[int, float]:
        """The most valuable beginning."""
        return self._pace.most_valuable(self._acceptances(probabilities))

    def observe(self, draft: Draft, verdict: Verdict, lost_steps: float) -> None:
        """Learn what came of a draft.

        Where all that was sent was accepted and more had been drafted, the target's own token tells about the next
        one of those. That costs nothing to know, and in a probe it is all there is to learn from.
        """
        sent, costs = len(draft.tokens), self._pace.costs
        costs.observe_draft(self._drafter, len(draft.probabilities), draft.seconds, self._backlog)
        self._backlog = self._unread = 0
        next_right = None
        if verdict.accepted == sent and draft.unsent:
            next_right = verdict.output[-1] == draft.unsent[0]
        self._learn(sent, verdict.accepted, draft.probabilities, next_right)
        self._lost += lost_steps
        if sent and lost_steps < 0:
            self._failures, self._lost = 0, 0.0
        if self._lost > CONSTANTS.patience:
            self._outlook.forget_streaks()
            self._lost = 0.0
        if self._parked:
            self._idle = 0
            if lost_steps > 0:
                self._failures += 1
                self._spent_s += draft.seconds  # what was sent on top was worth it
        self._park()

    def pass_over(self, num_output: int) -> None:
        """The draft will have to read these tokens too."""
        self._backlog += num_output
        self._idle += self._parked
        self._park()

    def explain(self) -> str:
        """What the rule believes, in one line."""
        outlook, costs, gain = self._outlook, self._pace.costs, 1000 * self._ahead()
        verdict = f"a draft gains {gain:.1f} ms a round"
        if self._parked:
            if gain > 0:
                reason = f"reading the prompt's {self._unread} tokens would take the draft longer than it can win back"
            else:
                reason = f"the best draft would lose {-gain:.1f} ms a round"
            verdict = f"parked: {reason}; {self._failures} probes lost"
        return (
            f"{self._pace.rate:.1f} tokens/s; plain step {1000 * costs.plain:.1f} ms, "
            f"draft step {1000 * costs.draft_step(self._drafter):.1f} ms; "
            f"confident {outlook.enter.value:.0%} at first and {outlook.stay.value:.0%} in a streak, "
            f"accepted {outlook.confident.value:.0%}, doubtful ones {outlook.doubtful.value:.0%}; "
            f"trust {self._trust:.2f}; {verdict}"
        )

    def _learn(self, sent: int, accepted: int, probabilities: Sequence[float], next_right: bool | None) -> None:
        followed = probabilities if accepted == sent else probabilities[: accepted + 1]
        self._outlook.observe([self._calibrator.acceptance(p) for p in followed])
        hits = [True] * accepted
        if accepted < sent:
            hits.append(False)
        elif next_right is not None:
            hits.append(next_right)
        self.num_judged += len(hits)
        self.num_right += sum(hits)
        for probability, hit in zip(probabilities, hits, strict=False):
            expected = min(self._calibrator.acceptance(probability), CONSTANTS.surest)
            broken = min(expected, CONSTANTS.broken)
            sound = self._trust * (expected if hit else 1 - expected)
            sound /= sound + (1 - self._trust) * (broken if hit else 1 - broken)
            self._trust = sound + (1 - 2 * sound) * CONSTANTS.hazard
            if self._trust > CONSTANTS.least_trust:
                self._calibrator.observe(probability, hit)

    def _park(self) -> None:
        """Park where the first step does not pay, or reading the prompt; decide whether it is time for a probe."""
        self._probing = False  # so that no hope enters the judgement
        pace, costs, gain = self._pace, self._pace.costs, self._ahead()
        catch_up = costs.catch_up(self._drafter)
        self._parked = gain <= 0 or gain * max(CONSTANTS.rounds, pace.rounds) < self._unread * catch_up
        cost = costs.draft_step(self._drafter) + self._backlog * catch_up
        # After each lost probe wait twice as long, but no longer than it takes until the next one is affordable.
        longest = cost / (CONSTANTS.probe_share * costs.plain)
        due = self._idle >= (min(2.0**self._failures, longest) if self._failures else 0.0)
        affordable = CONSTANTS.probe_share * pace.elapsed_s - self._spent_s >= cost
        self._probing = self._parked and due and affordable and costs.plain_known and costs.cap > 0
        if self._probing and self._failures:
            self._trust = max(self._trust, CONSTANTS.least_trust)

    def _acceptances(self, probabilities: Sequence[float]) -> list[float]:
        """For each token the probability that it is accepted if those before it are."""
        trust, acceptances = self._trust, []
        for probability in probabilities:
            expected = self._calibrator.acceptance(probability)
            acceptances.append(trust * expected + (1 - trust) * min(expected, CONSTANTS.broken))
            trust *= expected / acceptances[-1]
        return acceptances

    def _ahead(self) -> float:
        """Seconds that the best plan gains for a draft not yet begun."""
        return max(self._plans([]), default=-inf)

    def _plans(self, acceptances: Sequence[float]) -> Iterator[float]:
        """Seconds that plans to draft on gain over stopping here: one more step, two more, ...

        Each is given up at the first doubtful token. What has been drafted by then, with the doubtful token or without,
        is sent if that is better than the best beginning so far.
        """
        outlook, costs, value = self._outlook, self._pace.costs, self._pace.valuation()
        step = costs.draft_step(self._drafter)
        _, stop = self._pace.most_valuable(acceptances)
        reach, tokens = 1.0, 0.0
        for acceptance in acceptances:
            reach *= acceptance
            tokens += reach
        if not acceptances:
            reach = self._trust + (1 - self._trust) * CONSTANTS.broken
        stay = max(outlook.stay.value, CONSTANTS.probe_stay) if self._probing and acceptances else outlook.stay.value
        streak = stay if acceptances and acceptances[-1] > CONSTANTS.confident else outlook.enter.value
        here = value(len(acceptances), tokens, reach) if acceptances else 0.0
        gain, going = 0.0, 1.0  # going: the probability that no doubtful token has come yet
        for count in range(len(acceptances) + 1, costs.cap + 1):
            doubtful = reach * outlook.doubtful.value
            ended = max(stop, here, value(count, tokens + doubtful, doubtful))
            gain += going * ((1 - streak) * (ended - stop) - step)
            going *= streak
            reach *= outlook.confident.value
            tokens += reach
            here = value(count, tokens, reach)
            yield gain + going * (max(stop, here) - stop)
            streak = stay
