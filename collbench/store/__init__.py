"""Run folders: naming, writing, reading, migrating (docs/architecture.md, "Store").

``RESULTS/CLUSTER/RUN_ID/`` holds ``run.json``, ``topology.json``, ``trials.jsonl`` (one trial a
line), ``samples.bin`` (float32, us) and ``logs/``.
"""

from __future__ import annotations

from collbench.store.paths import (
    ListedRun,
    RunHeader,
    check_writable,
    cluster_name,
    find_run,
    list_runs,
    new_run_id,
    results_root,
)
from collbench.store.reader import StoredRun, read_run, replace_trial
from collbench.store.reopen import reopen_run
from collbench.store.writer import RunWriter

__all__ = [
    "ListedRun",
    "RunHeader",
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
]
