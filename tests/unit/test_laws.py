"""Laws of curves: what is fitted, with which weights, and what is said where nothing can be."""

import math

import msgspec
import numpy as np
import pytest
from records import make_trial
from setting_trials import RAN_RING, under

from collbench.analyze import laws
from collbench.analyze.laws import laws_of
from collbench.analyze.limit import Limit
from collbench.model import Mode, Status

SIZES = [2**k for k in range(3, 31, 2)]


def no_limit(_case, _proof):
    return None


def law_time(size, alpha_us=10.0, rate=100.0):
    return alpha_us + size / rate / 1e3


def curve(sizes=SIZES, *, noise=(), **changes):
    """A trial a size and repeat on one law."""
    factors = noise or (1.0,)
    return [
        make_trial(size, law_time(size) * factor, repeat=repeat, **changes)
        for size in sizes
        for repeat, factor in enumerate(factors)
    ]


def test_a_curve_on_one_law_gets_it_back():
    (law,) = laws_of(curve(), no_limit)

    (segment,) = law.fit.segments
    assert segment.alpha_us == pytest.approx(10.0)
    assert segment.bandwidth_gb_per_s == pytest.approx(100.0)
    assert law.points_of(segment) == law.curve.points
    assert law.too_few is None
    assert law.half_size_bytes == law.curve.half_size_bytes()


def test_curves_come_in_reading_order():
    trials = curve(name="broadcast") + curve(mode=Mode.GRAPH) + curve()

    named = [(law.curve.case.collective, law.curve.case.mode) for law in laws_of(trials, no_limit)]

    assert named == [("all_reduce", "eager"), ("all_reduce", "graph"), ("broadcast", "eager")]


@pytest.mark.parametrize(("count", "words"), [(1, "1 size:"), (2, "2 sizes:")])
def test_a_curve_with_too_few_sizes_says_so(count, words):
    (law,) = laws_of(curve(SIZES[:count]), no_limit)

    assert law.fit is None
    assert law.too_few.startswith(f"{words} alpha and B cannot be told apart; a law needs 3 sizes")
    assert law.largest.size_bytes == SIZES[count - 1]


def test_the_share_of_the_limit_is_that_of_the_largest_size_with_what_ran_there():
    trials = [msgspec.structs.replace(trial, proof=RAN_RING) for trial in curve()]
    asked = []

    def limit_of(case, proof):
        asked.append((case.collective, proof))
        return Limit(200.0, "wires")

    (law,) = laws_of(trials, limit_of)

    assert asked == [("all_reduce", RAN_RING)]
    largest = SIZES[-1]
    assert law.share_of_limit == pytest.approx(largest / law_time(largest) / 1e3 / 200.0)


def test_without_a_limit_or_a_rate_there_is_no_share():
    (law,) = laws_of(curve(), no_limit)
    unrated = [under({"ib": "on"}, 64, 5.0, rate=False)]
    (bare,) = laws_of(unrated, lambda _case, _proof: Limit(1.0, "wire"))

    assert law.share_of_limit is None
    assert bare.share_of_limit is None


def test_a_size_whose_repeats_disagree_weighs_less():
    steady = (0.999, 1.0, 1.001)
    trials = []
    for size in SIZES:
        wild = size == SIZES[0]
        factors = (1.1, 2.0, 3.8) if wild else steady
        trials += curve([size], noise=factors)

    (law,) = laws_of(trials, no_limit)

    # Unweighted, a smallest size of twice the time would draw alpha up by more than a tenth.
    assert law.fit.segments[0].alpha_us == pytest.approx(10.0, rel=0.05)


def weights_given(trials, monkeypatch):
    given = []
    real = laws.fit_segments

    def spy(sizes, times, weights):
        given.append(np.asarray(weights))
        return real(sizes, times, weights)

    monkeypatch.setattr(laws, "fit_segments", spy)
    laws_of(trials, no_limit)
    return given[0]


def test_with_one_repeat_the_interval_of_the_median_is_the_weight(monkeypatch):
    # The made trials have an interval of 10 % on either side.
    weights = weights_given(curve(), monkeypatch)

    assert weights == pytest.approx(1 / ((0.1 / 1.96) ** 2 + 0.02**2))


def test_where_nothing_is_known_of_one_size_all_weigh_alike(monkeypatch):
    trials = curve()
    bare = msgspec.structs.replace(trials[0].summary, ci95_us=None)
    trials[0] = msgspec.structs.replace(trials[0], summary=bare)

    assert weights_given(trials, monkeypatch) == pytest.approx(1 / 0.02**2)


def test_wrong_data_have_no_part_in_a_law():
    wrong = [msgspec.structs.replace(trial, status=Status.DATA_WRONG) for trial in curve()]

    assert laws_of(wrong, no_limit) == []
    (law,) = laws_of([*curve(), msgspec.structs.replace(wrong[0], repeat=1)], no_limit)
    assert law.curve.points[0].repeats == 1


def test_a_time_that_does_not_grow_has_an_endless_bandwidth():
    (law,) = laws_of([make_trial(size, 10.0) for size in SIZES], no_limit)

    assert math.isinf(law.fit.segments[0].bandwidth_gb_per_s)
