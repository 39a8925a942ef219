"""``collbench history publish``: asv's page of the history."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from collbench.cli.context import CONTEXT
from collbench.cli.history_export import export_into, export_options


@click.command(context_settings=dict(CONTEXT))
@export_options
@click.option(
    "--scripts",
    metavar="FOLDER",
    help="Scripts that asv's page loads [DIR/html/vendor of before, npm's packages].",
)
def publish(folder: str, scripts: str | None, **given: Any) -> None:
    """Export the history into DIR, and make asv's page of it in DIR/html.

    The page works without the internet and says releases instead of hashes. It shows history; what
    the newest release made slower is for `collbench history check` to say, since asv is blind to
    small steps there. It needs asv: pip install 'collbench[history]'.

    \b
    Examples:
      collbench history publish nccl-history
      collbench history publish nccl-history --scripts asv-scripts
      collbench history serve nccl-history
    """  # noqa: D301  click's mark for "do not rewrap"
    from collbench.cli.output import say
    from collbench.interop.asv_page import publish_page, require_asv

    require_asv()
    lines = export_into(folder, **given)
    page = publish_page(Path(folder), scripts=None if scripts is None else Path(scripts))
    listed = len(page.regressions)
    say(
        "\n".join(
            [
                *lines,
                f"Published in {page.html}: {page.graphs} graphs with {page.values} values",
                f"asv lists {listed} regression{'s' * (listed != 1)}{':' * bool(listed)}",
                *(f"  {name}" for name in page.regressions),
                f"next: collbench history serve {folder}",
            ]
        )
    )
