"""What commands print of a run, live or stored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import click

from collbench.analyze.limit import Limit, wire_limit
from collbench.model import Case, Finding, Run, Topology, Trial
from collbench.report.closing import closing
from collbench.report.heading import heading
from collbench.report.table import render_tables


def limits_of(run: Run, topology: Topology) -> Callable[[Case], Limit | None]:
    """Returns what tells the wire's limit of a case of this run."""
    return lambda case: wire_limit(case, topology, run.environment.variables)


def print_run(
    run: Run,
    topology: Topology,
    trials: Sequence[Trial],
    findings: Sequence[Finding],
    folder: Path,
) -> None:
    """Prints heading, tables and closing."""
    click.echo(heading(run, topology))
    click.echo(f"run {run.run_id}, {run.started_at[:16].replace('T', ' ')} UTC\n")
    print_results(run, topology, trials, findings, folder, name=str(folder))


def print_results(
    run: Run,
    topology: Topology,
    trials: Sequence[Trial],
    findings: Sequence[Finding],
    folder: Path,
    *,
    name: str,
) -> None:
    """Prints tables and closing; ``name`` is what the next commands call the run."""
    limit_of = limits_of(run, topology)
    if trials:
        click.echo(render_tables(trials, limit_of))
    click.echo(closing(trials, findings, limit_of, folder, name))
