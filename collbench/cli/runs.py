"""``collbench runs``: the stored runs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import click
import msgspec

from collbench.cli.context import CONTEXT
from collbench.errors import ExitCode
from collbench.model import SCHEMA_VERSION
from collbench.store import ListedRun, RunHeader, list_runs, results_root

_COLUMNS = ("run", "command", "cluster", "started (UTC)", "on", "kept", "status", "")


@click.command(context_settings=dict(CONTEXT))
@click.option("--results", metavar="DIR", help="All runs' folder [$COLLBENCH_RESULTS, results].")
@click.option("--json", "as_json", is_flag=True, help="One JSON list on stdout.")
def runs(results: str | None, as_json: bool) -> None:
    """List the stored runs, the newest first.

    Commands that read a run take its folder, its id, a unique beginning of its id, or `last`.

    \b
    Examples:
      collbench runs
      collbench runs --results /shared/results --json
    """  # noqa: D301  click's mark for "do not rewrap"
    root = results_root(results, os.environ)
    found = list_runs(root)
    if as_json:
        click.echo(msgspec.json.encode([_as_dict(listed) for listed in found]))
    elif found:
        click.echo(_table(found), nl=False)
    else:
        click.echo(f"no runs in '{root}'; 'collbench sweep' makes one")


def status_words(header: RunHeader | None) -> str:
    """Returns how a run ended.

    A run that has not said so goes on or was killed: its folder cannot tell.
    """
    if header is None:
        return "run.json damaged"
    if header.schema > SCHEMA_VERSION:
        return f"schema {header.schema}: newer"
    if header.exit_code is None:
        return "running?"
    if header.exit_code in (ExitCode.INTERRUPTED, ExitCode.TERMINATED):
        return "interrupted"
    return f"finished, exit {header.exit_code}"


def kept_words(kept: int, planned: int) -> str:
    """Returns how much is kept; courses that plan as they go may run more than was planned."""
    return f"{kept} of {planned}" if kept <= planned else str(kept)


def _as_dict(listed: ListedRun) -> dict[str, Any]:
    """Returns a run for JSON; of one that cannot be read only what its folder says."""
    known = msgspec.structs.asdict(listed.header) if listed.header else {}
    return {
        "folder": str(listed.folder),
        "status": status_words(listed.header),
        "kept_trials": listed.kept_trials(),
        **known,
    }


def _row(listed: ListedRun) -> tuple[str, ...]:
    """Returns the cells in the order of the columns."""
    header, kept = listed.header, listed.kept_trials()
    if header is None:
        where = (listed.folder.name, "-", listed.folder.parent.name, "-", "-")
        return (*where, f"{kept} of ?", status_words(header), "")
    marks = ["SIMULATED"] * header.simulated + ["PLANTED"] * (header.planted is not None)
    return (
        listed.folder.name,
        header.command,
        header.cluster,
        _minute(header.started_at),
        f"{header.world_size} ranks {header.backend}",
        kept_words(kept, header.planned_trials),
        status_words(header),
        ", ".join(marks),
    )


def _minute(started_at: str) -> str:
    """Returns ``2026-11-30 04:12``; what is no moment stays as it is."""
    try:
        return f"{datetime.fromisoformat(started_at).astimezone(UTC):%Y-%m-%d %H:%M}"
    except ValueError:
        return started_at


def _table(found: Sequence[ListedRun]) -> str:
    """Returns a plain table of a line a run: nothing in it is cut, wherever it is printed."""
    rows = [_COLUMNS, *map(_row, found)]
    # A column in which no run has anything is left out.
    shown = [column for column in zip(*rows, strict=True) if any(column[1:])]
    cells = [_aligned(column) for column in shown]
    return "".join(f"{'  '.join(line).rstrip()}\n" for line in zip(*cells, strict=True))


def _aligned(column: Sequence[str]) -> list[str]:
    """Returns a column's cells in one width."""
    width = max(map(len, column))
    if column[0] == "kept":
        return [cell.rjust(width) for cell in column]
    return [cell.ljust(width) for cell in column]
