"""How many tokens to draft and to send: what every rule for it can do."""

from collections.abc import Sequence
from typing import Protocol

from specgguf.speculative.drafter import Draft
from specgguf.speculative.policy.loss_budget import LossBudget
from specgguf.speculative.policy.pace import Pace
from specgguf.speculative.policy.stopping import OptimalStopping
from specgguf.speculative.verify import Verdict


class LengthRule(Protocol):
    """Decides for one drafter, and learns from what comes of its drafts. Nothing it does can change the text."""

    num_judged: int
    num_right: int

    @property
    def parked(self) -> bool:
        """Whether drafting is given up for now."""

    def begin(self, backlog: int) -> None:
        """A new text, for which the drafter has to decode so many tokens first."""

    def promise(self) -> float:
        """The seconds that a draft not yet begun is expected to gain over a plain step."""

    def go_on(self, probabilities: Sequence[float]) -> bool:
        """Whether to draft one more token after those drafted with these probabilities."""

    def choose(self, probabilities: Sequence[float]) -> tuple[int, float]:
        """How many of the tokens drafted to send, and the seconds that is expected to gain over a plain step."""

    def observe(self, draft: Draft, verdict: Verdict, lost_steps: float) -> None:
        """Learn what came of a draft; the round took `lost_steps` plain steps more than plain decoding takes."""

    def pass_over(self, num_output: int) -> None:
        """There was a round without this drafter."""

    def explain(self) -> str:
        """What it believes, in one line."""


def rule_for(name: str, is_free: bool, pace: Pace) -> LengthRule:
    """The rule for a drafter: one whose drafts are free may only lose so much, another has to earn its steps."""
    return LossBudget(pace) if is_free else OptimalStopping(name, pace)
