"""What is said alike of ``pairwise`` and ``scale`` runs, live or stored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from collbench.model import NodeState, Trial
from collbench.store import StoredRun


def who_came(stored: StoredRun) -> dict[str, Any]:
    """Returns the fields of ``report.course_about.CourseAbout`` that say what became of nodes."""
    nodes, kept = stored.topology.nodes, stored.run.suite.get("left_out")
    whys = kept if isinstance(kept, dict) else {}

    def of_state(*states: NodeState) -> dict[str, str]:
        return {node.name: str(whys.get(node.name, "")) for node in nodes if node.state in states}

    return {
        "asked": tuple(node.name for node in nodes),
        "answered": tuple(of_state(NodeState.PRESENT, NodeState.LOST)),
        "absent": of_state(NodeState.ABSENT),
        "excluded": of_state(NodeState.EXCLUDED),
        "lost": of_state(NodeState.LOST, NodeState.UNKILLABLE),
    }


def duration_s(trials: Sequence[Trial]) -> float:
    """Returns how long all rounds took: each as long as its longest trial."""
    longest: dict[int, float] = {}
    for trial in trials:
        if trial.group is not None:
            number = trial.group.round
            longest[number] = max(longest.get(number, 0.0), trial.duration_s)
    return sum(longest.values())
