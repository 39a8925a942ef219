"""Wall time and memory of the main commands: the table of docs/performance.md.

``pytest -s -m bench tests/bench/test_commands_bench.py``. Each is run once in a process of its own,
as a person runs it. Memory is that of its largest process.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = [pytest.mark.bench, pytest.mark.timeout(1200)]

ROOT = Path(__file__).parents[2]
RUN = "results/2xh200/20261130-0635-3947"
HISTORY = "results/2xh200/20261130-1936-78e3"
COMMANDS = (
    "--help",
    "explain busbw",
    "sweep",
    f"show {RUN}",
    f"plot {RUN} -o {{scratch}}",
    f"analyze {RUN}",
    f"report {RUN} -o {{scratch}}/report.html",
    "compare results/2xh200/20261130-1234-62af",
    f"history check {HISTORY}",
    f"history bisect {HISTORY}",
    f"history show {HISTORY} --plot {{scratch}}",
    f"history export {{scratch}}/asv {HISTORY}",
    "pairwise --simulate suites/fabrics/slow_node_8.toml",
    "pairwise --simulate suites/fabrics/leaf_spine_64.toml",
    "pairwise --simulate suites/fabrics/slow_rail_500.toml",
    "scale --simulate suites/fabrics/faults_16.toml --yes",
)


@pytest.mark.parametrize("line", COMMANDS)
def test_wall_time_and_memory(line, tmp_path):
    words = line.format(scratch=tmp_path).split()
    environ = os.environ | {"COLLBENCH_RESULTS": str(tmp_path / "results")}
    begin = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "collbench", *words],
        cwd=ROOT,
        env=environ,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    with process.stderr as stream:
        said = stream.read()
    _, status, usage = os.wait4(process.pid, 0)
    wall_s = time.perf_counter() - begin
    process.returncode = os.waitstatus_to_exitcode(status)
    cells = (f"`collbench {line.format(scratch='DIR')}`", f"{wall_s:.2f} s")
    print(f"\n| {' | '.join(cells)} | {usage.ru_maxrss / 1024:.0f} MiB |")

    assert process.returncode in (0, 1, 4), said
