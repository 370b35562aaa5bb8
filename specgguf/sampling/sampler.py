"""Logits to a token, by noise that depends on nothing but seed, position and token id.

Sampling from a distribution is taking the argmax of log-probability plus independent Gumbel noise (Gumbel, 1954;
Maddison et al., arXiv 1411.0030). Here the noise is a hash of (seed, position, token id). The target and
the draft draw the same noise, so that their choices agree as often as can be without talking to each other
(Daliri et al., arXiv 2408.07978), while the target's choice depends on the target's logits alone.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import exp, isfinite, log
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from specgguf.errors import ContextError
from specgguf.sampling import ranking
from specgguf.sampling.margin import Ranking, atypicality, num_kept, softmax
from specgguf.sampling.noise import gumbel_noise
from specgguf.sampling.ranking import CHUNK, Ids

REPEAT_WINDOW = 64
"""How many of the last tokens the penalties look at: llama.cpp's `repeat_last_n`."""

_COLDEST = 1e-30
"""Below this temperature a choice is greedy: nothing else could be chosen, and divisions would overflow."""
_BESIDE = 8
"""Tokens after the best `top_k` that a margin looks at."""


class Grammar(Protocol):
    """Which texts may come out.

    It is asked about positions in any order, by the draft and by the target in turn; an answer depends on nothing but
    the arguments.
    """

    def mask(self, tokens: Sequence[int], ahead: Sequence[int] = ()) -> NDArray[np.bool_]:
        """Which ids may follow `tokens` and then `ahead`: shape (n_vocab,), of the target.

        Raises ContextError where that cannot be told.
        """

    def forced(self, tokens: Sequence[int]) -> list[int]:
        """The tokens that follow `tokens` because nothing else may, as far as that is known."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A token, and how far it was from being another one.

    `margin` is in units of a difference of two logits: as long as no logit moves by more than half of it, the token
    stays the same. Where rounding moves logits by at most x, another token is a tie if the margin is at most 2 x, and
    a mistake otherwise. Infinite if nothing else can be chosen. With `typical_p` it is an estimate.
    """

    token: int
    margin: float


