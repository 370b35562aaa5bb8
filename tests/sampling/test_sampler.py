import dataclasses
import itertools
import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specgguf.drafters.model import ModelDrafter
from specgguf.errors import ContextError
from specgguf.sampling.sampler import Sampler, gumbel_noise
from specgguf.speculative.controller import Fixed
from tests.speculative.toy import NUM_TOKENS, PLAIN, ToyContext, blend, reference, rounds, run, table

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
    drafter = ModelDrafter(ToyContext(lambda _: logits[draft], 30_000, max_rows=1), NUM_TOKENS, ())
    target = ToyContext(lambda _: TARGET, 30_000)
    found = rounds(target, PLAIN if draft == "none" else Fixed(drafter, 4), sampler, [0], max_tokens=NUM_DRAWS)
    tokens = [token for one in found for token in one.output]
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


@pytest.mark.parametrize(("beyond", "kept"), [(1e-9, {0}), (-1e-9, {0, 1})])
def test_min_p_is_finer_than_the_logits(beyond, kept):
    logits = np.array([10, 9, 0], np.float32)
    samplers = (Sampler(50.0, min_p=math.exp(-1 + beyond), top_p=1.0, seed=seed) for seed in range(50))
    assert {sampler.sample(logits, []) for sampler in samplers} == kept


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


class Sieve:
    """A grammar for which the whole output counts: what may follow is a function of its sum."""

    def __init__(self, prompt_length=0, period=3):
        self.prompt_length = prompt_length
        self.period = period

    def mask(self, tokens, ahead=()):
        total = sum(tokens[self.prompt_length :]) + sum(ahead)
        return (np.arange(64) * 7 + total) % self.period == 0


class Only:
    """A grammar of the same tokens everywhere."""

    def __init__(self, tokens):
        self.tokens = tokens

    def mask(self, tokens, ahead=()):
        return self.tokens


class Naive:
    """The same once more, one token after the other."""

    def __init__(self, sampler, logits, tokens, ahead=()):
        self.sampler = sampler
        self.position = len(tokens) + len(ahead)
        window = Counter([*tokens, *ahead][-64:])
        self.logits = {}
        allowed = [True] * len(logits)
        if sampler.grammar is not None:
            allowed = sampler.grammar.mask(tokens, ahead)
        for token, logit in enumerate(logits):
            value = np.float32(logit) + np.float32(dict(sampler.logit_bias).get(token, 0.0))
            if window[token]:
                factor = np.float32(sampler.repeat_penalty)
                value = value / factor if value > 0 else value * factor
                value -= np.float32(window[token]) * np.float32(sampler.frequency_penalty)
                value -= np.float32(sampler.presence_penalty)
            if allowed[token] and value > -math.inf:
                self.logits[token] = float(value)

    def ranked(self):
        return sorted(self.logits, key=lambda token: (-self.logits[token], token))

    def probs(self, ids):
        peak = max(self.logits[token] for token in ids)
        weights = [math.exp(self.logits[token] - peak) for token in ids]
        total = sum(weights)
        return [weight / total for weight in weights]

    def kept(self):
        sampler = self.sampler
        ids = self.ranked()[: sampler.top_k or None]
        if sampler.typical_p < 1.0:
            probs = dict(zip(ids, self.probs(ids), strict=True))
            entropy = -sum(prob * math.log(prob) for prob in probs.values())
            order = sorted(ids, key=lambda token: round(abs(-math.log(probs[token]) - entropy), 12))
            mass = list(itertools.accumulate(probs[token] for token in order))
            order = order[: next((i + 1 for i, m in enumerate(mass) if m > sampler.typical_p), len(order))]
            ids = [token for token in ids if token in order]
        if sampler.top_p < 1.0:
            mass = list(itertools.accumulate(self.probs(ids)))
            ids = ids[: next((i + 1 for i, m in enumerate(mass) if m >= sampler.top_p), len(ids))]
        if sampler.min_p > 0.0:
            ids = [token for token in ids if self.logits[token] >= self.logits[ids[0]] + math.log(sampler.min_p)]
        return ids

    def strength(self, token):
        noise = float(gumbel_noise(self.sampler.seed, self.position, np.array([token]))[0])
        return self.logits[token] + self.sampler.temperature * noise

    def token(self):
        if self.sampler.temperature == 0.0:
            return self.ranked()[0]
        return max(self.kept(), key=self.strength)


# Bounds are odd numbers, so that sums of equal probabilities do not hit them.
every_sampler = st.builds(
    Sampler,
    temperature=st.sampled_from([0.0, 0.31, 1.0, 1.7]),
    top_k=st.sampled_from([0, 1, 2, 5, 13, 100]),
    typical_p=st.sampled_from([0.2113, 0.7919, 1.0, 1.0]),
    top_p=st.sampled_from([0.3117, 0.7713, 0.9511, 1.0]),
    min_p=st.sampled_from([0.0, 0.0531, 0.3117]),
    repeat_penalty=st.sampled_from([1.0, 1.3, 0.9]),
    presence_penalty=st.sampled_from([0.0, 0.4]),
    frequency_penalty=st.sampled_from([0.0, 0.25, -0.1]),
    logit_bias=st.dictionaries(st.integers(-1, 12), st.sampled_from([-math.inf, -2.0, 0.5, 3.0]), max_size=4),
    grammar=st.none() | st.builds(Sieve, period=st.integers(1, 3)),
    seed=st.integers(0, 1000),
)
rows = st.lists(st.floats(-8, 8, width=16), min_size=2, max_size=40)
texts = st.lists(st.integers(0, 12), max_size=80)


