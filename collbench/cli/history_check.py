"""``collbench history check``: the gate."""

from __future__ import annotations

from collections.abc import Sequence

import click

from collbench.cli.context import CONTEXT
from collbench.cli.history_store import history_options
from collbench.errors import ExitCode, UsageError


@click.command(context_settings=dict(CONTEXT))
@history_options
@click.option("--new", metavar="VERSION", help="The release that is judged [the newest].")
@click.option(
    "--threshold", default="3%", show_default=True, help="A smaller change is of no interest."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def check(
    runs: Sequence[str],
    axis: str,
    across: str,
    simulated: bool,
    results: str | None,
    new: str | None,
    threshold: str,
    as_json: bool,
) -> int:
    """Say what the newest release made slower: against the one before, and the best before it.

    The runs are all that are stored, or those given. Releases count from 3 repeats on, better 5.
    Exit status 1 if anything got slower, 4 if nothing can be told.

    \b
    Examples:
      collbench history check
      collbench history check --new 2.30.7 results/2xh200
      collbench history check --axis torch --across nccl,cuda
    """  # noqa: D301  click's mark for "do not rewrap"
    # Here, so that --help does not wait for numpy.
    from collbench.analyze.history_verdict import check_series
    from collbench.cli.ab_sides import read_threshold
    from collbench.cli.history_store import chosen_series, read_histories
    from collbench.cli.output import say
    from collbench.report.history import check_text, histories_lines
    from collbench.report.history_json import check_json

    share = read_threshold(threshold)
    histories = read_histories(runs, results, axis=axis, across=across, simulated=simulated)
    series = chosen_series(histories, 2, wanted=() if new is None else (new,))
    found, problems = [], []
    for one in series:
        try:
            found.append(check_series(one, new=new, threshold=share))
        except UsageError as problem:  # others may have an answer
            problems.append(str(problem))
    if not found:
        raise UsageError("; ".join(problems))
    status = ExitCode.FINE
    if any(one.regressed for one in found):
        status = ExitCode.CONFIRMED_BAD
    elif problems or not all(one.told for one in found):
        status = ExitCode.INCOMPLETE
    if as_json:
        say(check_json(found, histories, status).decode())
    else:
        lines = [*problems, *histories_lines(histories, series)]
        say("\n\n".join([*map(check_text, found), *(["\n".join(lines)] if lines else [])]))
    return status
