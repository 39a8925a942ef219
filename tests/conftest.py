"""In which order the files are run, and which of them never at the same time.

First comes what checks figures of real processes: beside it the other worker runs what starts none,
which takes about as long. Then both run what starts processes and looks at no figure.
"""

from typing import Any

import pytest

FIGURES = (
    "tests/functional/test_faults.py",
    "tests/gpu/",
    "tests/lab/test_lab.py",
    "tests/lab/test_launchers.py",
    "tests/lab/test_pairwise.py",
    "tests/lab/test_scale.py",
)
"""One after the other: figures of links, lateness and GPUs. The last have the widest margins."""
PROCESSES = (
    "tests/lab/test_node_faults.py",
    "tests/asv/test_asv_suite.py",
    "tests/lab/test_nodes_that_cannot.py",
    "tests/functional/test_resume.py",
    "tests/functional/test_sweep.py",
    "tests/functional/test_settings.py",
    "tests/functional/test_ab.py",
    "tests/lab/test_tasks_a_node.py",
    "tests/functional/test_two_processes.py",
)
"""The longest first, so that both workers end at about the same time."""


def turn(nodeid: str) -> int:
    """Returns when a test is run, among all: figures, in-process, other processes."""
    if nodeid.startswith(FIGURES):
        return 0
    file = nodeid.split("::")[0]
    return 2 + PROCESSES.index(file) if file in PROCESSES else 1


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: turn(item.nodeid))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    # The groups of pytest-xdist 3.8 itself (--dist loadgroup) have no effect with pytest 9.2.
    from xdist.scheduler import LoadScopeScheduling

    class InTurn(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return "figures" if turn(nodeid) == 0 else nodeid.split("::")[0]

    config.option.loadscopereorder = False
    return InTurn(config, log)
