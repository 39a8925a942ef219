"""Curves, half bandwidth, plateau: exact on made points."""

import math

import msgspec
import pytest
from records import make_trial
from setting_trials import RAN_RING

from collbench.analyze.curves import curves, in_reading_order, mode_pairs, name_among
from collbench.model import Mode


def test_a_point_is_the_median_of_the_repeats_medians_and_its_rate_comes_from_that_time():
    (curve,) = curves([make_trial(2**20, t, repeat=r) for r, t in enumerate((10.0, 12.0, 20.0))])

    (point,) = curve.points
    assert point.time_us == 12.0
    assert point.busbw_gb_per_s == pytest.approx(2**20 / 12.0 / 1e3)
    assert (point.low_us, point.high_us) == (10.0, 20.0)
    assert point.spread == pytest.approx(10 / 12)


def test_with_one_repeat_the_band_is_the_interval_of_the_median():
    (curve,) = curves([make_trial(2**20, 10.0)])

    assert (curve.points[0].low_us, curve.points[0].high_us) == (9.0, 11.0)


def test_half_bandwidth_lies_between_points_on_log_axes():
    # Rates 1, 2, 8, 8 GB/s: half of the peak, 4, is midway between 2 and 8 on a log axis.
    rates = {2**20: 1.0, 2**22: 2.0, 2**24: 8.0, 2**26: 8.0}
    (curve,) = curves([make_trial(size, size / rate / 1e3) for size, rate in rates.items()])

    assert curve.half_size_bytes() == pytest.approx(2**23)


def test_half_bandwidth_is_the_last_crossing():
    rates = {2**20: 1.0, 2**21: 5.0, 2**22: 2.0, 2**24: 8.0}
    (curve,) = curves([make_trial(size, size / rate / 1e3) for size, rate in rates.items()])

    assert curve.half_size_bytes() == pytest.approx(math.sqrt(2**22 * 2**24))


def test_there_is_no_half_bandwidth_where_no_size_is_below_it():
    (curve,) = curves([make_trial(size, size / 1e3) for size in (2**20, 2**21)])

    assert curve.half_size_bytes() is None
    assert not curve.climbing()


def test_a_curve_that_gains_more_than_2_percent_at_its_end_is_climbing():
    (up,) = curves([make_trial(2**20, 2**20 / 10e3), make_trial(2**21, 2**21 / 10.3e3)])
    (flat,) = curves([make_trial(2**20, 2**20 / 10e3), make_trial(2**21, 2**21 / 10.1e3)])

    assert up.climbing()
    assert not flat.climbing()


def test_a_point_without_a_rate_is_no_zero():
    (curve,) = curves([make_trial(2**20, 5.0, rate=False), make_trial(2**21, 10.0)])

    assert curve.peak is curve.points[1]
    assert curve.points[0].busbw_gb_per_s is None


def test_modes_of_one_question_are_paired():
    found = curves(
        [
            make_trial(4, 39.0),
            make_trial(4, 11.0, mode=Mode.GRAPH),
            make_trial(4, 30.0, name="broadcast"),
        ]
    )

    ((eager, graph),) = mode_pairs(found, Mode.EAGER, Mode.GRAPH)
    assert (eager.points[0].time_us, graph.points[0].time_us) == (39.0, 11.0)


def test_a_curve_is_named_by_what_tells_it_from_the_others():
    trials = [make_trial(4, 39.0), make_trial(4, 11.0, mode=Mode.GRAPH)]
    ring = msgspec.structs.replace(trials[0].case, setting={"NCCL_ALGO": "Ring"})
    trials.append(msgspec.structs.replace(trials[0], case=ring))
    found = curves(trials)

    assert [name_among(curve, found) for curve in found] == [
        "all_reduce eager (default)",
        "all_reduce graph (default)",
        "all_reduce eager (Ring)",
    ]
    assert name_among(found[0], found[:1]) == "all_reduce"
    assert name_among(found[0], found[:1], always=("dtype",)) == "all_reduce float32"


def test_reading_order_undoes_a_shuffle():
    trials = [
        make_trial(size, 1.0, name=name, repeat=repeat)
        for repeat in (1, 0)
        for size in (64, 4)
        for name in ("broadcast", "all_reduce")
    ]

    ordered = [(t.case.collective, t.case.size_bytes, t.repeat) for t in in_reading_order(trials)]

    assert ordered == [
        (name, size, repeat)
        for name in ("all_reduce", "broadcast")
        for size in (4, 64)
        for repeat in (0, 1)
    ]


@pytest.mark.parametrize(
    ("proofs", "same"),
    [
        ([RAN_RING, RAN_RING], True),
        ([None, RAN_RING], True),
        ([msgspec.structs.replace(RAN_RING, channels=2), RAN_RING], True),
        ([msgspec.structs.replace(RAN_RING, algorithm="Tree"), RAN_RING], False),
        ([msgspec.structs.replace(RAN_RING, transports=["SHM/direct"]), RAN_RING], False),
        ([msgspec.structs.replace(RAN_RING, ranks=0)], False),
        ([None], False),
    ],
)
def test_a_point_knows_what_ran_where_all_repeats_ran_alike(proofs, same):
    trials = [make_trial(64, 5.0, repeat=k, proof=proof) for k, proof in enumerate(proofs)]

    (curve,) = curves(trials)

    found = curve.points[0].proof
    assert (found.algorithm if found else None) == ("Ring" if same else None)
