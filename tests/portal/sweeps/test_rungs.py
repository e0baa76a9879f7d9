"""The rules of early stopping: after how many values, and who goes on."""

import math

import pytest

from portal.sweeps.rungs import Reached, RungRule

ASHA = RungRule("asha", min_values=2, eta=3, goal="max")


def test_rungs_are_farther_apart_with_each_of_them() -> None:
    assert [ASHA.count_at(0, rung) for rung in range(3)] == [2, 6, 18]
    assert ASHA.count_at(0, 100) is None
    median = RungRule("median", min_values=2, eta=3, goal="max")
    assert [median.count_at(0, rung) for rung in range(3)] == [2, 4, 6]
    assert RungRule("none", 1, 3, "max").count_at(0, 0) is None


def test_brackets_of_hyperband_begin_later_and_are_smaller() -> None:
    hyperband = RungRule("hyperband", min_values=1, eta=3, goal="max")
    brackets = [hyperband.bracket_of(number) for number in range(13)]
    assert [brackets.count(bracket) for bracket in range(3)] == [9, 3, 1]
    assert [hyperband.count_at(bracket, 0) for bracket in range(3)] == [1, 3, 9]


@pytest.mark.parametrize(
    ("value", "others", "goes_on"),
    [
        (0.1, [], True),  # the first of all
        (0.2, [0.1], True),
        (0.1, [0.2], False),
        (0.2, [0.3, 0.1, 0.1, 0.1], False),  # one of five goes on
        (0.2, [0.3, 0.1, 0.1, 0.1, 0.1], True),  # two of six go on
        (math.nan, [], False),
        (math.inf, [0.1], False),
        (0.1, [None, None], True),
    ],
)
def test_the_best_third_goes_on(value: float, others: list[float | None], goes_on: bool) -> None:
    assert (ASHA.decide(value, others) == "") == goes_on


def test_less_is_better_where_the_goal_says_so() -> None:
    loss = RungRule("asha", 1, 3, "min")
    assert loss.decide(0.1, [0.2]) == ""
    assert loss.decide(0.3, [0.2]) == "is not the best of 2 trials"
    assert loss.decide(math.inf, [0.2]) == "is not finite"


def test_the_median_stops_nobody_before_three_others_have_come() -> None:
    median = RungRule("median", 1, 3, "max")
    assert median.decide(0.1, [0.5, 0.5]) == ""
    assert median.decide(0.5, [0.4, 0.5, 0.9]) == ""
    assert median.decide(0.4, [0.4, 0.5, 0.9]) == "is worse than 0.5, the median of 3 other trials"


def test_stopped_trials_among_the_best_run_again() -> None:
    rung = [Reached(0, 0.9, False), Reached(1, 0.5, True), Reached(2, 0.1, True)]
    assert ASHA.promotable(rung) == []  # one of three has gone on already
    worse = [Reached(number, 0.0, True) for number in (3, 4)]
    assert ASHA.promotable(rung + worse) == []
    assert ASHA.promotable([*rung, *worse, Reached(5, None, True)]) == [rung[1]]
    assert RungRule("median", 1, 3, "max").promotable([*rung, *worse, *worse]) == []
