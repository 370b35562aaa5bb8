import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specgguf.core.controller import Fixed
from specgguf.core.drafting import ModelDrafter
from specgguf.core.loop import speculate
from specgguf.core.sampling import Sampler, gumbel_noise
from specgguf.errors import ContextError
from tests.core.toy import NUM_TOKENS, PLAIN, ToyContext

CHI_SQUARE_5_AT_0_001 = 20.515  # the 0.999 quantile of chi-square with five degrees of freedom
NUM_DRAWS = 20_000
TARGET = np.array([1.5, 0.2, -0.3, 0.9, -1.0, 0.0], np.float32)


def assert_drawn_from(tokens, logits):
    expected = np.exp(logits) / np.exp(logits).sum() * len(tokens)
    counts = np.bincount(tokens, minlength=len(logits))
    assert ((counts - expected) ** 2 / expected).sum() < CHI_SQUARE_5_AT_0_001


@pytest.mark.parametrize("draft", ["good", "bad", "none"])
def test_speculative_output_is_distributed_as_the_target_says(draft):
    sampler = Sampler(temperature=0.7, top_k=0, top_p=1.0, min_p=0.0, seed=11)
    logits = {"good": TARGET + np.float32(0.2) * np.arange(6, dtype=np.float32) % 1, "bad": -TARGET, "none": TARGET}
    drafter = ModelDrafter(ToyContext(lambda _: logits[draft], 30_000, max_rows=1), sampler, NUM_TOKENS, ())
    target = ToyContext(lambda _: TARGET, 30_000)
    steps = speculate(target, PLAIN if draft == "none" else drafter, Fixed(4), sampler, [0], (), NUM_DRAWS)
    tokens = [token for step in steps for token in step.output]
    assert_drawn_from(tokens, TARGET / 0.7)


def test_seeds_are_independent_draws():
    sampler_of = (Sampler(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, seed=seed) for seed in range(NUM_DRAWS))
    assert_drawn_from([sampler.sample(TARGET, [1, 2, 3]) for sampler in sampler_of], TARGET)


def test_pairs_of_neighbours_are_independent():
    flat = np.zeros(2, np.float32)
    sampler = Sampler(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, seed=5)
    tokens = [sampler.sample(flat, range(position)) for position in range(NUM_DRAWS)]
    pairs = [2 * one + two for one, two in itertools.pairwise(tokens)]
    counts = np.bincount(pairs, minlength=4)
    assert abs(counts - len(pairs) / 4).max() < 4 * math.sqrt(len(pairs) * 3 / 16)


def test_noise_depends_on_seed_position_and_id_only():
    ids = np.arange(1000)
    noise = gumbel_noise(7, 3, ids)
    assert (gumbel_noise(7, 3, ids[500:]) == noise[500:]).all()
    assert not (gumbel_noise(7, 4, ids) == noise).any()
    assert not (gumbel_noise(8, 3, ids) == noise).any()
    assert abs(noise.mean() - 0.5772) < 0.15  # Euler's constant, the mean of a standard Gumbel
    assert np.isfinite(gumbel_noise(2**63 - 1, 0, np.arange(200_000))).all()


def naive_candidates(logits, top_k, top_p, min_p):
    ids = sorted(range(len(logits)), key=lambda token: (-logits[token], token))
    ids = ids[: top_k or None]
    weights = [math.exp(float(logits[token]) - float(logits[ids[0]])) for token in ids]
    total, mass, kept = sum(weights), 0.0, []
    for token, weight in zip(ids, weights, strict=True):
        kept.append(token)
        mass += weight / total
        if top_p < 1.0 and mass >= top_p:
            break
    if min_p > 0:
        kept = [t for t in kept if logits[t] >= logits[ids[0]] + np.float32(math.log(min_p))]
    return set(kept)


@settings(max_examples=300, deadline=None)
@given(
    logits=st.lists(st.floats(-8, 8, width=16), min_size=2, max_size=40),
    top_k=st.sampled_from([0, 1, 2, 5, 100]),
    top_p=st.sampled_from([0.3, 0.77, 0.95, 1.0]),
    min_p=st.sampled_from([0.0, 0.053, 0.31]),
)
def test_truncations_keep_what_they_should(logits, top_k, top_p, min_p):
    logits = np.array(logits, np.float32)
    kept = Sampler(top_k=top_k, top_p=top_p, min_p=min_p)._candidates(logits)
    assert set(kept.tolist()) == naive_candidates(logits, top_k, top_p, min_p)


@pytest.mark.parametrize("size", [63, 64 * 41, 64 * 50 + 7, 151_936])
def test_truncations_of_large_vocabularies(size):
    logits = np.random.default_rng(size).normal(0, 3, size).astype(np.float16).astype(np.float32)  # with many ties
    kept = Sampler(top_k=40, top_p=0.9, min_p=0.02)._candidates(logits)
    assert set(kept.tolist()) == naive_candidates(logits, 40, 0.9, 0.02)


def test_the_coldest_temperature_is_greedy():
    assert Sampler(temperature=1e-300).sample(np.array([1.0, 3.0, 2.9], np.float32), []) == 1


def test_greedy_takes_the_lowest_id_of_equals():
    assert Sampler().sample(np.array([0, 2, 1, 2], np.float32), []) == 1


def test_the_repeat_penalty_looks_at_the_last_64_tokens_drafted_ones_included():
    sampler = Sampler(repeat_penalty=2.0)
    logits = np.array([1.0, 1.9, -1.0], np.float32)
    assert sampler.sample(logits, [0]) == 1
    assert sampler.sample(logits, [1]) == 0
    assert sampler.sample(logits, [0], [1]) == 1
    assert sampler.sample(logits, [1, *[2] * 64]) == 1
    assert sampler.sample(logits, [1, *[2] * 63]) == 0
    assert sampler.sample(np.array([-1.0, -1.5], np.float32), [0]) == 1
    assert logits[1] == np.float32(1.9)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_logits_that_are_no_numbers_are_an_error(temperature):
    with pytest.raises(ContextError, match="not numbers"):
        Sampler(temperature=temperature).sample(np.array([0, math.nan, 1] * 50, np.float32), [])
