"""What a tuner is to choose by a run: winners beyond noise, elsewhere what NCCL chose by itself.

The plug-in leaves nothing alone: a size that no line matches runs on one channel. So every size
from 0 to the top is covered, by what is proved to have run at the measured size next to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from collbench.analyze.best_table import BestRow, BestTable, best_of_run, saved_text
from collbench.errors import UsageError
from collbench.interop.tuner import ALGORITHMS, COLLECTIVES, NO_LINE_CHANNELS, PROTOCOLS
from collbench.model import Case, Mode, Proof, Run, Trial
from collbench.nccl.settings import ALG_SELECTION, settings_text
from collbench.units import format_size

_TUNABLE = frozenset({"NCCL_ALGO", "NCCL_PROTO", ALG_SELECTION})
_ONE_FOR_ALL = ("dtype", "redop", "root", "in_place", "via", "pattern", "world_size", "nodes")
"""Of a case: what a tuner cannot see, or sees and is the same for a whole run."""
_SHOWN = 3
_SMALL_BYTES = 1024
"""What costs latency alone: smaller messages run the same."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Chosen:
    """What is to run at one measured size."""

    name: str
    """Collective and mode, in words."""
    collective: str
    mode: Mode
    size_bytes: int
    algorithm: str
    protocol: str
    channels: int
    nodes: int
    ranks: int
    time_us: float
    note: str = ""
    """By how much it wins, where it is not the default's own choice."""

    @property
    def ran(self) -> tuple[str, str, int]:
        """Algorithm, protocol and channels."""
        return self.algorithm, self.protocol, self.channels

    @property
    def registered(self) -> int:
        """Whether NCCL takes the buffers for registered: those that a CUDA graph captures are."""
        return int(self.mode is Mode.GRAPH)


@dataclass(frozen=True, kw_only=True, slots=True)
class Choices:
    """What a tuner is to choose by a run."""

    chosen: tuple[Chosen, ...]
    table: BestTable
    left_out: tuple[str, ...]
    """What of the run a tuner has no say in, and what the file does not cover; a line each."""


def choices_of(run: Run, trials: Sequence[Trial]) -> Choices:
    """Returns what a tuner is to choose.

    Args:
        run: header.
        trials: of the run.

    Raises:
        UsageError: the run is none of real hardware, or swept nothing that a tuner can choose;
            it asked what a tuner cannot tell apart; or a size has no proof of what ran.
    """
    _refuse_what_is_not_real(run)
    tunable = [trial for trial in trials if trial.case.collective in COLLECTIVES]
    kept = [t for t in tunable if t.case.setting.keys() <= _TUNABLE and not _forced(t)]
    table = best_of_run(kept)
    if table is None:
        raise UsageError(
            f"run '{run.run_id}' has no algorithm or protocol beside NCCL's own choice to choose"
            f" from, for any of {', '.join(COLLECTIVES)}; measure with --algo all --proto all"
            " --reference --repeats 5"
        )
    if table.without_default:
        case = table.without_default[0]
        raise UsageError(
            f"{_place(case)} has no time of NCCL's own choice: what to run there is not known;"
            " measure it again, or leave the size out"
        )
    _refuse_what_looks_alike(table)
    chosen = () if table.needs_repeats else tuple(_chosen(table, row) for row in table.rows)
    return Choices(chosen=chosen, table=table, left_out=tuple(_left_out(trials, tunable, kept)))


def _refuse_what_is_not_real(run: Run) -> None:
    real = not (run.simulated or run.emulated or run.planted)
    if real and run.backend == "nccl":
        return
    what = (
        "simulated"
        if run.simulated
        else "emulated"
        if run.emulated
        else f"one with a planted fault ({run.planted})"
        if run.planted
        else f"of {run.backend}"
    )
    raise UsageError(
        f"run '{run.run_id}' is {what}: it says nothing of how NCCL is to be tuned;"
        " give a run of NCCL on real nodes"
    )


def _forced(trial: Trial) -> bool:
    """Whether NCCL would not do it for a tuner: LL128 where NCCL itself leaves it off."""
    return "ll128_forced" in trial.notes


