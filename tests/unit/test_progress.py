"""Counters that one process writes and another reads."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from collbench.engine.progress import SharedProgress, create_progress_file
from collbench.measure.protocols import Phase

A_WORKER = """
import sys
from collbench.engine.progress import SharedProgress
from collbench.measure.protocols import Phase
progress = SharedProgress(int(sys.argv[1]))
progress.phase(Phase.SAMPLING)
for _ in range(12):
    progress.tick()
progress.longest(2500.0)
"""


@pytest.fixture
def descriptor():
    made = create_progress_file()
    yield made
    os.close(made)


@pytest.fixture
def progress(descriptor):
    counters = SharedProgress(descriptor)
    yield counters
    counters.close()


def test_counters_begin_at_zero(progress):
    assert (progress.calls, progress.current, progress.longest_s) == (0, Phase.IDLE, 0)


def test_another_process_moves_the_counters_seen_here(descriptor, progress):
    before = progress.fingerprint()
    subprocess.run(
        [sys.executable, "-c", A_WORKER, str(descriptor)], pass_fds=(descriptor,), check=True
    )

    assert (progress.calls, progress.current, progress.longest_s) == (12, Phase.SAMPLING, 0.0025)
    assert progress.fingerprint() != before


def test_two_maps_of_one_file_show_the_same(descriptor, progress):
    reader = SharedProgress(descriptor)
    progress.tick()
    progress.tick()

    assert reader.calls == 2
    reader.close()


def test_everything_that_moves_changes_the_fingerprint(progress):
    seen = {progress.fingerprint()}
    for move in (
        progress.tick,
        lambda: progress.phase(Phase.WARMING),
        lambda: progress.phase(Phase.WARMING),
        lambda: progress.longest(5.0),
        lambda: progress.longest(5.0),
        lambda: progress.phase(Phase.PREPARING),
    ):
        move()
        assert progress.fingerprint() not in seen
        seen.add(progress.fingerprint())


def test_a_new_case_counts_its_calls_from_zero(progress):
    progress.tick()
    progress.phase(Phase.SAMPLING)
    assert progress.calls == 1
    progress.phase(Phase.PREPARING)

    assert (progress.calls, progress.current) == (0, Phase.PREPARING)


def test_the_longest_time_only_grows(progress):
    for time_us in (10.0, 3000.0, 20.0):
        progress.longest(time_us)

    assert progress.longest_s == 0.003


def test_writing_after_the_end_is_an_error(descriptor):
    counters = SharedProgress(descriptor)
    counters.close()

    with pytest.raises(ValueError, match="released"):
        counters.tick()
