"""What stands out in a sweep: each detector looks for one thing and says what to do about it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from collbench.analyze.compare import FEWEST_REPEATS
from collbench.analyze.curves import Curve, Point, curves, mode_pairs
from collbench.analyze.oddities import TimesOf, describe, two_kinds_of_samples
from collbench.analyze.setting_findings import (
    best_settings_found,
    faster_settings,
    not_proved,
    path_not_used,
    ranks_differ,
)
from collbench.model import Finding, Mode, ReasonCode, Run, Status, Trial
from collbench.notes import NOTES
from collbench.units import format_size, format_time_us, option_size

_HOST_BOUND = 1.5
_GRAPH_FASTER = 1.10
_LARGE_BYTES = 64 * 2**20
_SPREAD = 0.10
_SKEW = 0.10
_REPEATS_TO_COMPARE = 5
_SHOWN = 3
_BAD = (Status.DATA_WRONG, Status.NODE_LOST, Status.HUNG, Status.CRASHED, Status.FAILED)

_NO_INTERFACE = ("Unable to find address for", "no socket interface found")
"""Words of Gloo and of NCCL."""


@dataclass(frozen=True)
class _Sweep:
    run: Run
    trials: Sequence[Trial]
    times: TimesOf

    @cached_property
    def curves(self) -> list[Curve]:
        return curves(self.trials)


def sweep_findings(run: Run, trials: Sequence[Trial], times: TimesOf) -> list[Finding]:
    """Returns what stands out, the gravest first.

    Args:
        run: the header: repeats, back end, whether simulated.
        trials: of the whole run.
        times: gives a trial's samples, float32[rank, sample] in us, or None.
    """
    sweep = _Sweep(run, trials, times)
    found = [finding for detector in _DETECTORS for finding in detector(sweep)]
    order = ("bad", "warning", "info")
    return sorted(found, key=lambda finding: order.index(finding.severity))


def _faults(sweep: _Sweep) -> Iterator[Finding]:
    for status in _BAD:
        trials = [trial for trial in sweep.trials if trial.status is status]
        for trial in trials[:_SHOWN]:
            yield _fault(trial)
        more = len(trials) - _SHOWN
        if more > 0:
            yield Finding(
                code=str(status),
                severity="bad",
                text=f"{more} more {'trial is' if more == 1 else 'trials are'} {status}: the tables"
                " hold the reason of each.",
            )


def _fault(trial: Trial) -> Finding:
    reason = trial.reason.text if trial.reason else "no reason was recorded"
    evidence = [line for culprit in trial.culprits for line in culprit.evidence]
    last_lines = [line for culprit in trial.culprits for line in culprit.log_tail[-2:]]
    logs = ", ".join(f"logs/rank{culprit.rank}.log" for culprit in trial.culprits)
    nccl = trial.case.backend == "nccl"
    if trial.status is Status.DATA_WRONG:
        next_step = "do not train on this; run it again"
        next_step += "; if it stays, try NCCL_ALGO=Ring and NCCL_PROTO=Simple" if nccl else ""
    elif any(words in reason for words in _NO_INTERFACE):
        next_step = "name an interface that 'ip -br address' lists on every node"
    elif logs:
        next_step = f"read {logs}"
    else:
        next_step = "run it again with NCCL_DEBUG=INFO; " if nccl else ""
        next_step += "the ranks' output is in logs/"
    return Finding(
        code=str(trial.status),
        severity="bad",
        text=f"{describe(trial)}, repeat {trial.repeat}: {trial.status}. {reason}.",
        evidence=evidence + last_lines,
        next_step=next_step,
    )


def _left_out(sweep: _Sweep) -> Iterator[Finding]:
    groups = Counter(
        (trial.status, trial.reason.code, trial.reason.text)
        for trial in sweep.trials
        if trial.reason
        and trial.status in (Status.UNSUPPORTED, Status.SKIPPED)
        and trial.reason.code is not ReasonCode.ILLEGAL  # said in the first lines and tables
    )
    for (status, code, text), count in groups.items():
        yield Finding(
            code=str(code),
            severity="info",
            text=f"{count} {'case' if count == 1 else 'cases'} {status} ({code}): {text}.",
            next_step="a smaller -e" if code is ReasonCode.NO_MEMORY else None,
        )


def _repeats(sweep: _Sweep) -> Iterator[Finding]:
    more = f"--repeats {_REPEATS_TO_COMPARE}"
    if sweep.run.repeats == 1:
        if not sweep.run.simulated and sweep.curves:
            yield Finding(
                code="one_repeat",
                severity="info",
                text="One repeat: fresh starts of the same program differ, small sizes most"
                " (20 to 40 % were seen on GPUs, more on loopback).",
                next_step=f"to compare or to choose a setting, add {more}",
            )
        return
    wide = [
        (point.spread, curve, point)
        for curve in sweep.curves
        for point in curve.points
        if point.repeats > 1 and point.spread > _SPREAD
    ]
    if wide:
        worst, curve, point = max(wide, key=lambda item: item[0])
        total = sum(len(curve.points) for curve in sweep.curves)
        yield Finding(
            code="repeats_disagree",
            severity="warning",
            text=f"Repeats disagree by more than 10 % in {len(wide)} of {total} rows; most in"
            f" {curve.case.collective} {format_size(point.size_bytes)} {curve.case.mode}:"
            f" {worst:.0%} between fastest and slowest.",
            next_step="compare medians of repeats, never single runs; look for other load",
        )


def _bimodal(sweep: _Sweep) -> Iterator[Finding]:
    yield from two_kinds_of_samples(sweep.trials, sweep.times)


def _late(sweep: _Sweep) -> Iterator[Finding]:
    named: Counter[int] = Counter()
    worst: dict[int, Trial] = {}
    for trial in sweep.trials:
        summary = trial.summary
        if summary is not None and summary.late_rank is not None:
            named[summary.late_rank] += 1
            best = worst.get(summary.late_rank)
            if best is None or best.summary is None or best.summary.skew < summary.skew:
                worst[summary.late_rank] = trial
    for rank, count in named.most_common(_SHOWN):
        trial = worst[rank]
        assert trial.summary is not None
        yield Finding(
            code="late_rank",
            severity="warning",
            text=f"Rank {rank} enters late in {count} of {len(sweep.trials)} trials: in"
            f" {describe(trial)} it has the shortest time in {trial.summary.late_share:.0%} of the"
            f" samples and the others wait {trial.summary.skew:.0%} of theirs for it.",
            next_step="look at what else runs on its cores, at its clocks and at its CPU binding",
        )
    skewed = [t for t in sweep.trials if t.summary and t.summary.skew > _SKEW]
    if skewed and not named:
        top = max(skewed, key=lambda t: t.summary.skew if t.summary else 0.0)
        assert top.summary is not None
        yield Finding(
            code="skew",
            severity="info",
            text=f"Ranks' times differ by more than 10 % in {len(skewed)} of {len(sweep.trials)}"
            f" trials (most in {describe(top)}: {top.summary.skew:.0%}); no rank is late"
            " throughout: not attributable.",
            next_step="--pattern isolated shows whether the skew comes from the calls before",
        )


def _host_bound(sweep: _Sweep) -> Iterator[Finding]:
    """Small messages that are quicker in a graph: the host, not the wire, sets their time."""
    bound: list[tuple[Curve, Point, Point, int]] = []
    for eager, graph in _eager_and_graph(sweep):
        pairs = [
            (point, partner)
            for point in eager.points
            if (partner := graph.at(point.size_bytes)) is not None
            and point.time_us > _HOST_BOUND * partner.time_us
        ]
        if pairs:
            bound.append((eager, *pairs[0], pairs[-1][0].size_bytes))
    if not bound:
        return
    largest = max(size for *_, size in bound)
    names = dict.fromkeys(curve.case.collective for curve, *_ in bound)
    yield Finding(
        code="host_bound",
        severity="info",
        text=f"Up to {format_size(largest)} eager is bound by the host ({', '.join(names)}:"
        f" {_span(point.time_us for _, point, _, _ in bound)} us a call at the smallest size);"
        f" captured in a CUDA graph the same calls take"
        f" {_span(partner.time_us for _, _, partner, _ in bound)} us.",
    )


def _graph_registers(sweep: _Sweep) -> Iterator[Finding]:
    """Large messages that are quicker in a graph, where the host no longer matters."""
    faster = [
        (point.time_us / partner.time_us, eager, point)
        for eager, graph in _eager_and_graph(sweep)
        for point in eager.points
        if point.size_bytes >= _LARGE_BYTES
        and (partner := graph.at(point.size_bytes)) is not None
        and point.time_us > _GRAPH_FASTER * partner.time_us
    ]
    if faster:
        ratio, curve, point = max(faster, key=lambda item: item[0])
        yield Finding(
            code="graph_registers",
            severity="info",
            text=f"{curve.case.collective} is {ratio - 1:.0%} faster in a graph at"
            f" {format_size(point.size_bytes)}: capture registers the buffers.",
            next_step="try user buffer registration in the program",
        )


def _eager_and_graph(sweep: _Sweep) -> list[tuple[Curve, Curve]]:
    """Pairs of curves in both modes; one rank alone has nothing to wait for, whatever the mode."""
    pairs = mode_pairs(sweep.curves, Mode.EAGER, Mode.GRAPH)
    return [pair for pair in pairs if pair[0].case.world_size > 1]


def _alone(sweep: _Sweep) -> Iterator[Finding]:
    if sweep.run.world_size == 1 and sweep.curves:
        yield Finding(
            code="one_rank",
            severity="warning",
            text="One rank communicates with nobody: these are the costs of launching and copying,"
            " not of a network.",
            next_step="measure with 2 ranks or more",
        )


def _span(times_us: Iterable[float]) -> str:
    """Returns one time, or the least and the largest of several."""
    found = sorted(times_us)
    ends = dict.fromkeys((format_time_us(found[0]), format_time_us(found[-1])))
    return " to ".join(ends)


def _plateau(sweep: _Sweep) -> Iterator[Finding]:
    climbing = [curve for curve in sweep.curves if curve.case.world_size > 1 and curve.climbing()]
    if climbing:
        largest = max(curve.points[-1].requested_bytes for curve in climbing)
        names = sorted({curve.case.collective for curve in climbing})
        yield Finding(
            code="not_at_plateau",
            severity="info",
            text=f"Not yet at the plateau: {', '.join(names)} still"
            f" {'gains' if len(names) == 1 else 'gain'} more than 2 % at {format_size(largest)}.",
            next_step=f"-e {option_size(8 * largest)}",
        )


def _hardware(sweep: _Sweep) -> Iterator[Finding]:
    events = [(trial, event) for trial in sweep.trials for event in trial.events]
    if events:
        kinds = Counter(event.rpartition(" for ")[0] or event for _, event in events)
        yield Finding(
            code="hardware_events",
            severity="warning",
            text=f"The hardware's counters moved during {len({id(t) for t, _ in events})} trials:"
            f" {'; '.join(f'{kind} ({count} x)' for kind, count in kinds.most_common(_SHOWN))}.",
            evidence=[f"{describe(trial)}: {event}" for trial, event in events[:10]],
            next_step="nvidia-smi -q -d PERFORMANCE,POWER,TEMPERATURE,ECC; ethtool -S and ibstat",
        )


def _notes(sweep: _Sweep) -> Iterator[Finding]:
    counts = Counter(note for trial in sweep.trials for note in trial.notes)
    for code, count in counts.items():
        rows = "1 trial" if count == 1 else f"{count} trials"
        words = NOTES[code]
        text = f"{words[:1].upper()}{words[1:]} ({rows})."
        yield Finding(code=code, severity="info", text=text, evidence=[])


def _settings(sweep: _Sweep) -> Iterator[Finding]:
    yield from path_not_used(sweep.trials)
    yield from ranks_differ(sweep.trials)
    yield from not_proved(sweep.trials)
    if sweep.run.command in ("ab", "history run"):
        return  # the comparison of its sides says it
    if sweep.run.repeats < FEWEST_REPEATS:
        yield from faster_settings(sweep.curves)
    else:
        yield from best_settings_found(sweep.trials)


_DETECTORS: tuple[Callable[[_Sweep], Iterator[Finding]], ...] = (
    _faults,
    _settings,
    _left_out,
    _alone,
    _hardware,
    _late,
    _repeats,
    _bimodal,
    _host_bound,
    _graph_registers,
    _plateau,
    _notes,
)