@settings(max_examples=1000, deadline=None)
@given(logits=rows, sampler=every_sampler, tokens=texts, ahead=st.lists(st.integers(0, 12), max_size=5))
def test_every_step_is_what_it_should_be_and_in_its_place(logits, sampler, tokens, ahead):
    naive = Naive(sampler, logits, tokens, ahead)
    row = np.array(logits, np.float32)
    if not naive.logits:
        with pytest.raises(ContextError, match="no token"):
            sampler.sample(row, tokens, ahead)
    else:
        assert sampler.sample(row, tokens, ahead) == naive.token()
    assert (row == np.array(logits, np.float32)).all()
    row.flags.writeable = False
    if naive.logits:
        assert sampler.choose(row, tokens, ahead).token == naive.token()


@pytest.mark.parametrize("top_k", [0, 7, 40, 900, 5000])
@pytest.mark.parametrize(("top_p", "min_p"), [(0.9511, 0.0531), (1.0, 0.0531), (0.9511, 0.0), (1.0, 0.0)])
@pytest.mark.parametrize("share", [0.0005, 0.03, 0.9, None])
def test_truncations_among_what_a_grammar_allows(top_k, top_p, min_p, share):
    for seed in range(5):
        random = np.random.default_rng(seed)
        logits = random.normal(0, 1 + seed, 20_000).astype(np.float16).astype(np.float32)
        grammar = None if share is None else Only(random.random(20_000) < share)
        sampler = Sampler(1.0, top_k, top_p, min_p, seed=seed, grammar=grammar)
        naive = Naive(sampler, logits, [])
        assert sampler._candidates(sampler._masked(logits, [], [])).tolist() == naive.kept()
        assert sampler.sample(logits, []) == naive.token()


def test_sampling_among_what_a_grammar_allows_is_unbiased():
    even = Only(np.arange(len(TARGET)) % 2 == 0)
    sampler = Sampler(temperature=1.0, top_k=2, top_p=1.0, min_p=0.0, grammar=even)
    drawn = [dataclasses.replace(sampler, seed=seed).sample(TARGET, [1, 2, 3]) for seed in range(NUM_DRAWS)]
    assert_drawn_from(np.array([0 if token == 0 else 1 for token in drawn]), np.array([1.5, -0.3], np.float32))
    assert set(drawn) == {0, 2}


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 1000),
    sampler=every_sampler,
    prompt=st.lists(st.integers(0, NUM_TOKENS - 1), min_size=1, max_size=20),
    num_draft=st.integers(1, 12),
    period=st.integers(1, 3),
)
def test_a_grammar_holds_and_a_draft_changes_nothing(seed, sampler, prompt, num_draft, period):
    grammar = Sieve(len(prompt), period)
    sampler = dataclasses.replace(sampler, grammar=grammar, logit_bias=((1, -2.0), (4, 0.5)))
    logits_of = table(seed)
    draft = ToyContext(blend(logits_of, table(seed + 1), 0.8), max_rows=1)
    output = run(ToyContext(logits_of), Fixed(ModelDrafter(draft, NUM_TOKENS, ()), num_draft), sampler, prompt)
    assert output == reference(logits_of, sampler, prompt, (), 50)
    for end, token in enumerate(output):
        assert grammar.mask(prompt, output[:end])[token]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_nothing_allowed_is_an_error(temperature):
    logits = np.zeros(300, np.float32)
    for top_k in (0, 40):
        with pytest.raises(ContextError, match="no token"):
            Sampler(temperature=temperature, top_k=top_k, grammar=Only(np.zeros(300, bool))).sample(logits, [])
    with pytest.raises(ContextError, match="no token"):
        Sampler(temperature=temperature, logit_bias={0: -math.inf, 1: -math.inf}).sample(logits[:2], [])


def test_the_margin_while_greedy_is_the_distance_to_the_second_best():
    logits = np.array([1.0, 3.0, 2.5, 2.75], np.float32)
    assert Sampler().choose(logits, []).margin == 0.25
    assert Sampler(repeat_penalty=1.25).choose(logits, [3]).margin == 0.5
    assert Sampler(grammar=Sieve(period=2)).choose(logits, []).margin == 1.5
    assert Sampler(grammar=Sieve(period=4)).choose(logits, []).margin == math.inf


