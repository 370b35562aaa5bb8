"""What a prompt that begins like the one before it costs."""

from contextlib import closing

import pytest

from specgguf.engine.engine import Engine
from specgguf.engine.settings import EngineSettings, Mode
from specgguf.exact.profiles import Profiles
from specgguf.speculative.context import Context, common_prefix

SHARED = "the cat sat on the mat, " * 20


@pytest.fixture
def engine(toy_models, tmp_path):
    settings = EngineSettings(mode=Mode.FIXED, num_draft=4)
    profiles = Profiles(tmp_path, lambda _: "", lambda _: None)
    with closing(Engine(toy_models["target"], toy_models["draft"], settings, profiles, lambda *_: None)) as engine:
        yield engine


def begin(engine, text):
    """The prompt's ids, and an answer to it that is not begun yet."""
    prompt = engine.target.vocab.tokenize(text)
    return prompt, engine.generate(prompt, engine.sampler(temperature=0.0), 8)


def test_the_first_token_costs_the_prefill_of_what_is_new(engine, monkeypatch):
    decoded = []
    decode = Context.decode

    def count(context, parts, width=0):
        decoded.append((context, sum(len(part.tokens) for part in parts)))
        return decode(context, parts, width)

    monkeypatch.setattr(Context, "decode", count)
    first, generation = begin(engine, SHARED + "a dog")
    assert generation.cached_tokens == 0
    list(generation)
    for ending in ("a cat", "on and on, and on"):
        decoded.clear()
        held = [len(context.tokens[0]) for context in engine.contexts.all]
        prompt, generation = begin(engine, SHARED + ending)
        same = common_prefix(first, prompt)
        next(iter(generation))
        target, draft = engine.contexts.all
        spent = {context: sum(count for one, count in decoded if one is context) for context in (target, draft)}
        assert min(held) > same > 400
        assert generation.cached_tokens == same
        # New tokens, the last of them with the four drafted ones behind it; the draft's own are one fewer.
        assert spent[target] == len(prompt) - same + 4
        assert spent[draft] == len(prompt) - same + 3
