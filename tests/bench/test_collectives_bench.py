"""Collectives on what is here, by a clock fed with collbench's samples: docs/benchmarks.md.

Never a gate. One sweep measures all of them; a sample is the slowest rank's time of a call.
"""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from collbench.model import Status
from collbench.store import read_run

pytestmark = [pytest.mark.bench, pytest.mark.timeout(600)]

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
SIZES = (4096, 2**20, 2**24)


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """A run of all cases, and its trials by collective and size."""
    results = tmp_path_factory.mktemp("runs")
    command = [sys.executable, "-m", "collbench", "sweep", "--mode", "eager", "--samples", "50"]
    command += ["--collective", ",".join(COLLECTIVES), "--sizes", ",".join(map(str, SIZES))]
    subprocess.run([*command, "--results", str(results)], check=True, stdout=subprocess.DEVNULL)
    (folder,) = results.glob("*/*/")
    stored = read_run(folder)
    by_case = {(one.case.collective, one.case.requested_bytes): one for one in stored.trials}
    return stored, by_case


@pytest.mark.parametrize("size_bytes", SIZES)
@pytest.mark.parametrize("collective", COLLECTIVES)
def test_collective(reported, request, measured, collective, size_bytes):
    stored, by_case = measured
    trial = by_case[collective, size_bytes]
    assert trial.status is Status.OK
    times_us = stored.times_us(trial)
    slowest_s = (times_us.max(axis=0) * 1e-6).tolist()
    samples = iter(slowest_s)

    group = f"{collective} over {trial.case.backend}"
    benchmark = reported(lambda: next(samples), rounds=len(slowest_s), group=group)

    environment = stored.run.environment
    benchmark.extra_info.update(
        collective=collective,
        size_bytes=trial.case.size_bytes,
        ranks=trial.case.world_size,
        nccl=environment.nccl and environment.nccl.version,
        torch=environment.torch,
        gpus=sorted({gpu.name for node in stored.topology.nodes for gpu in node.gpus}),
    )
    if benchmark.enabled:
        stats = benchmark.stats.stats
        assert stats.rounds == trial.summary.samples == 50
        assert stats.median == pytest.approx(trial.summary.median_us * 1e-6, rel=1e-4)
        assert stats.max == pytest.approx(np.max(times_us) * 1e-6, rel=1e-4)
