"""Nodes, leaf switches and a spine out of network namespaces, links shaped to a rate.

    node0 .. node3 - leaf0 -+
                            +- spine - controller
    node4 .. node7 - leaf1 -+

A node is a namespace with one interface, ``eth0``. All switches are bridges in one namespace more.
Nothing is ever made in the namespace of the caller.

The links are shaped at both ends. TCP gets about 0.95 of a link's rate (the headers take the rest).
"""

from __future__ import annotations

import contextlib
import itertools
import os
import secrets
import subprocess
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import ip_address, ip_network
from pathlib import Path
from types import TracebackType
from typing import Any

from pyroute2 import IPRoute, NetlinkError, netns

from lab.processes import kill_in, living_in

NETWORK = ip_network("198.18.0.0/15")
"""Set aside for measuring networks (RFC 2544): it is nobody's."""
CONTROLLER_ADDRESS = NETWORK[2**16 + 1]
BURST_BYTES = 64 * 1024
QUEUE = "20ms"
NO_PREFIX_ROUTE = 0x200
SCOPE_LINK = 253
LOSS_PROGRAMS = {"iptables-legacy": "iptables"}
"""What ``set_loss`` needs, and Debian's package that brings it."""
_IP = 0x0800
"""The protocol's number on Ethernet."""
LOOPBACK = 1
"""The index of ``lo`` in every namespace."""


class Way(StrEnum):
    """Which direction of a node's link, as the node sees it."""

    BOTH = "both"
    OUT = "out"
    IN = "in"


@dataclass(frozen=True, slots=True)
class Node:
    """One host of the cluster."""

    name: str
    """Its host name, which every node of the fabric resolves."""
    address: str
    namespace: str
    port: str
    """The switch's end of its link."""
    hosts: Path
    """What stands in its /etc/hosts."""


