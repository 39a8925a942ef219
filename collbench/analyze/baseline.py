"""What a good run reached, kept for one class of hardware, and later runs held against it.

A baseline holds one time a repeat of every case, so that a later run is judged by the comparison
of ``analyze.compare`` wherever both sides have repeats enough for it. What each verdict claims is
written in docs/baseline.md.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np
from scipy import special

from collbench.analyze.compare import FEWEST_REPEATS, CaseComparison, Doubt, Verdict, compare_cases
from collbench.analyze.curves import Point, curves, in_reading_order, question
from collbench.analyze.keys import CaseKey, case_key
from collbench.analyze.limit import LimitOf
from collbench.analyze.moderated import moderate, neighbourhood
from collbench.analyze.sides import Times, times_of, times_of_runs
from collbench.errors import RecordError, UsageError
from collbench.model import Case, Nic, Record, Run, Status, Topology, Trial
from collbench.store import StoredRun

SCHEMA = "collbench.baseline/1"
TOLERANCE = 0.05

_ALPHA = 0.01
"""The chance that any case of a table is ``below`` though nothing changed, as in a comparison."""
_CLEAR_SCATTERS = 3.0
"""So many scatters of the baseline's repeats a case of few repeats is slower, at the least."""
_FOREIGN = (msgspec.MsgspecError, RecursionError)
"""What the decoder raises for text that is no JSON, nested without end, or no baseline."""


class HardwareClass(Record, frozen=True, kw_only=True):
    """What a baseline and a run held against it share; never a host name."""

    models: list[str]
    """Of the GPUs in use, or of the CPUs where no GPU is."""
    nodes: int
    gpus_per_node: list[int]
    """Each number that occurs; 0 without GPUs."""
    ranks: int
    nics: list[str]
    """A node's InfiniBand, RoCE and other RDMA devices with their rates; each kind of node once."""
    backend: str
    emulated: bool = False
    """Its nodes are fake hosts on one machine."""


class Software(Record, frozen=True, kw_only=True):
    """What a baseline's figures came from; other software is said, not refused."""

    collbench: str
    nccl: str | None = None
    torch: str | None = None
    driver: str | None = None


class BaselineCase(Record, frozen=True, kw_only=True):
    """What one case reached."""

    case: Case
    time_us: float
    """Geometric mean over the repeats' medians."""
    busbw_gb_per_s: float | None = None
    """Of that time; absent where the case has no rate."""
    repeats: int
    scatter: float | None = None
    """Standard deviation of the repeats' log times, as a share: 0.01 is 1 %; absent for one."""
    times_us: list[float]
    """The median of each repeat; all cases list their repeats in one order."""


class Baseline(Record, frozen=True, kw_only=True):
    """The content of a baseline's file."""

    schema: str = SCHEMA
    hardware: HardwareClass
    software: list[Software]
    """Of its runs, the same once."""
    run_ids: list[str]
    simulated: bool = False
    cases: Annotated[list[BaselineCase], msgspec.Meta(min_length=1)]


@dataclass(frozen=True, kw_only=True, slots=True)
class Bars:
    """What a site asks of a run."""

    baseline: Baseline | None = None
    source: str = ""
    """The baseline as the user calls it."""
    tolerance: float = TOLERANCE
    min_busbw_gb_per_s: float | None = None
    """Of each collective's peak, where it has no bar of its own."""
    min_busbw_of: Mapping[str, float] = field(default_factory=dict)
    """By collective, GB/s."""
    min_of_limit: float | None = None
    """Share of the wire's limit that each collective's peak has to reach."""


