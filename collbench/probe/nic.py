"""The network devices: InfiniBand and RoCE adapters, physical Ethernet."""

from __future__ import annotations

import re
from pathlib import Path

from collbench.model import Nic

_RATE = re.compile(r"(\d+(?:\.\d+)?)\s*Gb/sec")


def read_nics(root: Path = Path("/")) -> tuple[Nic, ...]:
    """Returns RDMA devices, then Ethernet devices that are hardware (no veth, no bridge)."""
    rdma = [_rdma(folder) for folder in sorted((root / "sys/class/infiniband").glob("*"))]
    ethernet = [
        _ethernet(folder)
        for folder in sorted((root / "sys/class/net").glob("*"))
        if (folder / "device").exists()
    ]
    return (*rdma, *ethernet)


def _rdma(folder: Path) -> Nic:
    port = folder / "ports/1"
    rate = _RATE.search(_text(port / "rate"))
    return Nic(
        name=folder.name,
        kind="roce" if _text(port / "link_layer").strip() == "Ethernet" else "infiniband",
        rate_gbit_per_s=float(rate[1]) if rate else None,
        state=_text(port / "state").partition(":")[2].strip() or "unknown",
        pci_bus_id=_pci(folder),
        numa_node=_numa(folder),
    )


def _ethernet(folder: Path) -> Nic:
    speed = _text(folder / "speed").strip()  # Mbit/s; -1 or unreadable where it is not known
    known = speed.isdigit() and int(speed) > 0
    return Nic(
        name=folder.name,
        kind="ethernet",
        rate_gbit_per_s=int(speed) / 1000 if known else None,
        state=_text(folder / "operstate").strip() or "unknown",
        pci_bus_id=_pci(folder),
        numa_node=_numa(folder),
    )


def _pci(folder: Path) -> str | None:
    name = (folder / "device").resolve().name
    return name if re.fullmatch(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]", name) else None


def _numa(folder: Path) -> int | None:
    text = _text(folder / "device/numa_node").strip()
    return int(text) if text.isdigit() else None


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
