"""From a table's rows to trials: cases of ours, rates from times, and what does not fit.

nccl-tests prints one time a row: a mean over the calls and, unless ``-a`` says otherwise, over the
ranks. It stands where our own trials have their median; notes on the trial say so.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from collbench.collectives import COLLECTIVES, REDOPS, Collective, collective_named, dtype_named
from collbench.errors import UsageError
from collbench.interop.nccl_tests_read_types import Figures, Row, Table
from collbench.measure.summary import SAMPLES_FOR_P95, SAMPLES_FOR_P99
from collbench.model import (
    Case,
    Check,
    Mode,
    Pattern,
    Reason,
    ReasonCode,
    Status,
    StopReason,
    Summary,
    Trial,
)
from collbench.units import gb_per_s

"""Code on a trial -> what it says."""

_MEANS = dict(
    enumerate(("nccl_tests_rank_0", "nccl_tests_mean", "nccl_tests_least", "nccl_tests_most"))
)
"""By nccl-tests' ``-a``."""
_TYPES = {"char": "int8", "int": "int32"}
"""nccl-tests' names before 2.2."""
_PROGRAM = re.compile(r"(\w+?)(?:_perf)?(?:\.exe)?")
_FLOAT = 1e-9
"""Room for binary fractions beside the printed rounding, as a share."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """A trial without its repeat's number, with its samples."""

    trial: Trial
    calls_us: NDArray[np.float32] | None


def collective_of(table: Table, asked: str | None, where: str) -> Collective:
    """Returns what a table measured.

    Args:
        table: its program's name decides.
        asked: ``--collective``, for a table that names no program of ours.
        where: file and line, for the error.

    Raises:
        UsageError: neither says.
    """
    found = None if table.program is None else _PROGRAM.fullmatch(table.program)
    if found is not None:
        try:
            return collective_named(found[1])
        except UsageError:
            if asked is None:
                raise UsageError(
                    f"{where} is of '{table.program}', which is no collective here; give"
                    f" --collective, allowed: {', '.join(COLLECTIVES)}"
                ) from None
    if asked is None:
        raise UsageError(
            f"{where} does not say which collective it measured; give --collective, allowed:"
            f" {', '.join(COLLECTIVES)}"
        )
    return collective_named(asked)


def readings(
    table: Table, collective: Collective, started_at: str, odd: list[str]
) -> Iterator[Reading]:
    """Yields the trials of a table.

    Args:
        table: with its ranks.
        collective: that it measured.
        started_at: UTC, ISO 8601.
        odd: takes a line for each figure that does not fit.
    """
    seen: dict[str, str] = {}
    for row in table.rows:
        problem = _misfit(table, collective, row)
        if problem is not None:
            odd.append(f"{row.where}: {problem}; the row is left out")
            continue
        for figures in row.figures:
            case = _case(table, collective, row, in_place=figures.in_place)
            first = seen.setdefault(case.case_id, row.where)
            if first != row.where:
                # Sizes below one element a rank all become 0.
                if row.size_bytes:
                    odd.append(f"{row.where}: the case of {first} once more; left out")
                continue
            if row.size_bytes and not figures.time_us > 0:
                odd.append(f"{row.where}: a time of {figures.time_us:g} us; left out")
                continue
            if row.size_bytes:
                odd += _disagreement(collective, table, row, figures)
            yield Reading(
                trial=_trial(table, collective, case, figures, started_at),
                calls_us=figures.calls_us if row.size_bytes else None,
            )


def _misfit(table: Table, collective: Collective, row: Row) -> str | None:
    """Returns why a row is no case of ours."""
    ranks = len(table.ranks)
    try:
        dtype = _dtype(row)
    except UsageError:
        return f"type '{row.type_name}' is unknown here"
    if collective.has_redop and row.redop not in REDOPS:
        return f"operator '{row.redop}' is unknown here"
    if collective.has_root and (row.root is None or not 0 <= row.root < ranks):
        return f"root {row.root} is none of {ranks} ranks"
    if collective.size_bytes(row.count, dtype, ranks) != row.size_bytes:
        shares = f" in each of {ranks} shares" if collective.shares else ""
        return f"{row.size_bytes} B are not {row.count} x {row.type_name}{shares}"
    return None


def _dtype(row: Row) -> str:
    return dtype_named(_TYPES.get(row.type_name, row.type_name))


