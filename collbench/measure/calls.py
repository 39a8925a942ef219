"""What all timers share: calls on slot after slot, and how a sample begins."""

from __future__ import annotations

from dataclasses import dataclass

from collbench.measure.protocols import Buffers, Control, Progress
from collbench.model import Pattern


@dataclass(kw_only=True, slots=True)
class Calls:
    """Issues the calls of one case on one rank and counts them.

    Args:
        buffers: the case's memory.
        slots: how many slots the calls walk over.
        pattern: whether a barrier stands before every sample, or before the first only.
        control: agreement with the other ranks.
        progress: where calls are counted.
    """

    buffers: Buffers
    slots: int
    pattern: Pattern
    control: Control
    progress: Progress
    last_slot: int = -1
    """The slot of the last call; -1 before the first."""

    @property
    def isolated(self) -> bool:
        """Whether every sample is one call alone."""
        return self.pattern is Pattern.ISOLATED

    def issue(self, ops: int) -> None:
        """Issues calls on the next slots. Collective: every rank alike."""
        for _ in range(ops):
            self.last_slot = (self.last_slot + 1) % self.slots
            self.progress.tick()
            self.buffers.call(self.last_slot)
