"""Logits to a token, by noise that depends on nothing but seed, position and token id.

Sampling from a distribution is taking the argmax of log-probability plus independent Gumbel noise (Gumbel, 1954;
Maddison et al., arXiv 1411.0030). Here the noise is a hash of (seed, position, token id). The target and
the draft draw the same noise, so that their choices agree as often as can be without talking to each other
(Daliri et al., arXiv 2408.07978), while the target's choice depends on the target's logits alone.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from math import exp, isfinite, log
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from specgguf.errors import ContextError
from specgguf.speculative.margin import Ranking, atypicality, num_kept, softmax

REPEAT_WINDOW = 64
"""How many of the last tokens the penalties look at: llama.cpp's `repeat_last_n`."""

_GROUP = 64
_CHUNK = 256
"""Tokens looked at where the first few did not suffice; then four times as many, and so on."""
_GROWTH = 4
_MOST_SORTED = 4096
"""More than that are put before the grammar first, and in order then."""
_BESIDE = 8
"""Tokens behind the best `top_k` that a margin looks at."""

_Ids: TypeAlias = NDArray[np.int64]
_Allow: TypeAlias = Callable[[_Ids], NDArray[np.bool_]]


class Grammar(Protocol):
    """Which texts may come out.

    It is asked about positions in any order, by the draft and by the target in turn; an answer depends on nothing but
    the arguments.
    """

    def allowed(self, tokens: Sequence[int], ahead: Sequence[int], ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of `ids` may follow `tokens` and then `ahead`, shape as `ids`."""


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

    def sample(self, logits: NDArray[np.float32], tokens: Sequence[int], ahead: Sequence[int] = ()) -> int:
        """The token that follows `tokens` and then `ahead`, given its logits, shape (n_vocab,).

        Raises ContextError if the logits are not numbers, or if no token is allowed.
        """
        if not self.logit_bias and not self._penalizes:
            return self._choose(logits, tokens, ahead)
        with self._adjusted(logits, tokens, ahead) as adjusted:
            return self._choose(adjusted, tokens, ahead)

    def choose(self, logits: NDArray[np.float32], tokens: Sequence[int], ahead: Sequence[int] = ()) -> Choice:
        """The token of `sample` and its margin, which takes far longer."""
        with self._adjusted(logits, tokens, ahead) as adjusted:
            token = self._choose(adjusted, tokens, ahead)
            return Choice(token, self._margin(adjusted, token, tokens, ahead))

    def _choose(self, logits: NDArray[np.float32], tokens: Sequence[int], ahead: Sequence[int]) -> int:
        best = int(logits.argmax())
        peak = float(logits[best])
        if not isfinite(peak):
            raise _unusable(peak)
        if self.temperature == 0.0 and self.grammar is None:
            return best
        position = len(tokens) + len(ahead)
        token = self._likely(logits, best, peak, position)
        if token is not None:
            return token
        allow = self._allow(tokens, ahead)
        if self.temperature == 0.0:
            return _first(logits, allow)
        if self._cuts():
            ids, allow = self._candidates(logits, allow), None
        else:
            ids = np.arange(len(logits))
        return int(ids[_first(self._strengths(logits[ids], ids, position), allow)])

    def _likely(self, logits: NDArray[np.float32], best: int, peak: float, position: int) -> int | None:
        """The choice, where it can be told from the tokens that min-p leaves: most often, and long before all is known.

        One that is not cut if these were all there is, is not cut either with others beside them. Just behind a decode
        nothing is in the processor's caches, and few calls of numpy count for more than little work in each.
        """
        if self.grammar is not None or self.min_p <= 0.0 or self.typical_p < 1.0:
            return None
        near = logits >= peak + log(self.min_p)
        count = np.count_nonzero(near)
        if count == 1:
            return best
        if count > min(_CHUNK, self.top_k or _CHUNK):
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

    def _strengths(self, kept: NDArray[np.float32], ids: _Ids, position: int) -> NDArray[np.float64]:
        """What the choice among `ids`, whose logits are `kept`, is the argmax of."""
        strengths: NDArray[np.float64] = (kept - kept.max()) / np.float64(self.temperature)
        return strengths + gumbel_noise(self.seed, position, ids)

    def _allow(self, tokens: Sequence[int], ahead: Sequence[int]) -> _Allow | None:
        return None if self.grammar is None else partial(self.grammar.allowed, tokens, ahead)

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

    def _candidates(self, logits: NDArray[np.float32], allow: _Allow | None = None) -> _Ids:
        """Ids left after grammar and truncations, best first; ties at a bound go to the lowest ids."""
        limit = min(self.top_k, len(logits)) if self.top_k > 0 else len(logits)
        found = np.empty(0, np.int64)
        for ids, lowest in _descending(logits, allow, limit if self.top_k > 0 else _CHUNK):
            found = np.concatenate([found, ids])
            if len(found) >= limit:
                break
            count = self._settled(logits, found, lowest, None if allow is None else limit - len(found))
            if count is not None:
                return found[:count]
        if not len(found):
            raise _nothing_allowed()
        return self._truncated(logits, found[:limit])

    def _settled(self, logits: NDArray[np.float32], found: _Ids, lowest: np.float32, missing: int | None) -> int | None:
        """How many of the tokens found are left after top-p and min-p; None if that depends on what follows.

        What follows is `missing` tokens at most, or all the others if None, each at most as likely as `lowest`. Where
        it cannot change anything it need not be looked at: that spares asking the grammar about a whole vocabulary.
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
        rests = _rest_of(logits, found, lowest, missing)
        fewest, most = (_num_until(weights / (weights.sum() + rest), self.top_p) for rest in rests)
        if ends:
            fewest, most = min(fewest, count), min(most, count)
        return min(fewest, count) if fewest == most <= len(kept) else None

    def _truncated(self, logits: NDArray[np.float32], ids: _Ids) -> _Ids:
        """What typical, top-p and min-p leave of the best tokens."""
        if self.typical_p < 1.0:
            probs = softmax(logits[ids].astype(np.float64))
            order = np.argsort(atypicality(probs), kind="stable")
            ids = ids[np.sort(order[: num_kept(probs[order], self.typical_p)])]
        if self.top_p < 1.0:
            ids = ids[: _num_until(softmax(logits[ids].astype(np.float64)), self.top_p)]
        if self.min_p > 0.0:
            kept = logits[ids]
            ids = ids[kept >= kept[0] + np.log(self.min_p)]
        return ids

    def _margin(self, logits: NDArray[np.float32], token: int, tokens: Sequence[int], ahead: Sequence[int]) -> float:
        limit = 2 if self.temperature == 0.0 else self.top_k + _BESIDE if self.top_k > 0 else len(logits)
        ids = _best(logits, self._allow(tokens, ahead), limit)
        if self.temperature == 0.0:
            return float(logits[ids[0]] - logits[ids[1]]) if len(ids) > 1 else np.inf
        noise = gumbel_noise(self.seed, len(tokens) + len(ahead), ids)
        kept = np.isin(ids, self._truncated(logits, ids[: self.top_k] if self.top_k > 0 else ids))
        ranking = Ranking(
            logits[ids].astype(np.float64),
            noise,
            self.temperature,
            self.top_k,
            self.typical_p,
            self.top_p,
            self.min_p,
        )
        return ranking.margin(int(np.flatnonzero(ids == token)[0]), kept)


def _unusable(peak: float) -> ContextError:
    """What to say of logits whose largest is no number."""
    if peak == -np.inf:
        return _nothing_allowed()
    return ContextError(
        "the model computed logits that are not numbers",
        "the file may be damaged, or its quantization unsupported here: try another one",
    )


def _nothing_allowed() -> ContextError:
    """Not the end of the text: an end that was not chosen would hide that the output is cut off."""
    return ContextError(
        "grammar and bans leave no token that could follow",
        "the grammar asks for text that this vocabulary cannot spell, or for an end that it does not have: change it",
    )


def _descending(values: NDArray[Any], allow: _Allow | None, first: int) -> Iterator[tuple[_Ids, Any]]:
    """The indices that are allowed, in descending order of their values, in growing parts; equal ones by index.

    With each part the value that none of the next exceeds. Minus infinity is never allowed.
    """
    done, count = np.empty(0, np.int64), first
    while count <= min(_MOST_SORTED, len(values) - 1):
        ids = np.flatnonzero(values >= _lower_bound(values, count))
        ids = ids[np.argsort(-values[ids], kind="stable")][:count]
        new = ids[len(done) :]
        new = new[values[new] > -np.inf]
        yield new if allow is None else new[allow(new)], values[ids[-1]]
        done, count = ids, max(count * _GROWTH, _CHUNK)
    left = values > -np.inf
    left[done] = False
    ids = np.flatnonzero(left)
    ids = ids if allow is None else ids[allow(ids)]
    yield ids[np.argsort(-values[ids], kind="stable")], -np.inf


def _lower_bound(values: NDArray[Any], count: int) -> Any:  # noqa: ANN401 (a number of the same type)
    """A value that at least `count` of them reach and not many more.

    The count-th largest of the maxima of groups: ordering 2,000 maxima is far cheaper than 150,000 logits.
    """
    num_groups = len(values) // _GROUP
    if num_groups > count:
        values = values[: num_groups * _GROUP].reshape(_GROUP, num_groups).max(axis=0)
    return np.partition(values, -count)[-count]


def _first(values: NDArray[Any], allow: _Allow | None) -> int:
    """The index of the largest value that is allowed, the lowest of equals."""
    if allow is None:
        return int(values.argmax())
    return int(_best(values, allow, 1)[0])


def _best(values: NDArray[Any], allow: _Allow | None, limit: int) -> _Ids:
    """The indices of the `limit` largest values that are allowed, fewer if there are not so many, but one at least."""
    found = np.empty(0, np.int64)
    for ids, _ in _descending(values, allow, limit):
        found = np.concatenate([found, ids])
        if len(found) >= limit:
            break
    if not len(found):
        raise _nothing_allowed()
    return found[:limit]


def _rest_of(logits: NDArray[np.float32], found: _Ids, lowest: np.float32, missing: int | None) -> tuple[float, float]:
    """What is left of the probability behind the tokens found, in units of the best one's: at least and at most.

    `missing` tokens at most come behind them, each at most as likely as `lowest`; None if all the others do.
    """
    peak = logits[found[0]]
    if missing is None:
        rest = float(np.exp(logits - peak).sum(dtype=np.float64) - np.exp(logits[found] - peak).sum(dtype=np.float64))
        return max(0.0, rest), max(0.0, rest)
    rest = missing * float(np.exp(np.float64(lowest) - peak))
    return 0.0, min(rest, float(np.exp(np.where(logits <= lowest, logits - peak, -np.inf)).sum(dtype=np.float64)))


def _num_until(probs: NDArray[np.float64], bound: float) -> int:
    """How many of them it takes to reach the bound."""
    return int(np.searchsorted(np.cumsum(probs), bound)) + 1


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
