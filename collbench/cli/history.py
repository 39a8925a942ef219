"""``collbench history``: releases of NCCL (or of what else is loaded) over each other."""

from __future__ import annotations

import click

from collbench.cli.context import CONTEXT
from collbench.cli.lazy_group import LazyGroup

_COMMANDS = {
    "run": (
        "collbench.cli.history_run:run",
        "Measure several releases of NCCL in one go, interleaved.",
    ),
    "check": (
        "collbench.cli.history_check:check",
        "Did the newest release make anything slower? The gate.",
    ),
    "bisect": (
        "collbench.cli.history_bisect:bisect",
        "Name the release at which a case changed, from stored runs.",
    ),
    "show": (
        "collbench.cli.history_show:show",
        "Print and draw time over release, case by case.",
    ),
    "install": (
        "collbench.cli.history_install:install",
        "Put releases of NCCL into folders of their own.",
    ),
    "export": (
        "collbench.cli.history_export:export",
        "Write the history as asv's result files, with a repository of releases.",
    ),
    "publish": (
        "collbench.cli.history_publish:publish",
        "Make asv's page of it, which works without the internet.",
    ),
    "serve": ("collbench.cli.history_serve:serve", "Show a published page on this machine."),
}


@click.group(cls=LazyGroup, table=_COMMANDS, context_settings=dict(CONTEXT))
def history() -> None:
    """Track releases of NCCL: did an upgrade make anything slower, since when, and where?

    \b
    Start here:
      collbench history run --nccl 2.28.9,2.29.7,2.30.7   measure three releases, interleaved
      collbench history check                             exit 1 if the newest is slower anywhere
      collbench history show                              time over release
    """  # noqa: D301  click's mark for "do not rewrap"
