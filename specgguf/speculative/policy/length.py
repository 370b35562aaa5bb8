"""How many tokens to draft and to send: as many as pay."""

from collections.abc import Iterator, Sequence
from math import inf

from specgguf.speculative.policy.calibration import Calibrator, Mean
from specgguf.speculative.policy.costs import WidthCosts

# Guesses to start from and time constants, chosen on the recorded texts that tests/core/replay.py plays.
_CONFIDENT = 0.9
"""A token that is expected to be accepted more often than this is confident, another doubtful."""
_ENTER = 0.6
_STAY = 0.8
"""The share of confident tokens to start from: at the start of a draft and after a doubtful token; in a streak."""
_MARGIN = 1.05
"""How much faster than plain decoding a draft has to promise to be: luck alone is no reason to draft."""
_STAKE = 3.5
"""How many plain steps copying may lose in a text before it has won any."""
_MOST_STAKED = 8.0
"""The same however much it has won: what was copied well so far may end any time."""
_STAKE_GROWTH = 0.04
"""Plain steps that it may lose more with each round, up to those at first."""
_RATE_MEMORY = 16.0
"""Rounds over which the rate is averaged."""
_PROBE_SHARE = 0.01
"""How much of all time probes may cost."""
_HOPE = 0.95
"""How likely a probe takes a streak of confident tokens to go on: what it is looking for is a text like that."""
_PATIENCE = 3.0
"""Plain steps lost by drafting without a round that won: the text is no longer what it was."""
_BROKEN = 0.15
"""How often a token is accepted of a draft that cannot be trusted."""
_ROUNDS = 64.0
"""How many rounds a text is expected to go on; a longer one as many again as it has had. Within them it has to pay
that the draft decodes the prompt too.
"""
_HAZARD = 0.001
"""How often, per verified token, a draft turns trustworthy or ceases to be."""
_SURE = 0.95
"""No single token tells more about the trust in a draft than one expected to be accepted this often."""
_DOUBT = 0.15
"""With less trust nothing is learned about a draft's probabilities; as much it gets when it is probed again."""


class Outlook:
    """What further draft tokens will be like: streaks of confident ones, and doubtful ones."""

    def __init__(self) -> None:
        self.enter = Mean(_ENTER, 10, 24)
        """The share of confident tokens at the start of a draft and after a doubtful one."""
        self.stay = Mean(_STAY, 10, 24)
        """The share of confident tokens after a confident one."""
        self.confident = Mean(0.98, 10, 64)
        """The acceptance of confident tokens."""
        self.doubtful = Mean(0.55, 10, 64)
        """The acceptance of the others."""

    def observe(self, acceptances: Sequence[float]) -> None:
        """A draft, without what followed a token that was not accepted."""
        streak = False
        for acceptance in acceptances:
            confident = acceptance > _CONFIDENT
            (self.stay if streak else self.enter).observe(confident)
            (self.confident if confident else self.doubtful).observe(acceptance)
            streak = confident

    def sober(self) -> None:
        """Forget streaks better than usual."""
        self.enter = Mean(min(self.enter.value, _ENTER), 10, 24)
        self.stay = Mean(min(self.stay.value, _STAY), 10, 24)


