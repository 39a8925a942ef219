"""``collbench history show``: time over release, as a table and as pictures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from collbench.cli.context import CONTEXT
from collbench.cli.history_store import history_options
from collbench.errors import UsageError


@click.command(context_settings=dict(CONTEXT))
@history_options
@click.option("--plot", metavar="DIR", help="Draw it as PNG and SVG into this folder.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def show(
    runs: Sequence[str],
    axis: str,
    across: str,
    simulated: bool,
    results: str | None,
    plot: str | None,
    as_json: bool,
) -> None:
    """Print time over release, case by case; --plot draws a small picture of each.

    One release is enough to show. Changes that are sure are marked.

    \b
    Examples:
      collbench history show
      collbench history show results/2xh200 --plot pictures
    """  # noqa: D301  click's mark for "do not rewrap"
    from collbench.analyze.history_verdict import bisect_series
    from collbench.cli.history_store import read_histories
    from collbench.cli.output import say
    from collbench.report.album import FilesAlbum
    from collbench.report.history import histories_lines, show_text
    from collbench.report.history_json import show_json
    from collbench.report.history_picture import draw_history

    histories = read_histories(runs, results, axis=axis, across=across, simulated=simulated)
    series = list(histories.series)
    found = [bisect_series(one) for one in series]
    if as_json:
        say(show_json(list(zip(series, found, strict=True)), histories).decode())
    else:
        lines = histories_lines(histories, series)
        texts = [show_text(one, what.changes) for one, what in zip(series, found, strict=True)]
        say("\n\n".join([*texts, *(["\n".join(lines)] if lines else [])]))
    if plot is None:
        return
    folder, paths = Path(plot), []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for number, (one, what) in enumerate(zip(series, found, strict=True), 1):
            name = "history" if len(series) == 1 else f"history-{number}"
            paths += draw_history(one, what.changes, FilesAlbum(folder), name)
    except OSError as problem:
        raise UsageError(
            f"cannot draw into '{folder}': {problem.strerror}; give another folder with --plot"
        ) from None
    for path in paths:
        say(str(path), err=as_json)
