"""Tests that start processes and look at their times run one after the other, beside all others."""

from typing import Any

import pytest

PROCESSES = ("tests/functional/", "tests/lab/", "tests/gpu/")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    # The groups of pytest-xdist 3.8 itself (--dist loadgroup) have no effect with pytest 9.2.
    from xdist.scheduler import LoadScopeScheduling

    class OneAfterTheOther(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return "processes" if nodeid.startswith(PROCESSES) else nodeid.split("::")[0]

    return OneAfterTheOther(config, log)
