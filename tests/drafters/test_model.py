"""How sure a draft is of its tokens."""

import warnings

import numpy as np
import pytest

from specgguf.drafters.probability import probability


@pytest.mark.parametrize("temperature", [0.0, 0.5, 2.0])
def test_the_probability_of_a_drafted_token_is_its_share_in_the_softmax(temperature):
    logits = np.random.default_rng(0).normal(0, 3, 5000).astype(np.float32)
    weights = np.exp(logits.astype(np.float64) / (temperature or 1.0))
    for token in np.argsort(logits)[-3:]:
        assert probability(logits, int(token), temperature) == pytest.approx(weights[token] / weights.sum(), rel=0.02)


def test_a_token_that_is_next_to_impossible_is_no_overflow():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert probability(np.array([0.0, 500.0], np.float32), 0, 0.1) == pytest.approx(0.0, abs=1e-9)
