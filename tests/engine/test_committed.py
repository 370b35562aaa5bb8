"""What stands beside an answer while it comes (guardrails, watermarks, monitors) sees tokens that stay, in order."""

from contextlib import closing

import pytest

from specgguf.engine.pool import Pool
from specgguf.engine.settings import Mode
from specgguf.sampling.sampler import Sampler

PROMPT = [1, 5, 6, 7, 5, 6, 7, 5]
COUNT = 60
GOOD, BAD = "endless", "draft"
"""A draft that is the target itself, of which everything is accepted, and one of random weights."""


class Watermark:
    """As a watermark does, it favours some tokens by the one before them; it keeps what it was shown."""

    def __init__(self, sampler):
        self.sampler = sampler
        self.seen = []

    def sample(self, logits, tokens, ahead=()):
        text = [*tokens, *ahead]
        favoured = logits.copy()
        favoured[text[-1] % 7 :: 7] += 0.5
        choice = self.sampler.sample(favoured, tokens, ahead)
        self.seen.append((text, choice))
        return choice


def watermarked(engine, sampler, mode):
    watermark = Watermark(sampler)
    generation = engine.generate(PROMPT, sampler, COUNT, mode=mode, chooser=watermark)
    list(generation)
    return generation, watermark


@pytest.mark.parametrize("sampler", [Sampler(), Sampler(temperature=0.9, seed=3, repeat_penalty=1.2)])
@pytest.mark.parametrize("mode", [Mode.FIXED, Mode.AUTO, Mode.NGRAM])
@pytest.mark.parametrize("draft", [GOOD, BAD])
def test_a_watermark_sees_every_token_once_after_those_that_stay(make, toy_models, draft, mode, sampler):
    with closing(make(draft=toy_models[draft], cache_type_k="bf16", cache_type_v="bf16")) as engine:
        generation, watermark = watermarked(engine, sampler, mode)
        answer = generation.tokens
        assert watermark.seen == [([*PROMPT, *answer[:at]], answer[at]) for at in range(COUNT)]
        if mode is Mode.FIXED:
            assert generation.stats.drafted.total() > 0
        plain, without = watermarked(engine, sampler, Mode.OFF)
        assert (plain.tokens, without.seen) == (answer, watermark.seen)


@pytest.mark.parametrize("draft", [GOOD, BAD])
def test_a_guardrail_reads_text_that_is_never_taken_back(make, toy_models, draft):
    engine = make(draft=toy_models[draft])
    generation = engine.generate(PROMPT, Sampler(), COUNT, mode=Mode.FIXED)
    read, known = "", []
    for piece in generation:
        read += piece
        assert generation.text.startswith(read)
        assert generation.tokens[: len(known)] == known  # what was there stays
        known = list(generation.tokens)
    assert (read, known) == (generation.text, generation.tokens)
    assert len(known) == COUNT


@pytest.mark.parametrize("draft", [GOOD, BAD])
def test_a_guardrail_that_ends_an_answer_leaves_what_it_has_read(make, toy_models, draft):
    engine = make(draft=toy_models[draft], cache_type_k="bf16", cache_type_v="bf16")
    whole = engine.generate(PROMPT, Sampler(), COUNT, mode=Mode.OFF)
    list(whole)
    stopped = engine.generate(PROMPT, Sampler(), COUNT, mode=Mode.FIXED)
    for _ in stopped:
        if len(stopped.tokens) > 10:
            break
    assert stopped.finish_reason == "interrupted"
    assert whole.tokens[: len(stopped.tokens)] == stopped.tokens
    again = engine.generate([*PROMPT, *stopped.tokens], Sampler(), 10, mode=Mode.FIXED)  # goes on where that ended
    list(again)
    assert again.tokens == whole.tokens[len(stopped.tokens) :][:10]


def test_texts_that_share_a_batch_are_watermarked_each_by_itself(make):
    engine = make(mode=Mode.FIXED, num_parallel=3, cache_type_k="bf16", cache_type_v="bf16")
    pool, watermarks = Pool(engine), {}
    for number in range(3):
        generation = pool.add([*PROMPT, 5 + number], Sampler(), 20)
        watermarks[generation] = generation._sequence.chooser = Watermark(Sampler())
    ended = []
    while len(ended) < 3:
        ended += pool.step()
    for generation, watermark in watermarks.items():
        prompt, answer = watermark.seen[0][0], generation.tokens
        assert watermark.seen == [([*prompt, *answer[:at]], answer[at]) for at in range(20)]
    assert sum(generation.stats.drafted.total() for generation in watermarks) > 0
