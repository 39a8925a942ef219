"""``collbench history bisect``: at which release a case changed."""

from __future__ import annotations

from collections.abc import Sequence

import click

from collbench.cli.context import CONTEXT
from collbench.cli.history_store import history_options
from collbench.errors import ExitCode


@click.command(context_settings=dict(CONTEXT))
@history_options
@click.option(
    "--threshold", default="3%", show_default=True, help="A smaller change is of no interest."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def bisect(
    runs: Sequence[str],
    axis: str,
    across: str,
    simulated: bool,
    results: str | None,
    threshold: str,
    as_json: bool,
) -> int:
    """Name the release at which each case changed, from stored runs: nothing is measured.

    Where the repeats cannot tell which of several releases it was, all of them are named.
    Exit status 4 if there are too few repeats to tell anything.

    \b
    Examples:
      collbench history bisect
      collbench history bisect results/2xh200 --threshold 5%
    """  # noqa: D301  click's mark for "do not rewrap"
    from collbench.analyze.history_verdict import bisect_series
    from collbench.cli.ab_sides import read_threshold
    from collbench.cli.history_store import chosen_series, read_histories
    from collbench.cli.output import say
    from collbench.report.history import bisect_text, histories_lines
    from collbench.report.history_json import bisect_json

    share = read_threshold(threshold)
    histories = read_histories(runs, results, axis=axis, across=across, simulated=simulated)
    series = chosen_series(histories, 2)
    found = [bisect_series(one, threshold=share) for one in series]
    nothing = all(one.needs_repeats and not one.changes for one in found)
    status = ExitCode.INCOMPLETE if nothing else ExitCode.FINE
    if as_json:
        say(bisect_json(list(zip(series, found, strict=True)), histories, status).decode())
    else:
        lines = histories_lines(histories, series)
        texts = [bisect_text(one, what) for one, what in zip(series, found, strict=True)]
        say("\n\n".join([*texts, *(["\n".join(lines)] if lines else [])]))
    return status
