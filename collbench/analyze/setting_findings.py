"""What stands out between settings: paths that were not used, ranks that differ, what is faster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from collbench.analyze.best_table import best_of_run, conclusion
from collbench.analyze.curves import Curve, question
from collbench.model import Finding, Mode, ReasonCode, Status, Trial
from collbench.nccl.settings import setting_text
from collbench.units import format_size, format_time_us

_FASTER = 0.03
_SHOWN = 3
_NEXT = {
    ReasonCode.NO_NETWORK_USED: "take two nodes; --fake-hosts 2 exercises the network code on one",
    ReasonCode.NO_RDMA_DEVICE: "ibstat and ls /sys/class/infiniband on each node; is the device in"
    " the container, is the driver loaded?",
    ReasonCode.OTHER_NETWORK: "look for a network plug-in (libnccl-net.so) and at NCCL_NET",
}


def path_not_used(trials: Sequence[Trial]) -> Iterator[Finding]:
    """What was asked for did not run, once for each reason."""
    found: dict[tuple[ReasonCode, str], list[Trial]] = {}
    for trial in trials:
        if trial.status is Status.PATH_NOT_USED and trial.reason is not None:
            found.setdefault((trial.reason.code, trial.reason.text), []).append(trial)
    for (code, text), those in found.items():
        settings = dict.fromkeys(setting_text(trial.case.setting) for trial in those)
        yield Finding(
            code=str(code),
            severity="warning",
            text=f"{'; '.join(settings)}: path not used in"
            f" {'1 trial' if len(those) == 1 else f'{len(those)} trials'}. {_sentence(text)}",
            next_step=_NEXT.get(code),
        )


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + "."


def ranks_differ(trials: Sequence[Trial]) -> Iterator[Finding]:
    """Ranks whose logs show something else than the others'."""
    lines = dict.fromkeys(line for t in trials if t.proof is not None for line in t.proof.odd)
    for line in list(lines)[:_SHOWN]:
        yield Finding(
            code="rank_differs",
            severity="warning",
            text=f"{_sentence(line)}",
            next_step="compare that rank's node with another one's: devices, drivers, variables",
        )
    if len(lines) > _SHOWN:
        yield Finding(
            code="rank_differs",
            severity="warning",
            text=f"{len(lines) - _SHOWN} more differences between ranks stand below the tables.",
        )


def not_proved(trials: Sequence[Trial]) -> Iterator[Finding]:
    """Cases of which the log could not be read."""
    problems = dict.fromkeys(
        t.proof.problem for t in trials if t.proof is not None and t.proof.problem
    )
    for problem in list(problems)[:_SHOWN]:
        count = sum(t.proof is not None and t.proof.problem == problem for t in trials)
        yield Finding(
            code="not_proved",
            severity="warning",
            text=f"What ran is not proved in {count} trial{'s' * (count > 1)}: {problem}.",
        )


def best_settings_found(trials: Sequence[Trial]) -> Iterator[Finding]:
    """What the repeats say of the best settings, without a winner's curse."""
    table = best_of_run(trials)
    if table is not None:
        text = conclusion(table)
        yield Finding(
            code="best_settings",
            severity="info",
            text=f"Settings: {text}.",
            next_step="collbench analyze has the table, collbench plot the heat map",
        )


def faster_settings(found: Sequence[Curve]) -> Iterator[Finding]:
    """Settings that look faster than what NCCL chooses by itself, the plainest of each question.

    For runs of too few repeats to say more.
    """
    questions: dict[tuple[object, ...], list[Curve]] = {}
    for curve in found:
        asked = msgspec.structs.replace(curve.case, setting={})
        questions.setdefault(question(asked), []).append(curve)
    for curves in questions.values():
        reference = next((curve for curve in curves if not curve.case.setting), None)
        gains = [] if reference is None else list(_gains(reference, curves))
        if not gains:
            continue
        gain, size, name, time_us, base_us = max(gains)
        case = curves[0].case
        mode = "" if case.mode is Mode.EAGER else f" {case.mode}"
        yield Finding(
            code="setting_faster",
            severity="info",
            text=f"{name} is {gain:.0%} faster than NCCL's own choice in {case.collective}"
            f" {format_size(size)}{mode}: {format_time_us(time_us)} against"
            f" {format_time_us(base_us)} us"
            f" ({len({g[1] for g in gains})} of {len(curves[0].points)} sizes have a faster one);"
            " seen in too few repeats for a verdict.",
            next_step="--repeats 5",
        )


def _gains(
    reference: Curve, curves: Sequence[Curve]
) -> Iterator[tuple[float, int, str, float, float]]:
    """Yields gain, size, setting and both times where a setting is faster."""
    for curve in curves:
        for point in curve.points:
            base = reference.at(point.size_bytes)
            if curve is reference or base is None or point.busbw_gb_per_s is None:
                continue
            gain = 1 - point.time_us / base.time_us
            if gain > _FASTER:
                name = setting_text(curve.case.setting)
                yield gain, point.size_bytes, name, point.time_us, base.time_us