class Fabric:
    """A cluster that exists from construction to ``close``; needs root."""

    def __init__(
        self,
        folder: Path,
        *,
        leaves: int = 2,
        nodes_a_leaf: int = 4,
        node_mbit_per_s: float = 200,
        uplink_mbit_per_s: float = 800,
    ) -> None:
        # Drawn, not counted: another process may build fabrics at the same time.
        self._prefix = f"lab-{secrets.token_hex(4)}"
        self._switch = f"{self._prefix}-switch"
        self._rates = (node_mbit_per_s, uplink_mbit_per_s)
        self._hosts = folder / f"{self._prefix}-hosts"
        self._ports = itertools.count(20000)
        self._whole = True
        self._lossy: set[int] = set()
        self._made: list[str] = []
        self.leaves = [
            [self._describe(leaf * nodes_a_leaf + i) for i in range(nodes_a_leaf)]
            for leaf in range(leaves)
        ]
        self.nodes = [node for leaf in self.leaves for node in leaf]
        self.controller = Node(
            "controller",
            str(CONTROLLER_ADDRESS),
            f"{self._prefix}-controller",
            "port-controller",
            self._hosts,
        )
        with contextlib.ExitStack() as undo:
            undo.callback(self.close)
            self._build()
            undo.pop_all()

    def __enter__(self) -> Fabric:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def namespaces(self) -> list[str]:
        """Those that exist now."""
        return list(self._made)

    def node(self, index: int) -> Node:
        """Returns a node by its number, in the order of the leaves."""
        return self.nodes[index]

    def fresh_port(self) -> int:
        """Returns a TCP port that was not given out before; nobody else lives in the nodes."""
        return next(self._ports)

    def processes(self) -> dict[int, str]:
        """Returns the command line of every process that lives in the nodes, by its pid."""
        return living_in(self._made)

    def link_down(self, index: int) -> None:
        """Pulls a node's cable: it keeps its address and its route and reaches nobody."""
        self._whole = False
        self._set_link(index, "down")

    def link_up(self, index: int) -> None:
        """Puts a node's cable back."""
        self._set_link(index, "up")

    def set_rate(self, index: int, mbit_per_s: float, way: Way = Way.BOTH) -> None:
        """Shapes a node's link anew."""
        self._whole = False
        node = self.nodes[index]
        if way in (Way.BOTH, Way.OUT):
            with _inside(node.namespace) as link:
                _shape(link, "eth0", mbit_per_s)
        if way in (Way.BOTH, Way.IN):
            with _inside(self._switch) as link:
                _shape(link, node.port, mbit_per_s)

    def set_path_rate(self, a: int, b: int, mbit_per_s: float, rest_mbit_per_s: float) -> None:
        """Shapes what two nodes send each other, and the rest of their links.

        Args:
            a: a node.
            b: the other one.
            mbit_per_s: between them, each way.
            rest_mbit_per_s: of their links to all others.
        """
        self._whole = False
        for node, other in ((self.nodes[a], self.nodes[b]), (self.nodes[b], self.nodes[a])):
            with _inside(node.namespace) as link:
                _shape_path(link, "eth0", other.address, mbit_per_s, rest_mbit_per_s)

    def set_loss(self, index: int, share: float) -> None:
        """Throws away so much of what reaches a node, at random; see ``LOSS_PROGRAMS``.

        The kernels at hand have no netem, so the firewall does it.
        """
        self._whole = False
        chance = ("--mode", "random", "--probability", f"{share:g}")
        self._firewall(index, "--append", "INPUT", "-i", "eth0", "-m", "statistic", *chance,
                       "-j", "DROP")  # fmt: skip
        self._lossy.add(index)

    def set_uplink_rate(self, leaf: int, mbit_per_s: float) -> None:
        """Shapes a leaf's link to the spine anew, both ways."""
        self._whole = False
        with _inside(self._switch) as link:
            _shape(link, f"up{leaf}", mbit_per_s)
            _shape(link, f"down{leaf}", mbit_per_s)

    def heal(self) -> None:
        """Brings all links back up and to the rates that the fabric was built with."""
        if self._whole:
            return
        for index in range(len(self.nodes)):
            self.link_up(index)
            self.set_rate(index, self._rates[0])
        for leaf in range(len(self.leaves)):
            self.set_uplink_rate(leaf, self._rates[1])
        while self._lossy:
            self._firewall(self._lossy.pop(), "--flush", "INPUT")
        self._whole = True

    def close(self) -> None:
        """Ends all processes that live in the nodes, then removes the nodes."""
        kill_in(self._made)
        while self._made:
            netns.remove(self._made[-1])
            self._made.pop()

    def _describe(self, index: int) -> Node:
        name = f"node{index}"
        address, namespace = str(NETWORK[index + 1]), f"{self._prefix}-{name}"
        return Node(name, address, namespace, f"port{index}", self._hosts)

    def _build(self) -> None:
        known = [*self.nodes, self.controller]
        lines = ["127.0.0.1 localhost", *(f"{node.address} {node.name}" for node in known)]
        self._hosts.write_text("\n".join(lines) + "\n")
        self._create(self._switch)
        for node in known:
            self._create(node.namespace)
        with _inside(self._switch) as link:
            _add_bridge(link, "spine")
            for leaf, nodes in enumerate(self.leaves):
                self._add_leaf(link, leaf, nodes)
            _add_node(link, self.controller, "spine", None)

    def _create(self, namespace: str) -> None:
        self._made.append(namespace)
        netns.create(namespace)

    def _add_leaf(self, link: IPRoute, leaf: int, nodes: list[Node]) -> None:
        node_rate, uplink_rate = self._rates
        up, down = f"up{leaf}", f"down{leaf}"
        _add_bridge(link, f"leaf{leaf}")
        link.link("add", ifname=up, kind="veth", peer={"ifname": down})
        for name, bridge in ((up, f"leaf{leaf}"), (down, "spine")):
            _plug_in(link, name, bridge)
            _shape(link, name, uplink_rate)
        for node in nodes:
            _add_node(link, node, f"leaf{leaf}", node_rate)

    def _firewall(self, index: int, *rule: str) -> None:
        inside = ("nsenter", f"--net=/run/netns/{self.nodes[index].namespace}")
        subprocess.run([*inside, "iptables-legacy", "--wait", *rule], check=True)

    def _set_link(self, index: int, state: str) -> None:
        with _inside(self._switch) as link:
            link.link("set", index=_index(link, self.nodes[index].port), state=state)


