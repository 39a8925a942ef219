"""A small history of two releases, for what exports one."""

from __future__ import annotations

from typing import Any

from history_runs import history_run

from collbench.store import StoredRun

MIB = 2**20
MACHINE = "nvidia-h200-1-node-x-2-gpus"
TWO = ("2.29.7", "2.30.7")


def small(**changes: Any) -> StoredRun:
    """Returns a run of one collective, eager and graph, 4 B and 1 MiB, without noise.

    Args:
        changes: of what ``history_run`` is given.
    """
    made = {"collectives": ("all_reduce",), "sizes": (4, MIB), "noise": 0.0}
    return history_run(TWO, **(made | changes))
