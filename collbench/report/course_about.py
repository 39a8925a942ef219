"""What the reports of ``pairwise`` and ``scale`` runs know alike: the run and who was asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from collbench.model import Run, Topology


@dataclass(frozen=True, kw_only=True, slots=True)
class CourseAbout:
    """A run, as its reports tell of it. Nodes are meant by the scheduler's names."""

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
    duration_s: float
    next_commands: tuple[str, ...] = ()
    """Command lines to confirm or to go on with."""

    @property
    def missing(self) -> dict[str, str]:
        """Nodes that were asked for and are not there to the end: what became of each, in words."""
        kinds = (("absent", self.absent), ("excluded", self.excluded), ("lost", self.lost))
        return {
            name: f"{word} ({why})" if why else word
            for word, nodes in kinds
            for name, why in nodes.items()
        }
