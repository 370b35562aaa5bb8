from specgguf.speculative.loop import Round
from specgguf.speculative.stats import Stats


def test_nothing_happened():
    stats = Stats()
    assert (stats.acceptance_rate, stats.mean_acceptance_length, stats.per_position) == (0.0, 0.0, [])


def test_counts_by_source_and_position():
    stats = Stats()
    stats.observe(Round(0, [1, 2, 3], drafted=4, accepted=2, source="model"))
    stats.observe(Round(0, [4], drafted=1, accepted=0, source="ngram"))
    stats.observe(Round(0, [5], drafted=0, accepted=0, source="none"))
    assert (stats.rounds, stats.output_tokens) == (3, 5)
    assert stats.drafted == {"model": 4, "ngram": 1}
    assert stats.accepted == {"model": 2, "ngram": 0}
    assert stats.acceptance_rate == 2 / 5
    assert stats.mean_acceptance_length == 5 / 3
    assert stats.per_position == [1 / 2, 1, 0, 0]
    assert stats.drafted_at == {("ngram", 0): 1, **{("model", at): 1 for at in range(4)}}
    assert stats.accepted_at == {("model", 0): 1, ("model", 1): 1}
