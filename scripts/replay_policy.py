"""specgguf's draft-length policy for the yardstick: replay.py --policy scripts.replay_policy:make."""

from collections.abc import Callable, Sequence

from specgguf.speculative.policy.costs import WidthCosts
from specgguf.speculative.policy.length import Adaptive

CAP = 15


class Unpadded(WidthCosts):
    """The yardstick decodes exactly what is sent; it pads no batch."""

    def _table(self) -> list[tuple[int, float]]:
        return [(rows, self.time(rows)) for rows in range(1, self.cap + 2)]


class Replayed:
    """The yardstick's methods, in milliseconds, on top of ours, in seconds."""

    def begin(self, verify_ms: Callable[[int], float], draft_ms: float) -> None:
        """Costs are given, and no draft has to catch up."""
        self._verify_ms = verify_ms
        times = {n: verify_ms(n) / 1000 for n in range(1, CAP + 2)}
        self._policy = Adaptive(Unpadded(CAP, times, draft_ms / 1000, 0.0))
        self.want_more = self._policy.want_more
        self.take = self._policy.take

    def observe(self, sent: int, accepted: int, elapsed_ms: float, top1: Sequence[float]) -> None:
        """Split the time into the target's and the draft's."""
        target_ms = self._verify_ms(sent + 1)
        self._policy.observe(sent, accepted, target_ms / 1000, (elapsed_ms - target_ms) / 1000, top1)


make = Replayed
