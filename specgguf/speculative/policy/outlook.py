"""What further draft tokens will be like."""

from collections.abc import Sequence

from specgguf.speculative.policy.calibration import Mean
from specgguf.speculative.policy.constants import CONSTANTS


class Outlook:
    """Streaks of confident tokens, and doubtful ones between them."""

    def __init__(self) -> None:
        self.enter = _share(CONSTANTS.enter)
        """The share of confident tokens at the start of a draft and after a doubtful one."""
        self.stay = _share(CONSTANTS.stay)
        """The share of confident tokens after a confident one."""
        self.confident = _acceptance(CONSTANTS.confident_accepted)
        """The acceptance of confident tokens."""
        self.doubtful = _acceptance(CONSTANTS.doubtful_accepted)
        """The acceptance of the others."""

    def observe(self, acceptances: Sequence[float]) -> None:
        """A draft, without what followed a token that was not accepted."""
        streak = False
        for acceptance in acceptances:
            confident = acceptance > CONSTANTS.confident
            (self.stay if streak else self.enter).observe(confident)
            (self.confident if confident else self.doubtful).observe(acceptance)
            streak = confident

    def forget_streaks(self) -> None:
        """Expect no better streaks than usual."""
        self.enter = _share(min(self.enter.value, CONSTANTS.enter))
        self.stay = _share(min(self.stay.value, CONSTANTS.stay))


def _share(value: float) -> Mean:
    return Mean(value, CONSTANTS.outlook_weight, CONSTANTS.share_memory)


def _acceptance(value: float) -> Mean:
    return Mean(value, CONSTANTS.outlook_weight, CONSTANTS.acceptance_memory)
