"""The fabric that the tests share, and the launchers on it.

Without root or without what the kernel needs, the tests are skipped and say why. A launcher whose
package is missing skips its tests, but fails them where ``CI`` is ``true``.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from lab import openmpi
from lab.fabric import Fabric, why_impossible
from lab.packages import require
from lab.processes import Processes, assert_nothing_left
from lab.slurm import Slurm
from lab.torchrun import start_torchrun

LEAVE_S = 10.0
"""How long what a test leaves behind has to go by itself."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.lab)


@pytest.fixture(scope="session", autouse=True)
def _possible() -> None:
    if reason := why_impossible():
        pytest.skip(reason)


@pytest.fixture(scope="session")
def fabric8(_possible: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fabric]:
    """2 leaves of 4 nodes, links of 200 Mbit/s, uplinks that carry all four at once."""
    with Fabric(tmp_path_factory.mktemp("fabric")) as fabric:
        yield fabric


@pytest.fixture
def lab(fabric8: Fabric, tmp_path: Path) -> Iterator[Processes]:
    """Starts processes on the shared fabric; afterwards links are whole and nothing is left."""
    before = set(fabric8.processes())
    processes = Processes(fabric8, tmp_path)
    yield processes
    processes.end()
    fabric8.heal()
    assert_nothing_left(fabric8.namespaces, before, LEAVE_S)


@pytest.fixture(scope="session")
def slurm_daemons(fabric8: Fabric, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    """Slurm on the shared fabric."""
    require(Slurm.PROGRAMS)
    daemons = Slurm(fabric8, tmp_path_factory.mktemp("slurm"))
    yield daemons
    daemons.close()


@pytest.fixture
def slurm(slurm_daemons: Slurm, lab: Processes) -> Iterator[Slurm]:
    """Slurm with no job but the test's; afterwards those are cancelled."""
    yield slurm_daemons
    lab.end()
    lab.fabric.heal()
    slurm_daemons.settle()


@pytest.fixture
def srun(slurm: Slurm, lab: Processes) -> Callable[..., subprocess.Popen[bytes]]:
    """``Slurm.start_srun`` for this test: ``srun(argv, nodes=8)``."""
    return partial(slurm.start_srun, lab)


@pytest.fixture
def mpirun(lab: Processes) -> Callable[..., subprocess.Popen[bytes]]:
    """``openmpi.start_mpirun`` for this test: ``mpirun(argv, nodes=8)``."""
    require(openmpi.PROGRAMS)
    return partial(openmpi.start_mpirun, lab)


@pytest.fixture
def torchrun(lab: Processes) -> Callable[..., list[subprocess.Popen[bytes]]]:
    """``start_torchrun`` for this test: ``torchrun(argv, nodes=8)``."""
    return partial(start_torchrun, lab)
