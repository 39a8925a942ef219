"""Command lines that a launcher starts on every node: read as their command reads them.

Nothing is started and no hardware is looked at. Files that only the run reads (a baseline, a
topology, a model, a library) are not looked for: they may be where the job runs alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

from collbench.cli.bar_options import read_bars
from collbench.cli.launch_options import read_launch_options
from collbench.cli.library import refuse_for_torch
from collbench.cli.request import RunRequest
from collbench.errors import UsageError, nearest
from collbench.measure.plant import parse_plant

Read = Callable[[click.Context, dict[str, Any]], RunRequest | None]
"""From a command's context and parameters to its request; None: it makes none."""


def check_line(words: Sequence[str], root: click.Context) -> None:
    """Refuses a command line that its command would refuse when it begins.

    Args:
        words: the command and its arguments: ``("sweep", "-b", "8")``.
        root: the context of collbench itself.

    Raises:
        UsageError: a command that is not started on nodes, or a value that cannot be.
        click.UsageError: an option that the command does not have.
        RunNotFound: the run that is to go on is not here.
    """
    name, rest = _command_of(words)
    command = _found(name, root)
    with command.make_context(name, rest, parent=root) as context:
        given = dict(context.params)
        read_launch_options(given)
        read_bars(given, judges=False)
        request = _READERS[name](context, given)
    if request is None:
        return
    if request.plant is not None:
        parse_plant(request.plant)
    refuse_for_torch(request.suite)


def _command_of(words: Sequence[str]) -> tuple[str, list[str]]:
    """Returns the command's whole name and its arguments."""
    for count in (2, 1):
        name = " ".join(words[:count])
        if name in _READERS:
            return name, list(words[count:])
    name = words[0]
    if any(known.startswith(f"{name} ") for known in _READERS):
        name = " ".join(words[:2])
    raise UsageError(
        f"command '{name}' is not started on nodes{nearest(name, _READERS) or ';'}"
        f" allowed: {', '.join(_READERS)}"
    )


def _found(name: str, root: click.Context) -> click.Command:
    command: click.Command | None = root.command
    for word in name.split():
        assert isinstance(command, click.Group)
        command = command.get_command(root, word)
    assert command is not None
    return command


def _sweep(context: click.Context, given: dict[str, Any]) -> RunRequest:
    from collbench.cli.sweep_run import read_sweep

    return read_sweep(context, given, "sweep").request


def _ab(context: click.Context, given: dict[str, Any]) -> RunRequest:
    from collbench.cli.ab_run import read_ab
    from collbench.cli.sweep_run import read_sweep
    from collbench.suite import settings_of

    conclusion = read_ab(given)
    request = read_sweep(context, given, conclusion.command).request
    conclusion.check(settings_of(request.suite))
    return request


def _history(context: click.Context, given: dict[str, Any]) -> RunRequest:
    from collbench.cli.sweep_run import read_sweep

    for own in ("libraries", "cuda"):  # read already, where libraries took the place of releases
        del given[own]
    return read_sweep(context, given, "history run").request


def _pairwise(context: click.Context, given: dict[str, Any]) -> RunRequest:
    from collbench.cli.pairwise_run import read_pairwise

    return read_pairwise(context, given).request


def _scale(context: click.Context, given: dict[str, Any]) -> RunRequest:
    from collbench.cli.scale_run import read_scale

    return read_scale(context, given).request


def _placement(context: click.Context, given: dict[str, Any]) -> None:
    """Has nothing but the options about nodes, which are read already."""
    del context, given


_READERS: Mapping[str, Read] = {
    "sweep": _sweep,
    "ab": _ab,
    "pairwise": _pairwise,
    "scale": _scale,
    "history run": _history,
    "placement": _placement,
}
"""By name the commands that are started on every node; the others read what is stored."""
