"""``collbench history export``: the history as asv's result files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from collbench.cli.context import CONTEXT
from collbench.cli.history_store import history_options
from collbench.errors import UsageError

if TYPE_CHECKING:
    from collbench.analyze.history import Histories

Command = Callable[..., Any]
_AXIS = "nccl"


def export_options(command: Command) -> Command:
    """Gives a command the folder, the runs, and what an export can be told."""
    for option in reversed(
        (
            click.argument("folder", metavar="DIR"),
            history_options,
            click.option(
                "--releases",
                metavar="FILE",
                help="More releases: CSV with the columns version,uploaded.",
            ),
            click.option(
                "--threshold",
                default="3%",
                show_default=True,
                help="The smallest slow-down that asv shall list.",
            ),
        )
    ):
        command = option(command)
    return command


@click.command(context_settings=dict(CONTEXT))
@export_options
def export(folder: str, **given: Any) -> None:
    """Write the history of NCCL releases into DIR for asv (airspeed velocity).

    A git repository of releases, asv's result files beside it, and asv.conf.json. All of it is
    derived: DIR is new, empty or an earlier export, and the same runs give the same files.

    \b
    Examples:
      collbench history export nccl-history
      collbench history export nccl-history results/2xh200 --releases more_releases.csv
      cd nccl-history && asv compare v2.29.7 v2.30.7
    """  # noqa: D301  click's mark for "do not rewrap"
    from collbench.cli.output import say

    say("\n".join([*export_into(folder, **given), f"next: collbench history publish {folder}"]))


def export_into(
    folder: str,
    *,
    runs: Sequence[str],
    axis: str,
    across: str,
    simulated: bool,
    results: str | None,
    releases: str | None,
    threshold: str,
) -> list[str]:
    """Writes the export and returns what to tell of it, a line each.

    Args:
        folder: where it goes.
        runs: runs or folders of runs; all stored runs if there are none.
        axis: what the releases are of: NCCL alone can be exported.
        across: words at commas: what else may differ within a history.
        simulated: read simulated runs, and these alone.
        results: the folder of all runs, if it is given.
        releases: a file with more releases.
        threshold: the smallest slow-down that asv shall list: ``3%``.

    Raises:
        UsageError: an option that cannot be, nothing to export, a folder of something else.
    """
    from collbench.cli.ab_sides import read_threshold
    from collbench.cli.history_store import read_histories
    from collbench.interop.asv_files import export_asv
    from collbench.nccl.releases import known_releases, read_releases
    from collbench.report.history import histories_lines

    if axis != _AXIS:
        raise UsageError(
            f"--axis '{axis}' cannot be exported: asv's axis is a repository of NCCL releases;"
            " leave it out, and see 'collbench history show'"
        )
    share = read_threshold(threshold)
    known = known_releases() if releases is None else read_releases(Path(releases))
    histories = read_histories(runs, results, axis=axis, across=across, simulated=simulated)
    made = export_asv(Path(folder), histories.series, known, threshold=share)
    lines = [
        f"{machine}: NCCL {', '.join(one.versions)}, {len(one.cases)} cases"
        for machine, one in zip(made.machines, histories.series, strict=True)
    ]
    lines += histories_lines(histories, histories.series)
    lines += _repeats_lines(histories)
    by = " by asv" * made.checked_by_asv
    lines.append(
        f"Kept in {folder}: {made.files} result files with {made.values} values, read back{by};"
        f" {made.releases} releases in its repository"
    )
    return lines


def _repeats_lines(histories: Histories) -> list[str]:
    """Returns what asv cannot do with as few repeats as there are."""
    from collbench.interop.asv_values import FEWEST_FOR_INTERVAL, FEWEST_FOR_SAMPLES

    repeats = [
        len(times)
        for one in histories.series
        for release in one.releases
        for times in release.times.values()
    ]
    few = sum(count < FEWEST_FOR_INTERVAL for count in repeats)
    untested = sum(count < FEWEST_FOR_SAMPLES for count in repeats)
    fewest = min(repeats)
    lines = []
    if few:
        lines.append(
            f"{few} of {len(repeats)} times have 1 repeat and no interval: asv trusts them as they"
            " are; measure 1 more, better 2"
        )
    if untested:
        lines.append(
            f"{untested} of {len(repeats)} times have fewer than {FEWEST_FOR_SAMPLES} repeats: asv"
            f" compares their intervals; its own test needs up to {FEWEST_FOR_SAMPLES - fewest}"
            " more"
        )
    return lines
