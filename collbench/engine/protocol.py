"""What plans hand to an engine, and what an engine gives back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from collbench.model import Case, GroupPlace, LibraryVersion, Policy, Record, Topology, Trial


class Group(Record, frozen=True, kw_only=True):
    """Ranks that run cases together, one case after the other."""

    ranks: tuple[int, ...]
    cases: tuple[Case, ...]
    name: str = ""
    """What tells it from the other groups of its round; empty: it is the whole run's."""


class Round(Record, frozen=True, kw_only=True):
    """Groups that run at the same time: a unit, since contention depends on what runs at once."""

    repeat: int
    """Rounds of different repeats never share a process."""
    groups: tuple[Group, ...]
    number: int = 0
    """Counts the rounds of a run; for groups with names."""
    policy: Policy | None = None
    """How its cases are measured, where not as the run's others."""

    def place_of(self, group: Group) -> GroupPlace | None:
        """Returns what a record says of where a group stood; None for the whole run's."""
        if not group.name:
            return None
        return GroupPlace(
            name=group.name,
            round=self.number,
            ranks=list(group.ranks),
            alone=len(self.groups) == 1,
        )

    def trial_id(self, group: Group, case: Case) -> str:
        """Returns the name of a case's trial in a group of this round."""
        return trial_id_of(case, self.repeat, self.place_of(group))


def trial_id_of(case: Case, repeat: int, place: GroupPlace | None) -> str:
    """Returns a trial's name, which says where its group stood if that was not the whole run."""
    whole = case.trial_id(repeat)
    return whole if place is None else f"{whole}@{place.round}:{place.name}"


class Facts(Record, frozen=True, kw_only=True):
    """What an engine knows of the place it runs on."""

    topology: Topology
    torch: str | None = None
    cuda: str | None = None
    nccl: LibraryVersion | None = None
    libraries: dict[str, LibraryVersion] = {}
    """Those that settings call by name, as they were loaded."""
    workers: int = 0
    """Worker processes started so far."""
    zygotes: int = 0
    communicators: int = 0
    slowest_import: str | None = None
    """Of a zygote, where one took long: seconds and node."""
    proof_s: float = 0.0
    """Time spent on proving in workers of their own."""


class Outcome(Record, frozen=True, kw_only=True):
    """A finished trial with its samples (float32[rank, sample], us), not yet stored."""

    trial: Trial
    times_us: NDArray[np.float32] | None = None
    clock: str = ""


class Executor(Protocol):
    """Runs rounds. The local engine and the simulated one answer to it alike."""

    def start(self, round_: Round) -> None:
        """Makes ready for a round, so that a heading can name the versions that are loaded.

        Raises:
            NothingMeasured: the hardware promised cannot be used.
        """

    def run(self, round_: Round) -> Iterator[Outcome]:
        """Yields one outcome a case, each as soon as it is finished.

        Closing the iterator early stops the round's workers. A KeyboardInterrupt that rises out
        of it leaves nothing running.

        Raises:
            NothingMeasured: the hardware promised cannot be opened.
        """

    def facts(self) -> Facts:
        """Returns what is known; versions of loaded libraries only after the first group formed."""

    def close(self) -> None:
        """Ends every process and frees everything; may be called twice."""
