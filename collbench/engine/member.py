"""What a worker is while it belongs to a group; one way through torch, one without it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from collbench.engine.progress import SharedProgress
from collbench.engine.wire import Join, Joined
from collbench.measure.protocols import Backend, Control


class Member(Protocol):
    """A rank in a group that stands."""

    @property
    def backend(self) -> Backend:
        """What communicates."""

    @property
    def control(self) -> Control:
        """How the ranks agree."""

    def facts(self) -> Joined:
        """Returns the versions that are loaded in this process."""

    def renew(self) -> None:
        """Ends the communicator and forms another, which reads its variables anew.

        Collective: every rank. Synchronises.
        """

    def close(self) -> None:
        """Leaves the group; another may be joined then. Collective: every rank."""


JoinGroup = Callable[[Join, Callable[[int], None], SharedProgress], Member]
"""Forms the group as ordered. Collective: every rank. The first rank is where the others meet: it
calls the second argument with the port that it listens on."""
