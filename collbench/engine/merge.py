"""From the ranks' results, or a fault, to one outcome."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from collbench.engine.faults import Fault
from collbench.engine.protocol import Outcome, trial_id_of
from collbench.measure.loop import RankResult
from collbench.measure.summary import summarise
from collbench.model import (
    Case,
    Check,
    Culprit,
    GroupPlace,
    LibraryVersion,
    Proof,
    RankPlace,
    RankProof,
    Reason,
    Status,
    Summary,
    Topology,
    Trial,
    WrongElement,
)
from collbench.nccl.legality import lowest_capability
from collbench.notes import notes_for
from collbench.probe.nccl import version_tuple
from collbench.probe.proof import compare_ranks, judge
from collbench.probe.proof import flags as flags_of
from collbench.units import utc_text


def merge_results(
    case: Case,
    repeat: int,
    results: Sequence[RankResult],
    span_s: tuple[float, float],
    events: list[str],
    topology: Topology,
    ranks: Sequence[int],
    twins: Sequence[RankProof] | str | None = None,
    *,
    nccl: LibraryVersion | None = None,
    place: GroupPlace | None = None,
    counters: Mapping[str, Mapping[str, int]] | None = None,
) -> Outcome:
    """Returns the outcome of a case that every rank has finished.

    Args:
        case: what was measured.
        repeat: in which repeat.
        results: by rank.
        span_s: Unix time of its beginning and its end.
        events: what the hardware's counters said meanwhile.
        topology: where each rank of the run is, and on which GPUs.
        ranks: which of them the group's are, in its order.
        twins: what the logs of other processes, started alike, show of the case, or why they show
            nothing; None where the ranks' own logs do, or nothing does.
        nccl: the library that is loaded.
        place: where the group stood, if it is not the whole run's.
        counters: by node, what those of errors and retransmissions rose by.
    """
    first = results[0]
    times = np.stack([np.frombuffer(result.times_us, "<f4") for result in results])
    measured = times.shape[1] > 0
    status, reason = first.status, first.reason
    proof = _proof(results, twins)
    flags: list[str] = []
    if proof is not None and nccl is not None:
        version = version_tuple(nccl.version)
        why = judge(case.setting, proof, collective=case.collective, version=version)
        if why is not None and status is Status.OK:
            status, reason = Status.PATH_NOT_USED, why
        if version is not None:
            flags = flags_of(
                case.setting,
                proof,
                collective=case.collective,
                version=version,
                compute_capability=lowest_capability(topology.nodes),
            )
    wrong = next((result.first_wrong for result in results if result.first_wrong), None)
    if wrong is not None:
        wrong = msgspec.structs.replace(wrong, rank=ranks[wrong.rank])
    summary = None
    if measured:
        summary = summarise(
            case,
            times,
            ops_per_sample=first.ops_per_sample,
            warmup_samples=first.warmup_samples,
            show_rate=status is Status.OK,
            host_us_per_call=_costliest(results),
        )
        summary = _of_the_run(summary, ranks)
    culprits = []
    if wrong is not None:
        home = topology.ranks[wrong.rank]
        text = (
            f"rank {home.rank}, element {wrong.index}, {wrong.when} call:"
            f" expected {wrong.expected}, got {wrong.got}"
        )
        assert reason is not None
        reason = Reason(code=reason.code, text=text)
        culprits = [_wrong_rank(wrong, home)]
    trial = Trial(
        trial_id=trial_id_of(case, repeat, place),
        case_id=case.case_id,
        case=case,
        repeat=repeat,
        status=status,
        reason=reason,
        stop_reason=first.stop_reason,
        culprits=culprits,
        proof=proof,
        check=_check(results, wrong) if measured or status is Status.DATA_WRONG else None,
        summary=summary,
        notes=sorted({*notes_for(case), *(note for r in results for note in r.notes), *flags}),
        events=events,
        group=place,
        counters={node: dict(found) for node, found in (counters or {}).items()},
        started_at=utc_text(span_s[0]),
        duration_s=span_s[1] - span_s[0],
    )
    return Outcome(trial=trial, times_us=times if measured else None, clock=first.clock)


def trial_without_result(
    case: Case, repeat: int, fault: Fault, start_s: float, place: GroupPlace | None = None
) -> Trial:
    """Returns the record of a case that did not come to its end."""
    return Trial(
        trial_id=trial_id_of(case, repeat, place),
        case_id=case.case_id,
        case=case,
        repeat=repeat,
        status=fault.status,
        reason=fault.reason,
        culprits=list(fault.culprits),
        notes=notes_for(case),
        group=place,
        started_at=utc_text(start_s),
        duration_s=time.time() - start_s,
    )


def _proof(results: Sequence[RankResult], twins: Sequence[RankProof] | str | None) -> Proof | None:
    """Returns what all ranks' logs show together; None where there are none."""
    if isinstance(twins, str):
        return Proof(twin=True, problem=twins)
    if twins is not None:
        return msgspec.structs.replace(compare_ranks(twins), twin=True)
    own = [result.proof for result in results if result.proof is not None]
    return compare_ranks(own) if len(own) == len(results) else None


def _of_the_run(summary: Summary, ranks: Sequence[int]) -> Summary:
    """Names ranks as the run does, not as the group."""
    late, slowest = summary.late_rank, summary.slowest_rank
    return msgspec.structs.replace(
        summary,
        late_rank=None if late is None else ranks[late],
        slowest_rank=None if slowest is None else ranks[slowest],
    )


def _costliest(results: Sequence[RankResult]) -> float | None:
    costs = [r.host_us_per_call for r in results if r.host_us_per_call is not None]
    return max(costs, default=None)


def _check(results: Sequence[RankResult], wrong: WrongElement | None) -> Check:
    checked = sum(result.checked_elements for result in results)
    return Check(
        checked=checked > 0,
        checked_elements=checked,
        wrong_elements=sum(result.wrong_elements for result in results),
        first_wrong=wrong,
    )


def _wrong_rank(wrong: WrongElement, place: RankPlace) -> Culprit:
    return Culprit(
        rank=place.rank,
        node=place.node,
        local_rank=place.local_rank,
        pid=0,
        gpu=place.gpu,
        calls=0,
        what=f"received a wrong element after its {wrong.when} call",
    )
