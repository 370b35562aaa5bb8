"""specgguf's draft-length policy for the yardstick: replay.py --policy scripts.replay_policy:make."""

from collections.abc import Callable, Sequence

from specgguf.speculative.drafter import Draft
from specgguf.speculative.policy.costs import WidthCosts
from specgguf.speculative.policy.pace import Pace
from specgguf.speculative.policy.stopping import OptimalStopping
from specgguf.speculative.verify import Verdict

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
        self._pace = Pace(Unpadded(CAP, times, {"model": {"step": draft_ms / 1000, "catch_up": 0.0}}))
        self._rule = OptimalStopping("model", self._pace)
        self.want_more = self._rule.go_on

    def take(self, top1: Sequence[float]) -> int:
        """How many of the drafted tokens are sent."""
        return self._rule.choose(top1)[0]

    def observe(self, sent: int, accepted: int, elapsed_ms: float, top1: Sequence[float]) -> None:
        """Split the time into the target's and the draft's; what the target said is not told."""
        target_ms = self._verify_ms(sent + 1)
        draft = Draft("model", [0] * sent, [], list(top1), (elapsed_ms - target_ms) / 1000)
        lost = self._pace.observe(sent, accepted + 1, target_ms / 1000, draft.seconds)
        if top1:
            self._rule.observe(draft, Verdict(accepted, [0] * (accepted + 1)), lost)
        else:
            self._rule.pass_over(accepted + 1)


make = Replayed
