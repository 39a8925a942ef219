"""Node 0 holds the meeting: waits for the stations, leaves out those that do not belong."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from collbench.engine.place_notes import emulation_note, loopback_note
from collbench.engine.placement import Slots
from collbench.engine.reception import Guest, Presence, Reception, Versions
from collbench.engine.roster import places_of
from collbench.errors import NothingMeasured, UsageError
from collbench.launch.detect import Launch
from collbench.launch.hostlist import expand_hostlist
from collbench.launch.interface import address_of
from collbench.launch.meeting import Meeting, MeetingKind
from collbench.launch.options import LaunchOptions
from collbench.launch.rendezvous import Announcement, publish
from collbench.model import Node, NodeState, Topology

_SHOWN = 8


@dataclass(frozen=True, kw_only=True)
class Met:
    """Who takes part."""

    guests: list[Guest]
    """In the order of their ranks, node 0's process first."""
    topology: Topology
    remarks: list[str]
    """What a person should know: who is missing, who was left out and why."""
    announcement: Announcement | None
    """To be withdrawn at the end."""


def hold_meeting(
    loop: asyncio.AbstractEventLoop,
    reception: Reception,
    launch: Launch,
    meeting: Meeting,
    options: LaunchOptions,
    token: str,
) -> Met:
    """Returns who takes part, once everybody has come or the time is over.

    Raises:
        NothingMeasured: too few have come, or node 0 itself does not belong to the others.
        UsageError: two are on one GPU, or it cannot listen where it should.
    """
    own, address = reception.own, reception.address
    port = loop.run_until_complete(_listening(reception, address, meeting))
    announcement = None
    if meeting.kind is not MeetingKind.ADDRESS:
        announcement = Announcement(host=address, port=port, token=token)
        publish(meeting, announcement)
    guests = loop.run_until_complete(reception.gathered(options.wait_s))
    remarks = [f"turned away: {text}" for text in reception.turned_away]
    absent = _absent(guests, launch)
    wanted = [guest for guest in guests if guest.presence.node not in options.exclude]
    gpu_missing = _without_gpu(wanted, own, strict=options.strict)
    whole = [guest for guest in wanted if guest not in gpu_missing]
    left_out = {guest: "--exclude" for guest in guests if guest not in wanted}
    left_out |= _different(whole, own, strict=options.strict)
    out = dict.fromkeys(left_out, NodeState.EXCLUDED)
    out |= dict.fromkeys(gpu_missing, NodeState.GPU_MISSING)
    staying = sorted((g for g in guests if g not in out), key=_order(guests))
    if absent:
        remarks.append(f"absent: {_listed(absent)}")
    remarks += [f"excluded: {guest.presence.node} ({why})" for guest, why in left_out.items()]
    missing = {guest.presence.node: why for guest, why in gpu_missing.items()}
    remarks += [f"{node} is left out: {why}" for node, why in missing.items()]
    _refuse_too_few(staying, absent, options, own)
    _refuse_shared_gpus(staying)
    for guest, why in (left_out | gpu_missing).items():
        reception.turn_away(guest, f"this node takes no part: {why}", failed=False)
    return Met(
        guests=staying,
        topology=_topology(staying, out, absent),
        remarks=remarks,
        announcement=announcement,
    )


async def _listening(reception: Reception, address: str, meeting: Meeting) -> int:
    ports = meeting.ports if meeting.kind is MeetingKind.ADDRESS else (0,)
    try:
        return await reception.open(address, ports)
    except OSError as problem:
        where = ", ".join(str(port) for port in ports)
        raise UsageError(
            f"node 0 cannot listen at {address}, port {where}: {problem.strerror}; give"
            " --rendezvous HOST:PORT with an address of this node and a free port"
        ) from None


def own_address(meeting: Meeting, options: LaunchOptions) -> str:
    """Returns the address to listen at: of the interface given, or where the others look."""
    if options.interface is not None or meeting.kind is not MeetingKind.ADDRESS:
        return address_of(options.interface, None)
    assert meeting.host is not None
    found = socket.getaddrinfo(meeting.host, None, type=socket.SOCK_STREAM)
    return str(found[0][4][0])


def _absent(guests: Sequence[Guest], launch: Launch) -> list[str]:
    """Returns the processes that have not come, by their node's name where it is known."""
    here = {guest.presence.process for guest in guests}
    missing = [process for process in range(launch.processes) if process not in here]
    names: list[str] = []
    listed = launch.variables.get("SLURM_STEP_NODELIST")
    if listed and launch.local_processes == 1:
        names = expand_hostlist(listed)
    return [names[p] if p < len(names) else f"process {p}" for p in missing]


def _without_gpu(guests: Sequence[Guest], own: Presence, *, strict: bool) -> dict[Guest, str]:
    """Returns the stations of nodes where a GPU cannot be used that is promised, and why not."""
    problems: dict[str, str] = {}
    for guest in guests:
        if guest.presence.gpu_problem is not None:
            problems.setdefault(guest.presence.node, guest.presence.gpu_problem)
    if own.node in problems:
        raise NothingMeasured(f"{own.node}, which is node 0: {problems[own.node]}")
    if problems and strict:
        lines = "; ".join(f"{node}: {why}" for node, why in list(problems.items())[:_SHOWN])
        raise NothingMeasured(f"--strict, and nodes differ: {lines}")
    return {
        guest: problems[guest.presence.node] for guest in guests if guest.presence.node in problems
    }


