"""How sure a drafter is of a token."""

import numpy as np
from numpy.typing import NDArray


def probability(logits: NDArray[np.float32], token: int, temperature: float) -> float:
    """How likely `token` is, truncations aside, at this temperature (at 1 for greedy decoding)."""
    temperature = temperature or 1.0
    # Each of the others is less than a hundred-thousandth as likely, and all together hardly ever a hundredth.
    near = logits[logits >= logits[token] - np.float32(12 * temperature)]
    # A grammar may force a token that is next to impossible: no overflow then.
    return float(1 / np.exp(np.minimum((near - logits[token]) / np.float64(temperature), 80)).sum())
