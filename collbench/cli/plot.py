"""``collbench plot``: pictures of a stored run."""

from __future__ import annotations

import os
from pathlib import Path

import click

from collbench.cli.output import limits_of
from collbench.errors import UsageError
from collbench.store import find_run, read_run, results_root


@click.command()
@click.argument("run", default="last")
@click.option("-o", "--output", metavar="DIR", help="Where the files go [the run's folder].")
@click.option("--results", metavar="DIR", help="All runs' folder [$COLLBENCH_RESULTS, results].")
def plot(run: str, output: str | None, results: str | None) -> None:
    """Draw RUN: bus bandwidth and time over size, as PNG and SVG."""
    from collbench.analyze.curves import curves
    from collbench.report.plot import plot_run

    stored = read_run(find_run(run, results_root(results, os.environ)))
    for problem in stored.problems:
        click.echo(f"collbench: {problem}", err=True)
    if not curves(stored.trials):
        raise UsageError(
            f"run '{stored.run.run_id}' has no times to draw; 'collbench show' says why"
        )
    folder = Path(output) if output else stored.folder
    limit_of = limits_of(stored.run, stored.topology)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        paths = plot_run(stored.run, stored.topology, stored.trials, limit_of, folder)
    except OSError as problem:
        raise UsageError(
            f"cannot draw into '{folder}': {problem.strerror}; give another folder with -o"
        ) from None
    for path in paths:
        click.echo(path)
