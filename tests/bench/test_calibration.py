"""How often verdicts are wrong: the tables of docs/statistics.md; ``pytest -m bench -s``.

Seeds are fixed, so the figures come out the same again.
"""

from __future__ import annotations

import numpy as np
import pytest
from bar_runs import RUN, stored
from law_curves import curve, side
from noise import KINDS, as_side, changed, equal_settings, reference, table
from records import make_trial

from collbench.analyze.alphabeta import fit_segments
from collbench.analyze.bars import Bars, BarVerdict, check_against
from collbench.analyze.baseline import make_baseline
from collbench.analyze.best import best_settings
from collbench.analyze.compare import Verdict, compare_cases
from collbench.analyze.located import Kind, locate
from collbench.analyze.trend import independent_blocks, trend
from collbench.model import Mode
from collbench.stats import median_interval

pytestmark = [pytest.mark.bench, pytest.mark.timeout(3600)]

TABLES = 1000
CLAIMS = (Verdict.FASTER, Verdict.SLOWER)


@pytest.mark.parametrize("repeats", [3, 5, 10])
@pytest.mark.parametrize("kind", [*KINDS, "bimodal, whole repeats"])
def test_tables_in_which_nothing_changed(kind, repeats):
    random = np.random.default_rng([1, repeats])
    wrong = 0
    for _ in range(TABLES):
        keys, logs = table(kind, random, 2 * repeats)
        found = compare_cases(as_side(keys, logs[:repeats]), as_side(keys, logs[repeats:]))
        wrong += any(case.verdict in CLAIMS for case in found.cases)
    print(f"\nA/A | {kind} | {repeats} + {repeats} | {wrong / TABLES:.2%} of {TABLES} tables")

    # Whole repeats on two levels, all cases alike: 3 + 3 repeats fall apart by chance in 2 of 64.
    bar = 0.04 if kind == "bimodal, whole repeats" and repeats == 3 else 0.01
    assert wrong <= bar * TABLES


@pytest.mark.parametrize(("repeats", "slowdown"), [(3, 0.08), (5, 0.05), (10, 0.05)])
@pytest.mark.parametrize("everywhere", [False, True])
@pytest.mark.parametrize("kind", ["one per cent", "log-normal", "recorded"])
def test_power(kind, everywhere, repeats, slowdown):
    random = np.random.default_rng([2, repeats])
    tables = 300
    slower = faster = covered = 0
    for _ in range(tables):
        key, base, new = changed(random, repeats, slowdown, everywhere=everywhere, kind=kind)
        cases = {case.key: case for case in compare_cases(base, new).cases}
        slower += cases[key].verdict is Verdict.SLOWER
        covered += cases[key].surely < slowdown
        faster += any(case.verdict is Verdict.FASTER for case in cases.values())
    where = "all cases" if everywhere else "one case"
    print(
        f"\npower | {kind} | {slowdown:.0%} in {where} | {repeats} + {repeats} |"
        f" found {slower / tables:.1%} | FASTER in {faster} of {tables} tables"
        f" | 'surely' holds {covered / tables:.1%}"
    )

    assert faster == 0 or kind != "one per cent"
    assert slower >= 0.95 * tables or kind != "one per cent"


@pytest.mark.parametrize("repeats", [3, 5, 10])
@pytest.mark.parametrize(
    "kind", ["recorded", "one per cent", "log-normal", "skewed", "bimodal, half", "bimodal, rare"]
)
def test_best_of_15_equal_settings(kind, repeats):
    random = np.random.default_rng([3, repeats])
    claimed = 0
    for _ in range(TABLES):
        found = best_settings(equal_settings(kind, random, repeats), "0")
        claimed += any(row.claimed for row in found.values())
    print(f"\nbest | {kind} | {repeats} | {claimed / TABLES:.2%} of {TABLES} tables")

    assert claimed <= 0.01 * TABLES