def _refuse_what_looks_alike(table: BestTable) -> None:
    """Refuses two rows that are one to the plug-in: it sees collective, size and shape alone."""
    for name in _ONE_FOR_ALL:
        for collective in COLLECTIVES:
            cases = [row.case for row in table.rows if row.case.collective == collective]
            values = list(dict.fromkeys(str(getattr(case, name)) for case in cases))
            if len(values) > 1:
                raise UsageError(
                    f"{collective} was measured with {name} {' and '.join(values)}, which a tuner"
                    " cannot tell apart; export a run with one of them"
                )
    eager = {row.case.mode for row in table.rows} - {Mode.GRAPH}
    if len(eager) > 1:
        raise UsageError(
            f"the run has the modes {' and '.join(sorted(eager))}, which a tuner cannot tell"
            " apart; export a run with one of them"
        )


def _chosen(table: BestTable, row: BestRow) -> Chosen:
    proofs = row.winner_ran if row.best.claimed else row.default_ran
    proof = _whole_proof(row, proofs)
    return Chosen(
        name=table.name(row),
        collective=row.case.collective,
        mode=row.case.mode,
        size_bytes=row.key.size_bytes,
        algorithm=proof.algorithm or "",
        protocol=proof.protocol or "",
        channels=proof.channels or 0,
        nodes=proof.nodes or 0,
        ranks=row.case.world_size,
        time_us=row.winner_us if row.best.claimed else row.default_us,
        note=_note(table, row) if row.best.claimed else "",
    )


def _whole_proof(row: BestRow, proofs: Sequence[Proof]) -> Proof:
    """Returns what ran.

    Raises:
        UsageError: it is not proved, or not alike in all repeats.
    """
    setting = row.best.winner if row.best.claimed else "default"
    where = f"{_place(row.case)}, {setting}:"
    if not proofs:
        raise UsageError(
            f"{where} what ran is not proved, and a tuner needs it; measure with the proof on"
        )
    if len(proofs) > 1:
        ran = " and ".join(f"{p.algorithm}/{p.protocol} on {p.channels} channels" for p in proofs)
        raise UsageError(f"{where} repeats ran {ran}; a tuner can choose only one of them")
    proof = proofs[0]
    missing = [name for name in ("protocol", "channels", "nodes") if not getattr(proof, name)]
    if missing:
        raise UsageError(f"{where} the proof has no {' and no '.join(missing)}; a tuner needs it")
    if proof.algorithm not in ALGORITHMS or proof.protocol not in PROTOCOLS:
        raise UsageError(
            f"{where} {proof.algorithm}/{proof.protocol} ran, for which the plug-in has no word;"
            f" it knows {', '.join(ALGORITHMS)} and {', '.join(PROTOCOLS)}"
        )
    return proof


def _note(table: BestTable, row: BestRow) -> str:
    size = format_size(row.key.size_bytes)
    return f"{table.name(row)} {size}: {row.best.winner} {saved_text(row.best)} of NCCL's own time"


def _place(case: Case) -> str:
    return f"{case.collective} {format_size(case.size_bytes)} {case.mode}"


def _left_out(
    trials: Sequence[Trial], tunable: Sequence[Trial], kept: Sequence[Trial]
) -> Iterator[str]:
    names = dict.fromkeys(t.case.collective for t in trials)
    others = [name for name in names if name not in COLLECTIVES]
    if others:
        yield f"left out: {', '.join(others)}: NCCL asks a tuner for none of them"
    beyond = [t.case.setting for t in tunable if not t.case.setting.keys() <= _TUNABLE]
    if beyond:
        yield f"left out: {settings_text(beyond)}: a tuner sets algorithm, protocol and channels"
    if any(_forced(trial) for trial in tunable):
        yield "left out: LL128 where NCCL leaves it off by itself: it does not do it for a tuner"
    covered = {trial.case.collective for trial in kept}
    missing = [name for name in COLLECTIVES if name not in covered]
    if missing:
        channels = f"they run on {NO_LINE_CHANNELS} channel with this file"
        yield f"not measured: {', '.join(missing)}: {channels}"
    yield from _not_measured_below(kept)


def _not_measured_below(kept: Sequence[Trial]) -> Iterator[str]:
    """Yields what small calls get that nothing is known of: the plug-in leaves none alone."""
    smallest: dict[int, list[str]] = {}
    for name in dict.fromkeys(trial.case.collective for trial in kept):
        size = min(trial.case.size_bytes for trial in kept if trial.case.collective == name)
        smallest.setdefault(size, []).append(name)
    for size, names in smallest.items():
        if size > _SMALL_BYTES:
            words = format_size(size)
            yield (
                f"NOT MEASURED below {words}: {', '.join(names)}: smaller calls run as at {words},"
                " however slow that is; before it is used sweep from -b 8"
            )
