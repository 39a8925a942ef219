"""A worker's process as its station holds it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest

from collbench.engine.processes import WorkerProcess

SLEEPS = (sys.executable, "-c", "import time; print(flush=True); time.sleep(60)")


@pytest.mark.parametrize("group", [True, False], ids=["a group", "no group of its own yet"])
def test_a_worker_is_killed_also_in_its_first_moment(group):
    with subprocess.Popen(SLEEPS, start_new_session=group, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        pidfd = os.pidfd_open(process.pid)
        nothing = SimpleNamespace(close=lambda: None)
        worker = WorkerProcess(
            rank=0,
            pid=process.pid,
            pidfd=pidfd,
            channel=nothing,
            progress=nothing,
            log=nothing,
            gpu=None,
        )
        worker.kill()

        assert process.wait(20) == -signal.SIGKILL
        assert not worker.alive
        worker.close()
