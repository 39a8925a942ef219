"""What is said alike of ``pairwise`` and ``scale`` runs, live or stored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from collbench.model import NodeState, ReasonCode, Status, Trial
from collbench.store import StoredRun
from collbench.units import format_size


def who_came(stored: StoredRun) -> dict[str, Any]:
    """Returns the fields of ``report.course_about.CourseAbout`` that say what became of nodes."""
    nodes, kept = stored.topology.nodes, stored.run.suite.get("left_out")
    whys = kept if isinstance(kept, dict) else {}

    known = {**_how_lost(stored.trials), **whys}

    def of_state(*states: NodeState) -> dict[str, str]:
        return {node.name: str(known.get(node.name, "")) for node in nodes if node.state in states}

    return {
        "asked": tuple(node.name for node in nodes),
        "answered": tuple(of_state(NodeState.PRESENT, NodeState.LOST, NodeState.UNKILLABLE)),
        "absent": of_state(NodeState.ABSENT),
        "excluded": of_state(NodeState.EXCLUDED, NodeState.GPU_MISSING),
        "lost": of_state(NodeState.LOST, NodeState.UNKILLABLE),
    }


def _how_lost(trials: Sequence[Trial]) -> dict[str, str]:
    """Returns how nodes were lost, by name, as the first trial that each took with it says."""
    found: dict[str, str] = {}
    for trial in trials:
        if trial.status is Status.NODE_LOST:
            for culprit in trial.culprits:
                found.setdefault(culprit.node, culprit.what.partition(": ")[2])
    return found


def what_did_not_fit(trials: Sequence[Trial]) -> tuple[str, ...]:
    """Returns what to do about messages that were too large for the memory; nothing if all fit."""
    found = [
        (trial.case.requested_bytes, trial.reason.text)
        for trial in trials
        if trial.reason is not None and trial.reason.code is ReasonCode.NO_MEMORY
    ]
    # The largest is the size that was asked for; a course may add smaller ones to it.
    return tuple(f"--size below {format_size(size)}: {text}" for size, text in sorted(found)[-1:])


def duration_s(trials: Sequence[Trial]) -> float:
    """Returns how long all rounds took: each as long as its longest trial."""
    longest: dict[int, float] = {}
    for trial in trials:
        if trial.group is not None:
            number = trial.group.round
            longest[number] = max(longest.get(number, 0.0), trial.duration_s)
    return sum(longest.values())
