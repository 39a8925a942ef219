"""The sweep's plan: the product of the axes as rounds, one a repeat."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from collbench.collectives import COLLECTIVES, Collective
from collbench.engine.lineup import Starts, count_starts
from collbench.engine.protocol import Group, Round
from collbench.errors import UsageError
from collbench.model import Case, Reason, Record
from collbench.nccl.settings import setting_text
from collbench.plan.costs import estimate_s
from collbench.plan.order import in_blocks
from collbench.suite import ALL_ROOTS, ResolvedSuite
from collbench.units import format_size

_MOST_WHYS = 3
"""Reasons shown where nothing is left."""

Refusal = Callable[[Case], Reason | None]


class Refused(Record, frozen=True, kw_only=True):
    """A case that cannot be, and why: recorded, not run."""

    case: Case
    reason: Reason


class SweepPlan(Record, frozen=True, kw_only=True):
    """What a sweep will run."""

    rounds: tuple[Round, ...]
    cases: tuple[Case, ...]
    """In reading order: see ``plan_sweep``."""
    refused: tuple[Refused, ...] = ()
    starts: Starts = Starts()
    repeats: int
    collapsed: tuple[str, ...]
    """Sizes asked for that move the same bytes, in words."""
    estimate_s: float

    @property
    def trials(self) -> int:
        """Trials of the whole run."""
        return len(self.cases) * self.repeats + len(self.refused)


def plan_sweep(
    suite: ResolvedSuite,
    *,
    backend: str,
    world_size: int,
    seed: int,
    nodes: int = 1,
    emulated: bool = False,
    refusal: Refusal | None = None,
) -> SweepPlan:
    """Returns the plan of a sweep.

    Cases come in nccl-tests' reading order: a table for each (collective, type, operator, root),
    in it a row a size, in the row out of place before in place, then the settings, then the modes.
    Those that can share processes and communicators run together (``in_blocks``); within such a
    block neighbours in a row are measured next to each other, so that drift does not look like an
    effect of the mode, and an interrupted run has whole rows. With several repeats each has its
    own order, drawn from ``seed + repeat``, so that drift does not look like an effect of the size
    either.

    What a back end cannot do stays in the plan and becomes an ``unsupported`` record: a row that
    is missing would leave the reader guessing.

    Args:
        suite: what is asked.
        backend: ``nccl``, ``gloo`` or ``simulated``.
        world_size: ranks of the group.
        seed: of the orders.
        nodes: that the ranks are on.
        emulated: whether those nodes are fake hosts.
        refusal: says why a case cannot be, or None; such a case is recorded without running.

    Raises:
        UsageError: a root that is not among the ranks; nothing can be of all that is asked.
    """
    cases: list[Case] = []
    merged: dict[tuple[tuple[int, ...], int], list[str]] = {}
    for name in suite.collectives:
        collective = COLLECTIVES[name]
        for dtype in suite.dtypes:
            rows = _rows(collective, suite.sizes, dtype, world_size)
            place = _Place(backend=backend, world_size=world_size, nodes=nodes, emulated=emulated)
            cases += _cases(suite, collective, dtype, rows, place)
            for row in rows:
                if len(row.requests) > 1:
                    names = merged.setdefault((row.requests, row.size_bytes), [])
                    names += [name] if name not in names else []
    refused = _refused(cases, refusal) if refusal is not None else ()
    out = {item.case.case_id for item in refused}
    left = [case for case in cases if case.case_id not in out] if out else cases
    _refuse_nothing_left(left, refused)
    rounds = tuple(_rounds(left, suite.repeats, world_size, seed, suite.swept))
    starts = count_starts(rounds, suite.policy, world_size, suite.swept)
    return SweepPlan(
        rounds=rounds,
        cases=tuple(left),
        refused=refused,
        starts=starts,
        repeats=suite.repeats,
        collapsed=tuple(
            f"{_listed(requests)} move {format_size(size_bytes)} on {world_size} ranks"
            f" ({', '.join(names)}): one row"
            for (requests, size_bytes), names in merged.items()
        ),
        estimate_s=estimate_s(left, suite.repeats, suite.policy, starts),
    )


def _refused(cases: list[Case], refusal: Refusal) -> tuple[Refused, ...]:
    judged = ((case, refusal(case)) for case in cases)
    return tuple(Refused(case=case, reason=why) for case, why in judged if why is not None)


def _refuse_nothing_left(left: list[Case], refused: tuple[Refused, ...]) -> None:
    if left or not refused:
        return
    whys = dict.fromkeys(
        f"{setting_text(item.case.setting)}: {item.reason.text}" for item in refused
    )
    shown = "; ".join(list(whys)[:_MOST_WHYS])
    more = f"; and {len(whys) - _MOST_WHYS} more like it" if len(whys) > _MOST_WHYS else ""
    raise UsageError(f"nothing of what is asked can be: {shown}{more}")


@dataclass(frozen=True, kw_only=True, slots=True)
class _Place:
    """What all cases of a plan share."""

    backend: str
    world_size: int
    nodes: int
    emulated: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class _SizeRow:
    """A row of the table: all sizes asked for that move the same bytes."""

    requests: tuple[int, ...]
    count: int
    size_bytes: int

    @property
    def request(self) -> int:
        """The size asked for that is nearest to what moves; of two equally near the smaller."""
        return min(self.requests, key=lambda asked: abs(asked - self.size_bytes))


def _rows(
    collective: Collective, sizes: tuple[int, ...], dtype: str, world_size: int
) -> list[_SizeRow]:
    by_count: dict[int, list[int]] = {}
    for size in sizes:
        by_count.setdefault(collective.count(size, dtype, world_size), []).append(size)
    return [
        _SizeRow(
            requests=tuple(requests),
            count=count,
            size_bytes=collective.size_bytes(count, dtype, world_size),
        )
        for count, requests in by_count.items()
    ]


def _cases(
    suite: ResolvedSuite,
    collective: Collective,
    dtype: str,
    rows: list[_SizeRow],
    place: _Place,
) -> Iterator[Case]:
    redops = suite.redops if collective.has_redop else (None,)
    roots = _roots(suite.roots, place.world_size) if collective.has_root else (None,)
    placements = {
        "natural": (collective.natural_in_place,),
        "yes": (True,),
        "no": (False,),
        "both": (False, True),
    }[suite.in_place]
    for redop, root, row, in_place, setting, mode in itertools.product(
        redops, roots, rows, placements, suite.settings, suite.modes
    ):
        yield Case(
            collective=collective.name,
            backend=place.backend,
            dtype=dtype,
            redop=redop,
            root=root,
            size_bytes=row.size_bytes,
            requested_bytes=row.request,
            count=row.count,
            world_size=place.world_size,
            nodes=place.nodes,
            in_place=in_place,
            mode=mode,
            pattern=suite.pattern,
            setting=setting,
            via=suite.via,
            emulated=place.emulated,
        )


def _roots(asked: tuple[int, ...], world_size: int) -> tuple[int, ...]:
    for root in asked:
        if root >= world_size:
            raise UsageError(
                f"root {root} is not among {world_size} ranks; allowed: 0 to {world_size - 1},"
                " or -1 for every rank in turn"
            )
    return tuple(range(world_size)) if ALL_ROOTS in asked else asked


def _rounds(
    cases: list[Case], repeats: int, world_size: int, seed: int, swept: tuple[str, ...]
) -> Iterator[Round]:
    for repeat in range(repeats):
        # Not cryptography: a recorded seed must give the same order again.
        shuffle = random.Random(seed + repeat) if repeats > 1 else None  # noqa: S311
        ordered = in_blocks(cases, swept, shuffle)
        group = Group(ranks=tuple(range(world_size)), cases=ordered)
        yield Round(repeat=repeat, groups=(group,))


def _listed(requests: tuple[int, ...]) -> str:
    words = [format_size(size) for size in requests]
    both = "both" if len(words) == 2 else "all"
    return f"{', '.join(words[:-1])} and {words[-1]} {both}"
