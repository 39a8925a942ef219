"""From the ranks' results, or a fault, to one outcome."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from collbench.engine.faults import Fault
from collbench.engine.protocol import Outcome
from collbench.measure.loop import RankResult
from collbench.measure.summary import summarise
from collbench.model import (
    Case,
    Check,
    Culprit,
    RankPlace,
    Reason,
    Status,
    Trial,
    WrongElement,
)
from collbench.notes import notes_for
from collbench.units import utc_text


def merge_results(
    case: Case,
    repeat: int,
    results: Sequence[RankResult],
    start_s: float,
    events: list[str],
    places: Sequence[RankPlace],
) -> Outcome:
    """Returns the outcome of a case that every rank has finished.

    Args:
        case: what was measured.
        repeat: in which repeat.
        results: by rank.
        start_s: Unix time of its beginning.
        events: what the hardware's counters said meanwhile.
        places: where each rank runs.
    """
    first = results[0]
    times = np.stack([np.frombuffer(result.times_us, "<f4") for result in results])
    measured = times.shape[1] > 0
    status = first.status
    wrong = next((result.first_wrong for result in results if result.first_wrong), None)
    summary = None
    if measured:
        summary = summarise(
            case,
            times,
            ops_per_sample=first.ops_per_sample,
            warmup_samples=first.warmup_samples,
            show_rate=status is Status.OK,
        )
    reason, culprits = first.reason, []
    if wrong is not None:
        text = (
            f"rank {wrong.rank}, element {wrong.index}, {wrong.when} call:"
            f" expected {wrong.expected}, got {wrong.got}"
        )
        assert reason is not None
        reason = Reason(code=reason.code, text=text)
        culprits = [_wrong_rank(wrong, places)]
    trial = Trial(
        trial_id=case.trial_id(repeat),
        case_id=case.case_id,
        case=case,
        repeat=repeat,
        status=status,
        reason=reason,
        stop_reason=first.stop_reason,
        culprits=culprits,
        check=_check(results) if status in (Status.OK, Status.DATA_WRONG) else None,
        summary=summary,
        notes=sorted({*notes_for(case), *(note for r in results for note in r.notes)}),
        events=events,
        started_at=utc_text(start_s),
        duration_s=time.time() - start_s,
    )
    return Outcome(trial=trial, times_us=times if measured else None, clock=first.clock)


def trial_without_result(case: Case, repeat: int, fault: Fault, start_s: float) -> Trial:
    """Returns the record of a case that did not come to its end."""
    return Trial(
        trial_id=case.trial_id(repeat),
        case_id=case.case_id,
        case=case,
        repeat=repeat,
        status=fault.status,
        reason=fault.reason,
        culprits=list(fault.culprits),
        notes=notes_for(case),
        started_at=utc_text(start_s),
        duration_s=time.time() - start_s,
    )


def _check(results: Sequence[RankResult]) -> Check:
    checked = sum(result.checked_elements for result in results)
    return Check(
        checked=checked > 0,
        checked_elements=checked,
        wrong_elements=sum(result.wrong_elements for result in results),
        first_wrong=next((r.first_wrong for r in results if r.first_wrong), None),
    )


def _wrong_rank(wrong: WrongElement, places: Sequence[RankPlace]) -> Culprit:
    place = next(place for place in places if place.rank == wrong.rank)
    return Culprit(
        rank=wrong.rank,
        node=place.node,
        local_rank=place.local_rank,
        pid=0,
        gpu=place.gpu,
        calls=0,
        what=f"received a wrong element after its {wrong.when} call",
    )