@settings(max_examples=300, deadline=None)
@given(logits=rows, temperature=st.sampled_from([0.3, 1.0]), seed=st.integers(0, 1000))
def test_the_margin_without_truncations_is_the_distance_of_the_noisy_logits(logits, temperature, seed):
    sampler = Sampler(temperature, 0, 1.0, 0.0, seed=seed)
    naive = Naive(sampler, logits, [])
    first, second = sorted((naive.strength(token) for token in range(len(logits))), reverse=True)[:2]
    assert sampler.choose(np.array(logits, np.float32), []).margin == pytest.approx(first - second, abs=1e-9)


def test_the_margin_is_that_of_the_position_drafted_tokens_included():
    sampler, logits = Sampler(temperature=1.0, seed=3), np.linspace(0.0, 1.0, 20).astype(np.float32)
    known = [sampler.choose(logits, [1] * count) for count in range(6)]
    assert [sampler.choose(logits, [1, 1], [1] * count) for count in range(4)] == known[2:]
    assert len({choice.margin for choice in known}) > 1


@pytest.mark.parametrize(
    ("sampler", "margin"),
    [
        (Sampler(0.01, top_k=2, top_p=1.0, min_p=0.0), 1.0),  # the second is far behind
        (Sampler(1.0, top_k=1, top_p=1.0, min_p=0.0), 1.0),  # the second would have won, were it in
        (Sampler(1.0, top_k=0, top_p=1.0, min_p=math.exp(-0.75)), 0.25),
        (Sampler(1.0, top_k=0, top_p=0.5, min_p=0.0), math.log(1 / (math.exp(-1) + math.exp(-1.5)))),
    ],
)
def test_the_margin_where_a_truncation_decided(sampler, margin):
    logits = np.array([0.0, -1.0, -1.5], np.float32)
    for seed in range(1000):
        sampler = dataclasses.replace(sampler, seed=seed)
        strengths = [logits[i] + sampler.temperature * gumbel_noise(seed, 0, np.array([i]))[0] for i in range(3)]
        if strengths[1] > strengths[0] + 2 > strengths[2] + 4 or sampler.temperature == 0.01:
            break
    choice = sampler.choose(logits, [])
    assert choice.token == 0
    assert choice.margin == pytest.approx(margin, abs=0.1 if sampler.temperature == 0.01 else 1e-6)


def test_a_choice_near_the_end_of_what_is_kept_has_a_small_margin():
    logits = np.array([0.0, -1.0, -1.01], np.float32)
    seed = next(seed for seed in range(1000) if gumbel_noise(seed, 0, np.arange(3)).argmax() == 1)
    choice = Sampler(50.0, top_k=2, top_p=1.0, min_p=0.0, seed=seed).choose(logits, [])
    assert choice.token == 1
    assert choice.margin == pytest.approx(0.01, abs=1e-6)


@settings(max_examples=1000, deadline=None)
@given(
    logits=st.lists(st.floats(-4, 4, width=16), min_size=2, max_size=9),
    temperature=st.sampled_from([0.0, 0.5, 1.0, 3.0]),
    top_k=st.sampled_from([0, 1, 2, 5]),
    top_p=st.sampled_from([0.3117, 0.7713, 1.0]),
    min_p=st.sampled_from([0.0, 0.0531, 0.3117]),
    seed=st.integers(0, 10_000),
)
def test_a_choice_stands_while_logits_move_by_less_than_half_its_margin(logits, temperature, top_k, top_p, min_p, seed):
    logits = np.array(logits, np.float32)
    sampler = Sampler(temperature, top_k, top_p, min_p, seed=seed)
    choice = sampler.choose(logits, [])
    random = np.random.default_rng(seed)
    moves = [random.choice([-1.0, 0.0, 1.0], len(logits)) for _ in range(30)]
    moves += [np.where(np.arange(len(logits)) == token, 1.0, -1.0) for token in range(len(logits))]
    half = min(choice.margin / 2 * 0.999 - 1e-5, 100.0)
    if half > 0:
        for move in moves:
            assert sampler.sample((logits + half * move).astype(np.float32), []) == choice.token


@settings(max_examples=300, deadline=None)
@given(
    logits=st.lists(st.floats(-2, 2, width=16), min_size=3, max_size=5),
    sampler=st.builds(
        Sampler,
        temperature=st.just(1.0),
        top_k=st.sampled_from([0, 2]),
        top_p=st.sampled_from([0.7713, 1.0]),
        min_p=st.sampled_from([0.0, 0.3117]),
        seed=st.integers(0, 10_000),
    ),
)
def test_a_choice_falls_when_logits_move_by_a_little_more_than_its_margin(logits, sampler):
    logits = np.array(logits, np.float32)
    choice = sampler.choose(logits, [])
    # Half of the margin is the least it can take. That it takes more, it needs tokens that get in each other's way.
    scales = [choice.margin * factor + 1e-4 for factor in (0.5, 0.75, 1.0, 1.25)]
    moves = [np.array(move, np.float32) for move in itertools.product([-1.0, 0.0, 1.0], repeat=len(logits))]
    if choice.margin < 10:
        assert any(sampler.sample(logits + np.float32(x) * move, []) != choice.token for x in scales for move in moves)
