"""The network devices: RDMA adapters (InfiniBand, RoCE, others) and physical Ethernet."""

from __future__ import annotations

import re
from pathlib import Path

from collbench.model import Nic
from collbench.probe.files import text_of

_RATE = re.compile(r"(\d+(?:\.\d+)?)\s*Gb/sec")
_PCI_ADDRESS = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]")
_ETHERNET_TYPE = "1"
_KINDS = {"InfiniBand": "infiniband", "Ethernet": "roce"}


def read_nics(root: Path = Path("/")) -> tuple[Nic, ...]:
    """Returns RDMA devices, then Ethernet devices that are hardware (no lo, veth, bridge).

    A RoCE adapter stands in both: its RDMA device carries NCCL's IB transport, its Ethernet device
    the sockets. IP over InfiniBand is left out: its adapter is there already.

    Args:
        root: where /sys is, for tests.
    """
    rdma = [_rdma(folder) for folder in sorted((root / "sys/class/infiniband").glob("*"))]
    ethernet = [
        _ethernet(folder)
        for folder in sorted((root / "sys/class/net").glob("*"))
        if (folder / "device").exists() and text_of(folder / "type") == _ETHERNET_TYPE
    ]
    return (*rdma, *ethernet)


def _rdma(folder: Path) -> Nic:
    port = _best_port(folder)
    rate = _RATE.search(text_of(port / "rate"))  # "400 Gb/sec (4X NDR)"
    return Nic(
        name=folder.name,
        kind=_KINDS.get(text_of(port / "link_layer"), "rdma"),
        rate_gbit_per_s=float(rate[1]) if rate else None,
        state=_state(port),
        pci_bus_id=_pci(folder),
        numa_node=numa_node_of(folder / "device"),
    )


def _best_port(folder: Path) -> Path:
    """Returns the first active port, else the first: an adapter may have more than one."""
    ports = sorted((folder / "ports").glob("*")) or [folder / "ports/1"]
    return next((port for port in ports if _state(port) == "ACTIVE"), ports[0])


def _state(port: Path) -> str:
    """Returns ``ACTIVE`` for the kernel's ``4: ACTIVE``."""
    return text_of(port / "state").partition(":")[2].strip() or "unknown"


def _ethernet(folder: Path) -> Nic:
    speed = text_of(folder / "speed")  # Mbit/s; -1 or unreadable where it is not known
    known = speed.isdigit() and int(speed) > 0
    return Nic(
        name=folder.name,
        kind="ethernet",
        rate_gbit_per_s=int(speed) / 1000 if known else None,
        state=text_of(folder / "operstate") or "unknown",
        pci_bus_id=_pci(folder),
        numa_node=numa_node_of(folder / "device"),
    )


def _pci(folder: Path) -> str | None:
    name = (folder / "device").resolve().name
    return name if _PCI_ADDRESS.fullmatch(name) else None


def numa_node_of(device: Path) -> int | None:
    """Returns the NUMA node of a device's sysfs folder; the kernel's -1 is "not known"."""
    text = text_of(device / "numa_node")
    return int(text) if text.isdigit() else None
