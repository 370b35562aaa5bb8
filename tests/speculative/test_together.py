"""Several texts in one batch: what each says alone, and drafts only where a row of the batch is free for them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specgguf.drafters.model import ModelDrafter
from specgguf.drafters.ngram import NgramDrafter
from specgguf.sampling.sampler import Sampler
from specgguf.speculative.loop import begin, speculate
from specgguf.speculative.policy.depths import level_of
from specgguf.speculative.policy.policy import Policy
from specgguf.speculative.sequence import TokenSequence
from specgguf.speculative.together import Together
from tests.speculative.test_controller import TimedContext, cheap, dear
from tests.speculative.toy import NUM_TOKENS, blend, reference, table

MAX_ROWS = 24


def run(target, draft, prompts, max_tokens=40, sampler=Sampler(), sources=("ngram", "model"), known=None):  # noqa: B008
    """Texts and rounds of prompts that are answered together, each new one as soon as there is a sequence for it.

    `known`: seconds by width, if they are known beforehand.
    """
    drafters = {"model": ModelDrafter(draft, NUM_TOKENS, ()), "ngram": NgramDrafter()}
    tables = {level_of(0): {"times": {width: known(width) for width in range(1, MAX_ROWS + 1)}}} if known else None
    controller = Together(Policy(MAX_ROWS - 1, tables), [drafters[name] for name in sources])
    waiting = [TokenSequence(list(prompt), sampler, len(prompt) + max_tokens) for prompt in prompts]
    texts, active, found = list(waiting), [], []

    def admit():
        free = set(range(len(target.tokens))) - {one.id for one in active}
        while waiting and free:
            one = waiting.pop(0)
            one.id = free.pop()
            begin(target, controller, one)
            active.append(one)

    admit()
    for finished in speculate(target, controller, active, ()):
        found.append(finished)
        admit()
    return [text.tokens[len(prompt) :] for text, prompt in zip(texts, prompts, strict=True)], found


def contexts(logits_of, draft_logits_of, cost, n_seq, draft_s=0.1):
    """A draft step for one more text costs a tenth of one for the first; tokens that it has missed cost nothing."""
    target = TimedContext(logits_of, cost, n_ctx=200, n_batch=64, max_rows=MAX_ROWS, n_seq=n_seq)
    seconds = lambda width: draft_s * (0.9 + 0.1 * min(width, n_seq))  # noqa: E731
    return target, TimedContext(draft_logits_of, seconds, n_ctx=200, n_batch=64, max_rows=n_seq, n_seq=n_seq)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 1000),
    temperature=st.sampled_from([0.0, 0.7]),
    agreement=st.sampled_from([0.0, 0.8, 1.0]),
    cost=st.sampled_from([cheap, dear]),
    sources=st.sampled_from([("model",), ("ngram",), ("ngram", "model"), ()]),
    prompts=st.lists(st.lists(st.integers(0, NUM_TOKENS - 1), min_size=1, max_size=30), min_size=1, max_size=6),
    n_seq=st.integers(1, 4),
)
def test_each_says_what_it_says_alone(seed, temperature, agreement, cost, sources, prompts, n_seq):
    sampler = Sampler(temperature=temperature, seed=seed)
    target, draft = contexts(table(seed), blend(table(seed), table(seed + 1), agreement), cost, n_seq)
    texts, _ = run(target, draft, prompts, sampler=sampler, sources=sources)
    assert texts == [reference(target.logits_of, sampler, prompt, (), 40) for prompt in prompts]


def drafted(cost, agreement, n_seq, draft_s=0.1):
    """Draft tokens for each token of the texts, and the seconds that a token took."""
    target, draft = contexts(table(3), blend(table(3), table(4), agreement), cost, n_seq, draft_s)
    prompts = [[one % NUM_TOKENS, one // NUM_TOKENS] for one in range(n_seq)]
    texts, found = run(target, draft, prompts, 150, sources=("model",))
    count = sum(map(len, texts))
    return sum(one.drafted for one in found) / count, (target.decode_s + draft.decode_s) / count


def knee(width):
    """Free up to 8 rows, then one by one."""
    return 1.0 + 0.01 * width + max(0, width - 8)


def test_the_more_texts_the_less_is_drafted():
    shares = [drafted(knee, 0.9, n_seq)[0] for n_seq in (1, 2, 4, 8)]
    assert shares[0] > shares[1] > shares[2] > shares[3]
    assert shares[0] > 0.5
    assert shares[3] < 0.05


@pytest.mark.parametrize("n_seq", [2, 4])
def test_drafts_and_texts_in_one_batch_are_faster_than_either(n_seq):
    def curve(width):  # of a 16 bit model of 1.5 billion weights, on two cores
        return 1.0 + 0.08 * width

    apart = drafted(curve, 0.9, 1)[1]
    without = curve(n_seq) / n_seq
    assert drafted(curve, 0.9, n_seq)[1] < 0.9 * min(apart, without)


@pytest.mark.parametrize(("cost", "agreement", "draft_s"), [(dear, 1.0, 0.1), (cheap, 0.0, 0.1), (cheap, 0.8, 0.5)])
def test_nothing_is_lost_where_drafts_do_not_pay(cost, agreement, draft_s):
    assert drafted(cost, agreement, 4, draft_s)[1] < 1.15 * cost(4) / 4  # of 150 rounds; there is less and less


def test_a_row_goes_to_the_text_whose_draft_is_likelier():
    def sharp(prefix):  # texts that begin with 1 are foreseen, others are not
        return 8 * table(3)(prefix)

    def half(prefix):
        return sharp(prefix) if prefix[:1] == [1] else 8 * table(4)(prefix)

    target, draft = contexts(sharp, half, knee, 4)
    _, found = run(target, draft, [[1, 2], [2, 2], [1, 3], [3, 3]], 100, sources=("model",), known=knee)
    together = found[: max(place for place, one in enumerate(found) if one.sequence == 0)]
    by_text = [sum(one.drafted for one in together if one.sequence == text) for text in range(4)]
    assert min(by_text[0], by_text[2]) > 2 * max(by_text[1], by_text[3])


def test_a_prompt_is_read_beside_the_others_and_none_of_them_waits_long():
    target, draft = contexts(table(3), table(3), cheap, 2)
    widths = []
    evaluate = target._evaluate
    target._evaluate = lambda parts: widths.append([len(part.tokens) for part in parts]) or evaluate(parts)
    run(target, draft, [[1, 2], [1] * 150], 30, sources=())
    both = [parts for parts in widths if len(parts) == 2]
    assert [sorted(parts) for parts in both[:4]] == [
        [1, 63],
        [1, 40],
        [1, 40],
        [1, 6],
    ]  # a batch of 64, less the 24 rows that it may have to give


def test_what_prompts_have_in_common_is_evaluated_once():
    target, draft = contexts(table(3), table(3), cheap, 3)
    common = [1, 2, 3, 4, 5] * 6
    known = ModelDrafter(draft, NUM_TOKENS, ())
    controller = Together(Policy(MAX_ROWS - 1), [known])
    first, *others = [TokenSequence([*common, one, 0], Sampler(), 34, id=one) for one in range(3)]
    begin(target, controller, first)
    list(speculate(target, controller, [first], ()))
    target.evaluated.clear()
    for one in others:
        begin(target, controller, one)
        assert target.tokens[one.id] == common
    list(speculate(target, controller, list(others), ()))
    assert min(target.evaluated) == len(common)
