"""The best that drafting could have done: decoding an answer with its drafts' fate known beforehand.

No policy can be faster, as none knows. How near one comes tells how good it is, whatever the drafts are like.
"""

from collections.abc import Sequence

from specgguf.speculative.policy.costs import WidthCosts


def chains(hits: Sequence[bool]) -> list[int]:
    """How many tokens a draft model would get right from each position on, if it is right about `hits` one by one.

    A draft is accepted as far as it is the answer itself. So what the model says in the middle of a draft is what it
    says behind that much of the answer.
    """
    lengths = [0]
    for hit in reversed(hits):
        lengths.append(lengths[-1] + 1 if hit else 0)
    return lengths[:0:-1]


def best_s(drafted: Sequence[int], copied: Sequence[int], costs: WidthCosts) -> float:
    """Seconds of the best way to cut an answer into rounds.

    At each position the draft model would get so many tokens right (`drafted`), at a step each, and what is copied from
    text already seen so many (`copied`), for nothing. A round yields what was drafted and one token more.
    """
    total = len(drafted)
    rest = [0.0] * (total + 1)
    for at in reversed(range(total)):
        most = min(max(drafted[at], copied[at]), costs.cap, total - at - 1)
        rest[at] = min(
            costs.padded(count + 1) + (count > copied[at]) * count * costs.draft_step + rest[at + count + 1]
            for count in range(most + 1)
        )
    return rest[0]
