"""``collbench report``: stored runs as one HTML file."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from collbench.cli.context import CONTEXT
from collbench.cli.run_names import complete_run
from collbench.errors import UsageError

if TYPE_CHECKING:  # they bring numpy and more, and --help does without
    from collbench.report.page import RunPart
    from collbench.store import StoredRun


@click.command(context_settings=dict(CONTEXT))
@click.argument("runs", nargs=-1, metavar="[RUN...]", shell_complete=complete_run)
@click.option("-o", "--output", metavar="FILE", help="Where it goes [report.html in RUN's folder].")
@click.option("--force", is_flag=True, help="Write over a file that is there.")
@click.option("--results", metavar="DIR", help="All runs' folder [$COLLBENCH_RESULTS, results].")
def report(runs: tuple[str, ...], output: str | None, force: bool, results: str | None) -> None:
    """Write RUNs [last] as one HTML file that can be handed over.

    The conclusion first, pictures with their figures, what failed, what was asked and what ran,
    nodes, software, and how to repeat it. It loads nothing from elsewhere.

    \b
    Examples:
      collbench report
      collbench report 20261130-0635 20261130-0641 -o for-the-network-team.html
    """  # noqa: D301  click's mark for "do not rewrap"
    # Here, so that --help and the completion of RUN do not wait for numpy.
    from collbench.cli.export_files import put, read_told, refuse_taken
    from collbench.report.page import page_html

    stored = [read_told(name, results) for name in runs or ("last",)]
    target = output or str(stored[0].folder / "report.html")
    refuse_taken(target, force=force)
    parts = [part_of(one, number) for number, one in enumerate(stored, start=1)]
    first = stored[0].run
    title = f"{len(parts)} runs" if len(parts) > 1 else f"{first.command} on {first.cluster}"
    now = datetime.now(UTC).strftime("written %Y-%m-%d %H:%M UTC")
    put(page_html(f"collbench: {title}", parts, now), target, force=force)


def part_of(stored: StoredRun, number: int) -> RunPart:
    """Returns all of a run that goes into a page.

    Args:
        stored: the run.
        number: of the runs in the page, from 1.

    Raises:
        UsageError: a run that this collbench does not know.
    """
    from collbench.cli.readers import refuse_unreadable, shown
    from collbench.report import page_tables
    from collbench.report.heading import heading
    from collbench.report.inline_svg import InlineAlbum
    from collbench.report.page import RunPart

    run = stored.run
    refuse_unreadable(run, "report")
    found = shown(stored)
    album = InlineAlbum(prefix=f"run{number}")
    # A run that was interrupted early has nothing to draw, and still a report.
    with suppress(UsageError):
        found.draw(album)
    failures, left_out = page_tables.failures_of(stored)
    return RunPart(
        anchor=f"run{number}",
        title=f"{run.command}, run {run.run_id}",
        marks=_marks(stored),
        heading=heading(run, stored.topology),
        conclusion=found.conclusion(),
        pictures=album.pictures,
        text=found.text(),
        asked=page_tables.asked_table(stored.trials),
        failures=failures,
        failures_left_out=left_out,
        environment=page_tables.software_table(run),
        topology=page_tables.nodes_table(stored.topology),
        command=page_tables.command_of(run),
        suite=page_tables.suite_text(run),
        problems=stored.problems,
    )


def _marks(stored: StoredRun) -> list[str]:
    """Returns what a reader must know before any figure."""
    run = stored.run
    marks = ["SIMULATED: a model answered, no hardware was measured"] if run.simulated else []
    marks += ["EMULATED: several nodes on one machine, no network was measured"] * run.emulated
    marks += [f"PLANTED FAULT: {run.planted}"] if run.planted else []
    if run.exit_code is None:
        kept = f"{len(stored.trials)} of {run.planned_trials} trials"
        marks.append(f"PARTIAL: the run goes on, or ended without saying so; {kept}")
    return marks
