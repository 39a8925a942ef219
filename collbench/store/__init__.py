"""Run folders: naming, writing, reading, migrating (docs/architecture.md, "Store").

``RESULTS/CLUSTER/RUN_ID/`` holds ``run.json``, ``topology.json``, ``trials.jsonl`` (one trial a
line), ``samples.bin`` (float32, us) and ``logs/``. What works on samples is imported when
it is first asked for: a list of runs needs no numpy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from collbench.store.paths import (
    LOGS_FOLDER,
    ListedRun,
    RunHeader,
    check_writable,
    cluster_name,
    find_run,
    list_runs,
    new_run_id,
    results_root,
    runs_inside,
)

if TYPE_CHECKING:
    from collbench.store.reader import RunScan, StoredRun, read_run, replace_trial, scan_run
    from collbench.store.reopen import reopen_run
    from collbench.store.writer import RunWriter

__all__ = [
    "LOGS_FOLDER",
    "ListedRun",
    "RunHeader",
    "RunScan",
    "RunWriter",
    "StoredRun",
    "check_writable",
    "cluster_name",
    "find_run",
    "list_runs",
    "new_run_id",
    "read_run",
    "reopen_run",
    "replace_trial",
    "results_root",
    "runs_inside",
    "scan_run",
]

_LATER = {
    "RunScan": "reader",
    "RunWriter": "writer",
    "StoredRun": "reader",
    "read_run": "reader",
    "reopen_run": "reopen",
    "replace_trial": "reader",
    "scan_run": "reader",
}
"""Name -> the module that it is imported from when it is first asked for."""


def __getattr__(name: str) -> object:
    """Imports what works on samples."""
    if name not in _LATER:
        raise AttributeError(f"module 'collbench.store' has no attribute '{name}'")
    return getattr(import_module(f"collbench.store.{_LATER[name]}"), name)
