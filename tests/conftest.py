"""Tests that start processes and look at their times run one after the other, beside all others."""

from pathlib import Path

import pytest

PROCESSES = tuple(Path(__file__).parent / name for name in ("functional", "lab", "gpu"))


def pytest_itemcollected(item: pytest.Item) -> None:
    # Before pytest-xdist reads the groups, when all are collected.
    if any(folder in item.path.parents for folder in PROCESSES):
        item.add_marker(pytest.mark.xdist_group("processes"))
