"""Many answers at once are what each is alone."""

import pytest

from specgguf.engine.pool import Pool
from specgguf.engine.settings import Mode
from specgguf.errors import ContextError, UsageError
from specgguf.sampling.sampler import Sampler
from tests import tiny, tiny_heads

PROMPTS = [[1] + [5, 6, 7, 8][: 1 + number % 4] * (1 + 5 * number % 23) for number in range(10)]
STEADY = {"cache_type_k": "f32", "cache_type_v": "f32"}
"""With these, logits are the same in every batch but for some millionths."""


def answer_all(engine, prompts, sampler, max_tokens=20, **settings):
    """The answers by prompt; a prompt begins as soon as there is room."""
    pool, waiting, begun, ended, most = Pool(engine), list(enumerate(prompts)), {}, {}, 0
    while waiting or begun:
        while waiting and pool.has_room(len(waiting[0][1]), max_tokens):
            number, prompt = waiting.pop(0)
            generation = pool.add(prompt, sampler, max_tokens, **settings)
            begun[id(generation)] = number, generation
        most = max(most, len(begun))
        for generation, error in pool.step():
            number, _ = begun.pop(id(generation))
            ended[number] = error or generation
    return [ended[number] for number in range(len(prompts))], most


def alone(engine, prompt, sampler, max_tokens=20, **settings):
    engine.contexts.clear()
    generation = engine.generate(prompt, sampler, max_tokens, mode=Mode.OFF, **settings)
    list(generation)
    return generation


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize(
    ("mode", "num_parallel"),
    [("off", 3), ("auto", 1), ("auto", 2), ("auto", 5), ("auto", None), ("model", 4), ("ngram", 4), ("fixed", 3)],
)
def test_the_texts_are_those_of_plain_decoding(make, mode, num_parallel, temperature):
    sampler = Sampler(temperature=temperature, seed=4)
    engine = make(mode=Mode(mode), num_parallel=num_parallel, **STEADY)
    found, most = answer_all(engine, PROMPTS, sampler)
    other = make(mode=Mode.OFF, **STEADY)
    expected = [alone(other, prompt, sampler) for prompt in PROMPTS]
    assert [one.tokens for one in found] == [one.tokens for one in expected]
    assert [one.text for one in found] == [one.text for one in expected]
    assert [one.finish_reason for one in found] == [one.finish_reason for one in expected]
    assert most == (num_parallel or most)
    assert all(one.timings.first_token_s > 0 for one in found)


@pytest.mark.parametrize("name", ["mamba", "qwen35", "gemma3"])
def test_of_models_that_go_back_in_other_ways_too(make, tmp_path, name):
    write = {"mamba": tiny.write_recurrent, "qwen35": tiny_heads.write_qwen35, "gemma3": tiny_heads.write_gemma3}[name]
    path = write(tmp_path / "model.gguf")
    sampler = Sampler(temperature=0.8, seed=4)
    prompts = PROMPTS[:5]
    found, most = answer_all(make(path, None, num_parallel=3, **STEADY), prompts, sampler)
    other = make(path, None, mode=Mode.OFF, **STEADY)
    assert [one.tokens for one in found] == [alone(other, prompt, sampler).tokens for prompt in prompts]
    assert most == 3


def test_exact_is_exact_whatever_runs_beside_it(make):
    sampler = Sampler(temperature=0.8, seed=4)
    expected = [alone(make(exact=True), prompt, sampler).tokens for prompt in PROMPTS]
    for num_parallel in (2, None):
        found, most = answer_all(make(exact=True, num_parallel=num_parallel), PROMPTS, sampler)
        assert [one.tokens for one in found] == expected
        assert most > 1


def test_what_prompts_begin_with_alike_is_evaluated_once(make):
    common = [1] + [5, 6, 7, 8] * 20
    engine = make(mode=Mode.OFF, num_parallel=4, **STEADY)
    found, _ = answer_all(engine, [[*common, number, 9] for number in range(5, 11)], Sampler())
    assert [one.cached_tokens for one in found] == [0] + [len(common)] * 5


