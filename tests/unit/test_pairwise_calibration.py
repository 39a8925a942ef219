"""The calibration of docs/pairwise_statistics.md in small; the tables are made by tests/bench."""

import time

import numpy as np
import pytest
from pair_model import Cluster, Row, Run, named, tally

from collbench.analyze.pair_state import PairwiseState
from collbench.analyze.pair_types import empty_table
from collbench.analyze.pairwise import judge
from collbench.plan.pairwise import pair_rounds


@pytest.mark.parametrize("nodes", [4, 8, 64, 256])
@pytest.mark.parametrize(
    "noise",
    [{"size": 0.005}, {"size": 0.03}, {"noise": "skewed"}, {"noise": "bimodal"}],
    ids=["0.5 %", "3 %", "skewed", "bimodal"],
)
def test_without_a_fault_nobody_is_named(nodes, noise):
    found = tally(Row("no fault", nodes, cluster=noise), 5, seed=1)

    assert (found.false, found.false_fabric) == (0, 0)


@pytest.mark.parametrize(("nodes", "bad"), [(8, 1), (16, 2), (64, 4), (256, 8), (1024, 20)])
def test_nodes_10_percent_slow_are_named_and_nobody_else(nodes, bad):
    found = tally(Row("10 % slow", nodes, bad), 5, seed=2)

    assert (found.found, found.false) == (found.planted, 0)
    assert found.covered >= 0.8 * found.found


@pytest.mark.parametrize("bad", [0, 4])
def test_an_oversubscribed_spine_with_collisions_accuses_nobody(bad):
    found = tally(Row("4:1", 256, bad, cluster={"leaf": 16, "uplinks": 4}), 5, seed=3)

    assert (found.found, found.false) == (found.planted, 0)


UNKNOWN = Cluster(128, leaf=16, uplinks=4, leaf_known=False, slow={10: 0.8, 77: 0.8}, size=0.005)


@pytest.mark.parametrize("seed", range(3))
def test_with_leaves_unknown_a_full_spine_accuses_nobody_and_says_so(seed):
    result = Run(UNKNOWN, seed).result()

    assert named(result) == set()
    assert result.smallest_fault > 0.2
    assert result.of("inconclusive")


@pytest.mark.parametrize("seed", range(3))
def test_with_leaves_unknown_few_pairs_at_a_time_find_the_slow_ones(seed):
    assert named(Run(UNKNOWN, seed, at_once=2).result()) == {10, 77}


def test_one_slow_rail_of_4000_is_named():
    row = Row("rail", 500, bad_rails=1, cluster={"leaf": 20, "rails": 8, "uplinks": 20})
    found = tally(row, 3, seed=4)

    assert (found.rails_right, found.false) == (3, 0)


def test_slow_paths_are_named_and_not_their_ends():
    found = tally(Row("paths", 16, 0, 0.2, 2), 5, seed=5)

    assert (found.paths_found, found.false, found.false_fabric) == (10, 0, 0)


def test_a_full_matrix_of_1024_nodes_names_the_slow_ones():
    schedule = pair_rounds(1024, rounds="all")
    pairs = np.concatenate([one.pairs for one in schedule.rounds])
    table = empty_table(len(pairs))
    table["a"], table["b"] = pairs.T
    lengths = [len(one.pairs) for one in schedule.rounds]
    table["round"] = np.repeat(np.arange(len(lengths)), lengths)
    rates = np.ones(1024)
    rates[[3, 700]] = 0.9
    noise = np.random.default_rng(1).normal(0, 0.015, len(pairs))
    table["value"] = 48 * rates[pairs].min(axis=1) * np.exp(noise)
    names = tuple(f"node{node}" for node in range(1024))
    started = time.process_time()

    result = judge(PairwiseState(names=names, values=table))

    # The bar is 2 s of a core that is left alone.
    assert time.process_time() - started < 6
    assert len(pairs) == 523_776
    assert [node.node for node in result.of("suspect")] == [3, 700]
