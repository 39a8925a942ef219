"""What to do next: what to look at on a bad node, the line that drains it, commands to go on."""

from __future__ import annotations

from collections.abc import Sequence

from collbench.analyze.pair_state import PairwiseState
from collbench.analyze.pair_verdicts import (
    FabricCode,
    FabricVerdict,
    NodeCode,
    NodeVerdict,
    PairwiseResult,
)
from collbench.errors import UsageError
from collbench.report.closing import wrapped
from collbench.report.drain_line import drain_line_of, failing
from collbench.report.pair_component import Hardware
from collbench.report.pairwise_about import PairwiseAbout
from collbench.report.pairwise_words import gravest_first, listed
from collbench.report.table import WIDTH

_MOST_NODES = 3
_MOST_FAULTS = 2
_FIRST, _REST = f"{'NEXT':<19}", " " * 19
_SOFTWARE = {NodeCode.CONFIG_DIFFERS}
_PROCESSES = {NodeCode.HANGS, NodeCode.FAILS, NodeCode.DATA_WRONG}


def next_lines(
    state: PairwiseState, result: PairwiseResult, about: PairwiseAbout, hardware: Hardware
) -> list[str]:
    """Returns the block; nothing where there is nothing to do."""
    lines: list[str] = []
    bad = gravest_first(failing(result))
    for verdict in bad[:_MOST_NODES]:
        if about.run.suite.get("inside"):
            lines += _wrapped(_look_inside(state, verdict))
            continue
        lines += _wrapped(_look_at(state, verdict, hardware))
        lines += _drain(state, about, verdict)
    if len(bad) > _MOST_NODES:
        more = f"{len(bad) - _MOST_NODES} more: collbench drain {about.run.run_id}"
        lines.append(f"{_REST}{more}")
    for fault in [fault for fault in result.fabric if fault.confirmed][:_MOST_FAULTS]:
        lines += _wrapped(_look_between(state, fault))
    lines += [f"{_REST}{command}" for command in about.next_commands]
    return [f"{_FIRST}{line[len(_REST) :]}" for line in lines[:1]] + lines[1:]


def _wrapped(text: str) -> list[str]:
    return wrapped(text, _REST, f"{_REST}  ")


def _look_at(state: PairwiseState, verdict: NodeVerdict, hardware: Hardware) -> str:
    name = state.names[verdict.node]
    if verdict.code in _SOFTWARE:
        return f"on {name}: make it like the others ({'; '.join(verdict.evidence)})"
    commands = ["dmesg | tail -n 50"] if verdict.code in _PROCESSES else []
    return f"on {name}: {'; '.join([*commands, *_tools(name, verdict, hardware)])}"


def _look_inside(state: PairwiseState, verdict: NodeVerdict) -> str:
    """Of a GPU: NVLink, PCIe and what the driver logged."""
    node, _, part = state.names[verdict.node].partition(":")
    number = part.removeprefix("gpu")
    commands = ["nvidia-smi nvlink -e", "nvidia-smi topo -m", "dmesg | grep -i xid"]
    if number.isdecimal():
        commands = [
            f"nvidia-smi -q -i {number}",
            f"nvidia-smi nvlink -e -i {number}",
            *commands[1:],
        ]
    return f"on {node}: {'; '.join(commands)}"


def _look_between(state: PairwiseState, fault: FabricVerdict) -> str:
    names = listed([state.names[node] for node in sorted(fault.nodes)], _MOST_NODES)
    match fault.code:
        case FabricCode.LEAF_UPLINK_SLOW:
            where = f"uplinks of {' and '.join(fault.leaves)}"
            return f"at the switch: state, rate and error counters of the {where}"
        case FabricCode.SPLIT_FABRIC:
            return f"what parts {names} from the others: subnet manager, partition, VLAN, firewall"
        case FabricCode.SLOW_PATH:
            return f"at the switches between {names}: routes, and error counters of the links"


def _tools(name: str, verdict: NodeVerdict, hardware: Hardware) -> Sequence[str]:
    """Returns what shows a link's or a GPU's state; by device where it is known."""
    node = hardware.node(name)
    if node is None or not (node.nics or node.gpus):
        return ["ibstat", "ethtool -S INTERFACE", "nvidia-smi"]
    rail = verdict.rail if len(verdict.rails) <= 1 else None
    nic = None if rail is None else hardware.nic(name, rail)
    gpu = None if rail is None else hardware.gpu(name, rail)
    kinds = {one.kind for one in node.nics}
    found = []
    if kinds & {"infiniband", "roce"}:
        found.append(f"ibstat {nic.name}" if nic else "ibstat")
    if nic is not None:
        found.append(f"ethtool -S $(ls /sys/class/infiniband/{nic.name}/device/net)")
    else:
        cards = [one.name for one in node.nics if one.kind == "ethernet"]
        found.append(f"ethtool -S {cards[0] if len(cards) == 1 else 'INTERFACE'}")
    if node.gpus:
        found.append(f"nvidia-smi -q -i {gpu.index}" if gpu else "nvidia-smi")
    return found


def _drain(state: PairwiseState, about: PairwiseAbout, verdict: NodeVerdict) -> list[str]:
    """Returns the line for the scheduler, in two where it is too wide for one."""
    try:
        line = drain_line_of(state, about.run, verdict)
    except UsageError as problem:
        return _wrapped(str(problem))
    if len(_REST) + len(line) <= WIDTH:
        return [f"{_REST}{line}"]
    command, _, reason = line.partition(" reason=")
    if command.startswith("#"):
        return [f"{_REST}{command}", f"{_REST}#   reason={reason}"]
    return [f"{_REST}{command} \\", f"{_REST}  reason={reason}"]
