"""``collbench plot``: pictures of a stored run."""

from __future__ import annotations

import os
from pathlib import Path

import click

from collbench.cli.context import CONTEXT
from collbench.cli.run_names import complete_run
from collbench.errors import UsageError


@click.command(context_settings=dict(CONTEXT))
@click.argument("run", default="last", shell_complete=complete_run)
@click.option("-o", "--output", metavar="DIR", help="Where the files go [the run's folder].")
@click.option("--results", metavar="DIR", help="All runs' folder [$COLLBENCH_RESULTS, results].")
def plot(run: str, output: str | None, results: str | None) -> None:
    """Draw RUN as PNG and SVG.

    Bus bandwidth and time over size; of `pairwise` the matrix of pairs, of `scale` rates over
    flows and nodes.

    \b
    Examples:
      collbench plot
      collbench plot 20261130-0635 -o pictures
    """  # noqa: D301  click's mark for "do not rewrap"
    # Here, so that --help and the completion of RUN do not wait for numpy.
    from collbench.cli.output import say
    from collbench.cli.readers import refuse_unreadable, shown
    from collbench.report.album import FilesAlbum
    from collbench.store import find_run, read_run, results_root

    stored = read_run(find_run(run, results_root(results, os.environ)))
    for problem in stored.problems:
        say(f"collbench: {problem}", err=True)
    refuse_unreadable(stored.run, "plot")
    found = shown(stored)
    folder = Path(output) if output else stored.folder
    try:
        folder.mkdir(parents=True, exist_ok=True)
        paths = found.draw(FilesAlbum(folder))
    except OSError as problem:
        raise UsageError(
            f"cannot draw into '{folder}': {problem.strerror}; give another folder with -o"
        ) from None
    for path in paths:
        say(str(path))
