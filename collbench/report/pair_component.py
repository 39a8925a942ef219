"""Which part of a node a verdict means: the NIC and the GPU of a rail, where they are known."""

from __future__ import annotations

import re

import msgspec

from collbench.analyze.pair_verdicts import NodeVerdict
from collbench.model import Gpu, Nic, Node, RankPlace, Topology


class Component(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a node; what is not known is None."""

    kind: str
    """``node``, or ``rail``: a NIC with its GPU, the slot and the cable between them."""
    name: str
    """The node's; of a rail its NIC's, or ``rail 5``."""
    pci: str | None = None
    """The NIC's PCI address."""
    guid: str | None = None
    """The NIC's; probes do not read it yet."""
    gpu_uuid: str | None = None


class Hardware:
    """Finds the parts of nodes by rail: rail r is what the node's local rank r uses."""

    def __init__(self, topology: Topology) -> None:
        self._nodes = {node.name: node for node in topology.nodes}
        self._places: dict[str, dict[int, RankPlace]] = {}
        for place in topology.ranks:
            self._places.setdefault(place.node, {})[place.local_rank] = place

    def node(self, name: str) -> Node | None:
        """Returns a node's record, None where there is none."""
        return self._nodes.get(name)

    def gpu(self, name: str, rail: int) -> Gpu | None:
        """Returns the GPU of a rail."""
        node, place = self._nodes.get(name), self._places.get(name, {}).get(rail)
        if node is None or place is None:
            return None
        return next((gpu for gpu in node.gpus if gpu.index == place.gpu), None)

    def nic(self, name: str, rail: int) -> Nic | None:
        """Returns the NIC of a rail, where the node has one RDMA device a local rank.

        GPUs and NICs that belong together stand at the same place when both are sorted by PCI
        address; without addresses, by number.
        """
        node, places = self._nodes.get(name), self._places.get(name, {})
        nics = [] if node is None else [nic for nic in node.nics if nic.kind != "ethernet"]
        if len(nics) != len(places) or rail not in places:
            return None
        gpus = [self.gpu(name, local) for local in sorted(places)]
        addresses = [gpu.pci_bus_id if gpu else "" for gpu in gpus]
        if all(addresses) and all(nic.pci_bus_id for nic in nics):
            place = sorted(map(_address, addresses)).index(
                _address(addresses[sorted(places).index(rail)])
            )
            return sorted(nics, key=lambda nic: _address(nic.pci_bus_id or ""))[place]
        return sorted(nics, key=_by_number)[sorted(places).index(rail)]

    def component(self, name: str, verdict: NodeVerdict) -> Component | None:
        """Returns what a verdict with a code is about; None for one without."""
        if verdict.code is None:
            return None
        rail = verdict.rail
        if rail is None or len(verdict.rails) > 1:
            return Component(kind="node", name=name)
        nic, gpu = self.nic(name, rail), self.gpu(name, rail)
        return Component(
            kind="rail",
            name=nic.name if nic else f"rail {rail}",
            pci=nic.pci_bus_id if nic else None,
            gpu_uuid=gpu.uuid if gpu else None,
        )


def _address(text: str) -> tuple[int, ...]:
    """Returns a PCI address as numbers: domains are written with 4 or 8 digits."""
    return tuple(int(part, 16) for part in re.findall(r"[0-9a-fA-F]+", text))


def _by_number(nic: Nic) -> tuple[str, int]:
    match = re.fullmatch(r"(.*?)(\d*)", nic.name)
    assert match is not None
    return match[1], int(match[2] or 0)
