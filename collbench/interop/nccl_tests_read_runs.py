"""From files of nccl-tests to runs: tables that ran alike are repeats of one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from collbench.errors import UsageError
from collbench.interop.nccl_tests_read_place import environment_of, topology_of
from collbench.interop.nccl_tests_read_trials import Reading, collective_of, readings
from collbench.interop.nccl_tests_read_types import ReadFile, Table
from collbench.model import Finding, Policy, Run, Topology, Trial
from collbench.notes import NOTES
from collbench.store import new_run_id

COMMAND = "nccl-tests"
"""What such a run is stored as being of."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Part:
    """A table with its trials."""

    file: str
    table: Table
    readings: list[Reading]


@dataclass(frozen=True, kw_only=True, slots=True)
class MadeRun:
    """A run as it will be stored."""

    run: Run
    topology: Topology
    readings: tuple[Reading, ...]
    """With repeats numbered."""
    files: tuple[str, ...]
    words: str
    """What its tables share: ``NCCL 2.28.9, eager, 2 ranks on 1 node, NVIDIA H200``."""

    @property
    def trials(self) -> list[Trial]:
        """Of all repeats."""
        return [one.trial for one in self.readings]


@dataclass(frozen=True, kw_only=True, slots=True)
class Made:
    """What became of the files."""

    runs: tuple[MadeRun, ...]
    odd: tuple[str, ...]
    """A line for each thing that could not be taken as it stands: ``FILE: line 14: ...``."""


@dataclass(kw_only=True, slots=True)
class _Odd:
    """Lines with the file's name before them."""

    lines: list[str] = field(default_factory=list)

    def add(self, file: str, lines: Sequence[str]) -> None:
        self.lines += [f"{file}: {line}" for line in lines]


def make_runs(
    files: Sequence[ReadFile],
    *,
    collective: str | None,
    cluster: str,
    argv: Sequence[str],
    now: str,
) -> Made:
    """Returns the runs that files make.

    Tables with one NCCL version, mode, number and layout of ranks and kind of device are repeats
    of one run; where files tell of different NCCL variables, these part them too. A repeat's
    number counts the tables before that measured one of its cases.

    Args:
        files: as read.
        collective: what tables measured that do not say so.
        cluster: under which the runs are kept.
        argv: of the command.
        now: UTC, ISO 8601.

    Raises:
        UsageError: a table names no collective or no ranks, or a file has no row that fits.
    """
    odd, parts = _Odd(), list[_Part]()
    for file in files:
        odd.add(file.name, file.odd)
        mine = [_part(file.name, table, collective, now, odd) for table in file.tables]
        if not any(part.readings for part in mine):
            raise UsageError(
                f"'{file.name}' has no row that fits what its first lines say; {odd.lines[-1]}"
            )
        parts += mine
    runs = []
    for group in _grouped([part for part in parts if part.readings]):
        odd.lines += _differing(group)
        runs.append(_made(group, cluster, argv, now))
    return Made(runs=tuple(runs), odd=tuple(odd.lines))


def _part(file: str, table: Table, collective: str | None, now: str, odd: _Odd) -> _Part:
    where = f"'{file}'" + (f" {table.where}" if table.where else "")
    found = collective_of(table, collective, where)
    if not table.ranks:
        raise UsageError(
            f"{where} names no ranks ('Using devices' is missing); give all that nccl-tests printed"
        )
    lines = list[str]()
    part = _Part(file=file, table=table, readings=list(readings(table, found, now, lines)))
    odd.add(file, lines)
    return part


def _grouped(parts: Sequence[_Part]) -> Iterator[list[_Part]]:
    """Yields the tables of each run, in the order in which they were given."""
    alike: dict[object, list[_Part]] = {}
    for part in parts:
        table = part.table
        hosts = Counter(rank.host for rank in table.ranks)
        models = sorted({rank.model for rank in table.ranks})
        key = (table.nccl_version, table.graph, *sorted(hosts.values()), *models)
        alike.setdefault(key, []).append(part)
    for group in alike.values():
        known = {_variables(part.table) for part in group if part.table.variables is not None}
        parted: dict[object, list[_Part]] = {}
        for part in group:
            parted.setdefault(_variables(part.table) if len(known) > 1 else None, []).append(part)
        yield from parted.values()