class Adaptive:
    """Draft length as optimal stopping.

    A token is worth the time in which one comes at the current rate, hence never more than a plain step. Drafting
    goes on while some number of further tokens is expected to be worth more than their draft steps and the wider
    batch, jumps in its cost looked across; then the most valuable prefix is sent. Where not even the first step
    is expected to pay, drafting is parked: no draft work but a rare probe.

    Two things are learned about the draft: how its probabilities translate to acceptance (slowly, for that belongs
    to the pair), and whether it is at present the draft of which this was learned (`_trust`, within a few tokens).
    """

    def __init__(self, costs: WidthCosts) -> None:
        self.costs = costs
        self._calibrator = Calibrator()
        self._trust = 0.98
        self._elapsed = 0.0
        self._spent = 0.0  # seconds that probes have cost
        self._failures = 0  # probes lost since drafting last won
        self._lost = 0.0  # plain steps that drafting has lost since it last won
        self._idle = 0  # parked rounds since the last probe
        self.start()

    def start(self, behind: int = 0) -> None:
        """A new text, for which the draft has to decode `behind` tokens first. The last one says little about it."""
        self._behind = self._unread = behind
        self._rounds = 0
        self._stake = _STAKE
        self._outlook = Outlook()
        self._tokens = self._steps = 4.0  # recent tokens and their time in plain steps, fading
        self._park()

    @property
    def parked(self) -> bool:
        """Whether drafting is given up for now."""
        return self._parked

    @property
    def rate(self) -> float:
        """Tokens per second at present, and never less than plain decoding yields."""
        return max(_MARGIN, self._tokens / self._steps) / self.costs.plain

    def want_more(self, probabilities: Sequence[float]) -> bool:
        """Whether to draft one more token after those drafted with these probabilities."""
        if not probabilities:
            return self._probing or (not self._parked and self.costs.plain_known)
        return any(gain > 0 for gain in self._plans(self._acceptances(probabilities)))

    def take(self, probabilities: Sequence[float]) -> int:
        """How many of the drafted tokens to send."""
        return self._most_valuable(self._acceptances(probabilities))[0]

    def value(self, acceptances: Sequence[float]) -> tuple[int, float]:
        """How many tokens of a proposal to send, and the seconds it then gains over a plain step.

        `acceptances`: for each token the probability that it is accepted if those before it are.
        Of several proposals the one with the largest gain is best; none is, if no gain is above 0.
        """
        return self._most_valuable(acceptances, self._stake * self.costs.plain)

    def _most_valuable(self, acceptances: Sequence[float], stake: float = inf) -> tuple[int, float]:
        """The beginning that gains most of those whose verification takes `stake` seconds more at most; its gain."""
        worth, extras = 1 / self.rate, self.costs.extras()
        reach, tokens = 1.0, 0.0
        take, gain = 0, 0.0
        for count, acceptance in enumerate(acceptances[: self.costs.cap], 1):
            reach *= acceptance
            tokens += reach
            if extras[count] <= stake and tokens * worth - extras[count] > gain:
                take, gain = count, tokens * worth - extras[count]
        return take, gain

    @property
    def least(self) -> float:
        """How likely the first token of a proposal has to be: else it does not pay however sure the others are."""
        return self.rate * min(extra / count for count, extra in enumerate(self.costs.extras()) if count)

    def prospect(self) -> float:
        """The seconds that a draft not yet begun is expected to gain over a plain step: to compare with `value`."""
        return 0.0 if self._parked else max(0.0, self._ahead())

    def observe(
        self,
        sent: int,
        accepted: int,
        target_s: float,
        draft_s: float,
        probabilities: Sequence[float],
        next_matched: bool | None = None,
    ) -> None:
        """Learn from a round.

        `target_s`: the decode that verified `sent` tokens; `draft_s`: drafting those with these `probabilities`,
        and decoding what the draft had missed before. `next_matched`: where all sent ones were accepted and more
        had been drafted, whether the target's own token was the next of those. That costs nothing to know, and in
        a probe it is all there is to learn from.
        """
        self.costs.observe(self.costs.width(sent + 1), target_s)
        if probabilities:
            self.costs.observe_draft(len(probabilities), draft_s, self._behind)
            self._behind = self._unread = 0
        else:
            self._behind += accepted + 1
        seconds = target_s + draft_s
        loss = seconds - (accepted + 1) * self.costs.plain
        self._rounds += 1
        self._elapsed += seconds
        self._tokens += accepted + 1 - self._tokens / _RATE_MEMORY
        self._steps += seconds / self.costs.plain - self._steps / _RATE_MEMORY
        self._learn(sent, accepted, probabilities, next_matched)
        if probabilities:
            self._lost += loss / self.costs.plain
        elif sent:
            self._stake = min(self._stake - loss / self.costs.plain, _MOST_STAKED)
        self._stake = max(self._stake, min(self._stake + _STAKE_GROWTH, _STAKE))
        if sent and probabilities and loss < 0:
            self._failures = 0
            self._lost = 0.0
        if self._lost > _PATIENCE:
            self._outlook.sober()
            self._lost = 0.0
        if self._parked:
            self._idle = 0 if probabilities else self._idle + 1
            if probabilities and loss > 0:
                self._failures += 1
                self._spent += draft_s  # what was sent on top was worth it
        self._park()

    def explain(self) -> str:
        """What the policy believes, in one line."""
        outlook, gain = self._outlook, 1000 * self._ahead()
        verdict = f"a draft gains {gain:.1f} ms a round"
        if self._parked:
            if gain > 0:
                reason = f"reading the prompt's {self._unread} tokens would take the draft longer than it can win back"
            else:
                reason = f"the best draft would lose {-gain:.1f} ms a round"
            verdict = f"parked: {reason}; {self._failures} probes lost"
        return (
            f"{self.rate:.1f} tokens/s; plain step {1000 * self.costs.plain:.1f} ms, "
            f"draft step {1000 * self.costs.draft_step:.1f} ms; "
            f"confident {outlook.enter.value:.0%} at first and {outlook.stay.value:.0%} in a streak, "
            f"accepted {outlook.confident.value:.0%}, doubtful ones {outlook.doubtful.value:.0%}; "
            f"trust {self._trust:.2f}; {verdict}"
        )

    def _learn(self, sent: int, accepted: int, probabilities: Sequence[float], next_matched: bool | None) -> None:
        followed = probabilities if accepted == sent else probabilities[: accepted + 1]
        self._outlook.observe([self._calibrator.acceptance(p) for p in followed])
        hits = [True] * accepted
        if accepted < sent:
            hits.append(False)
        elif next_matched is not None:
            hits.append(next_matched)
        for probability, hit in zip(probabilities, hits, strict=False):
            expected = min(self._calibrator.acceptance(probability), _SURE)
            broken = min(expected, _BROKEN)
            sound = self._trust * (expected if hit else 1 - expected)
            sound /= sound + (1 - self._trust) * (broken if hit else 1 - broken)
            self._trust = sound + (1 - 2 * sound) * _HAZARD
            if self._trust > _DOUBT:
                self._calibrator.observe(probability, hit)

    def _park(self) -> None:
        """Park where the first step does not pay, or reading the prompt; decide whether it is time for a probe."""
        self._probing = False  # so that no hope enters the judgement
        gain = self._ahead()
        self._parked = gain <= 0 or gain * max(_ROUNDS, self._rounds) < self._unread * self.costs.catch_up
        cost = self.costs.draft_step + self._behind * self.costs.catch_up
        # After each lost probe wait twice as long, but no longer than it takes until the next one is affordable.
        wait = min(2.0**self._failures, cost / (_PROBE_SHARE * self.costs.plain)) if self._failures else 0.0
        due = self._idle >= wait and self._allowance >= cost
        self._probing = self._parked and due and self.costs.plain_known and self.costs.cap > 0
        if self._probing and self._failures:
            self._trust = max(self._trust, _DOUBT)

    @property
    def _allowance(self) -> float:
        """Seconds that the next probe may cost."""
        return _PROBE_SHARE * self._elapsed - self._spent

    def _acceptances(self, probabilities: Sequence[float]) -> list[float]:
        """For each token the probability that it is accepted if those before it are."""
        trust, acceptances = self._trust, []
        for probability in probabilities:
            expected = self._calibrator.acceptance(probability)
            acceptances.append(trust * expected + (1 - trust) * min(expected, _BROKEN))
            trust *= expected / acceptances[-1]
        return acceptances

    def _ahead(self) -> float:
        """Seconds that the best plan gains for a draft not yet begun."""
        return max(self._plans([]), default=-inf)

    def _plans(self, acceptances: Sequence[float]) -> Iterator[float]:
        """Seconds that plans to draft on gain over stopping here: one more step, two more, ...

        Each is given up at the first doubtful token. What has been drafted by then, with the doubtful token or without,
        is sent if that is better than the best prefix so far.
        """
        outlook, worth, step, extras = self._outlook, 1 / self.rate, self.costs.draft_step, self.costs.extras()
        _, stop = self._most_valuable(acceptances)
        reach, tokens = 1.0, 0.0
        for acceptance in acceptances:
            reach *= acceptance
            tokens += reach
        if not acceptances:
            reach = self._trust + (1 - self._trust) * _BROKEN
        stay = max(outlook.stay.value, _HOPE) if self._probing and acceptances else outlook.stay.value
        streak = stay if acceptances and acceptances[-1] > _CONFIDENT else outlook.enter.value
        here = tokens * worth - extras[len(acceptances)]
        gain, going = 0.0, 1.0  # going: the probability that no doubtful token has come yet
        for count in range(len(acceptances) + 1, self.costs.cap + 1):
            ended = max(stop, here, (tokens + reach * outlook.doubtful.value) * worth - extras[count])
            gain += going * ((1 - streak) * (ended - stop) - step)
            going *= streak
            reach *= outlook.confident.value
            tokens += reach
            here = tokens * worth - extras[count]
            yield gain + going * (max(stop, here) - stop)
            streak = stay
