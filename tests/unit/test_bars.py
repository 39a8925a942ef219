"""Bars: what a run is to a baseline, to a rate, to a share of the wire's limit."""

from __future__ import annotations

import math

import msgspec
import numpy as np
import pytest
from bar_runs import RESULTS, RUN, SIZES, baseline, stored, trials_of
from records import make_trial
from setting_trials import RING_LL, ended, under

from collbench.analyze.bars import Bars, BarVerdict, check_against
from collbench.analyze.baseline import Baseline, make_baseline
from collbench.analyze.limit import Limit
from collbench.model import Mode, ReasonCode, Status
from collbench.store import read_run


def verdicts(trials, made: Baseline, tolerance: float = 0.05):
    bars = Bars(baseline=made, source="b", tolerance=tolerance)
    return check_against(trials, RUN, bars, lambda case, proof: None)


@pytest.mark.parametrize("repeats", [3, 5])
@pytest.mark.parametrize(
    ("factor", "verdict"),
    [
        (0.5, BarVerdict.MET),
        (1.0, BarVerdict.MET),
        (1.04, BarVerdict.MET),
        (1.06, BarVerdict.BELOW),
        (2.0, BarVerdict.BELOW),
    ],
)
def test_with_repeats_on_both_sides_the_comparison_decides(repeats, factor, verdict):
    report = verdicts(trials_of(repeats, factor, slow=[SIZES[3]]), baseline(repeats))
    case = report.cases[3]

    assert case.verdict is verdict
    assert case.ratio == pytest.approx(factor, rel=1e-6)
    assert case.low < factor < case.high
    assert [other.verdict for other in report.cases if other is not case] == [BarVerdict.MET] * 11
    assert report.verdict is verdict


def test_the_tolerance_is_the_sites():
    trials = trials_of(5, 1.06, slow=[SIZES[3]])

    assert verdicts(trials, baseline(), tolerance=0.08).verdict is BarVerdict.MET


def test_a_noisy_case_that_looks_slower_is_unclear():
    noisy = [make_trial(8, time, repeat=r) for r, time in enumerate([100, 140, 70, 180, 90])]
    made = make_baseline([stored([*trials_of(5, sizes=SIZES[1:]), *noisy])])
    again = [make_trial(8, time, repeat=r) for r, time in enumerate([110, 170, 75, 210, 95])]
    report = verdicts([*trials_of(5, sizes=SIZES[1:]), *again], made)

    assert report.cases[0].verdict is BarVerdict.UNCLEAR
    assert "noisy" in report.cases[0].reason
    assert report.verdict is BarVerdict.UNCLEAR


@pytest.mark.parametrize(
    ("base", "new", "factor", "verdict", "reason"),
    [
        (5, 1, 1.04, BarVerdict.MET, None),
        (5, 1, 1.2, BarVerdict.BELOW, None),
        (5, 2, 1.2, BarVerdict.BELOW, None),
        (3, 1, 1.2, BarVerdict.BELOW, None),
        # Two repeats or one tell no scatter.
        (2, 5, 1.2, BarVerdict.UNCLEAR, "too few repeats: 2 + 5 repeats, needs 3 + 3"),
        (1, 1, 9.0, BarVerdict.UNCLEAR, "too few repeats: 1 + 1 repeats, needs 3 + 3"),
        (1, 1, 1.0, BarVerdict.MET, None),
    ],
)
def test_few_repeats_are_below_only_where_the_baselines_scatter_is_passed(
    base, new, factor, verdict, reason
):
    report = verdicts(trials_of(new, factor, slow=[SIZES[3]]), baseline(base))
    case = report.cases[3]

    assert (case.verdict, case.reason) == (verdict, reason)
    assert (case.low, case.high) == (None, None)


def test_one_repeat_within_three_scatters_is_unclear():
    wide = [make_trial(8, time, repeat=r) for r, time in enumerate([90, 95, 100, 105, 110])]
    made = make_baseline([stored([*trials_of(5, sizes=SIZES[1:]), *wide])])
    scatter = made.cases[0].scatter
    inside = 100 * math.exp(2.9 * scatter)
    report = verdicts([*trials_of(1, sizes=SIZES[1:]), make_trial(8, inside)], made)

    assert report.cases[0].ratio > 1.2
    assert report.cases[0].verdict is BarVerdict.UNCLEAR
    assert report.cases[0].reason.startswith("few repeats: sure only above +")


def test_a_case_that_lacks_a_repeat_is_not_compared_with_the_others():
    trials = trials_of(5, 1.2, slow=[SIZES[3]])
    torn = [t for t in trials if (t.case.size_bytes, t.repeat) != (SIZES[3], 4)]
    report = verdicts(torn, baseline())

    assert report.cases[3].verdict is BarVerdict.BELOW  # beyond the baseline's scatter
    assert report.cases[3].low is None


def test_what_is_on_one_side_only_is_said():
    trials = [*trials_of(5, sizes=SIZES[:6]), make_trial(1 << 30, 9.0), under(RING_LL, 8, 3.0)]
    report = verdicts(trials, baseline())
    found = [case.verdict for case in report.cases]

    assert found.count(BarVerdict.NO_BAR) == 2
    assert found.count(BarVerdict.MET) == 6
    assert report.not_measured == 6
    assert report.verdict is BarVerdict.MET


