"""A controller over a made cluster, called the way most of its tests call it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from fake_engine import FakeCluster, Stage, played, round_of
from setting_cases import made_case, swept_by

from collbench.engine import controller, gathering
from collbench.engine.protocol import Group, Round
from collbench.model import Case, Mode, Policy, Status, Trial

RING, TREE = {"NCCL_ALGO": "Ring"}, {"NCCL_ALGO": "Tree"}


def be_impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a fault other news is waited for, or a signal; here the news comes at once."""
    monkeypatch.setattr(gathering, "_GRACE_S", 0.1)
    monkeypatch.setattr(gathering, "_LOOK_S", 0.02)
    monkeypatch.setattr(controller, "_SIGNAL_WAIT_S", 0.0)


def play_cases(stage: Stage, cases: Sequence[Case], **more: Any) -> tuple[list[Trial], FakeCluster]:
    """Runs cases of one repeat; returns their trials and the cluster."""

    async def work() -> tuple[list[Trial], FakeCluster]:
        cluster = FakeCluster(stage, swept=swept_by(cases), **more)
        found = await cluster.run(round_of(cases))
        return [outcome.trial for outcome in found], cluster

    return played(work())


def play_rounds(
    stage: Stage, rounds: Sequence[Round], swept: Sequence[str] = (), **more: Any
) -> list[Trial]:
    """Runs rounds; returns the trials of all."""

    async def work() -> list[Trial]:
        cluster = FakeCluster(stage, swept=swept, **more)
        return [outcome.trial for outcome in await cluster.run_all(rounds)]

    return played(work())


def listed(
    *of_settings: dict[str, str], mode: Mode = Mode.GRAPH, backend: str = "nccl"
) -> list[Case]:
    """Returns a case of each setting."""
    numbered = enumerate(of_settings, 1)
    return [made_case(number, setting, mode, backend) for number, setting in numbered]


def statuses(trials: Sequence[Trial]) -> list[Status]:
    """Returns how trials ended."""
    return [trial.status for trial in trials]


def pairs(number: int, *ranks: tuple[int, ...], policy: Policy | None = None) -> Round:
    """Returns a round of groups of two ranks, each with one case."""
    groups = tuple(
        Group(ranks=pair, cases=tuple(listed(RING)), name="-".join(map(str, pair)))
        for pair in ranks
    )
    return Round(repeat=0, groups=groups, number=number, policy=policy)
