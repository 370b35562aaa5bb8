"""What is remembered of times is the least of several rounds, checked for sense."""

import pytest

from specgguf.exact.timing import Timing, agree, is_sensible, time_rounds

QUIET = {1: 6.0, 2: 12.0, 4: 20.0}


def timed(rounds, **settings):
    rounds, done = iter(rounds), []
    return time_rounds(lambda: next(rounds), done.append, **settings), done


def scaled(**factors):
    return {width: seconds * factors.get(f"w{width}", 1.0) for width, seconds in QUIET.items()}


def test_a_quiet_machine_takes_three_rounds():
    found, done = timed([QUIET] * 20)
    assert (found.seconds, found.rounds, found.noise, found.steady) == (QUIET, 3, 0.0, True)
    assert done == [1, 2, 3]


def test_a_width_that_was_disturbed_is_measured_until_two_rounds_agree():
    found, _ = timed([scaled(w1=55), scaled(w1=40), scaled(w1=20), scaled(w1=1.3), QUIET, QUIET, QUIET])
    assert (found.seconds, found.rounds, found.steady) == (QUIET, 6, True)


def test_times_that_make_no_sense_beside_each_other_are_not_believed():
    busy = scaled(w1=55)  # width 4 in a sixteenth of the time of width 1
    found, _ = timed([busy] * 9 + [QUIET] * 2)
    assert (found.rounds, found.steady) == (10, False)
    assert found.seconds == QUIET
    found, _ = timed([busy] * 10)
    assert not found.steady


@pytest.mark.parametrize(
    ("times", "sensible"),
    [
        ({1: 1.0, 2: 2.9, 7: 6.42, 8: 4.15}, True),  # Q8_0 on two cores
        ({1: 1.0, 2: 1.0, 64: 1.1}, True),
        ({1: 1.0, 2: 0.3}, False),
        ({1: 1.0, 2: 9.0}, False),
        ({8: 1.0, 16: 1.5}, True),
        ({}, True),
    ],
)
def test_what_makes_sense(times, sensible):
    assert is_sensible(times) is sensible


def test_one_time_alone_agrees_with_nothing():
    assert not agree([1.0])
    assert agree([3.0, 1.1, 1.0])


def test_what_a_busy_machine_has_spoilt_is_measured_again_an_hour_later_but_not_for_ever():
    quiet, busy = Timing.of([QUIET] * 3), Timing.of([scaled(w2=3), QUIET, scaled(w2=2)])
    long_ago = {"at": busy.at - 4000}
    assert not quiet.is_due
    assert not busy.is_due
    assert Timing.from_json({**busy.to_json(), **long_ago}).is_due
    assert not Timing.from_json({**busy.to_json(), **long_ago, "rounds": 30}).is_due


def test_rounds_that_are_much_faster_say_that_it_was_measured_badly():
    found = Timing.of([scaled(w1=55)] * 3)
    assert found.disagrees({1: 6.0})
    assert not found.disagrees({1: 300.0, 2: 11.0, 9: 0.1})
    again = found.merge(Timing.of([QUIET] * 3))
    assert (again.seconds, again.rounds, again.steady) == (QUIET, 6, True)
