"""What reading a run and its analyses cost; never a gate: ``pytest -m bench tests/bench``."""

from __future__ import annotations

import numpy as np
import pytest
from noise import REFERENCE, as_side, equal_settings, table

from collbench import load_run
from collbench.analyze.best import best_settings
from collbench.analyze.compare import compare_cases
from collbench.analyze.laws import laws_of
from collbench.store import read_run

pytestmark = pytest.mark.bench

TRIALS = 1800  # of the committed sweep


def test_reading_a_run(benchmark):
    assert len(benchmark(read_run, REFERENCE).trials) == TRIALS


def test_a_run_as_frames(benchmark):
    assert len(benchmark(load_run, REFERENCE).trials) == TRIALS


def test_the_laws_of_a_runs_curves(benchmark):
    stored = read_run(REFERENCE)

    laws = benchmark(laws_of, stored.trials, lambda case, proof: None)

    assert len(laws) == 6  # three collectives, eager and graph


@pytest.mark.parametrize("repeats", [5, 20])
def test_comparing_84_cases(benchmark, repeats):
    keys, logs = table("log-normal", np.random.default_rng(1), 2 * repeats)
    base, new = as_side(keys, logs[:repeats]), as_side(keys, logs[repeats:])

    assert len(benchmark(compare_cases, base, new).cases) == 84


def test_the_best_of_15_settings_in_45_rows(benchmark):
    rows = equal_settings("log-normal", np.random.default_rng(2), 5)

    assert len(benchmark(best_settings, rows, "0")) == 45
