"""What a golden file records of drafts."""

from contextlib import closing
from dataclasses import replace

import pytest

from specgguf.engine.engine import Engine
from specgguf.engine.memory import TunedCosts
from specgguf.engine.settings import EngineSettings, Mode
from specgguf.exact.profiles import Profiles
from specgguf.measure.golden import Golden, Noise, record, verify
from specgguf.measure.prompts import Prompt
from specgguf.speculative.policy.depths import level_of


@pytest.fixture
def engine(toy_models, tmp_path, planted_costs):
    """Without a draft model; batches of every width cost the same, so that drafts from text already seen pay."""
    profiles = Profiles(tmp_path, lambda _: "", lambda _: None)
    settings = EngineSettings(mode=Mode.NGRAM, n_threads=1)
    with closing(Engine(toy_models["endless"], None, settings, profiles)) as engine:
        engine.learn_costs(TunedCosts({level_of(0): {"times": dict.fromkeys(range(1, 18), 1e-3)}}))
        yield engine


def test_the_acceptance_of_drafts_from_text_already_seen_is_recorded_and_compared(engine):
    cat = engine.target.vocab.tokenize("cat")[-1]
    sampler = engine.sampler(temperature=0.0, logit_bias=((cat, 1000.0),))  # one and the same token, over and over
    recording = record(engine, Prompt("chat", "the dog"), sampler, 60)
    assert recording.tokens == [cat] * 60
    assert 0 < recording.accepted <= recording.drafted

    def drop(recorded):
        golden = Golden({}, {}, {"logit_bias": sampler.logit_bias}, False, "ngram", None, 60, [recorded])
        (outcome,) = verify(engine, golden, Noise())
        assert outcome.drafted > 0
        return outcome.acceptance_drop, outcome.accepted / outcome.drafted

    found, rate = drop(replace(recording, drafted=10, accepted=10))
    assert found == pytest.approx(1 - rate)
    found, rate = drop(replace(recording, drafted=10, accepted=0))
    assert found == pytest.approx(-rate) != 0
