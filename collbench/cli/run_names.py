"""The shell's completion of RUN: ids of stored runs, the newest first."""

from __future__ import annotations

import os

import click
from click.shell_completion import CompletionItem


def complete_run(
    context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Returns what RUN may go on as: ``last``, ids of runs, or folders.

    Args:
        context: of the command; a ``--results`` that is typed already counts.
        incomplete: what is typed of RUN.
    """
    from collbench.store import list_runs, results_root

    root = results_root(context.params.get("results"), os.environ)
    names = ["last", *(listed.folder.name for listed in list_runs(root))]
    found = [CompletionItem(name) for name in names if name.startswith(incomplete)]
    return found or [CompletionItem(incomplete, type="dir")]
