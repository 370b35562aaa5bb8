"""Opening and closing: what can be done when, and what is remembered."""

from contextlib import closing

import pytest

from specgguf.engine.memory import TunedCosts
from specgguf.engine.settings import Mode
from specgguf.engine.workbench import Workbench
from specgguf.sampling.sampler import Sampler
from specgguf.speculative.policy.depths import level_of
from tests import tiny


def test_contexts_are_opened_on_request_and_grow_on_request(make):
    engine = make()
    context = engine.open(100)
    assert engine.open(100) is context
    larger = engine.open(150)
    assert larger is not context
    assert larger.n_ctx == 200  # twice, so that it seldom happens
    assert [drafter.name for drafter in engine.drafters()] == ["forced", "ngram", "model"]


def test_nothing_of_a_workbench_needs_an_answer_first(make):
    engine = make()
    workbench = Workbench(engine, 64)
    assert all(seconds > 0 for seconds in workbench.time_widths([1, 5, 6, 7]).values())
    assert [row.shape for row in workbench.replay([1, 5], [6, 7, 8], 2)] == [(engine.target.vocab.num_tokens,)] * 3
    workbench.start_cold()
    assert engine.open(64).tokens == [[]]


def test_replaying_an_answer_gives_the_logits_that_it_was_chosen_by(make):
    engine = make()
    generation = engine.generate([1, 5, 6], Sampler(), 12, mode=Mode.OFF)
    list(generation)
    rows = Workbench(engine, 64).replay([1, 5, 6], generation.tokens, 1)
    assert [int(row.argmax()) for row in rows] == generation.tokens


def test_an_answer_can_be_read_after_its_engine_is_closed(make):
    engine = make()
    generation = engine.generate([1, 5, 6], Sampler(), 12)
    text = "".join(generation)
    engine.close()
    assert (generation.text, len(generation.tokens), generation.finish_reason) == (text, 12, "length")
    assert generation.timings.prefill_s > 0
    assert generation.stats.output_tokens == 12
    assert (generation.prompt_tokens, generation.cached_tokens, generation.seed) == (3, 0, 0)
    assert generation.flush() == ""


def test_an_answer_cannot_go_on_after_its_engine_is_closed(make):
    engine = make()
    pieces = iter(engine.generate([1, 5, 6], Sampler(), 12))
    next(pieces)
    engine.close()
    with pytest.raises(ValueError, match="closed"):
        list(pieces)


def test_prefill_is_timed_where_it_happens(make):
    engine = make()
    first = engine.generate([1] + [5, 6, 7] * 100, Sampler(), 2)
    list(first)
    again = engine.generate([1] + [5, 6, 7] * 100, Sampler(), 2)
    list(again)
    assert first.timings.prefill_s <= first.timings.first_token_s
    assert (first.cached_tokens, again.cached_tokens) == (0, 300)


def costs_of(engine):
    return engine.costs.load(engine.draft.header.path, None)


def test_closing_twice_does_not_write_old_costs_over_newer_ones(make, toy_models, profiles):
    for name in ("endless", "draft"):
        profiles.digest_of(toy_models[name])
    old, new = make(), make()
    list(old.generate([1, 5, 6], Sampler(), 12))
    old.close()
    list(new.generate([1, 5, 6], Sampler(), 60))
    new.close()
    newer = costs_of(new)
    assert newer
    old.close()
    assert costs_of(old) == newer


def test_costs_are_kept_by_drafter_and_found_again(make, toy_models, profiles):
    for name in ("endless", "draft"):
        profiles.digest_of(toy_models[name])
    engine = make()
    with closing(engine):
        engine.learn_costs(
            TunedCosts({level_of(128): {"times": {1: 0.5, 2: 0.6}, "drafters": {"model": {"step": 0.125}}}})
        )
    costs = make().memory.policy.pace.costs
    assert costs.time(2) == pytest.approx(0.6)
    assert costs.draft_step("model") == pytest.approx(0.125)


def test_whoever_drafts_is_counted_by_name(make, toy_models):
    engine = make(draft=toy_models["endless"])  # the target itself: always right
    generation = engine.generate([1, 5, 6], Sampler(), 40, num_draft=3)
    list(generation)
    assert generation.stats.drafted == {"model": 30}
    assert generation.stats.acceptance_rate > 0.9


def test_mtp_layers_that_are_given_take_the_place_of_the_targets_own(make, toy_heads):
    for draft in (None, toy_heads["mimo2's layer"], toy_heads["mimo2"]):
        engine = make(toy_heads["mimo2"], draft)
        engine.open(64)
        assert [drafter.name for drafter in engine.drafters()] == ["forced", "ngram", "mtp"]


def test_a_draft_whose_context_cannot_be_opened_is_told_when_that_turns_out(make, tmp_path, monkeypatch):
    draft = tiny.write_attention(tmp_path / "narrow.gguf", feed=tiny.FEED // 2)
    monkeypatch.setattr(tiny, "HEADS", tiny.EMBED // 32)
    target = tiny.write_attention(tmp_path / "wide.gguf")
    told = []
    engine = make(target, draft, told.append, cache_type_k="q8_0")  # cells of 32 values: too many for a narrow head
    assert told == []
    list(engine.generate([1, 5, 6], Sampler(), 4))
    assert len(told) == 1
    assert told[0].startswith("no draft model: draft model: llama.cpp cannot open a context")
    assert engine.draft is None
    assert not engine.speculative
