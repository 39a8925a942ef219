"""Runs of ``pairwise`` and ``scale`` over a model: their fabrics, what they print and keep."""

from __future__ import annotations

import json
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

FABRICS = Path(__file__).parents[2] / "suites/fabrics"
NOISE = "noise = { size = 0.005 }\n"
EIGHT = f"[fabric]\nnodes = 8\ngpus_per_node = 1\nrails = 1\n{NOISE}"
SLOW_NODE = f"{EIGHT}[[slow_node]]\nnode = 4\nfactor = 0.8\n"


def answer_of(done: CompletedProcess[str]) -> tuple[int, Any, str]:
    """Returns the exit status and the JSON of a run, with whatever is said beside it."""
    assert done.stdout.count("\n") == 1, done.stderr
    return done.returncode, json.loads(done.stdout), done.stderr


def nodes_of(verdict: dict[str, Any]) -> dict[str, tuple[str, str | None]]:
    """Every node that does not pass: its verdict and code."""
    return {
        node["node"]: (node["verdict"], node["code"])
        for node in verdict["nodes"]
        if node["verdict"] != "pass"
    }


def cut(folder: Path, lines: int) -> list[str]:
    """Leaves the first lines of a run's trials, and a torn one; returns their trials' names."""
    path = folder / "trials.jsonl"
    kept = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(kept[:lines]) + kept[lines][:40])
    return [json.loads(line)["trial_id"] for line in kept[:lines]]
