"""The text is the target's own: on a real pair, whose logits with BF16 cells are the same at every batch width."""

import json
import subprocess
from contextlib import closing

import pytest

from specgguf.cli.opening import open_engine, open_store
from specgguf.cli.options.models import Models
from specgguf.engine.settings import EngineSettings
from specgguf.sampling.sampler import Sampler
from tests.cli.program import EXECUTABLE, environment
from tests.real.prompts import PROMPTS

NUM_TOKENS = 24
SAMPLERS = [Sampler(), *(Sampler(temperature=t, seed=seed) for t in (0.7, 1.0) for seed in (1, 2, 3))]


@pytest.fixture(scope="module")
def engine():
    settings = EngineSettings(num_draft=16, cache_type_k="bf16", cache_type_v="bf16")
    with closing(open_engine(open_store(), Models("tiny"), settings)) as engine:
        yield engine


def tokens(engine, prompt, sampler, num_draft):
    generation = engine.generate(prompt, sampler, NUM_TOKENS, num_draft=num_draft)
    text = "".join(generation)
    assert text == generation.text
    return generation


@pytest.mark.parametrize("number", range(len(PROMPTS)))
def test_any_draft_count_gives_plain_decodings_tokens(engine, number):
    prompt = engine.tokenize_chat([{"role": "user", "content": PROMPTS[number]}])
    assert len(prompt) > 600 or number < 9
    accepted = 0
    for sampler in SAMPLERS:
        plain = tokens(engine, prompt, sampler, 0)
        assert plain.stats.rounds == len(plain.tokens)
        for num_draft in (1, 2, 4, 8, 16):
            speculative = tokens(engine, prompt, sampler, num_draft)
            assert speculative.tokens == plain.tokens, (sampler, num_draft)
            accepted += speculative.stats.accepted.total()
    assert accepted > 50


@pytest.mark.parametrize(
    "arguments", [[], ["--temp", "0.7", "--seed", "3"], ["--temp", "1", "--repeat-penalty", "1.2", "--seed", "4"]]
)
def test_the_program_says_the_same_with_and_without_drafts(arguments):
    command = [
        EXECUTABLE,
        "run",
        "--pair",
        "tiny",
        "--json",
        "-n",
        "80",
        "--cache-type-k",
        "bf16",
        "--cache-type-v",
        "bf16",
    ]
    results = []
    for mode in ("off", "fixed"):
        line = [*command, "--speculate", mode, *arguments, PROMPTS[-1]]
        out = subprocess.run(line, capture_output=True, stdin=subprocess.DEVNULL, env=environment(), check=True).stdout
        results.append(json.loads(out))
    assert results[0]["tokens"] == results[1]["tokens"]
    assert results[0]["speculation"]["drafted"] == 0 < results[1]["speculation"]["accepted"]
