"""What a good run reached, kept for one class of hardware.

A baseline holds one time a repeat of every case: ``analyze.bars`` holds later runs against them.
Or it holds what pairs of nodes reach (``analyze.pair_levels``), for later runs of ``pairwise``.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np

from collbench.analyze.curves import in_reading_order
from collbench.analyze.keys import CaseKey, case_key
from collbench.analyze.sides import times_of_runs
from collbench.errors import RecordError, UsageError
from collbench.model import Case, Nic, Record, Run, Status, Topology, Trial
from collbench.store import StoredRun

SCHEMA = "collbench.baseline/1"

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
    """Of several libraries in turn all versions: ``2.28.9 and 2.32.3``."""
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


class PairLevel(Record, frozen=True, kw_only=True):
    """What the good pairs of runs of ``pairwise`` reached."""

    collective: str
    rail: int | None = None
    """None: over all rails, or there is one."""
    inside: bool = False
    """Between the GPUs of a node."""
    busbw_gb_per_s: float
    """The median."""
    pairs: int
    """That it is the median of."""


class Baseline(Record, frozen=True, kw_only=True):
    """The content of a baseline's file: cases, or what pairs reach."""

    schema: str = SCHEMA
    hardware: HardwareClass
    software: list[Software]
    """Of its runs, the same once."""
    run_ids: list[str]
    simulated: bool = False
    cases: list[BaselineCase] = []
    pairs: list[PairLevel] = []


def hardware_class(run: Run, topology: Topology) -> HardwareClass:
    """Returns the class of the nodes on which a run's ranks are."""
    return class_of(topology, backend=run.backend, emulated=run.emulated)


def class_of(topology: Topology, *, backend: str, emulated: bool) -> HardwareClass:
    """Returns the class of the nodes on which ranks are.

    Args:
        topology: those nodes and others.
        backend: that the ranks use.
        emulated: whether nodes are fake hosts on one machine.
    """
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
        backend=backend,
        emulated=emulated,
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
    head = head_of(runs)
    cases = _baseline_cases([stored.trials for stored in runs])
    if not cases:
        raise UsageError(
            f"no trial of {', '.join(head.run_ids)} is ok: nothing to make a baseline of;"
            " 'collbench show' tells why"
        )
    return msgspec.structs.replace(head, cases=cases)


def head_of(runs: Sequence[StoredRun]) -> Baseline:
    """Returns a baseline of some runs that holds nothing yet.

    Raises:
        UsageError: a planted fault, runs of several classes or simulated and real ones, or one run
            twice.
    """
    first, run_ids = runs[0], [stored.run.run_id for stored in runs]
    hardware = hardware_class(first.run, first.topology)
    for stored in runs:
        _refuse_odd(stored, first, hardware)
    if len(set(run_ids)) < len(run_ids):
        raise UsageError(f"a run is given twice: {', '.join(run_ids)}; give each once")
    return Baseline(
        hardware=hardware,
        software=list(dict.fromkeys(software_of(stored.run) for stored in runs)),
        run_ids=run_ids,
        simulated=first.run.simulated,
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


def software_of(run: Run) -> Software:
    """Returns the software that a run's figures came from."""
    environment = run.environment
    nccl = run.backend == "nccl"
    alone = [] if environment.nccl is None else [environment.nccl]
    loaded = list(environment.libraries.values()) or alone
    versions = dict.fromkeys(library.version for library in loaded)
    return Software(
        collbench=environment.collbench,
        nccl=" and ".join(versions) or None if nccl else None,
        torch=environment.torch,
        driver=environment.driver if nccl else None,
    )


def baseline_bytes(baseline: Baseline) -> bytes:
    """Returns the content of a baseline's file: JSON, a case a line."""
    head = msgspec.json.encode(msgspec.structs.replace(baseline, cases=[], pairs=[]))
    start = msgspec.json.format(head, indent=2).removesuffix(b'"cases": [],\n  "pairs": []\n}')
    lists = []
    for name, items in (("cases", baseline.cases), ("pairs", baseline.pairs)):
        if items:
            lines = b",\n    ".join(msgspec.json.encode(item) for item in items)
            lists.append(b'"' + name.encode() + b'": [\n    ' + lines + b"\n  ]")
    return start + b",\n  ".join(lists) + b"\n}\n"


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
    if not baseline.cases and not baseline.pairs:
        raise RecordError(f"baseline {path} is damaged: it has neither cases nor pairs")
    for level in baseline.pairs:
        if not 0 < level.busbw_gb_per_s < math.inf:
            raise RecordError(
                f"baseline {path} is damaged: busbw_gb_per_s {level.busbw_gb_per_s} of"
                f" {level.collective}; write it anew with 'collbench baseline RUN'"
            )
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


def class_differences(
    one: HardwareClass, other: HardwareClass, *, without: Sequence[str] = ()
) -> list[tuple[str, str, str]]:
    """Returns what differs: its name, what it is in the one and in the other.

    Args:
        one: a class.
        other: that it is compared with.
        without: fields that may differ.
    """
    names = {
        "models": "GPU or CPU",
        "nodes": "nodes",
        "gpus_per_node": "GPUs a node",
        "ranks": "ranks",
        "nics": "NICs",
        "backend": "back end",
        "emulated": "emulated",
    }
    rows = [
        (word, getattr(one, name), getattr(other, name))
        for name, word in names.items()
        if name not in without
    ]
    return [(word, _shown(was), _shown(is_now)) for word, was, is_now in rows if was != is_now]


def _shown(value: object) -> str:
    return " or ".join(map(str, value)) or "none" if isinstance(value, list) else str(value)
