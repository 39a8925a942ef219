"""A run that is continued: how ``--resume RUN`` finds it, opens it and reads its command line."""

from __future__ import annotations

import os
import shlex
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from collbench.errors import UsageError
from collbench.model import Run, Topology
from collbench.store import find_run, results_root

if TYPE_CHECKING:  # they bring numpy, and --help does without
    from collbench.store import RunWriter, StoredRun

OF_THIS_CALL = frozenset({"resume", "results", "as_json", "dry_run"})
"""Parameters that say nothing of what is measured."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Earlier:
    """A run that is continued."""

    stored: StoredRun
    writer: RunWriter | None
    """None where nothing will be run."""
    argv_of_before: str | None
    """The command line that the options were taken from, where it is not this one."""


def is_given(context: click.Context, name: str) -> bool:
    """Whether a parameter stands on the command line."""
    return context.get_parameter_source(name) is not ParameterSource.DEFAULT


def run_of_before(given: dict[str, Any]) -> Run:
    """Returns the header of the run that is continued.

    Args:
        given: parameters as click gives them, ``resume`` and ``results`` among them.

    Raises:
        RunNotFound: no such run.
    """
    from collbench.store import read_run

    return read_run(find_run(given["resume"], results_root(given["results"], os.environ))).run


def taken_from(
    context: click.Context, run: Run, names: Collection[str]
) -> tuple[dict[str, Any], str]:
    """Returns parameters as a run's own command line has them, and that line.

    Args:
        context: of the command, which is the run's.
        run: its header.
        names: of the parameters.
    """
    words = len(run.command.split())  # of the command itself: history run
    with context.command.make_context(run.command, run.argv[words:]) as before:
        taken = {name: before.params[name] for name in names}
    return taken, shlex.join(["collbench", *run.argv])


@contextmanager
def earlier_run(
    name: str | None,
    root: Path,
    *,
    command: str,
    dry_run: bool,
    argv_of_before: str | None,
) -> Iterator[Earlier | None]:
    """Opens the run that is continued, and closes it; None where none is.

    Args:
        name: what the user calls it.
        root: the folder of all runs.
        command: of the run.
        dry_run: it is only read.
        argv_of_before: the command line that the options were taken from.

    Raises:
        RunNotFound: no such run.
        RecordError: it cannot be read.
        UsageError: it is of another command, or another process writes it.
        StoreError: it cannot be written.
    """
    from collbench.store import read_run, reopen_run

    if name is None:
        yield None
        return
    folder = find_run(name, root)
    if dry_run:
        stored = read_run(folder)
        refuse_other_command(stored.run, command)
        yield Earlier(stored=stored, writer=None, argv_of_before=argv_of_before)
        return
    writer, stored = reopen_run(folder)
    try:
        refuse_other_command(stored.run, command)
        yield Earlier(stored=stored, writer=writer, argv_of_before=argv_of_before)
    finally:
        writer.close()


def open_writer(
    earlier: Earlier | None, root: Path, run: Run, topology: Topology
) -> tuple[RunWriter, Path]:
    """Returns a run's writer and the folder of its processes' output.

    Args:
        earlier: the run that goes on; None: a new one begins.
        root: the folder of all runs.
        run: the header of a new one.
        topology: likewise.
    """
    from collbench.store import RunWriter

    if earlier is None:
        writer = RunWriter.create(root, run, topology)
        return writer, writer.logs
    assert earlier.writer is not None
    return earlier.writer, earlier.writer.new_part(earlier.stored.topology)


def refuse_other_command(run: Run, command: str) -> None:
    """Makes sure that a run is of the command that is to go on with it.

    Raises:
        UsageError: it is of another.
    """
    if run.command != command:
        raise UsageError(
            f"run {run.run_id} is of '{run.command}', not of '{command}'; 'collbench runs' lists"
            " all"
        )