def test_a_case_of_the_baseline_that_ended_otherwise_is_unclear():
    lost = ended(make_trial(8, 9.0), Status.PATH_NOT_USED, ReasonCode.NO_NETWORK_USED, "no")
    report = verdicts([lost, *trials_of(5, sizes=SIZES[1:])], baseline())

    assert report.cases[0].verdict is BarVerdict.UNCLEAR
    assert report.cases[0].reason == "not measured: path_not_used"
    assert report.not_measured == 0


def test_nothing_in_common_is_no_verdict():
    report = verdicts([make_trial(1 << 30, 9.0)], baseline())

    assert report.verdict is BarVerdict.NO_BAR


@pytest.mark.parametrize(("repeats", "most"), [(5, 1), (1, 4)])
def test_few_tables_in_which_nothing_changed_are_below(repeats, most):
    """Of 60 draws of the recorded repeats: 5 + 5 by the comparison, 5 + 1 by the scatter."""
    random, below = np.random.default_rng(11), 0
    reference = read_run(RESULTS / "2xh200/20261130-0635-3947")
    by_key = {(t.case.case_id, t.repeat): t for t in reference.trials}
    cases = list(dict.fromkeys(t.case.case_id for t in reference.trials))
    for _ in range(60):
        order = random.permutation(20)
        sides = [
            [
                msgspec.structs.replace(by_key[case, row], repeat=repeat)
                for case in cases
                for repeat, row in enumerate(rows)
            ]
            for rows in (order[:5].tolist(), order[5 : 5 + repeats].tolist())
        ]
        made = make_baseline([stored(sides[0])])
        below += verdicts(sides[1], made).verdict is BarVerdict.BELOW
    assert below <= most


@pytest.mark.parametrize(
    ("bars", "expected"),
    [
        ({"min_busbw_gb_per_s": 10.0}, ["pass", "pass"]),
        ({"min_busbw_gb_per_s": 20.0}, ["pass", "below"]),
        ({"min_busbw_of": {"all_gather": 5.0}}, ["pass"]),
        ({"min_busbw_gb_per_s": 25.0, "min_busbw_of": {"all_gather": 5.0}}, ["below", "pass"]),
    ],
)
def test_the_peak_of_each_question_is_held_against_the_rate(bars, expected):
    # Peaks: all_reduce 20.97 GB/s at 1 MiB, all_gather half of it.
    trials = [
        make_trial(1024, 10.0),
        make_trial(2**20, 50.0),
        make_trial(2**20, 50.0, name="all_gather"),
    ]
    report = check_against(trials, RUN, Bars(**bars), lambda case, proof: None)

    assert [str(peak.verdict) for peak in report.peaks] == expected
    assert {peak.case.size_bytes for peak in report.peaks} == {2**20}
    assert report.cases == ()


def test_modes_are_judged_each_and_of_settings_the_best():
    trials = [
        make_trial(2**20, 50.0),
        make_trial(2**20, 100.0, mode=Mode.GRAPH),
        under(RING_LL, 2**20, 25.0),
    ]
    bars = Bars(min_busbw_gb_per_s=15.0)
    report = check_against(trials, RUN, bars, lambda case, proof: None)

    assert [(peak.case.mode, str(peak.verdict)) for peak in report.peaks] == [
        (Mode.EAGER, "pass"),
        (Mode.GRAPH, "below"),
    ]
    assert report.peaks[0].case.setting == RING_LL


@pytest.mark.parametrize(
    ("times", "bar", "verdict"),
    [
        # 2**20 B in 50 us are 20.97 GB/s; one repeat's interval is 10 % (records.make_trial).
        ([50.0], 22.0, BarVerdict.UNCLEAR),
        ([50.0], 24.0, BarVerdict.BELOW),
        ([50.0, 52.0, 46.0], 22.0, BarVerdict.UNCLEAR),
        ([50.0, 52.0, 49.0], 22.0, BarVerdict.BELOW),
    ],
)
def test_a_bar_within_the_interval_or_the_repeats_cannot_be_told(times, bar, verdict):
    trials = [make_trial(2**20, time, repeat=r) for r, time in enumerate(times)]
    report = check_against(trials, RUN, Bars(min_busbw_gb_per_s=bar), lambda case, proof: None)

    assert report.verdict is verdict


def test_without_a_rate_a_peak_cannot_be_told():
    report = check_against(
        [make_trial(8, 5.0, rate=False)],
        RUN,
        Bars(min_busbw_gb_per_s=1.0),
        lambda case, proof: None,
    )

    assert report.verdict is BarVerdict.UNCLEAR
    assert report.peaks[0].reason == "no bus bandwidth was measured"


@pytest.mark.parametrize(
    ("limit", "verdict", "bar"),
    [
        (Limit(24.0, "a wire"), BarVerdict.MET, 20.4),
        (Limit(30.0, "a wire"), BarVerdict.BELOW, 25.5),
        (None, BarVerdict.UNCLEAR, None),
    ],
)
def test_a_share_of_the_limit_is_asked_of_the_case_and_what_ran(limit, verdict, bar):
    asked = []
    trial = make_trial(2**20, 50.0)

    def limit_of(case, proof):
        asked.append((case, proof))
        return limit

    report = check_against([trial], RUN, Bars(min_of_limit=0.85), limit_of)

    assert asked == [(trial.case, trial.proof)]
    assert report.verdict is verdict
    assert report.peaks[0].bar_gb_per_s == (bar and pytest.approx(bar))
