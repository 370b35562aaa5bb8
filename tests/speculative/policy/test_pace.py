"""What drafting has gained or lost, against what plain decoding would have taken."""

import pytest

from specgguf.speculative.policy.costs import WidthCosts
from specgguf.speculative.policy.pace import Pace


def paced(known=True):
    return Pace(WidthCosts(8, {width: 1.0 + 0.1 * width for width in range(1, 10)} if known else None))


def test_a_round_counts_beside_the_plain_steps_of_its_tokens():
    pace = paced()
    pace.compare(verify_s=1.5, draft_s=0.5, num_sent=4, num_output=3)
    assert (pace.judged_s, pace.plain_s) == (2.0, pytest.approx(3 * 1.1))


def test_a_round_without_draft_tokens_is_plain_however_long_it_took():
    pace = paced()
    pace.compare(verify_s=7.0, draft_s=0.0, num_sent=0, num_output=1)
    assert (pace.judged_s, pace.plain_s) == (7.0, 7.0)
    pace.compare(verify_s=1.0, draft_s=0.5, num_sent=0, num_output=1)  # tokens that were not worth sending
    assert (pace.judged_s, pace.plain_s) == (8.5, 8.0)


def test_of_several_texts_a_plain_step_gives_each_a_token():
    pace = paced()
    pace.compare(verify_s=1.8, draft_s=0.0, num_sent=5, num_output=6, num_texts=3)
    assert (pace.judged_s, pace.plain_s) == (1.8, pytest.approx(2 * 1.3))


def test_nothing_is_said_before_plain_decoding_is_known():
    pace = paced(known=False)
    pace.compare(verify_s=1.5, draft_s=0.5, num_sent=4, num_output=3)
    assert (pace.judged_s, pace.plain_s) == (0.0, 0.0)


def test_every_round_is_counted_as_it_is_learned_from():
    pace = paced()
    pace.observe(num_sent=4, num_output=5, verify_s=1.5, draft_s=0.4, rollback_s=0.1)
    assert pace.judged_s == 2.0
    assert pace.plain_s == pytest.approx(5 * pace.costs.plain)