def _different(guests: Sequence[Guest], own: Presence, *, strict: bool) -> dict[Guest, str]:
    """Returns the stations that differ from most others, and in what."""
    counts = Counter(guest.presence.versions for guest in guests)
    if len(counts) < 2:
        return {}
    most, _ = max(counts.items(), key=lambda item: (item[1], item[0] == own.versions))
    found = {
        guest: _difference(guest.presence.versions, most)
        for guest in guests
        if guest.presence.versions != most
    }
    shown = list(found.items())[:_SHOWN]
    lines = "; ".join(f"{guest.presence.node}: {why}" for guest, why in shown)
    if strict:
        raise NothingMeasured(f"--strict, and nodes differ: {lines}")
    if own.versions != most:
        raise NothingMeasured(
            f"node 0 differs from most nodes ({_difference(own.versions, most)}); start it on"
            " another node, or make them equal"
        )
    return found


def _difference(mine: Versions, theirs: Versions) -> str:
    pairs = zip(msgspec.structs.asdict(mine).items(), msgspec.structs.astuple(theirs), strict=True)
    return ", ".join(f"{name} {a} against {b}" for (name, a), b in pairs if a != b)


def _order(guests: Sequence[Guest]) -> Callable[[Guest], tuple[int, int]]:
    """Returns the key by which stations stand: nodes as their first process, then local ones."""
    first: dict[str, int] = {}
    for guest in sorted(guests, key=lambda g: g.presence.process):
        first.setdefault(guest.presence.node, guest.presence.process)
    return lambda guest: (first[guest.presence.node], guest.presence.local_process)


def _refuse_too_few(
    staying: Sequence[Guest], absent: Sequence[str], options: LaunchOptions, own: Presence
) -> None:
    nodes = {guest.presence.node for guest in staying}
    if own.node not in nodes:
        raise UsageError(f"--exclude names {own.node}, which is node 0; start it elsewhere")
    if options.min_nodes is not None:
        if len(nodes) >= options.min_nodes:
            return
        raise NothingMeasured(
            f"{len(nodes)} {'node is' if len(nodes) == 1 else 'nodes are'} here, --min-nodes asks"
            f" for {options.min_nodes}; absent: {_listed(absent) or 'none'}; look at their output,"
            " wait longer (--wait), or ask for fewer"
        )
    if absent:
        raise NothingMeasured(
            f"{len(absent)} of {own.processes} did not come within {options.wait_s:.0f} s:"
            f" {_listed(absent)}; look at their output, wait longer (--wait), or begin without"
            " them (--min-nodes)"
        )


def _refuse_shared_gpus(guests: Sequence[Guest]) -> None:
    """Two ranks on one GPU take turns: their figures would mean nothing."""
    owners: dict[str, str] = {}
    for guest in guests:
        presence = guest.presence
        if presence.slots.fake_hosts:
            continue
        for gpu in presence.slots.gpus:
            who = f"process {presence.process} on {presence.node}"
            other = owners.setdefault(gpu.uuid, who)
            if other != who:
                raise UsageError(
                    f"{who} and {other} have the same GPU ({gpu.uuid}); let the launcher divide"
                    " them (srun --gpus-per-task=1), or start one process a node"
                )


def _topology(
    staying: Sequence[Guest], left_out: Mapping[Guest, NodeState], absent: Sequence[str]
) -> Topology:
    nodes: dict[str, Node] = {}
    for guest in staying:
        name = guest.presence.node
        nodes.setdefault(name, msgspec.structs.replace(guest.presence.hardware, name=name))
    for guest, state in left_out.items():
        name = guest.presence.node
        hardware = msgspec.structs.replace(guest.presence.hardware, name=name, state=state)
        nodes.setdefault(name, hardware)
    for name in absent:
        nodes.setdefault(
            name,
            Node(
                name=name,
                state=NodeState.ABSENT,
                cpu_model="",
                cpus=0,
                numa_nodes=0,
                memory_bytes=0,
            ),
        )
    names = [guest.presence.node for guest in staying]
    ranks = places_of(names, [guest.presence.slots for guest in staying])
    return Topology(nodes=list(nodes.values()), ranks=ranks)


def total_slots(guests: Sequence[Guest]) -> Slots:
    """Returns what all stations offer together."""
    offers = [guest.presence.slots for guest in guests]
    first = offers[0]
    return Slots(
        backend=first.backend,
        world_size=sum(offer.world_size for offer in offers),
        gpus=tuple(gpu for offer in offers for gpu in offer.gpus),
        cpusets=tuple(c for offer in offers for c in offer.cpusets or ("",) * offer.world_size),
        note=_note(first, guests),
        fake_hosts=_fake_hosts(guests),
    )


def _fake_hosts(guests: Sequence[Guest]) -> tuple[str, ...]:
    presences = [guest.presence for guest in guests]
    places = [place for own in presences for place in own.slots.places(own.node)]
    return tuple(place.fake_host for place in places if place.fake_host is not None)


def _note(first: Slots, guests: Sequence[Guest]) -> str | None:
    if first.fake_hosts:
        gpus = [gpu for guest in guests for gpu in guest.presence.slots.gpus]
        return emulation_note(len(set(_fake_hosts(guests))), len(gpus), gpus)
    nodes = len({guest.presence.node for guest in guests})
    if first.backend != "gloo":
        return first.note
    ranks = sum(guest.presence.slots.world_size for guest in guests)
    what = (first.note or "NO GPU").partition(":")[0]
    if nodes == 1:
        return loopback_note(what, ranks)
    return f"{what}: CPUs over Gloo, {ranks} ranks on {nodes} nodes"


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_SHOWN])
    return f"{shown} and {len(names) - _SHOWN} more" if len(names) > _SHOWN else shown