@pytest.mark.parametrize("repeats", [3, 5, 10])
@pytest.mark.parametrize("speedup", [0.04, 0.08])
def test_best_finds_one_faster_setting(speedup, repeats):
    random = np.random.default_rng([4, repeats])
    tables, right = 200, 0
    for _ in range(tables):
        rows = equal_settings("one per cent", random, repeats)
        key = next(iter(rows))
        rows[key]["7"] = [time / (1 + speedup) for time in rows[key]["7"]]
        found = best_settings(rows, "0")[key]
        right += found.claimed and found.winner == "7"
    print(f"\nbest power | {speedup:.0%} faster | {repeats} repeats | {right / tables:.1%}")


PROTOCOLS = ((6.0, 8.0), (14.0, 60.0), (40.0, 330.0))
LADDERS = {"8 B to 1 GiB, factor 2": 2.0 ** np.arange(3, 31), "factor 4": 4.0 ** np.arange(2, 16)}


@pytest.mark.parametrize("ladder", LADDERS)
def test_switches_of_curves(ladder):
    random = np.random.default_rng(5)
    sizes, curves = LADDERS[ladder], 1000
    laws = np.array([alpha + sizes / (rate * 1e3) for alpha, rate in PROTOCOLS])
    true = np.flatnonzero(np.diff(laws.argmin(axis=0))) + 1
    both = single = covered = 0
    for _ in range(curves):
        noise = 1 + 0.03 * random.standard_normal(sizes.size)
        found = fit_segments(sizes, laws.min(axis=0) * noise).switches_bytes
        places = np.searchsorted(sizes, found)
        both += len(found) == 2 and bool(np.all(np.abs(places - true) <= 1))
        fit = fit_segments(sizes, laws[2] * noise)
        single += fit.switches_bytes == ()
        covered += fit.segments[0].alpha_low_us <= 40 <= fit.segments[0].alpha_high_us
    print(
        f"\nswitches | {ladder} | both of three protocols {both / curves:.1%}"
        f" | none of one {single / curves:.1%} | alpha's interval holds {covered / curves:.1%}"
    )

    assert both >= 0.95 * curves
    assert single >= 0.99 * curves


@pytest.mark.parametrize("n", [30, 100, 300])
@pytest.mark.parametrize("dependence", [0.0, 0.3, 0.6, 0.8])
def test_coverage_of_medians(dependence, n):
    random = np.random.default_rng([6, n])
    series, covered = 4000, 0
    for _ in range(series):
        values = autoregressive(random, n, dependence)
        found = median_interval(np.exp(values))
        covered += found.low <= 1 <= found.high
    share = covered / series
    print(f"\ncoverage | AR(1) {dependence} | n = {n} | {share:.3f}")

    # Above 0.97 it is wider than it need be, which is said and why: docs/statistics.md.
    assert 0.93 <= share <= 0.985


@pytest.mark.parametrize("repeats", [3, 5, 10])
@pytest.mark.parametrize(
    "kind", ["recorded", "log-normal", "drift", "skewed", "bimodal, half", "bimodal, rare"]
)
def test_one_repeat_against_a_baseline(kind, repeats):
    random = np.random.default_rng([7, repeats])
    tables, wrong, found = 500, 0, []
    for _ in range(tables):
        keys, logs = table(kind, random, repeats + 1)
        made = make_baseline([stored(trials_of(keys, logs[:repeats]))])
        same = judged(trials_of(keys, logs[repeats:]), made)
        slower = judged(trials_of(keys, logs[repeats:] + np.log(1.2)), made)
        wrong += any(case.verdict is BarVerdict.BELOW for case in same)
        found.append(np.mean([case.verdict is BarVerdict.BELOW for case in slower]))
    print(
        f"\nbars | {kind} | {repeats} + 1 | any below in {wrong / tables:.1%} of {tables} tables"
        f" | 20 % slower, found {np.mean(found):.0%}"
    )

    # A weaker claim than with repeats on both sides: docs/baseline.md has the table.
    assert wrong <= 0.04 * tables or kind not in ("log-normal", "drift")


