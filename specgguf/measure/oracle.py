"""The best that drafting could have done: decoding an answer with its drafts' fate known beforehand.

No policy can be faster, as none knows. How near one comes tells how good it is, whatever the drafts are like.
"""

from collections.abc import Collection, Mapping, Sequence

from specgguf.speculative.policy.costs import WidthCosts


def run_lengths(hits: Sequence[bool]) -> list[int]:
    """How many tokens a drafter would get right from each position on, if it is right about `hits` one by one.

    A draft is accepted as far as it is the answer itself. So what a draft model says in the middle of a draft is what
    it says after that much of the answer.
    """
    lengths = [0]
    for hit in reversed(hits):
        lengths.append(lengths[-1] + 1 if hit else 0)
    return lengths[:0:-1]


def shortest_time(right: Mapping[str, Sequence[int]], free: Collection[str], costs: WidthCosts) -> float:
    """Seconds of the best way to cut an answer into rounds.

    `right`: by drafter, how many tokens it would get right from each position on; each takes a draft step, but for the
    drafters that are `free`. A round yields what was drafted and one token more.
    """
    total = max(map(len, right.values()))
    step_s = {name: 0.0 if name in free else costs.draft_step(name) for name in right}
    rest = [0.0] * (total + 1)
    for at in reversed(range(total)):
        most = min(costs.cap, total - at - 1)
        best = costs.padded(1) + rest[at + 1]
        for name, lengths in right.items():
            for count in range(1, min(lengths[at], most) + 1):
                best = min(best, costs.padded(count + 1) + count * step_s[name] + rest[at + count + 1])
        rest[at] = best
    return rest[0]
