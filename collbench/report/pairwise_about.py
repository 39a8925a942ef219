"""What a pairwise report must know besides the values: the run, who was asked, what ran."""

from __future__ import annotations

from dataclasses import dataclass

from collbench.analyze.pair_state import PairwiseState
from collbench.analyze.pair_verdicts import NodeState, PairwiseResult
from collbench.model import Run
from collbench.report.course_about import CourseAbout


@dataclass(frozen=True, kw_only=True, slots=True)
class PairwiseAbout(CourseAbout):
    """A ``pairwise`` run, as its reports tell of it."""

    rounds: str
    """``7 rounds of 4 pairs + 2 to confirm``."""
    share_tried: float | None = None
    """Of all paths."""
    share_across_tried: float | None = None
    """Of the paths across leaves."""
    job_id: str | None = None
    user: str | None = None


def not_tested(
    state: PairwiseState, result: PairwiseResult, about: PairwiseAbout
) -> dict[str, str]:
    """Returns all nodes without a verdict, by name: why.

    A node that was lost on the way may have one: what it did before counts.
    """
    judged = {state.names[node.node]: node for node in result.nodes}
    found = {
        name: why
        for name, why in about.missing.items()
        if name not in judged or judged[name].verdict is NodeState.NOT_TESTED
    }
    for name, verdict in judged.items():
        if verdict.verdict is NodeState.NOT_TESTED and name not in found:
            found[name] = verdict.evidence[0] if verdict.evidence else "no value"
    for name in about.asked:
        if name not in judged and name not in found:
            found[name] = "not run"
    return found


def mark_words(run: Run) -> str | None:
    """Returns what must be read before all else of a run that shows no network; else None."""
    if run.simulated:
        return "SIMULATED: a model answered, no hardware was measured"
    if run.planted:
        return f"PLANTED FAULT ({run.planted}): this shows the tool, not the hardware"
    if run.emulated:
        return "EMULATED: the nodes are fake hosts on one machine, no network was measured"
    return None
