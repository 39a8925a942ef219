"""Listing runs is quick because it imports nothing that works on samples."""

from __future__ import annotations

import subprocess
import sys

import pytest

import collbench.store


def test_a_list_of_runs_imports_no_library_of_numbers(tmp_path):
    code = (
        "import sys; from collbench.cli.main import _invoke;"
        f" _invoke(['runs', '--results', {str(tmp_path)!r}]);"
        " print(sorted({'numpy', 'pandas', 'scipy', 'rich', 'torch'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.splitlines() == [
        f"no runs in '{tmp_path}'; 'collbench sweep' makes one",
        "[]",
    ]


def test_every_name_of_the_store_is_there():
    found = [getattr(collbench.store, name) for name in collbench.store.__all__]

    assert None not in found


def test_a_name_that_the_store_has_not_is_refused():
    with pytest.raises(AttributeError, match=r"'collbench\.store' has no attribute 'read_runs'"):
        _ = collbench.store.read_runs
