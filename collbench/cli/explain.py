"""``collbench explain``: what the words of tables and verdicts mean."""

from __future__ import annotations

import shutil

import click

from collbench.cli.context import CONTEXT

_NARROWEST, _WIDEST = 80, 100


def _words(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Completes a topic: by its name, or by a code once some of it is typed."""
    from collbench.report.explain import topics, words

    if context.params.get("topic"):
        return []  # words after the first go on with a name of several words
    known = words() if incomplete else [one.name for one in topics()]
    return [word for word in known if word.startswith(incomplete) and " " not in word]


@click.command(context_settings=dict(CONTEXT))
@click.argument("topic", nargs=-1, metavar="[TOPIC]", shell_complete=_words)
def explain(topic: tuple[str, ...]) -> None:
    """Say what a word of a table or a verdict means; without TOPIC list all of them.

    What it is, how it comes about, how to read it, what to do. Every status, reason, code and
    verdict that collbench prints is a topic.

    \b
    Examples:
      collbench explain
      collbench explain busbw
      collbench explain no_rdma_device
      collbench explain no absolute reference
    """  # noqa: D301  click's mark for "do not rewrap"
    from collbench.report.explain import explained, list_text

    width = min(max(shutil.get_terminal_size().columns, _NARROWEST), _WIDEST)
    click.echo(explained(" ".join(topic), width) if topic else list_text(width))
