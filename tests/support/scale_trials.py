"""Steps and places of `scale`, and made trials in the place of an engine's."""

from __future__ import annotations

import msgspec
from records import make_trial

from collbench.analyze.scale_types import ScalePattern, Step
from collbench.engine.protocol import Group, Round
from collbench.model import Culprit, Policy, Status, Summary, Trial
from collbench.plan.pair_cases import PairPlace

SIZE = 2**20


def place(gpus: int = 1, nodes: int = 8, **fields) -> PairPlace:
    ranks = {n: tuple(range(n * gpus, (n + 1) * gpus)) for n in range(nodes)}
    return PairPlace(
        **{
            "names": [f"node{n}" for n in range(nodes)],
            "ranks": ranks,
            "backend": "nccl",
            "via": "torch",
            "policy": Policy(),
            "setting": {"NCCL_ALGO": "Ring"},
            "latency": False,
            **fields,
        }
    )


def step(pattern=ScalePattern.PAIRS, nodes=(0, 4, 1, 5), **fields) -> Step:
    return Step(pattern=pattern, nodes=nodes, asked=len(nodes), size_bytes=SIZE, **fields)


def answer(
    round_: Round,
    group: Group,
    rate: float | None,
    *,
    status: Status = Status.OK,
    culprit: str | None = None,
) -> Trial:
    """The trial of a group: a rate in GB/s, or how it ended, and the node it is laid to."""
    (case,) = group.cases
    blamed = []
    if culprit is not None:
        blamed = [Culprit(rank=0, node=culprit, local_rank=0, pid=1, calls=3, what="behind")]
    summary = None
    if rate is not None:
        time_us = case.size_bytes / rate / 1e3
        summary = Summary(
            samples=20,
            ops_per_sample=1,
            warmup_samples=1,
            median_us=time_us,
            min_us=time_us,
            p5_us=time_us,
            p95_us=1.02 * time_us,
            mean_over_ranks_us=time_us,
            busbw_gb_per_s=rate,
        )
    return msgspec.structs.replace(
        make_trial(case.size_bytes, 1.0),
        trial_id=round_.trial_id(group, case),
        case_id=case.case_id,
        case=case,
        repeat=round_.repeat,
        group=round_.place_of(group),
        status=status,
        summary=summary,
        culprits=blamed,
    )
