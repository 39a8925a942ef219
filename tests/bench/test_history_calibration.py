"""How often a history is judged wrongly: the tables of docs/history.md; ``pytest -m bench -s``.

Seeds are fixed, so the figures come out the same again.
"""

from __future__ import annotations

import os

import noise
import numpy as np
import pytest
from history_noise import regressed_keys, store
from noise import KEYS

from collbench.analyze.compare import Verdict
from collbench.analyze.history_bisect import bisect_changes

pytestmark = [pytest.mark.bench, pytest.mark.timeout(7200)]

STORES = int(os.environ.get("COLLBENCH_HISTORY_STORES", "1000"))
KINDS = ("one per cent", *(kind for kind in noise.KINDS if kind != "recorded"))


@pytest.mark.parametrize("repeats", [3, 5])
@pytest.mark.parametrize("kind", KINDS)
def test_stores_in_which_nothing_changed(kind, repeats):
    random = np.random.default_rng([31, repeats])
    alarms = sum(bool(regressed_keys(store(kind, random, repeats=repeats))) for _ in range(STORES))
    print(f"\nA/A | {kind} | {repeats} repeats | {alarms / STORES:.2%} of {STORES} stores alarm")

    assert alarms <= 0.01 * STORES


@pytest.mark.parametrize("kind", KINDS)
def test_changes_named_where_nothing_changed(kind):
    random = np.random.default_rng(32)
    stores = STORES // 4
    wrong = sum(bool(bisect_changes(store(kind, random)).changes) for _ in range(stores))
    print(f"\nA/A | bisect | {kind} | {wrong / stores:.2%} of {stores} stores hold a change")

    assert wrong <= 0.015 * stores


@pytest.mark.parametrize("repeats", [3, 5])
@pytest.mark.parametrize("ratio", [1.08, 1.05, 0.9])
def test_one_planted_change(ratio, repeats):
    random = np.random.default_rng([33, repeats])
    stores = STORES // 4
    checked = bisected = wrong = 0
    for _ in range(stores):
        key, since = KEYS[random.integers(len(KEYS))], int(random.integers(1, 8))
        source = store("one per cent", random, repeats=repeats, planted=(key, since, ratio))
        found = regressed_keys(source, since)
        checked += found == ({key} if ratio > 1 else set())
        wrong += bool(found) and ratio < 1
        changes = bisect_changes(source).changes
        named = [(one.case.key, one.new, one.case.verdict) for one in changes if one.named]
        verdict = Verdict.SLOWER if ratio > 1 else Verdict.FASTER
        bisected += named == [(key, since, verdict)] and len(changes) == 1
    print(
        f"\n{ratio - 1:+.0%} in one case at one release | {repeats} repeats | check right"
        f" {checked / stores:.1%} | bisect exact {bisected / stores:.1%} of {stores} stores"
    )

    assert wrong == 0
    if ratio in (1.08, 0.9):
        assert checked >= 0.95 * stores
        assert bisected >= 0.95 * stores
