"""What a token is worth at present."""

from collections.abc import Sequence
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

    def observe(self, num_sent: int, num_output: int, target_s: float, draft_s: float) -> float:
        """Learn from a round; the plain steps that it lost against plain decoding.

        `target_s`: the decode that verified `num_sent` tokens; `draft_s`: the drafting.
        """
        self.costs.observe(self.costs.width(num_sent + 1), target_s)
        steps = (target_s + draft_s) / self.costs.plain
        self.rounds += 1
        self.elapsed_s += target_s + draft_s
        self._tokens += num_output - self._tokens / CONSTANTS.rate_memory
        self._steps += steps - self._steps / CONSTANTS.rate_memory
        return steps - num_output

    def most_valuable(self, acceptances: Sequence[float], most_s: float = inf) -> tuple[int, float]:
        """How many tokens of a draft to send, and the seconds that gains over a plain step; (0, 0.0) if nothing pays.

        `acceptances`: for each token the probability that it is accepted if those before it are. Only beginnings are
        considered whose verification takes at most `most_s` seconds more than a plain step.
        """
        worth, extras = 1 / self.rate, self.costs.extras()
        reach, tokens = 1.0, 0.0
        take, gain = 0, 0.0
        for count, acceptance in enumerate(acceptances[: self.costs.cap], 1):
            reach *= acceptance
            tokens += reach
            if extras[count] <= most_s and tokens * worth - extras[count] > gain:
                take, gain = count, tokens * worth - extras[count]
        return take, gain
