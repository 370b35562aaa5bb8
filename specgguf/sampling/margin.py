"""How far a choice among noisy logits is from another one."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_Floats = NDArray[np.float64]
_BESIDE = 8


@dataclass(frozen=True, slots=True)
class Ranking:
    """Tokens in descending order of their logits, and what is done with them.

    Distances are those by which two logits have to move against each other, all other logits likewise: where no logit
    moves by more than half of a distance, what it stands for does not happen. With `typical_p` they are approximate,
    since the entropy moves too.
    """

    logits: _Floats
    noise: _Floats
    temperature: float
    top_k: int
    typical_p: float
    top_p: float
    min_p: float

    def margin(self, winner: int, kept: NDArray[np.bool_]) -> float:
        """The distance to a choice other than `winner`, an index, of those that the truncations kept.

        Another token has to come in, if it is outside, and to win; or the winner has to be put out. Of the tokens
        outside only the eight best are looked at.
        """
        gaps = self.logits[winner] - self.logits + self.temperature * (self.noise[winner] - self.noise)
        outside = np.flatnonzero(~kept)[:_BESIDE].tolist()
        rivals = gaps[kept & (np.arange(len(kept)) != winner)]
        distances = [max(float(gaps[index]), self.entering(index)) for index in outside]
        return max(0.0, min([*distances, self.leaving(winner), float(rivals.min(initial=math.inf))]))

    def entering(self, index: int) -> float:
        """The distance of a token that was cut off to being kept."""
        distance = 0.0
        members = np.arange(self._num_best())
        if index >= len(members):
            distance = float(self.logits[members[-1]] - self.logits[index])
            members[-1] = index  # it comes in by taking the last one's place
        if self.typical_p < 1.0:
            order, keys, mass = self._by_typicality(members)
            place = int(np.flatnonzero(order == index)[0])
            distance = max(distance, _entering(keys, mass, place, self.typical_p))
            members = np.union1d(order[: num_kept(mass, self.typical_p)], [index])
        if self.top_p < 1.0:
            place = int(np.flatnonzero(members == index)[0])
            logits = self.logits[members]
            distance = max(distance, _entering(logits, softmax(logits), place, self.top_p))
        return max(distance, -self._above_min_p(index, members))

    def leaving(self, index: int) -> float:
        """The distance of a token that was kept to being cut off."""
        distance = math.inf
        members = np.arange(self._num_best())
        if len(members) < len(self.logits):
            distance = float(self.logits[index] - self.logits[len(members)])
        if self.typical_p < 1.0:
            order, keys, mass = self._by_typicality(members)
            place = int(np.flatnonzero(order == index)[0])
            distance = min(distance, _leaving(keys, mass, place, self.typical_p))
            members = np.sort(order[: num_kept(mass, self.typical_p)])
        if self.top_p < 1.0:
            place = int(np.flatnonzero(members == index)[0])
            logits = self.logits[members]
            distance = min(distance, _leaving(logits, softmax(logits), place, self.top_p))
        return min(distance, self._above_min_p(index, members))

    def _num_best(self) -> int:
        return min(self.top_k, len(self.logits)) if self.top_k > 0 else len(self.logits)

    def _by_typicality(self, members: NDArray[np.int64]) -> tuple[NDArray[np.int64], _Floats, _Floats]:
        """The tokens from the most typical on, a key that falls in this order, and their probabilities."""
        mass = softmax(self.logits[members])
        shift = atypicality(mass)
        order = np.argsort(shift, kind="stable")
        return members[order], -shift[order], mass[order]

    def _above_min_p(self, index: int, members: NDArray[np.int64]) -> float:
        others = self.logits[members[members != index]]
        if self.min_p <= 0.0 or not len(others):
            return math.inf
        return float(self.logits[index] - others.max() - np.log(self.min_p))


def atypicality(probs: _Floats) -> _Floats:
    """How far the information of each outcome is from the entropy (Meister et al., arXiv 2202.00666)."""
    information = -np.log(probs)
    distance: _Floats = np.abs(information - (probs * information).sum())
    return distance


def softmax(logits: _Floats) -> _Floats:
    """Probabilities of logits."""
    weights = np.exp(logits - logits.max())
    probs: _Floats = weights / weights.sum()
    return probs


def num_kept(mass: _Floats, bound: float) -> int:
    """How many of the most typical outcomes are kept: until their mass is above the bound."""
    return int(np.searchsorted(np.cumsum(mass), bound, side="right")) + 1


def _entering(keys: _Floats, mass: _Floats, place: int, bound: float) -> float:
    """A token is kept if the mass before it is less than the bound: so it rises, and what is before it shrinks."""
    before = np.concatenate([[0.0], np.cumsum(mass[:place])])  # having risen to each place up to its own
    gaps = keys[: place + 1] - keys[place]
    return max(0.0, float(np.maximum(gaps, _log_odds(before, mass.sum() - before, bound)).min()))


def _leaving(keys: _Floats, mass: _Floats, place: int, bound: float) -> float:
    """A token is cut off if the mass before it reaches the bound: so it falls, and what is before it grows."""
    before = np.cumsum(mass)[place:] - mass[place]  # having fallen to its own place and each after it
    gaps = keys[place] - keys[place:]
    return max(0.0, float(np.maximum(gaps, -_log_odds(before, mass.sum() - before, bound)).min()))


def _log_odds(before: _Floats, rest: _Floats, bound: float) -> _Floats:
    """By how much the logits before may fall against the rest until their mass is `bound`."""
    with np.errstate(divide="ignore"):
        odds: _Floats = np.log(np.maximum(before, 0.0)) - np.log(rest) + np.log1p(-bound) - np.log(bound)
    return odds