def test_5_repeats_against_a_baseline_of_5():
    random, draws = np.random.default_rng(9), 100
    keys, logs = reference()
    unclear = {Mode.EAGER: [], Mode.GRAPH: []}
    below = 0
    for _ in range(draws):
        rows = random.permutation(len(logs))[:10]
        made = make_baseline([stored(trials_of(keys, logs[rows[:5]]))])
        cases = judged(trials_of(keys, logs[rows[5:]]), made)
        below += any(case.verdict is BarVerdict.BELOW for case in cases)
        for mode, counts in unclear.items():
            mine = [case for case in cases if case.case.mode is mode]
            counts.append(sum(case.verdict is BarVerdict.UNCLEAR for case in mine))
    for mode, counts in unclear.items():
        print(
            f"\nbars | recorded {mode} | 5 + 5 | unclear {np.mean(counts):.1f} of"
            f" {len(keys) // 2} cases, any in {np.count_nonzero(counts)} of {draws} draws"
        )

    assert below <= 0.02 * draws
    assert not any(unclear[Mode.GRAPH])


def trials_of(keys, logs):
    """A trial a case and repeat; its place in the table tells it from the others."""
    return [
        make_trial(8 * (place + 1), float(np.exp(row[place])), mode=key.mode, repeat=repeat)
        for repeat, row in enumerate(logs)
        for place, key in enumerate(keys)
    ]


def judged(trials, made):
    return check_against(trials, RUN, Bars(baseline=made), lambda case, proof: None).cases


@pytest.mark.parametrize("noise", [0.01, 0.02])
def test_where_changes_sit(noise):
    kinds = []
    for alpha, bandwidth, kind in ((1.2, 1.0, Kind.ALPHA), (1.0, 0.88, Kind.BANDWIDTH)):
        for seed in range(40):
            base = side(curve(), noise=noise, seed=seed)
            new = side(curve(alpha, bandwidth), noise=noise, seed=1000 + seed)
            places = locate(compare_cases(base, new)).places.values()
            kinds += [(place.kind, kind) for place in places]
    located = [(found, true) for found, true in kinds if found is not Kind.NOT_LOCATED]
    wrong = sum(found is not true for found, true in located)
    print(
        f"\nlocated | {noise:.0%} | {len(located)} of {len(kinds)} changed cases"
        f" | {wrong} of them wrong"
    )

    assert wrong <= 0.01 * len(located)


@pytest.mark.parametrize("n", [100, 400])
@pytest.mark.parametrize("dependence", [0.0, 0.3, 0.6, 0.8, 0.9])
def test_drift_of_samples(dependence, n):
    random = np.random.default_rng([8, n])
    bar, line = 0.01 / 84, 1 + 0.05 * np.linspace(-0.5, 0.5, n)
    flat = [drift_of(random, n, dependence, 0.05) for _ in range(2000)]
    rising = [drift_of(random, n, dependence, 0.01, line) for _ in range(100)]
    print(
        f"\ndrift | AR(1) {dependence} | n = {n}"
        f" | p < 0.01 {np.mean([one.p < 0.01 for one in flat]):.2%}"
        f" | corrected {np.mean([one.p < bar for one in flat]):.2%}"
        f" | 5 % found {np.mean([one.p < bar and one.change > 0.03 for one in rising]):.0%}"
    )

    assert np.mean([one.p < bar for one in flat]) <= 0.001


def drift_of(random, n: int, dependence: float, noise: float, line=1.0):
    """The trend of a series with so much noise around a line."""
    deviation = np.sqrt(1 - dependence**2)
    values = np.exp(noise * deviation * autoregressive(random, n, dependence))
    return trend(independent_blocks(values * line))


def autoregressive(random, n: int, dependence: float) -> np.ndarray:
    values = random.standard_normal(n)
    values[0] /= np.sqrt(1 - dependence**2)
    for i in range(1, n):
        values[i] += dependence * values[i - 1]
    return values
