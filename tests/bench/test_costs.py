"""What the product itself costs; printed, never a gate: ``pytest -m bench tests/bench``."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from collbench.measure.pattern import expected_segments
from collbench.model import Case
from collbench.plan.sweep import plan_sweep
from collbench.stats import median_interval
from collbench.suite import load_suite, resolve

pytestmark = pytest.mark.bench


def test_help(benchmark):
    command = [sys.executable, "-m", "collbench", "--help"]
    benchmark(lambda: subprocess.run(command, capture_output=True, check=True))


def test_a_look_at_the_interval_of_1000_samples(benchmark):
    values = np.random.default_rng(1).normal(100, 5, 1000)
    benchmark(median_interval, values)


def test_the_plan_of_the_default_sweep(benchmark):
    suite = resolve(load_suite("sweep"), gpu=True)
    benchmark(plan_sweep, suite, backend="nccl", world_size=8, seed=1)


def test_the_known_answer_of_an_all_reduce_over_32768_ranks(benchmark):
    case = Case(
        collective="all_reduce",
        backend="nccl",
        dtype="float32",
        redop="sum",
        size_bytes=2**30,
        requested_bytes=2**30,
        count=2**28,
        world_size=32768,
        in_place=True,
    )
    benchmark.pedantic(expected_segments, (case, 5), rounds=3)


def test_overhead_of_a_case_and_start_of_the_workers(benchmark, tmp_path: Path):
    """Wall time of a sweep of 20 cases with one sample each: all of it is the product's own."""
    command = [sys.executable, "-m", "collbench", "sweep", "-n", "1", "-w", "1"]
    command += ["--collective", "all_reduce", "-f", "1.9", "-e", "512K"]
    environ = {**os.environ, "COLLBENCH_RESULTS": str(tmp_path)}
    benchmark.pedantic(
        lambda: subprocess.run(command, capture_output=True, check=True, env=environ), rounds=3
    )
