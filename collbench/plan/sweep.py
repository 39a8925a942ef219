"""The sweep's plan: the product of the axes as rounds, one a repeat."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass

from collbench.collectives import COLLECTIVES, Collective
from collbench.engine.protocol import Group, Round
from collbench.errors import UsageError
from collbench.model import Case, Policy, Record
from collbench.suite import ALL_ROOTS, ResolvedSuite
from collbench.units import format_size


@dataclass(frozen=True, kw_only=True, slots=True)
class _Cost:
    """Rough costs of a back end, for the estimate alone: right within a factor of about two."""

    start_s: float
    """Of a repeat: importing torch, forking, opening devices, forming groups."""
    case_s: float
    """Of a case: taking memory, agreeing."""
    call_us: float
    """Of an empty call."""
    wire_gb_per_s: float
    check_gb_per_s: float
    """Filling and comparing."""
    samples: float
    """Until precise; the host's noise keeps a CPU from it as a rule, so its time runs out."""


_COSTS = {
    "nccl": _Cost(
        start_s=7.0,
        case_s=0.06,
        call_us=40.0,
        wire_gb_per_s=100.0,
        check_gb_per_s=20.0,
        samples=60,
    ),
    "gloo": _Cost(
        start_s=2.0,
        case_s=0.06,
        call_us=100.0,
        wire_gb_per_s=1.0,
        check_gb_per_s=1.0,
        samples=10_000,
    ),
    "simulated": _Cost(
        start_s=0.0,
        case_s=0.005,
        call_us=0.0,
        wire_gb_per_s=1e9,
        check_gb_per_s=1e9,
        samples=0,
    ),
}
_SHORTEST_SAMPLE_US = 200.0
"""Small calls are timed in batches of about so long."""


class SweepPlan(Record, frozen=True, kw_only=True):
    """What a sweep will run."""

    rounds: tuple[Round, ...]
    cases: tuple[Case, ...]
    """In reading order: see ``plan_sweep``."""
    repeats: int
    collapsed: tuple[str, ...]
    """Sizes asked for that move the same bytes, in words."""
    estimate_s: float

    @property
    def trials(self) -> int:
        """Trials of the whole run."""
        return len(self.cases) * self.repeats


def plan_sweep(
    suite: ResolvedSuite, *, backend: str, world_size: int, seed: int, nodes: int = 1
) -> SweepPlan:
    """Returns the plan of a sweep.

    Cases come in nccl-tests' reading order: a table for each (collective, type, operator, root),
    in it a row a size, in the row out of place before in place, then the modes. Neighbours in a
    row are measured next to each other, so that drift does not look like an effect of the mode,
    and an interrupted run has whole rows. With several repeats each has its own order, drawn from
    ``seed + repeat``, so that drift does not look like an effect of the size either.

    What a back end cannot do stays in the plan and becomes an ``unsupported`` record: a row that
    is missing would leave the reader guessing.

    Args:
        suite: what is asked.
        backend: ``nccl``, ``gloo`` or ``simulated``.
        world_size: ranks of the group.
        seed: of the orders.
        nodes: that the ranks are on.

    Raises:
        UsageError: a root that is not among the ranks.
    """
    cases: list[Case] = []
    merged: dict[tuple[tuple[int, ...], int], list[str]] = {}
    for name in suite.collectives:
        collective = COLLECTIVES[name]
        for dtype in suite.dtypes:
            rows = _rows(collective, suite.sizes, dtype, world_size)
            cases += _cases(suite, collective, dtype, rows, backend, world_size, nodes)
            for row in rows:
                if len(row.requests) > 1:
                    names = merged.setdefault((row.requests, row.size_bytes), [])
                    names += [name] if name not in names else []
    return SweepPlan(
        rounds=tuple(_rounds(cases, suite.repeats, world_size, seed)),
        cases=tuple(cases),
        repeats=suite.repeats,
        collapsed=tuple(
            f"{_listed(requests)} move {format_size(size_bytes)} on {world_size} ranks"
            f" ({', '.join(names)}): one row"
            for (requests, size_bytes), names in merged.items()
        ),
        estimate_s=suite.repeats * _repeat_s(cases, suite.policy, _COSTS[backend]),
    )


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
    backend: str,
    world_size: int,
    nodes: int,
) -> Iterator[Case]:
    redops = suite.redops if collective.has_redop else (None,)
    roots = _roots(suite.roots, world_size) if collective.has_root else (None,)
    placements = {
        "natural": (collective.natural_in_place,),
        "yes": (True,),
        "no": (False,),
        "both": (False, True),
    }[suite.in_place]
    for redop, root, row, in_place, mode in itertools.product(
        redops, roots, rows, placements, suite.modes
    ):
        yield Case(
            collective=collective.name,
            backend=backend,
            dtype=dtype,
            redop=redop,
            root=root,
            size_bytes=row.size_bytes,
            requested_bytes=row.request,
            count=row.count,
            world_size=world_size,
            nodes=nodes,
            in_place=in_place,
            mode=mode,
            pattern=suite.pattern,
        )


def _roots(asked: tuple[int, ...], world_size: int) -> tuple[int, ...]:
    for root in asked:
        if root >= world_size:
            raise UsageError(
                f"root {root} is not among {world_size} ranks; allowed: 0 to {world_size - 1},"
                " or -1 for every rank in turn"
            )
    return tuple(range(world_size)) if ALL_ROOTS in asked else asked


def _rounds(cases: list[Case], repeats: int, world_size: int, seed: int) -> Iterator[Round]:
    for repeat in range(repeats):
        order = list(cases)
        if repeats > 1:
            # Not cryptography: a recorded seed must give the same order again.
            random.Random(seed + repeat).shuffle(order)  # noqa: S311
        group = Group(ranks=tuple(range(world_size)), cases=tuple(order))
        yield Round(repeat=repeat, groups=(group,))


def _listed(requests: tuple[int, ...]) -> str:
    words = [format_size(size) for size in requests]
    both = "both" if len(words) == 2 else "all"
    return f"{', '.join(words[:-1])} and {words[-1]} {both}"


def _repeat_s(cases: list[Case], policy: Policy, cost: _Cost) -> float:
    """Returns about how long a repeat takes: the start, and for each case sampling and checking.

    Sampling ends by the number of samples or by time. The data are filled, compared, filled and
    compared again.
    """
    total_s = cost.start_s
    for case in cases:
        call_us = cost.call_us + case.size_bytes / cost.wire_gb_per_s / 1e3
        sample_s = max(call_us, _SHORTEST_SAMPLE_US) / 1e6
        if policy.samples is not None:
            total_s += policy.samples * sample_s
        else:
            total_s += min(policy.max_time_s, cost.samples * sample_s)
        if policy.check:
            total_s += 4 * case.size_bytes / cost.check_gb_per_s / 1e9
        total_s += cost.case_s
    return total_s
