"""``--ib on,off`` without RDMA device: what carried the data is said, on two hosts and on one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from collbench.model import ReasonCode, Status, Trial
from collbench.probe.nic import read_nics
from collbench.store import StoredRun, read_run

WITHOUT_RDMA = pytest.mark.skipif(
    any(nic.kind != "ethernet" for nic in read_nics()), reason="needs a machine without RDMA device"
)
pytestmark = [WITHOUT_RDMA, pytest.mark.timeout(300)]

MODES = ["eager", "graph"]


def sweep(folder: Path, *arguments: str) -> StoredRun:
    """Returns the run of a sweep with and without IB; it has to end with status 0."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "collbench", "sweep", "--ib", "on,off"),
            *("--collective", "all_reduce", "--sizes", "64K", "--mode", ",".join(MODES)),
            *("-n", "10", *arguments, "--results", str(folder)),
        ],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (header,) = folder.glob("*/*/run.json")
    return read_run(header.parent)


def of_setting(stored: StoredRun, ib: str) -> list[Trial]:
    """Returns the trials of ``--ib on`` or ``off``, one a mode."""
    found = [trial for trial in stored.trials if trial.case.setting == {"ib": ib}]
    assert sorted(str(trial.case.mode) for trial in found) == MODES
    return found


def test_between_two_hosts_sockets_carry_the_data_and_ib_on_says_why(tmp_path):
    stored = sweep(tmp_path, "--fake-hosts", "2")

    assert stored.run.emulated
    for trial in of_setting(stored, "off"):
        assert trial.status is Status.OK, trial.reason
        assert trial.proof.transports == ["NET/Socket"]
        assert trial.summary.busbw_gb_per_s > 0
    for trial in of_setting(stored, "on"):
        assert trial.status is Status.PATH_NOT_USED, trial.reason
        assert trial.reason.code is ReasonCode.NO_RDMA_DEVICE
        assert trial.reason.text == (
            "IB was asked for, the data went over NET/Socket: no IB device found"
        )
        assert trial.proof.transports == ["NET/Socket"]
        assert trial.summary.busbw_gb_per_s is None


def test_on_one_host_no_network_carries_the_data_whatever_is_set(tmp_path):
    stored = sweep(tmp_path)

    assert not stored.run.emulated
    for trial in [*of_setting(stored, "off"), *of_setting(stored, "on")]:
        assert trial.status is Status.PATH_NOT_USED, trial.reason
        assert trial.reason.code is ReasonCode.NO_NETWORK_USED
        assert not any(name.startswith("NET/") for name in trial.proof.transports)
        assert trial.summary.busbw_gb_per_s is None
