"""What a token is worth at present."""

from collections.abc import Callable, Sequence
from math import inf

from specgguf.speculative.policy.constants import CONSTANTS
from specgguf.speculative.policy.costs import WidthCosts


class Pace:
    """The rate at which tokens come, and what a draft gains at that rate. All who draft for a text share it.

    A token is worth the time in which one comes at the current rate, hence never more than a plain step.
    """

    def __init__(self, costs: WidthCosts) -> None:
        self.costs = costs
        self.elapsed_s = 0.0
        """Seconds of all rounds, of all texts."""
        self.judged_s = 0.0
        """The same of the rounds of which it is known what plain decoding would have taken."""
        self.plain_s = 0.0
        """And that."""
        self.begin()

    def begin(self) -> None:
        """A new text: the last one's rate says little about it."""
        self.rounds = 0
        """Rounds of this text."""
        self._tokens = self._steps = CONSTANTS.first_tokens  # recent tokens and their time in plain steps, fading

    @property
    def rate(self) -> float:
        """Tokens per second at present, and never less than plain decoding yields."""
        return max(CONSTANTS.margin, self._tokens / self._steps) / self.costs.plain

    def observe(
        self, num_sent: int, num_output: int, verify_s: float, draft_s: float, rollback_s: float = 0.0
    ) -> float:
        """Learn from a round; the plain steps that it lost against plain decoding.

        `verify_s`: the decode that verified `num_sent` tokens; `draft_s`: the drafting; `rollback_s`: evaluating again
        what the rejection of the last draft had taken along.
        """
        self.costs.observe(self.costs.width(num_sent + 1), verify_s)
        if rollback_s:
            self.costs.observe_rollback(rollback_s)
        seconds = verify_s + draft_s + rollback_s
        steps = seconds / self.costs.plain
        self.rounds += 1
        self.elapsed_s += seconds
        self.compare(verify_s, draft_s + rollback_s, num_sent, num_output)
        self._tokens += num_output - self._tokens / CONSTANTS.rate_memory
        self._steps += steps - self._steps / CONSTANTS.rate_memory
        return steps - num_output

    def compare(self, verify_s: float, draft_s: float, num_sent: int, num_output: int, num_texts: int = 1) -> None:
        """Count a round of so many texts beside what its output takes without drafts, if that is known.

        `draft_s`: all that drafts have cost beside verification. A round in which no tokens were sent is plain itself.
        """
        if not num_sent or self.costs.knows(num_texts):
            self.judged_s += verify_s + draft_s
            self.plain_s += num_output * self.costs.padded(num_texts) / num_texts if num_sent else verify_s

    def most_valuable(self, acceptances: Sequence[float], most_s: float = inf) -> tuple[int, float]:
        """How many tokens of a draft to send, and the seconds that gains over a plain step; (0, 0.0) if nothing pays.

        `acceptances`: for each token the probability that it is accepted if those before it are. Only beginnings are
        considered whose verification takes at most `most_s` seconds more than a plain step.
        """
        extras, value = self.costs.extras(), self.valuation()
        reach, tokens = 1.0, 0.0
        take, gain = 0, 0.0
        for count, acceptance in enumerate(acceptances[: self.costs.cap], 1):
            reach *= acceptance
            tokens += reach
            if extras[count] <= most_s and (worth := value(count, tokens, reach)) > gain:
                take, gain = count, worth
        return take, gain

    def valuation(self) -> Callable[[int, float, float], float]:
        """At the present rate, the seconds that a draft gains over a plain step.

        Its arguments: how many tokens the draft has, how many of them are expected to be accepted, and how likely all
        of them are.
        """
        worth, extras, rollback = 1 / self.rate, self.costs.extras(), self.costs.rollback

        def value(count: int, tokens: float, reach: float) -> float:
            return tokens * worth - extras[count] - (1 - reach) * rollback

        return value
