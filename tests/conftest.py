"""Tests that start processes and look at their times run one after the other, beside all others."""

from pathlib import Path

import pytest

PROCESSES = tuple(Path(__file__).parent / name for name in ("functional", "lab", "gpu"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if any(folder in item.path.parents for folder in PROCESSES):
            item.add_marker(pytest.mark.xdist_group("processes"))
