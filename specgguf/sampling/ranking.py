"""The largest of many values, as many as are needed."""

from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from specgguf.errors import ContextError

_GROUP = 64
CHUNK = 256
"""Tokens looked at where the first few did not suffice; then four times as many, and so on."""
_GROWTH = 4
_MOST_SORTED = 4096
"""More than that, and all are put in order."""
Ids: TypeAlias = NDArray[np.int64]


def descending(values: NDArray[Any], first: int) -> Iterator[tuple[Ids, Any]]:
    """The indices in descending order of their values, in growing parts; equal ones by index.

    With each part the value that none of the next exceeds. Minus infinity is left out: it is not allowed.
    """
    done, count = np.empty(0, np.int64), first
    while count <= min(_MOST_SORTED, len(values) - 1):
        ids = np.flatnonzero((values >= _lower_bound(values, count)) & (values > -np.inf))
        ids = ids[np.argsort(-values[ids], kind="stable")][:count]
        if len(ids) < count:
            yield ids[len(done) :], -np.inf
            return
        yield ids[len(done) :], values[ids[-1]]
        done, count = ids, max(count * _GROWTH, CHUNK)
    left = values > -np.inf
    left[done] = False
    ids = np.flatnonzero(left)
    yield ids[np.argsort(-values[ids], kind="stable")], -np.inf


def _lower_bound(values: NDArray[Any], count: int) -> Any:  # noqa: ANN401 (a number of the same type)
    """A value that at least `count` of them reach and not many more.

    The count-th largest of the maxima of groups: ordering 2,000 maxima is far cheaper than 150,000 logits.
    """
    num_groups = len(values) // _GROUP
    if num_groups > count:
        values = values[: num_groups * _GROUP].reshape(_GROUP, num_groups).max(axis=0)
    return np.partition(values, -count)[-count]


def best(values: NDArray[Any], limit: int) -> Ids:
    """The indices of the `limit` largest values, fewer if not so many are allowed."""
    found = np.empty(0, np.int64)
    for ids, _ in descending(values, limit):
        found = np.concatenate([found, ids])
        if len(found) >= limit:
            break
    return found[:limit]


def rest_of(logits: NDArray[np.float32], found: Ids) -> float:
    """What is left of the probability after the tokens found, in units of the best one's."""
    peak = logits[found[0]]
    return max(
        0.0, float(np.exp(logits - peak).sum(dtype=np.float64) - np.exp(logits[found] - peak).sum(dtype=np.float64))
    )


def num_until(probs: NDArray[np.float64], bound: float) -> int:
    """How many of them it takes to reach the bound."""
    return int(np.searchsorted(np.cumsum(probs), bound)) + 1


def nothing_allowed() -> ContextError:
    """Not the end of the text: an end that was not chosen would hide that the output is cut off."""
    return ContextError(
        "grammar and bans leave no token that could follow",
        "the grammar asks for text that this vocabulary cannot spell, or for an end that it does not have: change it",
    )