@contextlib.contextmanager
def _inside(namespace: str) -> Iterator[IPRoute]:
    with IPRoute(netns=namespace) as link:
        yield link


def _index(link: IPRoute, interface: str) -> int:
    (index,) = link.link_lookup(ifname=interface)
    return int(index)


def _add_bridge(link: IPRoute, name: str) -> None:
    link.link("add", ifname=name, kind="bridge")
    link.link("set", index=_index(link, name), state="up")


def _plug_in(link: IPRoute, interface: str, bridge: str) -> None:
    link.link("set", index=_index(link, interface), master=_index(link, bridge), state="up")


def _shape(link: IPRoute, interface: str, mbit_per_s: float) -> None:
    link.tc(
        "replace",
        "tbf",
        _index(link, interface),
        handle="1:",
        rate=f"{mbit_per_s * 1000:.0f}kbit",
        burst=BURST_BYTES,
        latency=QUEUE,
    )


def _shape_path(
    link: IPRoute, interface: str, address: str, mbit_per_s: float, rest_mbit_per_s: float
) -> None:
    """Gives what goes to one address a rate of its own."""
    index = _index(link, interface)
    # Another handle than the shaper's that stands there: then one call takes its place.
    link.tc("replace", "htb", index, handle="2:", default=0x10)
    for handle, rate in (("2:10", rest_mbit_per_s), ("2:20", mbit_per_s)):
        link.tc(
            "add-class",
            "htb",
            index,
            handle=handle,
            parent="2:",
            rate=f"{rate * 1000:.0f}kbit",
            burst=BURST_BYTES,
            cburst=BURST_BYTES,
        )
    number = int.from_bytes(ip_address(address).packed, "big")
    link.tc(
        "add-filter",
        "u32",
        index,
        parent=0x20000,
        prio=1,
        protocol=_IP,
        target=0x20020,
        keys=[f"{number:#010x}/0xffffffff+16"],
    )


def _add_node(switch: IPRoute, node: Node, bridge: str, mbit_per_s: float | None) -> None:
    peer: dict[str, Any] = {"ifname": "eth0", "net_ns_fd": node.namespace}
    switch.link("add", ifname=node.port, kind="veth", peer=peer)
    _plug_in(switch, node.port, bridge)
    with _inside(node.namespace) as link:
        own = _index(link, "eth0")
        link.link("set", index=LOOPBACK, state="up")
        link.addr(
            "add",
            index=own,
            address=node.address,
            prefixlen=NETWORK.prefixlen,
            flags=NO_PREFIX_ROUTE,
        )
        link.link("set", index=own, state="up")
        # Where the machine's own choice is bbr, TCP would not fill links of this kind. A namespace
        # may not choose for all its sockets, a route may.
        link.route(
            "add",
            dst=str(NETWORK),
            oif=own,
            prefsrc=node.address,
            scope=SCOPE_LINK,
            metrics={"cc_algo": "cubic"},
        )
        if mbit_per_s is not None:
            _shape(link, "eth0", mbit_per_s)
    if mbit_per_s is not None:
        _shape(switch, node.port, mbit_per_s)


def why_impossible() -> str | None:
    """Returns why no fabric can be built on this machine, or None."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    name = f"lab-{secrets.token_hex(4)}-try"
    with warnings.catch_warnings():
        # Where a namespace cannot be made, pyroute2 forgets to close the sockets to its helper.
        warnings.simplefilter("ignore", ResourceWarning)
        try:
            netns.create(name)
        except OSError as error:
            return f"network namespaces cannot be made: {error}"
    try:
        with _inside(name) as link:
            link.link("add", ifname="try", kind="veth", peer={"ifname": "peer"})
            link.link("add", ifname="bridge", kind="bridge")
            _shape(link, "try", 100)
    except NetlinkError as error:
        return f"the kernel lacks veth, bridge or tbf: {error}"
    finally:
        netns.remove(name)
    return None
