"""Logits to a token, by noise that depends on nothing but seed, position and token id.

Sampling from a distribution is taking the argmax of log-probability plus independent Gumbel noise (Gumbel, 1954;
Maddison et al., arXiv 1411.0030). Here the noise is a hash of (seed, position, token id). The target and
the draft draw the same noise, so that their choices agree as often as can be without talking to each other
(Daliri et al., arXiv 2408.07978), while the target's choice depends on the target's logits alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from specgguf.errors import ContextError

REPEAT_WINDOW = 64
"""How many of the last tokens the repeat penalty looks at: llama.cpp's `repeat_last_n`."""


_GROUP = 64


@dataclass(frozen=True, slots=True)
class Sampler:
    """How a token is chosen. Temperature 0 is argmax, ties to the lowest id.

    The order is llama.cpp's: repeat penalty, top-k, top-p, min-p, temperature. `top_k` 0, `top_p` 1, `min_p` 0
    and `repeat_penalty` 1 switch the respective step off.
    """

    temperature: float = 0.0
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    repeat_penalty: float = 1.0
    seed: int = 0

    def sample(self, logits: NDArray[np.float32], tokens: Sequence[int], ahead: Sequence[int] = ()) -> int:
        """The token that follows `tokens` and then `ahead`, given its logits, shape (n_vocab,).

        Raises ContextError if the logits are not numbers.
        """
        if self.repeat_penalty != 1.0:
            logits = self._penalize(logits, [*tokens[-REPEAT_WINDOW:], *ahead][-REPEAT_WINDOW:])
        peak = logits.max()
        if not np.isfinite(peak):
            raise ContextError(
                "the model computed logits that are not numbers",
                "the file may be damaged, or its quantization unsupported here: try another one",
            )
        if self.temperature == 0.0:
            return int(logits.argmax())
        ids = self._candidates(logits)
        noise = gumbel_noise(self.seed, len(tokens) + len(ahead), ids)
        return int(ids[((logits[ids] - peak) / np.float64(self.temperature) + noise).argmax()])

    def _penalize(self, logits: NDArray[np.float32], window: Sequence[int]) -> NDArray[np.float32]:
        logits = logits.copy()
        seen = np.unique(np.asarray(window, np.int64))
        seen = seen[seen < len(logits)]
        values = logits[seen]
        logits[seen] = np.where(values > 0, values / self.repeat_penalty, values * self.repeat_penalty)
        return logits

    def _candidates(self, logits: NDArray[np.float32]) -> NDArray[np.int64]:
        """Ids left after the truncations; ties at a bound go to the lowest ids."""
        ids = np.arange(len(logits))
        if 0 < self.top_k < len(logits):
            ids = np.flatnonzero(logits >= _lower_bound(logits, self.top_k))
        if len(ids) > self.top_k > 0 or self.top_p < 1.0:
            ids = ids[np.argsort(-logits[ids], kind="stable")]
            ids = ids[: self.top_k or None]
        if self.top_p < 1.0:
            weights = np.exp(logits[ids].astype(np.float64) - logits[ids[0]])
            mass = np.cumsum(weights / weights.sum())
            ids = ids[: int(np.searchsorted(mass, self.top_p)) + 1]
        if self.min_p > 0.0:
            kept = logits[ids]
            ids = ids[kept >= kept.max() + np.log(self.min_p)]
        return ids


def _lower_bound(logits: NDArray[np.float32], count: int) -> np.float32:
    """A value that at least `count` logits reach and not many more.

    The count-th largest of the maxima of groups: ordering 2,000 maxima is far cheaper than 150,000 logits.
    """
    num_groups = len(logits) // _GROUP
    if num_groups > count:
        logits = logits[: num_groups * _GROUP].reshape(_GROUP, num_groups).max(axis=0)
    bound: np.float32 = np.partition(logits, -count)[-count]
    return bound


def gumbel_noise(seed: int, position: int, ids: NDArray[np.int64]) -> NDArray[np.float64]:
    """Standard Gumbel noise of every token id, shape as `ids`; the same for the same arguments, always.

    The hash is the finalizer of SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators,
    2014), applied to the seed, then to the position, then to the ids.
    """
    key = _mix(_mix(np.array([seed], np.uint64)) + np.uint64(position))
    bits = _mix(key + ids.astype(np.uint64))
    uniform = ((bits >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
    noise: NDArray[np.float64] = -np.log(-np.log(uniform))
    return noise


def _mix(value: NDArray[np.uint64]) -> NDArray[np.uint64]:
    value = (value + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))
