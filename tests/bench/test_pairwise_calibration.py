"""How often verdicts on pairs are wrong: the tables of docs/pairwise_statistics.md.

``COLLBENCH_PAIRWISE_RUNS=1000 pytest -m bench -s tests/bench/test_pairwise_calibration.py``.
Seeds are fixed, so the figures come out the same again.
"""

from __future__ import annotations

import os

import numpy as np
import pytest
from pair_model import Row, tally

from collbench.analyze.pair_state import PairwiseState
from collbench.analyze.pair_types import empty_table
from collbench.analyze.pairwise import judge
from collbench.plan.pairwise import pair_rounds

pytestmark = [pytest.mark.bench, pytest.mark.timeout(36000)]

RUNS = int(os.environ.get("COLLBENCH_PAIRWISE_RUNS", "100"))
NOISES = {
    "0.5 %": {"size": 0.005},
    "1.5 %": {"size": 0.015},
    "3 %": {"size": 0.03},
    "skewed 1.5 %": {"noise": "skewed", "size": 0.015},
    "bimodal": {"noise": "bimodal", "size": 0.015},
}
HASHED = {"leaf": 16, "uplinks": 4}
RAILS = {"leaf": 20, "rails": 8, "uplinks": 20}


def show(row: Row, found) -> None:
    print(
        f"\n| {row.name} | {row.nodes} | {row.bad + row.bad_rails} | {found.recall:.4f} |"
        f" {found.exact / found.runs:.3f} | {found.false / found.runs:.3f} |"
        f" {found.unclear / found.runs:.2f} | {found.false_fabric / found.runs:.3f} |"
        f" {found.again / found.runs:.1f} |"
    )


@pytest.mark.parametrize("nodes", [3, 4, 8, 16, 64, 256, 1024, 4096])
@pytest.mark.parametrize("noise", NOISES)
def test_no_fault(noise, nodes):
    row = Row(f"no fault, {noise}", nodes, cluster=NOISES[noise])
    found = tally(row, RUNS)
    show(row, found)

    # With 100 runs two false names would come with a chance of 0.26 at the bar of 0.01 a run.
    assert found.false <= max(0.01 * RUNS, 2 * found.most_false)


@pytest.mark.parametrize(
    ("nodes", "bad", "slowdown", "noise"),
    [
        (nodes, bad, slowdown, noise)
        for nodes, bad in [(4, 1), (8, 1), (16, 2), (64, 4), (256, 8), (1024, 20), (4096, 20)]
        for slowdown in (0.05, 0.1, 0.2)
        for noise in ("0.5 %", "1.5 %", "3 %", "bimodal")
    ],
)
def test_slow_nodes(nodes, bad, slowdown, noise):
    row = Row(f"{slowdown:.0%} slow, {noise}", nodes, bad, slowdown, cluster=NOISES[noise])
    found = tally(row, RUNS)
    show(row, found)
    print(f"  intervals that hold the true effect: {found.covered} of {found.found}")

    if (nodes, slowdown, noise) == (1024, 0.1, "1.5 %"):
        assert found.recall >= 0.9985
        assert found.exact >= 0.97 * RUNS


@pytest.mark.parametrize(("nodes", "bad", "paths"), [(8, 1, 1), (16, 1, 2), (64, 4, 8)])
def test_slow_paths(nodes, bad, paths):
    row = Row(f"20 % slow and {paths} slow paths", nodes, bad, 0.2, paths)
    found = tally(row, RUNS)
    show(row, found)
    print(f"  slow paths found: {found.paths_found} of {found.paths}")


@pytest.mark.parametrize("bad", [0, 4])
def test_oversubscribed_and_hashed(bad):
    row = Row("4:1, hashed, 10 % slow", 256, bad, cluster=HASHED)
    found = tally(row, RUNS)
    show(row, found)

    assert found.false <= 0.01 * RUNS
    assert found.recall >= 0.99


def test_one_slow_rail_of_4000():
    row = Row("one rail of 8 10 % slow, hashed", 500, bad_rails=1, cluster=RAILS)
    found = tally(row, RUNS)
    show(row, found)
    print(f"  the right rail: {found.rails_right} of {found.planted}")

    assert found.rails_right >= 0.99 * RUNS


def test_full_matrix_of_1024_nodes(benchmark):
    schedule = pair_rounds(1024, [node // 32 for node in range(1024)], rounds="all")
    pairs = np.concatenate([one.pairs for one in schedule.rounds])
    table = empty_table(len(pairs))
    table["a"], table["b"] = pairs.T
    lengths = [len(one.pairs) for one in schedule.rounds]
    table["round"] = np.repeat(np.arange(len(lengths)), lengths)
    table["value"] = 48 * np.exp(np.random.default_rng(1).normal(0, 0.015, len(pairs)))
    names = tuple(f"node{node}" for node in range(1024))
    leaves = tuple(f"leaf{node // 32}" for node in range(1024))

    result = benchmark.pedantic(
        lambda: judge(PairwiseState(names=names, leaves=leaves, values=table)), rounds=3
    )

    assert len(table) == 523_776
    assert len(result.of("pass")) == 1024


@pytest.mark.parametrize("leaves", [None, [node // 32 for node in range(4096)]])
def test_schedule_of_4096_nodes(benchmark, leaves):
    schedule = benchmark(lambda: pair_rounds(4096, leaves))

    assert len(schedule.rounds) == 3
