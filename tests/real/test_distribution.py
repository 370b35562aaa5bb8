"""Tokens of a real model are drawn from the distribution that its logits say."""

import math
from contextlib import closing

import numpy as np
import pytest

from specgguf.cli.opening import open_engine, open_store
from specgguf.cli.options.models import Models
from specgguf.engine.settings import EngineSettings
from specgguf.engine.workbench import Workbench
from specgguf.sampling.sampler import Sampler

NUM_ANSWERS = 2000


@pytest.mark.sweep
def test_one_token_answers_have_the_models_distribution_with_and_without_a_draft():
    models = Models("tiny")
    with closing(open_engine(open_store(), models, EngineSettings(num_draft=4))) as engine:
        prompt = engine.tokenize_chat([{"role": "user", "content": "Name an animal."}])
        answers = {}
        for num_draft in (0, 4):
            answers[num_draft] = []
            for seed in range(NUM_ANSWERS):
                sampler = Sampler(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, seed=seed)
                generation = engine.generate(prompt, sampler, 1, num_draft=num_draft)
                list(generation)
                answers[num_draft] += generation.tokens
        logits = next(Workbench(engine, 64).replay(prompt, [0], 1)).astype(np.float64)
    assert answers[0] == answers[4]
    expected = np.exp(logits - logits.max())
    expected *= NUM_ANSWERS / expected.sum()
    counts = np.bincount(answers[0], minlength=len(expected))
    frequent = expected >= 5
    expected = np.append(expected[frequent], expected[~frequent].sum())
    counts = np.append(counts[frequent], counts[~frequent].sum())
    degrees = len(expected) - 1
    statistic = ((counts - expected) ** 2 / expected).sum()
    # Chi-square is above this once in a million times, by Wilson and Hilferty's approximation (1931).
    bound = degrees * (1 - 2 / (9 * degrees) + 4.75 * math.sqrt(2 / (9 * degrees))) ** 3
    assert statistic < bound
