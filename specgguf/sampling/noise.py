"""Noise that is the same for the same seed, position and token id, always."""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray


def gumbel_noise(seed: int, position: int, ids: NDArray[np.int64]) -> NDArray[np.float64]:
    """Standard Gumbel noise of every token id, shape as `ids`; the same for the same arguments, always.

    The hash is the finalizer of SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators,
    2014), applied to the seed, then to the position, then to the ids.
    """
    bits = _mix(_key(seed, position) + ids.astype(np.uint64))
    uniform = ((bits >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
    noise: NDArray[np.float64] = -np.log(-np.log(uniform))
    return noise


@lru_cache(maxsize=64)  # the draft and the target ask for the same positions
def _key(seed: int, position: int) -> NDArray[np.uint64]:
    return _mix(_mix(np.array([seed], np.uint64)) + np.uint64(position))


def _mix(value: NDArray[np.uint64]) -> NDArray[np.uint64]:
    value = (value + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))
