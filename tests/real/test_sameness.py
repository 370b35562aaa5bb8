"""The text is the target's own, on a real pair in exact mode."""

import json
from contextlib import closing

import pytest

from specgguf.cli.opening import open_engine, open_store
from specgguf.cli.options.models import Models
from specgguf.engine.settings import EngineSettings
from specgguf.sampling.sampler import Sampler
from tests.cli.program import specgguf
from tests.real.prompts import PROMPTS

NUM_TOKENS = 24
NUM_DRAFT = (1, 2, 4, 8, 16)
SAMPLERS = [Sampler(), *(Sampler(temperature=t, seed=seed) for t in (0.7, 1.0) for seed in (1, 2, 3))]
SHORT = 9
"""As many of the prompts are short."""


@pytest.fixture(scope="module")
def engine():
    settings = EngineSettings(num_draft=16, n_threads=1, exact=True)
    with closing(open_engine(open_store(), Models("tiny"), settings)) as engine:
        yield engine


def tokens(engine, prompt, sampler, num_draft):
    generation = engine.generate(prompt, sampler, NUM_TOKENS, num_draft=num_draft)
    text = "".join(generation)
    assert text == generation.text
    return generation


SWEEP = [pytest.param(number, SAMPLERS, NUM_DRAFT, marks=pytest.mark.sweep) for number in range(len(PROMPTS))]


@pytest.mark.parametrize(("number", "samplers", "draft_counts"), [(0, SAMPLERS[::2], (1, 16)), *SWEEP])
def test_any_draft_count_gives_plain_decodings_tokens(engine, number, samplers, draft_counts):
    prompt = engine.tokenize_chat([{"role": "user", "content": PROMPTS[number]}])
    assert len(prompt) > 600 or number < SHORT
    accepted = 0
    for sampler in samplers:
        plain = tokens(engine, prompt, sampler, 0)
        assert plain.stats.rounds == len(plain.tokens)
        for num_draft in draft_counts:
            speculative = tokens(engine, prompt, sampler, num_draft)
            assert speculative.tokens == plain.tokens, (sampler, num_draft)
            accepted += speculative.stats.accepted.total()
    assert accepted > 0


@pytest.mark.parametrize("arguments", [[], ["--temp", "1", "--repeat-penalty", "1.2", "--seed", "4"]])
def test_the_program_says_the_same_with_and_without_drafts(arguments):
    command = ["run", "--pair", "tiny", "-t", 1, "--exact", "--json", "-n", 40, *arguments, PROMPTS[0]]
    plain, drafted = (
        json.loads(specgguf(*command, "--speculate", mode, timeout=600).stdout) for mode in ("off", "fixed")
    )
    assert plain["tokens"] == drafted["tokens"]
    assert plain["speculation"]["drafted"] == 0 < drafted["speculation"]["drafted"]