def _disagreement(
    collective: Collective, table: Table, row: Row, figures: Figures
) -> Iterator[str]:
    """Yields a line where the printed busbw cannot be that of the printed time."""
    ranks = len(table.ranks)
    low_us = figures.time_us - figures.time_within_us
    high_us = figures.time_us + figures.time_within_us
    least, most = (
        collective.busbw(row.size_bytes / time_us / 1e3, ranks) if time_us > 0 else math.inf
        for time_us in (high_us, low_us)
    )
    room = figures.busbw_within_gb_per_s + _FLOAT * figures.busbw_gb_per_s
    if not least - room <= figures.busbw_gb_per_s <= most + room:
        own = collective.busbw(gb_per_s(row.size_bytes, figures.time_us), ranks)
        place = "in place" if figures.in_place else "out of place"
        yield (
            f"{row.where}: {place} busbw {figures.busbw_gb_per_s:g} GB/s, but its time gives"
            f" {own:.2f} on {ranks} rank{'s' * (ranks != 1)}; the time counts"
        )


def _case(table: Table, collective: Collective, row: Row, *, in_place: bool) -> Case:
    return Case(
        collective=collective.name,
        backend="nccl",
        dtype=_dtype(row),
        redop=row.redop if collective.has_redop else None,
        root=row.root if collective.has_root else None,
        size_bytes=row.size_bytes,
        requested_bytes=row.size_bytes,
        count=row.count,
        world_size=len(table.ranks),
        nodes=len({rank.host for rank in table.ranks}),
        in_place=in_place,
        mode=Mode.GRAPH if table.graph else Mode.EAGER,
        pattern=Pattern.ISOLATED if table.blocking else Pattern.BACK_TO_BACK,
        via="native",
    )


def _trial(
    table: Table, collective: Collective, case: Case, figures: Figures, started_at: str
) -> Trial:
    status, reason = Status.OK, None
    if case.size_bytes == 0:
        status = Status.SKIPPED
        text = "less than one element a rank: no data were moved"
        reason = Reason(code=ReasonCode.ZERO_BYTES, text=text)
    elif figures.wrong:
        status = Status.DATA_WRONG
        elements = "element" if figures.wrong == 1 else "elements"
        text = f"nccl-tests found {figures.wrong} wrong {elements}"
        reason = Reason(code=ReasonCode.WRONG_ELEMENT, text=text)
    timed = status is not Status.SKIPPED
    notes = [_MEANS[1 if table.average is None else table.average]]
    if figures.calls_us is not None:
        notes.append("nccl_tests_calls")
    return Trial(
        trial_id=case.trial_id(0),
        case_id=case.case_id,
        case=case,
        repeat=0,
        status=status,
        reason=reason,
        stop_reason=StopReason.FIXED if timed else None,
        check=Check(checked=figures.wrong is not None, wrong_elements=figures.wrong or 0),
        summary=_summary(table, collective, case, figures, right=not figures.wrong)
        if timed
        else None,
        notes=notes if timed else [],
        started_at=started_at,
        duration_s=0.0,
    )


def _summary(
    table: Table, collective: Collective, case: Case, figures: Figures, *, right: bool
) -> Summary:
    """Returns the figures: the printed time as median, quantiles of single calls where known."""
    calls = None if figures.calls_us is None else figures.calls_us.max(axis=0).astype(np.float64)
    if calls is None:
        least, p5, p95, p99 = figures.time_us, figures.time_us, None, None
    else:
        p5, p95, p99 = (float(value) for value in np.quantile(calls, [0.05, 0.95, 0.99]))
        least = float(calls.min())
    count = 1 if calls is None else calls.size
    algbw = gb_per_s(case.size_bytes, figures.time_us)
    busbw = collective.busbw(algbw, case.world_size)
    return Summary(
        samples=count,
        ops_per_sample=table.aggregated * (table.iterations if calls is None else 1),
        warmup_samples=table.warmup or 0,
        median_us=figures.time_us,
        min_us=least,
        p5_us=p5,
        p95_us=p95 if count >= SAMPLES_FOR_P95 else None,
        p99_us=p99 if count >= SAMPLES_FOR_P99 else None,
        mean_over_ranks_us=figures.time_us,
        algbw_gb_per_s=algbw if right else None,
        busbw_gb_per_s=busbw if right and busbw > 0 else None,
        reported_algbw_gb_per_s=figures.algbw_gb_per_s,
        reported_busbw_gb_per_s=figures.busbw_gb_per_s,
    )
