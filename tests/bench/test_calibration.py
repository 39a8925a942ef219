"""How often verdicts are wrong: the tables of docs/statistics.md; ``pytest -m bench -s``.

Seeds are fixed, so the figures come out the same again.
"""

from __future__ import annotations

import numpy as np
import pytest
from noise import KINDS, as_side, changed, equal_settings, table

from collbench.analyze.alphabeta import fit_segments
from collbench.analyze.best import best_settings
from collbench.analyze.compare import Verdict, compare_cases
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
    print(f"\ncoverage | AR(1) {dependence} | n = {n} | {covered / series:.3f}")


def autoregressive(random, n: int, dependence: float) -> np.ndarray:
    values = random.standard_normal(n)
    values[0] /= np.sqrt(1 - dependence**2)
    for i in range(1, n):
        values[i] += dependence * values[i - 1]
    return values
