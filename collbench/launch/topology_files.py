"""Files that say which leaf a node is in: Slurm's switches, or plain lines.

Slurm's lines describe a tree of switches. A leaf is a switch that lists nodes and no switches below
it; so what ``scontrol show topology`` prints, where each spine lists all nodes below it as well,
reads like the topology.conf that it comes from.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from collbench.errors import UsageError, nearest
from collbench.launch.hostlist import expand_hostlist

_SWITCH = re.compile(r"SwitchName=", re.IGNORECASE)
_YAML = re.compile(r"---|-\s+topology\s*:")
_KEYS = ("SwitchName", "Nodes", "Switches", "LinkSpeed", "Level")
"""Of topology.conf; the last is of scontrol alone."""
_SHOWN = 80
"""Characters of a line that an error shows: a list of nodes may be long."""
_SWITCH_FORM = "a switch is written 'SwitchName=leaf0 Nodes=node[0-3]'"
_FORMS = "write 'leaf0: node[0-3]', 'node0 leaf0' or Slurm's 'SwitchName=leaf0 Nodes=node[0-3]'"


@dataclass(frozen=True, slots=True)
class _Statement:
    """A line without its comment, joined with those that it goes on in."""

    line: int
    text: str


@dataclass(frozen=True, slots=True)
class _Switch:
    name: str
    line: int
    nodes: Sequence[str]
    switches: Sequence[str] = ()
    """Those below it."""


def read_topology_file(path: Path) -> dict[str, str]:
    """Returns the leaf of each node in a file.

    Raises:
        UsageError: it cannot be read, names no node, or has a line that cannot be.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as problem:
        raise UsageError(f"--topology {path} cannot be read: {problem.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"--topology {path} is no text; {_FORMS}") from None
    try:
        leaf_of = parse_topology(text)
    except UsageError as problem:
        raise UsageError(f"--topology {path}, {problem}") from None
    if not leaf_of:
        raise UsageError(f"--topology {path} names no node; {_FORMS}")
    return leaf_of


def parse_topology(text: str) -> dict[str, str]:
    """Returns the leaf of each node, from Slurm's lines or, where there are none, plain ones.

    Raises:
        UsageError: a line that cannot be; the text starts with its number.
    """
    statements = list(_statements(text))
    if any(_SWITCH.match(statement.text) for statement in statements):
        return _leaf_of_each(_leaves_of_switches(statements))
    return _leaf_of_each(_plain_leaves(statements))


def is_switch_line(line: str) -> bool:
    """Whether a line of Slurm's describes a switch."""
    return _SWITCH.match(line.lstrip()) is not None


def _statements(text: str) -> Iterator[_Statement]:
    begun: int | None = None
    held = ""
    for number, line in enumerate([*text.splitlines(), ""], 1):
        begun = number if begun is None else begun
        line = line.partition("#")[0].rstrip()
        held += line.removesuffix("\\")
        if line.endswith("\\"):
            continue
        if held.strip():
            yield _Statement(begun, held.strip())
        begun, held = None, ""


def _leaves_of_switches(statements: Iterable[_Statement]) -> list[_Switch]:
    switches: dict[str, _Switch] = {}
    for statement in statements:
        switch = _read_switch(statement)
        if switch.name in switches:
            raise _named_again(switch, switches[switch.name])
        switches[switch.name] = switch
    _refuse_unknown(switches)
    _refuse_cycle(switches)
    return [switch for switch in switches.values() if not switch.switches]


def _read_switch(statement: _Statement) -> _Switch:
    spellings = {key.lower(): key for key in _KEYS}
    values: dict[str, str] = {}
    for word in statement.text.split():
        key, sign, value = word.partition("=")
        spelling = spellings.get(key.lower())
        if not sign or spelling is None or spelling in values:
            raise _not_understood(statement, _SWITCH_FORM)
        values[spelling] = value.strip('"')
    if not values.get("SwitchName"):
        raise _not_understood(statement, _SWITCH_FORM)
    return _Switch(
        name=values["SwitchName"],
        line=statement.line,
        nodes=_expanded(statement, values.get("Nodes", "")),
        switches=_expanded(statement, values.get("Switches", "")),
    )


def _refuse_unknown(switches: Mapping[str, _Switch]) -> None:
    for name, switch in switches.items():
        for below in switch.switches:
            if below not in switches:
                raise UsageError(
                    f"line {switch.line}: switch {name} is above {below}, which no line describes;"
                    f" add SwitchName={below} or take it out{nearest(below, switches)}"
                )


def _refuse_cycle(switches: Mapping[str, _Switch]) -> None:
    below = {name: switch.switches for name, switch in switches.items()}
    try:
        TopologicalSorter(below).prepare()
    except CycleError as problem:
        names = problem.args[1][::-1]
        raise UsageError(
            f"line {switches[names[0]].line}: the switches {' > '.join(names)} are joined in a"
            " circle; Switches= names those below"
        ) from None


def _plain_leaves(statements: Iterable[_Statement]) -> list[_Switch]:
    leaves: list[_Switch] = []
    listed: dict[str, _Switch] = {}
    for statement in statements:
        if _YAML.match(statement.text):
            raise UsageError(
                f"line {statement.line}: topology.yaml is not read; write what 'scontrol show"
                " topology' prints into a file and give that"
            )
        leaf = _read_plain(statement)
        if ":" in statement.text:
            if leaf.name in listed:
                raise _named_again(leaf, listed[leaf.name])
            listed[leaf.name] = leaf
        leaves.append(leaf)
    return leaves


def _read_plain(statement: _Statement) -> _Switch:
    """Reads ``LEAF: NODE NODE`` or ``NODE LEAF``."""
    before, colon, after = statement.text.partition(":")
    names, words = before.split(), after.split()
    if not colon:
        words, names = names[:-1], names[-1:]
    well_formed = len(names) == 1 and (len(words) >= 1 if colon else len(words) == 1)
    if not well_formed or "=" in statement.text:
        raise _not_understood(statement, _FORMS)
    nodes = _expanded(statement, ",".join(word.strip(",") for word in words))
    return _Switch(name=names[0], line=statement.line, nodes=nodes)


def _leaf_of_each(leaves: Iterable[_Switch]) -> dict[str, str]:
    of_node: dict[str, _Switch] = {}
    for leaf in leaves:
        for node in leaf.nodes:
            if node in of_node:
                first = of_node[node]
                raise UsageError(
                    f"line {leaf.line}: {node} is in {leaf.name}, and in {first.name} by line"
                    f" {first.line}; name each node once (where each rail has a switch, in the"
                    " first rail's)"
                )
            of_node[node] = leaf
    return {node: leaf.name for node, leaf in of_node.items()}


def _expanded(statement: _Statement, names: str) -> list[str]:
    try:
        return expand_hostlist(names)
    except UsageError as problem:
        raise UsageError(f"line {statement.line}: {problem}") from None


def _named_again(switch: _Switch, first: _Switch) -> UsageError:
    return UsageError(
        f"line {switch.line}: {switch.name} is there already, in line {first.line}; give each"
        " switch one line and a name of its own"
    )


def _not_understood(statement: _Statement, allowed: str) -> UsageError:
    text = statement.text
    shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
    return UsageError(f"line {statement.line}: '{shown}' is not understood; {allowed}")