def test_a_prompt_for_which_there_is_no_room_waits(make):
    engine = make(mode=Mode.OFF, num_parallel=2, **STEADY)
    long = [1] + [5, 6, 7, 8] * 300
    prompts = [[1, 5], long, [1, 6]]
    found, _ = answer_all(engine, prompts, Sampler())
    other = make(mode=Mode.OFF, **STEADY)
    assert [one.tokens for one in found] == [alone(other, prompt, Sampler()).tokens for prompt in prompts]


def test_what_is_wrong_with_a_prompt_is_wrong_with_it_alone(make):
    pool = Pool(make(num_parallel=3, n_ctx=64))
    with pytest.raises(UsageError, match="no tokens"):
        pool.add([], Sampler())
    with pytest.raises(ContextError, match="70 tokens, the context 64"):
        pool.add([5] * 70, Sampler())
    other = pool.add([1, 5], Sampler(), 5)
    ended = []
    while not ended:
        ended = pool.step()
    assert ended == [(other, None)]


def test_a_text_that_cannot_go_on_ends_alone(make):
    class Refusing:
        def __init__(self, after):
            self.after = after

        def sample(self, logits, tokens, ahead=()):
            if len(tokens) + len(ahead) >= self.after:
                raise ContextError("nothing is allowed", "x")
            return int(logits.argmax())

    engine = make(mode=Mode.OFF, num_parallel=3, **STEADY)
    pool = Pool(engine)
    pool.add([1, 5], Sampler(), 20)
    while not pool.has_room(2, 20):
        pool.step()
    bad, good = pool.add([1, 6], Sampler(), 20), pool.add([1, 7], Sampler(), 20)
    bad._sequence.chooser = Refusing(9)
    ended = {}
    while len(ended) < 3:
        ended |= {id(generation): error for generation, error in pool.step()}
    assert isinstance(ended[id(bad)], ContextError)
    assert len(bad.tokens) == 7
    assert good.tokens == alone(make(mode=Mode.OFF, **STEADY), [1, 7], Sampler()).tokens


def test_stop_strings_end_a_text_and_no_other(make):
    engine = make(mode=Mode.OFF, **STEADY)
    texts = [alone(engine, prompt, Sampler()).text for prompt in PROMPTS]
    stop = texts[0][len(texts[0]) // 2 :][:5]
    expected = [alone(engine, prompt, Sampler(), stops=[stop]) for prompt in PROMPTS]
    found, _ = answer_all(make(num_parallel=4, **STEADY), PROMPTS, Sampler(), stops=[stop])
    assert [(one.text, one.finish_reason) for one in found] == [(one.text, one.finish_reason) for one in expected]
    assert "stop_string" in {one.finish_reason for one in found}


@pytest.mark.parametrize(("mode", "num_parallel"), [("model", 1), ("model", 2), ("ngram", 3), ("fixed", 2)])
def test_no_text_has_longer_drafts_than_asked_for(make, mode, num_parallel):
    found, _ = answer_all(make(mode=Mode(mode), num_parallel=num_parallel, num_draft=2, **STEADY), PROMPTS, Sampler())
    most = {place for one in found for _, place in one.stats.drafted_at}
    assert most <= {0, 1}
    assert mode != "fixed" or most


def test_where_neighbours_matter_exact_texts_are_alone(make, monkeypatch):
    monkeypatch.setattr("specgguf.engine.pool.neighbours_matter", lambda *_: True)
    notices = []
    engine = make(exact=True, num_parallel=4, on_notice=notices.append)
    found, most = answer_all(engine, PROMPTS[:4], Sampler())
    expected = [alone(make(exact=True), prompt, Sampler()).tokens for prompt in PROMPTS[:4]]
    assert [one.tokens for one in found] == expected
    assert most == 1
    assert len([line for line in notices if "one at a time" in line]) == 1


def test_it_says_how_many_and_why(make):
    pool = Pool(make(num_parallel=3))
    pool.add(PROMPTS[3], Sampler(), 5)
    assert pool.describe().startswith("3 at once, as asked for: about ")
    assert Pool(make(num_parallel=None)).describe().startswith("2 at once, of 64 at most: about ")
