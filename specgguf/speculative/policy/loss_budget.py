"""Draft length where drafting takes no time."""

from collections.abc import Sequence
from math import inf

from specgguf.speculative.drafter import Draft
from specgguf.speculative.policy.constants import CONSTANTS
from specgguf.speculative.policy.pace import Pace
from specgguf.speculative.verify import Verdict


class LossBudget:
    """Sends the most valuable beginning, as long as verification has not lost more than it may in this text.

    The drafter's own probabilities are taken for what they say; the budget bounds what that can cost where they are
    wrong: it shrinks with every loss, grows with every gain, and slowly recovers.
    """

    parked = False
    num_judged = num_right = 0

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self.begin(0)

    def begin(self, backlog: int) -> None:
        """A new text."""
        self._budget = CONSTANTS.budget

    def promise(self) -> float:
        """Asking costs nothing: the draft itself tells."""
        return inf

    def go_on(self, probabilities: Sequence[float]) -> bool:
        """Unless the first token is so unlikely that nothing pays however sure the others are."""
        return len(probabilities) != 1 or probabilities[0] >= self._least

    def choose(self, probabilities: Sequence[float]) -> tuple[int, float]:
        """The most valuable beginning within the budget."""
        return self._pace.most_valuable(probabilities, self._budget * self._pace.costs.plain)

    def observe(self, draft: Draft, verdict: Verdict, lost_steps: float) -> None:
        """Charge what verification has lost."""
        if draft.tokens:
            self._budget = min(self._budget - lost_steps, CONSTANTS.largest_budget)
        self._recover()

    def pass_over(self, num_output: int) -> None:
        """A round without a loss."""
        self._recover()

    def explain(self) -> str:
        """What may still be lost."""
        return f"may lose {self._budget:.1f} plain steps"

    def _recover(self) -> None:
        self._budget = max(self._budget, min(self._budget + CONSTANTS.budget_growth, CONSTANTS.budget))

    @property
    def _least(self) -> float:
        costs = self._pace.costs
        return self._pace.rate * min(extra / count for count, extra in enumerate(costs.extras()) if count)
