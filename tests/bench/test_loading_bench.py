"""What loading and listing cost; never a gate: ``pytest -s -m bench tests/bench``.

Each is timed in a process of its own, as a user meets it. COLLBENCH_LOADED_TRIALS sets the number
of trials (1,000,000: 1.2 GB of text below pytest's temporary folder), COLLBENCH_LISTED_RUNS that of
runs.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = [pytest.mark.bench, pytest.mark.timeout(1800)]

SWEEP = Path(__file__).parents[2] / "results/2xh200/20261130-0635-3947"
TRIALS = int(os.environ.get("COLLBENCH_LOADED_TRIALS", "1000000"))
RUNS = int(os.environ.get("COLLBENCH_LISTED_RUNS", "1000"))

LOAD = """
import resource, sys, time
start, start_cpu = time.perf_counter(), time.process_time()
from collbench import load_run
trials = load_run(sys.argv[1]).trials
peak_gib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
print(len(trials), time.perf_counter() - start, time.process_time() - start_cpu, peak_gib)
"""


def copied_run(folder: Path, samples: bool) -> Path:
    """Makes a run's folder with all of the committed sweep but its trials."""
    folder.mkdir(parents=True)
    names = ["run.json", "topology.json"] + ["samples.bin"] * samples
    for name in names:
        shutil.copy(SWEEP / name, folder / name)
    return folder


def repeated_lines(count: int) -> Iterator[bytes]:
    """Yields as many trials as asked for: those of the sweep over and over, in later repeats."""
    lines = (SWEEP / "trials.jsonl").read_bytes().splitlines()
    trials = [json.loads(line) for line in lines]
    repeats = 1 + max(trial["repeat"] for trial in trials)
    parts = []
    for line, trial in zip(lines, trials, strict=True):
        name = f'"trial_id":"{trial["case_id"]}.'.encode()
        head, _, rest = line.partition(name + b'%d"' % trial["repeat"])
        middle, repeat, tail = rest.partition(b'"repeat":%d,' % trial["repeat"])
        assert repeat
        parts.append((head + name, middle, tail, trial["repeat"]))
    for number in range(count):
        head, middle, tail, repeat = parts[number % len(parts)]
        repeat += repeats * (number // len(parts))
        yield b'%s%d"%s"repeat":%d,%s\n' % (head, repeat, middle, repeat, tail)


def test_loading_a_run_of_many_trials(reported, tmp_path):
    folder = copied_run(tmp_path / "lab" / "20261130-0635-3947", samples=True)
    with (folder / "trials.jsonl").open("wb") as stream:
        stream.writelines(repeated_lines(TRIALS))

    command = [sys.executable, "-c", LOAD, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    # pytest keeps the folders of its last sessions.
    (folder / "trials.jsonl").unlink()

    count, wall_s, cpu_s, peak_gib = done.stdout.split()
    print(
        f"\nload_run | {count} trials | {float(wall_s):.1f} s wall | {float(cpu_s):.1f} s CPU |"
        f" peak {float(peak_gib):.2f} GiB"
    )
    benchmark = reported(lambda: float(wall_s), rounds=1)
    benchmark.extra_info.update(trials=TRIALS, cpu_s=float(cpu_s), peak_gib=float(peak_gib))
    assert int(count) == TRIALS


def test_listing_many_runs(benchmark, tmp_path):
    lines = list(repeated_lines(10))
    for number in range(RUNS):
        name = f"20261130-{number // 60 % 24:02d}{number % 60:02d}-{number:04x}"
        folder = copied_run(tmp_path / f"cluster{number % 4}" / name, samples=False)
        (folder / "trials.jsonl").write_bytes(b"".join(lines))

    command = [sys.executable, "-m", "collbench", "runs", "--results", str(tmp_path)]
    done = benchmark.pedantic(
        lambda: subprocess.run(command, capture_output=True, text=True, check=True), rounds=3
    )

    benchmark.extra_info.update(runs=RUNS)
    assert len(done.stdout.splitlines()) == RUNS + 1
