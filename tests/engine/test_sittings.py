"""What batches cost is learned in several sittings: one slow minute does not decide."""

import pytest

from specgguf.engine.sittings import add_sitting, usual

HOUR = 3600.0


def table(slow=1.0, **changes):
    times = {1: 0.01 * slow, 2: 0.015, 4: 0.03}
    return {
        11: {
            "times": times,
            "rounds": dict.fromkeys(times, 12.0),
            "drafters": {"model": {"step": 0.002 * slow}},
            **changes,
        }
    }


def believed(sittings):
    return usual(sitting["tables"] for sitting in sittings)[11]


def learned(*tables, apart=2 * HOUR):
    sittings = []
    for number, one in enumerate(tables):
        sittings = add_sitting(sittings, one, number * apart)
    return sittings


@pytest.mark.parametrize("apart", [60.0, 2 * HOUR])
@pytest.mark.parametrize("order", [(1.0, 1.4), (1.4, 1.0), (1.0, 1.4, 1.0), (1.4, 1.0, 1.0, 1.4, 1.0)])
def test_a_slow_minute_does_not_decide(order, apart):
    found = believed(learned(*map(table, order), apart=apart))
    assert found["times"][1] == pytest.approx(0.01)
    assert found["drafters"]["model"]["step"] == pytest.approx(0.002)


def test_a_lasting_change_does():
    assert believed(learned(*map(table, (1.0, 1.0, 1.4, 1.4, 1.4))))["times"][1] == pytest.approx(0.014)


def test_runs_of_one_hour_are_one_sitting_and_no_more_than_five_are_kept():
    assert len(learned(*map(table, [1.0] * 9), apart=HOUR / 10)) == 1
    sittings = learned(*map(table, [1.0] * 9))
    assert [sitting["at"] for sitting in sittings] == [number * 2 * HOUR for number in range(4, 9)]


def test_what_makes_no_sense_is_not_believed():
    assert usual([table(50.0)]) == {}
    found = believed(learned(table(50.0), table()))
    assert found["times"][1] == pytest.approx(0.01)
    assert found["rounds"][1] == 12.0


def test_a_time_seen_once_gives_way_to_one_that_is_known():
    guess = {"rounds": {1: 1.0, 2: 12.0, 4: 12.0}}
    found = believed(learned(table(0.9, **guess), table()))
    assert (found["times"][1], found["rounds"][1]) == (pytest.approx(0.01), 12.0)


def test_what_only_one_of_them_knows_is_kept():
    other = {11: {"times": {8: 0.05}, "rounds": {8: 4.0}, "drafters": {}, "rollback": 0.01}, 13: table()[11]}
    found = usual([table(), other])
    assert list(found[11]["times"]) == [1, 2, 4, 8]
    assert found[11]["rollback"] == 0.01
    assert found[13] == table()[11]
