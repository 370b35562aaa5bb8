"""How far a draft model's probabilities are to be believed."""

from bisect import bisect_right

EDGES = (0.1, 0.25, 0.4, 0.55, 0.7, 0.8, 0.9, 0.97, 0.995)
"""Bounds of the bins of a model's probabilities: finer where most of them are."""


class Mean:
    """A running mean that starts from a guess and forgets what is older than `memory` observations."""

    __slots__ = ("_memory", "_weight", "value")

    def __init__(self, value: float, weight: float, memory: float) -> None:
        """`weight`: how many observations the guess is worth."""
        self.value = value
        self._weight = weight
        self._memory = memory

    def observe(self, value: float) -> None:
        """Take one more value in."""
        self._weight = min(self._weight + 1, self._memory)
        self.value += (value - self.value) / self._weight


class Calibrator:
    """From a draft model's probability of a token to the share of such tokens that is accepted.

    What is learned, bin by bin, is how far the two are apart; a bin without evidence believes the model.
    """

    def __init__(self) -> None:
        self._bins = [Mean(0.0, 8, 32) for _ in range(len(EDGES) + 1)]

    def acceptance(self, probability: float) -> float:
        """How likely a token of this probability is accepted if all before it are."""
        return min(max(probability + self._bin(probability).value, 0.01), 0.999)

    def observe(self, probability: float, accepted: bool) -> None:
        """A token of this probability has come to verification, all before it accepted."""
        self._bin(probability).observe(accepted - probability)

    def _bin(self, probability: float) -> Mean:
        return self._bins[bisect_right(EDGES, probability)]