class BarVerdict(StrEnum):
    """How a case or a peak stands to its bar."""

    MET = "pass"
    BELOW = "below"
    UNCLEAR = "unclear"
    NO_BAR = "no bar"
    """The baseline does not have the case."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CaseBar:
    """One case against the baseline; times are geometric means over the repeats' medians."""

    case: Case
    verdict: BarVerdict
    reference_us: float | None = None
    time_us: float | None = None
    ratio: float | None = None
    """time / reference: above 1 is slower."""
    low: float | None = None
    high: float | None = None
    """The ratio's 95 % interval, with three repeats of each side and more."""
    reason: str | None = None
    """Why it is unclear."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PeakBar:
    """The largest bus bandwidth of one question against a bar."""

    option: str
    """``--min-busbw`` or ``--min-of-limit``."""
    case: Case
    """The case of the peak."""
    verdict: BarVerdict
    busbw_gb_per_s: float | None = None
    bar_gb_per_s: float | None = None
    text: str
    """What the bar is made of."""
    reason: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class BarReport:
    """All verdicts of a run."""

    cases: tuple[CaseBar, ...] = ()
    peaks: tuple[PeakBar, ...] = ()
    not_measured: int = 0
    """Cases of the baseline that the run did not ask for."""
    software: Software | None = None
    """Of the run; absent where it is held against no baseline."""

    @property
    def judged(self) -> tuple[CaseBar | PeakBar, ...]:
        """All of them."""
        return (*self.cases, *self.peaks)

    @property
    def verdict(self) -> BarVerdict:
        """The gravest of all; NO_BAR where nothing could be held against anything."""
        found = {item.verdict for item in self.judged}
        order = (BarVerdict.BELOW, BarVerdict.UNCLEAR, BarVerdict.MET)
        return next((verdict for verdict in order if verdict in found), BarVerdict.NO_BAR)


def hardware_class(run: Run, topology: Topology) -> HardwareClass:
    """Returns the class of the nodes on which a run's ranks are."""
    used = {(place.node, place.gpu) for place in topology.ranks}
    nodes = [node for node in topology.nodes if node.name in {name for name, _ in used}]
    gpus = [[gpu for gpu in node.gpus if (node.name, gpu.index) in used] for node in nodes]
    return HardwareClass(
        models=sorted(
            {gpu.name for found in gpus for gpu in found} or {node.cpu_model for node in nodes}
        ),
        nodes=len(nodes),
        gpus_per_node=sorted({len(found) for found in gpus}),
        ranks=len(topology.ranks),
        nics=sorted({text for node in nodes if (text := _nics_text(node.nics))}),
        backend=run.backend,
        emulated=run.emulated,
    )


def _nics_text(nics: Sequence[Nic]) -> str:
    rails = [nic for nic in nics if nic.kind != "ethernet"]
    kinds = Counter((nic.kind, nic.rate_gbit_per_s or 0.0) for nic in rails)
    return " + ".join(
        f"{count} x {kind} {f'{rate:g} Gbit/s' if rate else 'of unknown rate'}"
        for (kind, rate), count in sorted(kinds.items())
    )


def make_baseline(runs: Sequence[StoredRun]) -> Baseline:
    """Returns what runs of one class reached; each run adds its repeats.

    Trials that are not ``ok`` are left out.

    Raises:
        UsageError: a planted fault, runs of several classes or simulated and real ones, one run
            twice, or no trial that is ``ok``.
    """
    first, run_ids = runs[0], [stored.run.run_id for stored in runs]
    hardware = hardware_class(first.run, first.topology)
    for stored in runs:
        _refuse_odd(stored, first, hardware)
    if len(set(run_ids)) < len(run_ids):
        raise UsageError(f"a run is given twice: {', '.join(run_ids)}; give each once")
    cases = _baseline_cases([stored.trials for stored in runs])
    if not cases:
        raise UsageError(
            f"no trial of {', '.join(run_ids)} is ok: nothing to make a baseline of;"
            " 'collbench show' tells why"
        )
    return Baseline(
        hardware=hardware,
        software=list(dict.fromkeys(_software(stored.run) for stored in runs)),
        run_ids=run_ids,
        simulated=first.run.simulated,
        cases=cases,
    )


def _refuse_odd(stored: StoredRun, first: StoredRun, hardware: HardwareClass) -> None:
    run = stored.run
    if run.planted:
        raise UsageError(
            f"run {run.run_id} has a planted fault ({run.planted}): it shows that a fault is found,"
            " not what the hardware can do; give another run"
        )
    both = f"runs {first.run.run_id} and {run.run_id}"
    if run.simulated != first.run.simulated:
        raise UsageError(f"{both}: one is simulated, the other is not; a baseline is of one kind")
    apart = class_differences(hardware, hardware_class(run, stored.topology))
    if apart:
        found = ", ".join(f"{name} {was} and {is_now}" for name, was, is_now in apart)
        raise UsageError(f"{both} are of different hardware: {found}; write one for each class")


def _baseline_cases(runs: Sequence[Sequence[Trial]]) -> list[BaselineCase]:
    trials: dict[CaseKey, Trial] = {}
    for trial in in_reading_order([trial for one in runs for trial in one]):
        if trial.status is Status.OK and trial.summary is not None:
            trials.setdefault(case_key(trial.case), trial)
    times = times_of_runs(runs)
    return [_baseline_case(trial, times[key]) for key, trial in trials.items()]


def _baseline_case(trial: Trial, times_us: Sequence[float]) -> BaselineCase:
    assert trial.summary is not None
    logs = np.log(times_us)
    time_us = float(np.exp(logs.mean()))
    rate = trial.summary.busbw_gb_per_s
    return BaselineCase(
        case=trial.case,
        time_us=time_us,
        # Rates come from times: the rate of the mean time, never a mean of rates.
        busbw_gb_per_s=None if rate is None else rate * trial.summary.median_us / time_us,
        repeats=len(times_us),
        scatter=float(logs.std(ddof=1)) if len(times_us) > 1 else None,
        times_us=list(times_us),
    )


