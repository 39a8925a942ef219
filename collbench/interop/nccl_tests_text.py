"""A stored run as nccl-tests prints results, for scripts that read such tables.

The columns, their widths and their number of decimals are those of nccl-tests 2.19
(``all_reduce_perf`` and the others). Whatever collbench adds stands behind ``#``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from statistics import fmean, median

import msgspec

from collbench.analyze.curves import question
from collbench.collectives import COLLECTIVES
from collbench.interop.table_files import nccl_version
from collbench.model import Case, Mode, Run, Status, Topology, Trial
from collbench.nccl.settings import setting_order, setting_text
from collbench.store import StoredRun
from collbench.units import gb_per_s
from collbench.version import __version__

_NOT_MEASURED = "N/A"
_TIME_WIDTH, _RATE_WIDTH = 7, 6
_MOST_DECIMALS = 2
_TYPES = {
    "float64": "double",
    "float32": "float",
    "float16": "half",
    "float8_e4m3fn": "f8e4m3",
    "float8_e5m2": "f8e5m2",
}
"""nccl-tests' names of types; all others are called as torch calls them."""
_NAMES = "     time   algbw   busbw  #wrong"
_UNITS = "     (us)  (GB/s)  (GB/s)        "
_COLUMNS = (
    f"#{'':62}out-of-place{'':23}in-place{'':10}",
    f"#       size         count      type   redop    root{_NAMES}{_NAMES} ",
    f"#        (B)    (elements){'':26}{_UNITS}{_UNITS} ",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Figures:
    """What stands in the four columns of a placement."""

    time_us: float
    algbw_gb_per_s: float
    busbw_gb_per_s: float
    checked: bool

    def text(self) -> str:
        time = number_text(self.time_us, _TIME_WIDTH)
        rates = [
            number_text(rate, _RATE_WIDTH) for rate in (self.algbw_gb_per_s, self.busbw_gb_per_s)
        ]
        wrong = "0" if self.checked else _NOT_MEASURED
        return f"  {time}  {rates[0]}  {rates[1]}  {wrong:>{_RATE_WIDTH}}"


def nccl_tests_text(stored: StoredRun, mark: str | None = None) -> str:
    """Returns one table for each collective, type, operator, root, mode and setting.

    A row's time is the median over repeats of each repeat's median, rates come from that time.
    What did not end ``ok`` is a comment behind its table's rows; its placement is ``N/A``.

    Args:
        stored: a run over all its ranks.
        mark: what must be read before all else, in one line.
    """
    run, topology = stored.run, stored.topology
    ordered = sorted(stored.trials, key=_order)
    tables = [list(trials) for _, trials in groupby(ordered, key=lambda one: _table(one.case))]
    lines = [_about(run)]
    if mark is not None:
        lines.append(f"# {mark}")
    for trials in tables:
        lines += _table_lines(run, topology, trials)
    return "\n".join(lines) + "\n"


def number_text(value: float, width: int) -> str:
    """Returns a number right-aligned, with two decimals or as many as its width leaves room for.

    A whole number that needs more than the width takes it: its columns stay apart.
    """
    for decimals in range(_MOST_DECIMALS, 0, -1):
        text = f"{value:{width}.{decimals}f}"
        if len(text) <= width:
            return text
    return f"{value:{width}.0f}"


def _about(run: Run) -> str:
    return (
        f"# Written by collbench {__version__} from run {run.run_id}: the slowest"
        " rank's time, median over samples and repeats"
    )


def _table(case: Case) -> tuple[object, ...]:
    """Returns what the cases of a table share: all but size and placement."""
    return question(msgspec.structs.replace(case, in_place=False))


def _order(trial: Trial) -> tuple[object, ...]:
    case = trial.case
    return (
        list(COLLECTIVES).index(case.collective),
        case.dtype,
        case.redop or "",
        -1 if case.root is None else case.root,
        list(Mode).index(case.mode),
        setting_order(case.setting),
        repr(_table(case)),
        case.size_bytes,
        case.in_place,
        trial.repeat,
    )


def _program(case: Case) -> str:
    """Returns the program of nccl-tests: ``alltoall_perf``."""
    aliases = COLLECTIVES[case.collective].aliases
    return next(alias for alias in aliases if alias.endswith("_perf"))


def _table_lines(run: Run, topology: Topology, trials: Sequence[Trial]) -> list[str]:
    first = trials[0].case
    rows, notes, rates = [], [], []
    for _, same_size in groupby(trials, key=lambda one: one.case.size_bytes):
        found = list(same_size)
        out, inside = (
            _figures([one for one in found if one.case.in_place is in_place])
            for in_place in (False, True)
        )
        notes += [_note(one) for one in found if one.status is not Status.OK]
        if out is None and inside is None:
            continue
        rows.append(_row(found[0].case, out, inside))
        rates += [one.busbw_gb_per_s for one in (out, inside) if one is not None]
    wrong = sum(one.check.wrong_elements for one in trials if one.check is not None)
    return [
        f"# Collective test starting: {_program(first)}",
        _parameters(run, trials),
        "#",
        _what_ran(run, first),
        "#",
        "# Using devices",
        *_devices(topology),
        "#",
        *_COLUMNS,
        *rows,
        *notes,
        f"# Out of bounds values : {wrong} {'FAILED' if wrong else 'OK'}",
        f"# Avg bus bandwidth    : {fmean(rates) if rates else 0:.6g} ",
        "#",
        f"# Collective test concluded: {_program(first)}",
        "#",
        "",
    ]


def _figures(trials: Sequence[Trial]) -> _Figures | None:
    """Returns a case's figures over its repeats; None where none of them is ``ok``."""
    ok = [one for one in trials if one.status is Status.OK and one.summary is not None]
    if not ok:
        return None
    case = ok[0].case
    time_us = median(one.summary.median_us for one in ok if one.summary is not None)
    algbw = gb_per_s(case.size_bytes, time_us)
    return _Figures(
        time_us=time_us,
        algbw_gb_per_s=algbw,
        busbw_gb_per_s=COLLECTIVES[case.collective].busbw(algbw, case.world_size),
        checked=all(one.check is not None and one.check.checked for one in ok),
    )


def _row(case: Case, out: _Figures | None, inside: _Figures | None) -> str:
    missing = f"  {_NOT_MEASURED:>7}  {_NOT_MEASURED:>6}  {_NOT_MEASURED:>6}  {_NOT_MEASURED:>6}"
    dtype = _TYPES.get(case.dtype, case.dtype)
    root = -1 if case.root is None else case.root
    head = f"{case.size_bytes:12}  {case.count:12}  {dtype:>8}  {case.redop or 'none':>6}  {root:6}"
    return head + "".join(missing if one is None else one.text() for one in (out, inside))


def _note(trial: Trial) -> str:
    """Returns why a trial has no figures, in one line."""
    case, reason = trial.case, trial.reason
    place = "in-place" if case.in_place else "out-of-place"
    why = "" if reason is None else f" {reason.code}: {' '.join(reason.text.split())}"
    return f"# {case.size_bytes} B {place} repeat {trial.repeat}: {trial.status}{why}"


def _parameters(run: Run, trials: Sequence[Trial]) -> str:
    """Returns the line of parameters; of calls that differ from row to row the fewest."""
    sizes = sorted({one.case.requested_bytes for one in trials})
    done = [one.summary for one in trials if one.summary is not None]
    calls = min((one.samples * one.ops_per_sample for one in done), default=0)
    warmup = min((one.warmup_samples * one.ops_per_sample for one in done), default=0)
    graph = int(trials[0].case.mode is Mode.GRAPH)
    return (
        f"# nThread 1 nGpus 1 minBytes {sizes[0]} maxBytes {sizes[-1]} step: {_step(sizes)}"
        f" warmup iters: {warmup} iters: {calls} agg iters: 1"
        f" validation: {int(run.policy.check)} graph: {graph}"
    )


def _step(sizes: Sequence[int]) -> str:
    """Returns ``4(factor)`` or ``1024(bytes)``; 0 bytes where sizes follow no such rule."""
    pairs = list(pairwise(sizes))
    ways: tuple[tuple[str, Callable[[int, int], int]], ...] = (
        ("factor", lambda low, high: high // low if low and high % low == 0 else 0),
        ("bytes", lambda low, high: high - low),
    )
    for unit, step in ways:
        found = {step(low, high) for low, high in pairs}
        if len(found) == 1 and 0 not in found:
            return f"{found.pop()}({unit})"
    return "0(bytes)"


def _what_ran(run: Run, case: Case) -> str:
    nodes = f"{case.nodes} node{'s' * (case.nodes != 1)}"
    version = f" {nccl_version(run, case) or 'of unknown version'}" * (case.backend == "nccl")
    return (
        f"# {case.world_size} ranks on {nodes}, {case.backend}{version} via {case.via},"
        f" mode {case.mode}, {case.pattern}, setting: {setting_text(case.setting)}"
    )


def _devices(topology: Topology) -> list[str]:
    """Returns a line for each rank; processes have no number in a record, so that it is 0."""
    nodes = {node.name: node for node in topology.nodes}
    lines = []
    for place in topology.ranks:
        node = nodes[place.node]
        gpu = next((one for one in node.gpus if one.index == place.gpu), None)
        device, where, name = place.local_rank, "-", node.cpu_model
        if gpu is not None:
            device, where, name = gpu.index, gpu.pci_bus_id, gpu.name
        lines.append(
            f"#  Rank {place.rank:2} Group  0 Pid {0:6} on {place.node:>10} device {device:2}"
            f" [{where}] {name}"
        )
    return lines
