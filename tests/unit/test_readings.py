"""What a comparison of settings means to who has to act."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest
from records import make_run
from setting_trials import TREE, under

from collbench.analyze.compare import Verdict
from collbench.analyze.readings import held_against_first, readings
from collbench.model import Topology
from collbench.store import StoredRun

ON, OFF = {"ib": "on"}, {"ib": "off"}
SOCKETS, MORE_SOCKETS = {}, {"NCCL_SOCKET_NTHREADS": "4"}
SIZES = [2**power for power in range(10, 28, 2)]
REPEATS = 5


def run_of(trials):
    run = make_run(command="ab", argv=["ab"], repeats=REPEATS, seed=7, planned_trials=len(trials))
    return StoredRun(
        folder=Path("run"), run=run, topology=Topology(nodes=[]), trials=tuple(trials), problems=()
    )


def side(setting, *, factor=1.0, tail=1.02):
    """Trials of all sizes and repeats, with 0.5 % of noise; p95 is ``tail`` times the median."""
    noise = np.random.default_rng(3)
    found = []
    for size in SIZES:
        for repeat in range(REPEATS):
            time_us = factor * (10 + size / 1e4) * np.exp(0.005 * noise.standard_normal())
            trial = under(setting, size, float(time_us), repeat=repeat)
            summary = msgspec.structs.replace(trial.summary, p95_us=tail * trial.summary.median_us)
            found.append(msgspec.structs.replace(trial, summary=summary))
    return found


def read(base, new, *, settings):
    pairs = held_against_first(run_of([*base, *new]), settings, 0.03)
    return {finding.code: finding.text for finding in readings(pairs)}


@pytest.mark.parametrize("off_first", [False, True])
def test_ib_off_that_is_faster_speaks_of_the_rdma_path(off_first):
    on, off = side(ON, factor=1.5), side(OFF)
    found = read(off, on, settings=[OFF, ON]) if off_first else read(on, off, settings=[ON, OFF])

    assert list(found) == ["ib_off_faster"]
    assert "the RDMA path is at fault, not the capacity of the network" in found["ib_off_faster"]
    assert "in 4 cases from 1 MiB on" in found["ib_off_faster"]


def test_ib_off_that_is_steadier_speaks_of_it_too():
    found = read(side(ON, tail=1.9), side(OFF, factor=1.02), settings=[ON, OFF])

    assert list(found) == ["ib_off_steadier"]
    assert "stands up to 90% above the median" in found["ib_off_steadier"]


def test_ib_on_that_is_faster_and_steady_is_well():
    found = read(side(ON), side(OFF, factor=4), settings=[ON, OFF])

    assert list(found) == ["ib_on_faster"]
    assert "IB on is up to 4.0 times as fast as off" in found["ib_on_faster"]


@pytest.mark.parametrize(
    ("setting", "tail", "codes"),
    [
        (MORE_SOCKETS, 1.02, ["slower_but_steady"]),
        (MORE_SOCKETS, 1.5, []),
        (TREE, 1.02, []),
    ],
    ids=["network, steady", "network, unsteady", "an algorithm"],
)
def test_slower_but_steady_is_read_where_the_network_differs(setting, tail, codes):
    found = read(side({}), side(setting, factor=1.3, tail=tail), settings=[{}, setting])

    assert list(found) == codes


def test_equal_sides_say_nothing():
    assert read(side(ON), side(OFF), settings=[ON, OFF]) == {}


def test_every_side_is_held_against_the_first_and_what_was_not_measured_is_left_out():
    stored = run_of([*side({}), *side(TREE, factor=0.9), *side(MORE_SOCKETS)])
    pairs = held_against_first(stored, [{}, TREE, ON, MORE_SOCKETS], 0.03)

    assert [(pair.base.name, pair.new.name) for pair in pairs] == [
        ("default", "Tree/Simple"),
        ("default", "SOCKET_NTHREADS=4"),
    ]
    assert len(pairs[0].comparison.of(Verdict.FASTER)) == len(SIZES)
    assert len(pairs[1].comparison.of(Verdict.SAME)) == len(SIZES)
    assert [pair.alpha for pair in pairs] == [0.01 / 3] * 2