def _software(run: Run) -> Software:
    environment = run.environment
    nccl = run.backend == "nccl"
    return Software(
        collbench=environment.collbench,
        nccl=environment.nccl.version if nccl and environment.nccl else None,
        torch=environment.torch,
        driver=environment.driver if nccl else None,
    )


def baseline_bytes(baseline: Baseline) -> bytes:
    """Returns the content of a baseline's file: JSON, a case a line."""
    head = msgspec.json.encode(msgspec.structs.replace(baseline, cases=[]))
    start = msgspec.json.format(head, indent=2).removesuffix(b"[]\n}")
    lines = b",\n    ".join(msgspec.json.encode(case) for case in baseline.cases)
    return start + b"[\n    " + lines + b"\n  ]\n}\n"


def read_baseline(path: Path) -> Baseline:
    """Returns the baseline in a file.

    Raises:
        UsageError: the file cannot be read.
        RecordError: it is no baseline, of another version, or contradicts itself.
    """
    try:
        data = path.read_bytes()
    except OSError as problem:
        raise UsageError(f"baseline {path} cannot be read: {problem.strerror}") from None
    try:
        raw = msgspec.json.decode(data)
        schema = raw.get("schema") if isinstance(raw, dict) else None
        if schema != SCHEMA:
            said = f"its schema is '{schema}'" if schema else "it has no schema"
            raise RecordError(
                f"{path} is no baseline that can be read here: {said}, and {SCHEMA} is wanted;"
                " 'collbench baseline RUN' writes one"
            )
        baseline = msgspec.convert(raw, Baseline)
    except _FOREIGN as problem:
        raise RecordError(f"baseline {path} is damaged: {problem}") from None
    for item in baseline.cases:
        if not _holds_together(item):
            raise RecordError(
                f"baseline {path} is damaged: time_us, repeats and times_us of"
                f" {item.case.case_id} do not agree; write it anew with 'collbench baseline RUN'"
            )
    return baseline


def _holds_together(item: BaselineCase) -> bool:
    times = item.times_us
    if not times or item.repeats != len(times) or not all(0 < t < math.inf for t in times):
        return False
    return math.isclose(item.time_us, math.exp(np.log(times).mean()), rel_tol=1e-6)


def class_differences(one: HardwareClass, other: HardwareClass) -> list[tuple[str, str, str]]:
    """Returns what differs: its name, what it is in the one and in the other."""
    names = {
        "models": "GPU or CPU",
        "nodes": "nodes",
        "gpus_per_node": "GPUs a node",
        "ranks": "ranks",
        "nics": "NICs",
        "backend": "back end",
        "emulated": "emulated",
    }
    rows = [(word, getattr(one, name), getattr(other, name)) for name, word in names.items()]
    return [(word, _shown(was), _shown(is_now)) for word, was, is_now in rows if was != is_now]


def _shown(value: object) -> str:
    return " or ".join(map(str, value)) or "none" if isinstance(value, list) else str(value)


def check_against(trials: Sequence[Trial], run: Run, bars: Bars, limit_of: LimitOf) -> BarReport:
    """Returns how a run stands to the bars that are set.

    Args:
        trials: of the whole run.
        run: its header.
        bars: that ``check_bars`` has passed.
        limit_of: what the wire allows for a case, or None.
    """
    peaks = tuple(_peak_bars(trials, bars, limit_of))
    if bars.baseline is None:
        return BarReport(peaks=peaks)
    asked = {case_key(trial.case) for trial in trials}
    return BarReport(
        cases=tuple(_case_bars(trials, bars.baseline, bars.tolerance)),
        peaks=peaks,
        not_measured=sum(case_key(item.case) not in asked for item in bars.baseline.cases),
        software=_software(run),
    )


def _case_bars(trials: Sequence[Trial], baseline: Baseline, tolerance: float) -> Iterator[CaseBar]:
    known = {case_key(item.case): item for item in baseline.cases}
    base: Times = {key: tuple(item.times_us) for key, item in known.items()}
    new = times_of(trials)
    both = {key: base[key] for key in new if key in base}
    judged: dict[CaseKey, CaseComparison] = {}
    if both:
        found = compare_cases(both, new, threshold=tolerance, alpha=_ALPHA)
        judged = {case.key: case for case in found.cases}
    clear = _clear_ratios(both, new)
    asked = {case_key(trial.case): trial for trial in in_reading_order(trials)}
    for key, trial in asked.items():
        if key not in known:
            yield CaseBar(case=trial.case, verdict=BarVerdict.NO_BAR)
        elif key not in judged:
            yield CaseBar(
                case=trial.case,
                verdict=BarVerdict.UNCLEAR,
                reference_us=known[key].time_us,
                reason=f"not measured: {trial.status}",
            )
        else:
            yield _case_bar(trial.case, judged[key], clear.get(key), tolerance)


