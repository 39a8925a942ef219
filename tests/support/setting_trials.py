"""Trials under settings, for tests of what is printed and said of them."""

from __future__ import annotations

from typing import Any

import msgspec
from records import make_trial

from collbench.model import Proof, Reason, ReasonCode, Status, Trial

RING_LL = {"NCCL_ALGO": "Ring", "NCCL_PROTO": "LL"}
TREE = {"NCCL_ALGO": "Tree", "NCCL_PROTO": "Simple"}
RAN_RING = Proof(
    algorithm="Ring",
    protocol="LL",
    channels=24,
    ranks=2,
    nodes=1,
    transports=["P2P/CUMEM"],
    intra_path="NVL",
)


def under(setting: dict[str, str], size: int, time_us: float, **changes: Any) -> Trial:
    """Returns an ok trial of a setting; ``changes`` as of ``make_trial``."""
    trial = make_trial(size, time_us, **changes)
    case = msgspec.structs.replace(trial.case, setting=setting)
    return msgspec.structs.replace(
        trial, case=case, case_id=case.case_id, trial_id=case.trial_id(trial.repeat)
    )


def ended(trial: Trial, status: Status, code: ReasonCode, text: str) -> Trial:
    """Returns a trial that ended otherwise; only ``path_not_used`` keeps its figures."""
    keeps = status is Status.PATH_NOT_USED
    return msgspec.structs.replace(
        trial,
        status=status,
        reason=Reason(code=code, text=text),
        summary=trial.summary if keeps else None,
    )
