"""The newest release against those before it: in small what tests/bench shows on 1,000 stores."""

from __future__ import annotations

import numpy as np
import pytest
from history_noise import regressed_keys, store
from noise import KEYS

from collbench.analyze.compare import Verdict
from collbench.analyze.history_bisect import bisect_changes
from collbench.analyze.history_check import best_releases, check_newest
from collbench.analyze.history_tables import ReleaseTimes

STORES = 20
KEY = KEYS[50]


def quiet(levels, key=KEY):
    """One case whose releases have these times, three repeats within 0.2 % each."""
    return [{key: (0.999 * level, level, 1.001 * level)} for level in levels]


def of(times):
    """Returns the releases of a list as measured in one run."""
    return ReleaseTimes(by_run=tuple({"run": one} for one in times))


@pytest.mark.parametrize("kind", ["one per cent", "skewed", "bimodal, rare", "drift"])
def test_nothing_alarms_where_nothing_changed(kind):
    random = np.random.default_rng(41)
    alarms = sum(bool(regressed_keys(store(kind, random))) for _ in range(STORES))

    assert alarms <= 1


def test_a_planted_slowdown_is_named_alone_and_at_its_release():
    random = np.random.default_rng(42)
    checked = bisected = 0
    for _ in range(STORES):
        key, since = KEYS[random.integers(len(KEYS))], int(random.integers(1, 8))
        source = store("one per cent", random, planted=(key, since, 1.08))
        checked += regressed_keys(source, since) == {key}
        named = [(c.case.key, c.new, c.named) for c in bisect_changes(source).changes]
        bisected += named == [(key, since, True)]

    assert checked >= 0.9 * STORES
    assert bisected >= 0.9 * STORES


def test_an_improvement_is_never_called_a_regression():
    random = np.random.default_rng(43)
    for _ in range(STORES):
        key = KEYS[random.integers(len(KEYS))]
        source = store("one per cent", random, planted=(key, 7, 0.92))
        assert not regressed_keys(source)
        for change in bisect_changes(source).changes:
            assert change.case.verdict is Verdict.FASTER


def test_an_older_regression_is_seen_against_the_best_earlier_releases():
    times = quiet([10.0, 10.01, 9.99, 11.0, 11.01])
    found = check_newest(of(times))

    assert found is not None
    assert found.before == 3
    assert not found.slower
    (one,) = found.below_best
    assert one.window == (0, 1, 2)
    assert one.case.ratio == pytest.approx(1.101, abs=0.002)


def test_a_release_that_was_lucky_once_does_not_raise_the_bar():
    times = quiet([10.0, 10.0, 9.0, 10.0, 10.0, 10.0])
    found = check_newest(of(times))

    assert found is not None
    assert not found.regressed


def test_best_takes_three_earlier_releases_that_have_the_case():
    times = quiet([10.0, 9.0, 10.0, 12.0])
    assert best_releases(times, [0, 1]) == {}
    assert best_releases(times, [0, 1, 2, 3]) == {KEY: (0, 1, 2)}
    del times[1][KEY]
    assert best_releases(times, [0, 1, 2]) == {}
    assert best_releases(times, [0, 1, 2, 3]) == {KEY: (0, 2, 3)}


def test_the_release_before_is_the_newest_that_shares_a_case():
    times = quiet([10.0, 10.0, 12.0])
    times[1] = {KEYS[0]: (1.0, 1.0, 1.0)}
    found = check_newest(of(times))

    assert found is not None
    assert found.before == 0
    assert [case.key for case in found.slower] == [KEY]


def test_a_first_release_has_nothing_before_it():
    times = quiet([10.0, 12.0])

    assert check_newest(of(times), new=0) is None


def test_two_repeats_cannot_tell_and_say_how_many_more():
    times = [{KEY: (10.0, 10.1)}, {KEY: (12.0, 12.1)}]
    found = check_newest(of(times))

    assert found is not None
    assert not found.regressed
    assert found.comparison.needs == "needs 3 more repeats"
    assert bisect_changes(of(times)).needs_repeats == 3


def test_every_step_of_several_is_named():
    times = quiet([10.0, 10.0, 11.0, 11.0, 12.5, 12.5, 10.0])
    found = bisect_changes(of(times))

    assert [(one.base, one.new, one.named) for one in found.changes] == [
        (1, 2, True),
        (3, 4, True),
        (5, 6, True),
    ]
    assert [one.case.verdict for one in found.changes] == [
        Verdict.SLOWER,
        Verdict.SLOWER,
        Verdict.FASTER,
    ]


def test_a_case_that_a_release_lacks_changes_between_its_neighbours():
    times = quiet([10.0, 10.0, 12.0, 12.0])
    del times[2][KEY]
    found = bisect_changes(of(times))

    assert [(one.base, one.new, one.named) for one in found.changes] == [(1, 3, True)]


def test_a_slow_creep_is_a_span_of_releases():
    times = quiet([10.0, 10.2, 10.4, 10.6, 10.8])
    found = bisect_changes(of(times))

    assert found.changes
    assert not any(one.named for one in found.changes)
