"""What a pairwise report must know besides the values: the run, who was asked, what ran."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from collbench.analyze.pair_state import PairwiseState
from collbench.analyze.pair_verdicts import NodeState, PairwiseResult
from collbench.model import Run, Topology


@dataclass(frozen=True, kw_only=True, slots=True)
class PairwiseAbout:
    """A pairwise run, as its reports tell of it. Nodes are meant by the scheduler's names."""

    run: Run
    topology: Topology
    asked: tuple[str, ...]
    """All nodes that were asked for."""
    answered: tuple[str, ...]
    absent: Mapping[str, str] = field(default_factory=dict)
    """Nodes that did not come: why, or an empty text."""
    excluded: Mapping[str, str] = field(default_factory=dict)
    """Nodes that were left out: in what they differ."""
    lost: Mapping[str, str] = field(default_factory=dict)
    """Nodes that were there and went away: when, or how."""
    leaves_source: str | None = None
    """Who said which leaf a node is in; None: leaves are unknown."""
    ran: str
    """``send_recv + all_reduce 64 MiB, 1,000 x 8 B``."""
    rounds: str
    """``7 rounds of 4 pairs + 2 to confirm``."""
    share_tried: float | None = None
    """Of all paths."""
    share_across_tried: float | None = None
    """Of the paths across leaves."""
    duration_s: float
    next_commands: tuple[str, ...] = ()
    """Command lines to confirm or to go on with."""
    job_id: str | None = None
    user: str | None = None

    @property
    def missing(self) -> dict[str, str]:
        """Nodes that were asked for and not tested: what became of each, in words."""
        found = {}
        for word, nodes in (
            ("absent", self.absent),
            ("excluded", self.excluded),
            ("lost", self.lost),
        ):
            for name, why in nodes.items():
                found[name] = f"{word} ({why})" if why else word
        return found


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
