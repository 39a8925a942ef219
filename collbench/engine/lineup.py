"""Which processes a case needs: in which kind of workers it is timed, and in which it is proved.

NCCL writes a line at every enqueue once its log is on. In a captured graph that is one line a
captured call and none at replay, so such a case is timed and proved in the same, logged workers.
Eager calls would pay for the log: they are timed in quiet workers and go once more, untimed, in
logged ones that were started alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum

from collbench.engine.protocol import Round
from collbench.model import Case, Mode, Policy, Record
from collbench.nccl.settings import Changes, Needs, needs_of


class Kind(StrEnum):
    """Kinds of workers."""

    QUIET = "quiet"
    LOGGED = "logged"
    """With NCCL's log on, into a file of their own."""


class Starts(Record, frozen=True, kw_only=True):
    """What a run starts, in all."""

    zygotes: int = 0
    workers: int = 0
    communicators: int = 0
    twins: int = 0
    """Cases that are proved in other processes than those that time them."""


def timed_in(case: Case, policy: Policy) -> Kind:
    """Returns the kind of workers that time a case."""
    proved_there = policy.proof and case.backend == "nccl" and case.mode is Mode.GRAPH
    return Kind.LOGGED if proved_there else Kind.QUIET


def has_twin(case: Case, policy: Policy) -> bool:
    """Whether a case is proved in other workers than those that time it."""
    return policy.proof and case.backend == "nccl" and timed_in(case, policy) is Kind.QUIET


def count_starts(
    rounds: Iterable[Round], policy: Policy, world_size: int, swept: Sequence[str]
) -> Starts:
    """Returns what rounds of one group start if nothing goes wrong."""
    zygotes = workers = communicators = twins = 0
    repeat: int | None = None
    zygote: Changes | None = None
    shared: Changes | None = None
    living: dict[Kind, Changes] = {}
    for round_ in rounds:
        for case in (case for group in round_.groups for case in group.cases):
            needs: Needs = needs_of(case.setting, swept)
            if round_.repeat != repeat or needs.zygote != zygote:
                repeat, zygote, shared = round_.repeat, needs.zygote, None
                zygotes += 1
            if needs.worker != shared:
                shared, living = needs.worker, {}
            twin = has_twin(case, policy)
            twins += twin
            for kind in [timed_in(case, policy), *([Kind.LOGGED] if twin else [])]:
                workers += world_size * (kind not in living)
                communicators += living.get(kind) != needs.communicator
                living[kind] = needs.communicator
    return Starts(zygotes=zygotes, workers=workers, communicators=communicators, twins=twins)
