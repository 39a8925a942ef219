"""The sweep's plan: the product of the axes as rounds, one a repeat."""

from __future__ import annotations

import random
from collections.abc import Iterator

from collbench.collectives import COLLECTIVES
from collbench.engine.protocol import Group, Round
from collbench.errors import UsageError
from collbench.model import Case, Record
from collbench.suite import ALL_ROOTS, ResolvedSuite
from collbench.units import format_size

_OVERHEAD_S = 0.06
"""Of a case: filling, checking, agreeing."""
_ZYGOTE_START_S = {"nccl": 7.0, "gloo": 2.0, "simulated": 0.0}
"""Of a repeat: importing torch, forking, opening devices, forming groups."""
_TYPICAL_SHARE = {"nccl": 0.25, "gloo": 1.0, "simulated": 0.0}
"""Of ``max_time_s`` that a case takes as a rule: on GPUs most are precise long before."""


class SweepPlan(Record, frozen=True, kw_only=True):
    """What a sweep will run."""

    rounds: tuple[Round, ...]
    cases: tuple[Case, ...]
    """In reading order: collective, type, operator, root, placement, mode, size."""
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

    What a back end cannot do stays in the plan and becomes an ``unsupported`` record: a row that
    is missing would leave the reader guessing. With several repeats each has its own order, drawn
    from the seed, so that drift does not look like an effect of the size.

    Raises:
        UsageError: a root that is no rank.
    """
    for root in suite.roots:
        if root >= world_size:
            raise UsageError(f"root {root} is no rank of {world_size}; give 0 to {world_size - 1}")
    cases = tuple(_cases(suite, backend, world_size, nodes))
    ranks = tuple(range(world_size))
    rounds = []
    for repeat in range(suite.repeats):
        order = list(cases)
        if suite.repeats > 1:
            # Not cryptography: a recorded seed must give the same order again.
            random.Random(f"{seed}-{repeat}").shuffle(order)  # noqa: S311
        rounds.append(Round(repeat=repeat, groups=(Group(ranks=ranks, cases=tuple(order)),)))
    per_case_s = suite.policy.max_time_s * _TYPICAL_SHARE[backend] + _OVERHEAD_S
    return SweepPlan(
        rounds=tuple(rounds),
        cases=cases,
        repeats=suite.repeats,
        collapsed=tuple(_collapsed(suite, cases, world_size)),
        estimate_s=suite.repeats * (len(cases) * per_case_s + _ZYGOTE_START_S[backend]),
    )


def _cases(suite: ResolvedSuite, backend: str, world_size: int, nodes: int) -> Iterator[Case]:
    for name in suite.collectives:
        row = COLLECTIVES[name]
        placements = {"natural": [row.natural_in_place], "yes": [True], "no": [False]}
        for dtype in suite.dtypes:
            for redop in suite.redops if row.has_redop else [None]:
                for root in _roots(suite, world_size) if row.has_root else [None]:
                    for in_place in placements.get(suite.in_place, [False, True]):
                        for mode in suite.modes:
                            for requested, count in _counts(suite, name, dtype, world_size):
                                yield Case(
                                    collective=name,
                                    backend=backend,
                                    dtype=dtype,
                                    redop=redop,
                                    root=root,
                                    size_bytes=row.size_bytes(count, dtype, world_size),
                                    requested_bytes=requested,
                                    count=count,
                                    world_size=world_size,
                                    nodes=nodes,
                                    in_place=in_place,
                                    mode=mode,
                                    pattern=suite.pattern,
                                )


def _roots(suite: ResolvedSuite, world_size: int) -> list[int]:
    return list(range(world_size)) if ALL_ROOTS in suite.roots else suite.roots


def _counts(suite: ResolvedSuite, name: str, dtype: str, world_size: int) -> list[tuple[int, int]]:
    """Returns (bytes asked for, elements a share), one for each count that really differs.

    Of several sizes that move the same bytes the largest is kept: the nearest from above.
    """
    row = COLLECTIVES[name]
    by_count = {row.count(size, dtype, world_size): size for size in suite.sizes}
    return [(size, count) for count, size in by_count.items()]


def _collapsed(suite: ResolvedSuite, cases: tuple[Case, ...], world_size: int) -> Iterator[str]:
    said: set[tuple[str, str]] = set()
    for case in cases:
        row = COLLECTIVES[case.collective]
        asked = [
            size for size in suite.sizes if row.count(size, case.dtype, world_size) == case.count
        ]
        words = " and ".join(format_size(size) for size in asked)
        if len(asked) > 1 and (case.collective, words) not in said:
            said.add((case.collective, words))
            yield f"{case.collective}: {words} both move {format_size(case.size_bytes)}: one row"