@dataclass(frozen=True, slots=True)
class Sampler:
    """How a token is chosen. Temperature 0 is argmax, ties to the lowest id.

    The order is llama.cpp's: logit bias, penalties, grammar, top-k, typical, top-p, min-p, temperature. `top_k` 0,
    `typical_p` 1, `top_p` 1, `min_p` 0, `repeat_penalty` 1, `presence_penalty` 0 and `frequency_penalty` 0 switch the
    respective step off. The truncations choose among what the grammar allows: cutting first and asking the grammar
    then would be another distribution.
    """

    temperature: float = 0.0
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    repeat_penalty: float = 1.0
    seed: int = 0
    typical_p: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] | tuple[tuple[int, float], ...] = ()
    """What is added to the logits of some ids; minus infinity bans them. Ids beyond the logits' end count for nothing,
    as a draft may know fewer."""
    grammar: Grammar | None = None

    def __post_init__(self) -> None:
        if self.temperature < _COLDEST:
            object.__setattr__(self, "temperature", 0.0)

    def sample(self, logits: NDArray[np.float32], tokens: Sequence[int], ahead: Sequence[int] = ()) -> int:
        """The token that follows `tokens` and then `ahead`, given its logits, shape (n_vocab,).

        Raises ContextError if the logits are not numbers, or if no token is allowed.
        """
        position = len(tokens) + len(ahead)
        if not self.logit_bias and not self._penalizes:
            return self._choose(self._masked(logits, tokens, ahead), position)
        with self._adjusted(logits, tokens, ahead) as adjusted:
            return self._choose(self._masked(adjusted, tokens, ahead), position)

    def choose(self, logits: NDArray[np.float32], tokens: Sequence[int], ahead: Sequence[int] = ()) -> Choice:
        """The token of `sample` and its margin, which takes far longer."""
        position = len(tokens) + len(ahead)
        with self._adjusted(logits, tokens, ahead) as adjusted:
            masked = self._masked(adjusted, tokens, ahead)
            token = self._choose(masked, position)
            return Choice(token, self._margin(masked, token, position))

    def _masked(self, logits: NDArray[np.float32], tokens: Sequence[int], ahead: Sequence[int]) -> NDArray[np.float32]:
        """The logits of what the grammar allows, minus infinity for the rest."""
        if self.grammar is None:
            return logits
        return np.where(self.grammar.mask(tokens, ahead)[: len(logits)], logits, np.float32(-np.inf))

    def _choose(self, logits: NDArray[np.float32], position: int) -> int:
        best = int(logits.argmax())
        peak = float(logits[best])
        if not isfinite(peak):
            raise _unusable(peak)
        if self.temperature == 0.0:
            return best
        token = self._likely(logits, best, peak, position)
        if token is not None:
            return token
        ids = self._candidates(logits) if self._cuts() else np.arange(len(logits))
        return int(ids[self._strengths(logits[ids], ids, position).argmax()])

    def _likely(self, logits: NDArray[np.float32], best: int, peak: float, position: int) -> int | None:
        """The choice, where it can be told from the tokens that min-p leaves: most often, and long before all is known.

        One that is not cut if these were all there is, is not cut either with others beside them. Right after a decode
        nothing is in the processor's caches, and few calls of numpy count for more than little work in each.
        """
        if self.min_p <= 0.0 or self.typical_p < 1.0:
            return None
        near = logits >= peak + log(self.min_p)
        count = np.count_nonzero(near)
        if count == 1:
            return best
        if count > min(CHUNK, self.top_k or CHUNK):
            return None
        ids = near.nonzero()[0]
        kept = logits[ids]
        place = int(self._strengths(kept, ids, position).argmax())
        weights = [exp(logit - peak) for logit in kept.tolist()]
        before = sum(weight for weight in weights if weight >= weights[place]) - weights[place]
        # The bound was rounded in comparing: that may have left one too many.
        if min(weights) < self.min_p or before >= self.top_p * sum(weights):
            return None
        return int(ids[place])

    def _strengths(self, kept: NDArray[np.float32], ids: Ids, position: int) -> NDArray[np.float64]:
        """What the choice among `ids`, whose logits are `kept`, is the argmax of."""
        strengths: NDArray[np.float64] = (kept - kept.max()) / np.float64(self.temperature)
        return strengths + gumbel_noise(self.seed, position, ids)

    def _cuts(self) -> bool:
        return self.top_k > 0 or self.typical_p < 1.0 or self.top_p < 1.0 or self.min_p > 0.0

    @property
    def _penalizes(self) -> bool:
        return (self.repeat_penalty, self.presence_penalty, self.frequency_penalty) != (1.0, 0.0, 0.0)

    @contextmanager
    def _adjusted(
        self, logits: NDArray[np.float32], tokens: Sequence[int], ahead: Sequence[int]
    ) -> Iterator[NDArray[np.float32]]:
        """The logits with bias and penalties, which are few: written in place and taken back afterwards."""
        window = [*tokens[-REPEAT_WINDOW:], *ahead][-REPEAT_WINDOW:] if self._penalizes else []
        counts, bias = Counter(window), dict(self.logit_bias)
        ids = [token for token in {**counts, **bias} if 0 <= token < len(logits)]
        if not ids:
            yield logits
            return
        if not logits.flags.writeable:
            logits = logits.copy()
        original = logits[ids]
        values = original + np.array([bias.get(token, 0.0) for token in ids], np.float32)
        times = np.array([counts[token] for token in ids], np.float32)
        repeated = np.where(values > 0, values / self.repeat_penalty, values * self.repeat_penalty)
        repeated -= times * self.frequency_penalty + self.presence_penalty
        logits[ids] = np.where(times > 0, repeated, values)
        try:
            yield logits
        finally:
            logits[ids] = original

    def _candidates(self, logits: NDArray[np.float32]) -> Ids:
        """Ids left after the truncations, best first; ties at a bound go to the lowest ids."""
        limit = min(self.top_k, len(logits)) if self.top_k > 0 else len(logits)
        found = np.empty(0, np.int64)
        for ids, lowest in ranking.descending(logits, limit if self.top_k > 0 else CHUNK):
            found = np.concatenate([found, ids])
            if len(found) >= limit:
                break
            count = self._settled(logits, found, lowest)
            if count is not None:
                return found[:count]
        return self._truncated(logits, found[:limit])

    def _settled(self, logits: NDArray[np.float32], found: Ids, lowest: np.float32) -> int | None:
        """How many of the tokens found are left after top-p and min-p; None if that depends on what follows.

        What follows is at most as likely as `lowest`. Where it cannot change anything it need not be put in order.
        """
        if self.typical_p < 1.0 or not len(found):
            return None
        kept = logits[found]
        bound = kept[0] + np.log(self.min_p) if self.min_p > 0.0 else -np.inf
        count = int(np.count_nonzero(kept >= bound))
        ends = bool(lowest < bound)
        if self.top_p >= 1.0:
            return count if ends else None
        weights = np.exp(kept.astype(np.float64) - kept[0])
        needed = ranking.num_until(weights / (weights.sum() + ranking.rest_of(logits, found)), self.top_p)
        return min(needed, count) if ends or needed <= len(kept) else None

    def _truncated(self, logits: NDArray[np.float32], ids: Ids) -> Ids:
        """What typical, top-p and min-p leave of the best tokens."""
        if self.typical_p < 1.0:
            probs = softmax(logits[ids].astype(np.float64))
            order = np.argsort(atypicality(probs), kind="stable")
            ids = ids[np.sort(order[: num_kept(probs[order], self.typical_p)])]
        if self.top_p < 1.0:
            ids = ids[: ranking.num_until(softmax(logits[ids].astype(np.float64)), self.top_p)]
        if self.min_p > 0.0:
            kept = logits[ids]
            ids = ids[kept >= kept[0] + np.log(self.min_p)]
        return ids

    def _margin(self, logits: NDArray[np.float32], token: int, position: int) -> float:
        limit = 2 if self.temperature == 0.0 else self.top_k + _BESIDE if self.top_k > 0 else len(logits)
        ids = ranking.best(logits, limit)
        if self.temperature == 0.0:
            return float(logits[ids[0]] - logits[ids[1]]) if len(ids) > 1 else np.inf
        noise = gumbel_noise(self.seed, position, ids)
        kept = np.isin(ids, self._truncated(logits, ids[: self.top_k] if self.top_k > 0 else ids))
        ranked = Ranking(
            logits[ids].astype(np.float64),
            noise,
            self.temperature,
            self.top_k,
            self.typical_p,
            self.top_p,
            self.min_p,
        )
        return ranked.margin(int(np.flatnonzero(ids == token)[0]), kept)


def _unusable(peak: float) -> ContextError:
    """What to say of logits whose largest is no number."""
    if peak == -np.inf:
        return ranking.nothing_allowed()
    return ContextError(
        "the model computed logits that are not numbers",
        "the file may be damaged, or its quantization unsupported here: try another one",
    )
