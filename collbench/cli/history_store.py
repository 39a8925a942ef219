"""Stored runs as histories, for all ``collbench history`` commands that read them."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from collbench.errors import UsageError, nearest

if TYPE_CHECKING:
    from collbench.analyze.history import Histories, Loaded, Series
    from collbench.store import StoredRun

_AXES = ("nccl", "plugin", "torch", "cuda", "driver")
MEASURING = ("sweep", "ab", "history run", "nccl-tests")
"""Commands whose runs are of cases: these make histories."""

Command = Callable[..., Any]


def history_options(command: Command) -> Command:
    """Gives a command the runs it reads, and what they are told apart by."""
    for option in reversed(
        (
            click.argument("runs", nargs=-1, metavar="[RUN|FOLDER]..."),
            click.option(
                "--axis",
                default="nccl",
                metavar="WORD",
                help=f"What the releases are of: {', '.join(_AXES)} [nccl].",
            ),
            click.option(
                "--across",
                default="",
                metavar="WORD,...",
                help="What else may differ within a history [nothing].",
            ),
            click.option("--simulated", is_flag=True, help="Read simulated runs, and these alone."),
            click.option(
                "--results",
                metavar="DIR",
                help="All runs' folder [$COLLBENCH_RESULTS, results].",
            ),
        )
    ):
        command = option(command)
    return command


def read_histories(
    names: Sequence[str], results: str | None, *, axis: str, across: str, simulated: bool
) -> Histories:
    """Returns the histories that stored runs make.

    Args:
        names: runs or folders of runs; all stored runs if there are none.
        results: of all runs.
        axis: what the releases are of.
        across: words at commas: what else may differ.
        simulated: read simulated runs instead of real ones.

    Raises:
        UsageError: no such word, no run that can be read so.
    """
    from dataclasses import replace

    from collbench.analyze.history import histories_of
    from collbench.store import results_root

    root = results_root(results, os.environ)
    words = [word.strip() for word in across.split(",") if word.strip()]
    along, others = _loaded("--axis", axis), [_loaded("--across", word) for word in words]
    found, left_out = _usable(_folders(names, root), named=bool(names), simulated=simulated)
    if not found:
        where = ", ".join(f"'{name}'" for name in names) or f"'{root}'"
        kind = "simulated" if simulated else "measured"
        why = f" ({'; '.join(left_out)})" if left_out else ""
        raise UsageError(
            f"no {kind} run of cases in {where}{why}; 'collbench history run', 'sweep' and"
            " 'import nccl-tests' make them"
        )
    histories = histories_of(found, axis=along, across=others)
    return replace(histories, left_out=(*left_out, *histories.left_out))


def _loaded(option: str, word: str) -> Loaded:
    from collbench.analyze.history import Loaded

    if word not in _AXES:
        raise UsageError(
            f"{option} '{word}' is not allowed{nearest(word, _AXES) or ';'}"
            f" allowed: {', '.join(_AXES)}"
        )
    return Loaded(word)


def _folders(names: Sequence[str], root: Path) -> list[Path]:
    """Returns the run folders that are meant, each once."""
    from collbench.store import find_run, list_runs, runs_inside

    if not names:
        return [listed.folder for listed in list_runs(root)]
    found: list[Path] = []
    for name in names:
        inside = [*runs_inside(Path(name)), *_of_clusters(Path(name))]
        found += inside or [find_run(name, root)]
    return list(dict.fromkeys(folder.resolve() for folder in found))


def _of_clusters(folder: Path) -> list[Path]:
    """Returns the runs in a folder of clusters."""
    from collbench.store import list_runs

    return [listed.folder for listed in list_runs(folder)] if folder.is_dir() else []


def _usable(
    folders: Sequence[Path], *, named: bool, simulated: bool
) -> tuple[list[StoredRun], list[str]]:
    """Returns the runs that make a history, and a line for each kind that does not."""
    from collbench.cli.output import say
    from collbench.errors import RecordError
    from collbench.store import read_run

    found: list[StoredRun] = []
    left: dict[str, int] = {}
    seen: set[tuple[str, str]] = set()
    for folder in folders:
        try:
            stored = read_run(folder)
        except RecordError as problem:
            if named:
                raise
            say(f"collbench: {problem}", err=True)
            continue
        for damage in stored.problems:
            say(f"collbench: {stored.run.run_id}: {damage}", err=True)
        reason = _reason(stored, simulated=simulated)
        once = (stored.run.run_id, stored.run.started_at)
        if reason is None and once in seen:
            reason = "that is there twice"
        seen.add(once)
        if reason is None:
            found.append(stored)
        else:
            left[reason] = left.get(reason, 0) + 1
    return found, [f"{count} run{'s' * (count != 1)} {reason}" for reason, count in left.items()]


def _reason(stored: StoredRun, *, simulated: bool) -> str | None:
    """Returns why a run is no part of a history; None if it is."""
    run = stored.run
    if run.command not in MEASURING:
        return f"of {run.command}: no cases"
    if run.simulated and not simulated:
        return "simulated: --simulated reads these"
    if simulated and not run.simulated:
        return "measured: without --simulated"
    if run.planted:
        return "with a planted fault"
    return None


def chosen_series(
    histories: Histories, fewest: int, *, wanted: Collection[str] = ()
) -> list[Series]:
    """Returns the series with releases enough.

    Args:
        histories: all of them.
        fewest: releases that a series needs.
        wanted: versions that it has to have.

    Raises:
        UsageError: none has; says what there is, and how to get more.
    """
    from collbench.analyze.history import WORDS

    found = [
        one
        for one in histories.series
        if len(one.releases) >= fewest and set(wanted) <= set(one.versions)
    ]
    if found:
        return found
    axis = WORDS[histories.series[0].axis] if histories.series else "NCCL"
    have = "; ".join(", ".join(one.versions) for one in histories.series) or "none"
    if wanted and any(len(one.releases) >= fewest for one in histories.series):
        raise UsageError(f"no history holds {axis} {', '.join(wanted)}; releases there are: {have}")
    apart = ""
    if len(histories.series) > 1:
        parts = [
            f"{name} {' / '.join(dict.fromkeys(values))}"
            for name, values in histories.differing.items()
        ]
        apart = f" in {len(histories.series)} histories that differ in {'; '.join(parts)}"
        apart += f" (--across {','.join(_across_of(histories))} joins them)" * bool(
            _across_of(histories)
        )
    raise UsageError(
        f"a history needs {fewest} releases of {axis}, and there is {have}{apart};"
        " measure more: collbench history run --nccl 2.28.9,2.29.7"
    )


def _across_of(histories: Histories) -> list[str]:
    """Returns what would have to be allowed to differ, where that is all that differs."""
    from collbench.analyze.history import WORDS

    words = {text: str(thing) for thing, text in WORDS.items()}
    names = list(histories.differing)
    return [words[name] for name in names] if all(name in words for name in names) else []