def _variables(table: Table) -> tuple[tuple[str, str], ...] | None:
    return None if table.variables is None else tuple(sorted(table.variables.items()))


def _differing(group: Sequence[_Part]) -> Iterator[str]:
    """Yields a line for each file that measured otherwise than the first of its run."""
    first = group[0]
    for part in group[1:]:
        table, other = part.table, first.table
        words = []
        if {rank.host for rank in table.ranks} != {rank.host for rank in other.ranks}:
            words.append("on other hosts, which topology.json does not name")
        if (table.iterations, table.aggregated) != (other.iterations, other.aggregated):
            words.append(f"with {table.iterations} x {table.aggregated} calls a time")
        if table.average != other.average and None not in (table.average, other.average):
            words.append("with another -a")
        if words:
            yield f"{part.file}: ran {' and '.join(words)}; otherwise than {first.file}"


def _made(group: Sequence[_Part], cluster: str, argv: Sequence[str], now: str) -> MadeRun:
    repeats = _repeats(group)
    found = [
        Reading(trial=_in_repeat(one.trial, repeat), calls_us=one.calls_us)
        for part, repeat in zip(group, repeats, strict=True)
        for one in part.readings
    ]
    table = group[0].table
    known = next((part.table.variables for part in group if part.table.variables), {})
    files = tuple(dict.fromkeys(part.file for part in group))
    words = _words(table)
    run = Run(
        run_id=new_run_id(),
        command=COMMAND,
        argv=list(argv),
        cluster=cluster,
        suite={
            "source": COMMAND,
            "tables": [_told(part, repeat) for part, repeat in zip(group, repeats, strict=True)],
        },
        policy=Policy(
            samples=max(_samples(one) for one in found),
            warmup=table.warmup,
            check=table.validation,
            proof=False,
        ),
        repeats=max(repeats) + 1,
        seed=0,
        planned_trials=len(found),
        backend="nccl",
        world_size=len(table.ranks),
        environment=environment_of(table, known),
        note=f"Measured by nccl-tests, not by collbench: {words}",
        via="native",
        started_at=now,
    )
    return MadeRun(
        run=run,
        topology=topology_of(table),
        readings=tuple(found),
        files=files,
        words=words,
    )


def _repeats(group: Sequence[_Part]) -> list[int]:
    """Returns each table's repeat: so many tables before it measured one of its cases."""
    taken: Counter[str] = Counter()
    numbers = []
    for part in group:
        cases = {one.trial.case_id for one in part.readings}
        number = max(taken[case] for case in cases)
        taken.update(dict.fromkeys(cases, 0))
        for case in cases:
            taken[case] = number + 1
        numbers.append(number)
    return numbers


def _in_repeat(trial: Trial, repeat: int) -> Trial:
    return msgspec.structs.replace(trial, repeat=repeat, trial_id=trial.case.trial_id(repeat))


def _samples(one: Reading) -> int:
    return 0 if one.trial.summary is None else one.trial.summary.samples


def _told(part: _Part, repeat: int) -> dict[str, object]:
    """Returns what a table says of how it was measured; hosts are in the topology alone."""
    table = part.table
    return {
        "file": part.file,
        "where": table.where,
        "repeat": repeat,
        "program": table.program,
        "started_local": table.started,
        "arguments": table.arguments,
        "header": table.header,
        "variables": None if table.variables is None else dict(table.variables),
    }


def _words(table: Table) -> str:
    nodes = len({rank.host for rank in table.ranks})
    models = " and ".join(sorted({rank.model for rank in table.ranks}))
    ranks = len(table.ranks)
    return (
        f"NCCL {table.nccl_version or 'of unknown version'}, {'graph' if table.graph else 'eager'},"
        f" {ranks} rank{'s' * (ranks != 1)} on {nodes} node{'s' * (nodes != 1)}, {models}"
    )


def note_findings(trials: Sequence[Trial]) -> list[Finding]:
    """Returns what the notes of trials say, each once."""
    counts = Counter(note for trial in trials for note in trial.notes)
    return [
        Finding(
            code=code,
            severity="info",
            text=f"{NOTES[code]} ({count} trial{'s' * (count != 1)}).",
        )
        for code, count in counts.items()
    ]