def _case_bar(case: Case, found: CaseComparison, clear: float | None, tolerance: float) -> CaseBar:
    few = found.doubt in (Doubt.TOO_FEW, Doubt.MISSING)
    verdict, reason = BarVerdict.MET, None
    if found.verdict is Verdict.SLOWER:
        verdict = BarVerdict.BELOW
    elif found.ratio > 1 + tolerance:
        verdict, reason = BarVerdict.UNCLEAR, found.reason
        if few and clear is not None:
            reason = f"few repeats: sure only above {clear - 1:+.1%}"
            if found.ratio > max(1 + tolerance, clear):
                verdict, reason = BarVerdict.BELOW, None
    return CaseBar(
        case=case,
        verdict=verdict,
        reference_us=found.base_us,
        time_us=found.new_us,
        ratio=found.ratio,
        low=found.low,
        high=found.high,
        reason=reason,
    )


def _clear_ratios(base: Times, new: Times) -> dict[CaseKey, float]:
    """Returns the ratio above which a case of few repeats is clearly slower.

    Three scatters of the baseline's own repeats, and not less than what one more draw of that
    noise, shared with its neighbours', passes by chance in any case with a chance of 1 %. Only for
    cases of which the baseline has all repeats and at least three: fewer tell no scatter.
    """
    most = max((len(times) for times in base.values()), default=0)
    keys = [key for key, times in base.items() if len(times) == most]
    if most < FEWEST_REPEATS:
        return {}
    logs = np.log(np.array([base[key] for key in keys]).T)
    near = neighbourhood([str(key.mode) for key in keys], logs.mean(axis=0))
    noise = moderate(logs.var(axis=0, ddof=1), most - 1, near)
    draws = np.array([len(new[key]) for key in keys])
    quantile = -special.stdtrit(noise.freedom, _ALPHA / len(keys))
    by_chance = quantile * np.sqrt(noise.variance * (1 / most + 1 / draws))
    reach = np.maximum(_CLEAR_SCATTERS * logs.std(axis=0, ddof=1), by_chance)
    return dict(zip(keys, np.exp(reach).tolist(), strict=True))


def _peak_bars(trials: Sequence[Trial], bars: Bars, limit_of: LimitOf) -> Iterator[PeakBar]:
    """Yields the bars of each question's peak: the best of its sizes and settings."""
    groups: dict[tuple[object, ...], list[Trial]] = {}
    for trial in in_reading_order(trials):
        asked = msgspec.structs.replace(trial.case, setting={})
        groups.setdefault(question(asked), []).append(trial)
    for group in groups.values():
        trial, point = _peak(group)
        bar = bars.min_busbw_of.get(trial.case.collective, bars.min_busbw_gb_per_s)
        if bar is not None:
            yield _peak_bar("--min-busbw", trial.case, point, bar, f"{bar:g} GB/s")
        if bars.min_of_limit is not None:
            limit = limit_of(trial.case, trial.proof)
            least = None if limit is None else bars.min_of_limit * limit.busbw_gb_per_s
            text = f"{100 * bars.min_of_limit:g} %" + (f" of {limit.text}" if limit else "")
            yield _peak_bar("--min-of-limit", trial.case, point, least, text)


def _peak(trials: Sequence[Trial]) -> tuple[Trial, Point | None]:
    """Returns a trial of the largest rate and its point; of the largest size where none has one."""
    rated = [(curve.peak, curve.case) for curve in curves(trials) if curve.peak is not None]
    if not rated:
        return max(trials, key=lambda trial: trial.case.size_bytes), None
    point, case = max(rated, key=lambda pair: (pair[0] and pair[0].busbw_gb_per_s) or 0.0)
    assert point is not None
    its = (trial for trial in trials if trial.case.size_bytes == point.size_bytes)
    return next(trial for trial in its if trial.case.setting == case.setting), point


def _peak_bar(
    option: str, case: Case, point: Point | None, bar: float | None, text: str
) -> PeakBar:
    """Judges a peak: below is what no repeat, or its one repeat's interval, reaches."""
    rate = None if point is None else point.busbw_gb_per_s
    verdict, reason = BarVerdict.UNCLEAR, None
    if point is None or rate is None:
        reason = "no bus bandwidth was measured"
    elif bar is None:
        reason = "the limit of this wire is not known"
    elif rate >= bar:
        verdict = BarVerdict.MET
    else:
        best = rate * point.time_us / (point.low_us or point.time_us)
        verdict = BarVerdict.BELOW if best < bar else BarVerdict.UNCLEAR
        reason = None if best < bar else f"up to {best:.4g} GB/s in its repeats or samples"

    return PeakBar(
        option=option,
        case=case,
        verdict=verdict,
        busbw_gb_per_s=rate,
        bar_gb_per_s=bar,
        text=text,
        reason=reason,
    )
