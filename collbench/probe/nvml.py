"""What NVML tells of one GPU and of how two are linked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from collbench.model import Gpu, GpuLink
from collbench.probe.nic import numa_node_of

T = TypeVar("T")
PCI_DEVICES = "sys/bus/pci/devices"
_SWITCH = "switch"
_NO_ADDRESS = "ffff"
_LEVELS = {0: "PIX", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
"""NVML's topology levels (nvmlGpuTopologyLevel_t) in nvidia-smi's words."""


def as_text(value: object) -> str:
    """Returns NVML's text, which older bindings give as bytes."""
    return value.decode() if isinstance(value, bytes) else str(value)


def _address(pci: Any) -> str:
    """Returns a PCI address as sysfs writes it; NVML gives its domain eight digits."""
    text = as_text(pci.busId).lower()
    domain, colon, rest = text.partition(":")
    return f"{int(domain, 16):04x}:{rest}" if colon else text


def ask(nvml: Any, question: Callable[..., T], *arguments: Any) -> T | None:
    """Returns NVML's answer, None where it is not supported or not permitted."""
    try:
        return question(*arguments)
    except nvml.NVMLError:
        return None


class NvmlReader:
    """Reads facts of GPUs; what a GPU does not support stays unknown.

    Args:
        nvml: a module like ``pynvml``, initialised.
        root: where /sys is, for tests.
        on_pci: addresses of the NVIDIA GPUs on PCI.
    """

    def __init__(self, nvml: Any, root: Path, on_pci: Sequence[str]) -> None:
        self._nvml = nvml
        self._root = root
        self._on_pci = on_pci

    def _ask(self, question: Callable[..., T], *arguments: Any) -> T | None:
        return ask(self._nvml, question, *arguments)

    def gpus(self) -> tuple[tuple[Gpu, ...], list[str]]:
        """Returns the GPUs that open, and a sentence for each that does not."""
        nvml = self._nvml
        found, problems = [], []
        for index in range(nvml.nvmlDeviceGetCount()):
            try:
                found.append(self._gpu(index, nvml.nvmlDeviceGetHandleByIndex(index)))
            except nvml.NVMLError as problem:
                problems.append(f"NVML does not open GPU {index}: {problem}")
        return tuple(found), problems

    def _gpu(self, index: int, handle: Any) -> Gpu:
        nvml = self._nvml
        address = _address(nvml.nvmlDeviceGetPciInfo(handle))
        memory = self._ask(nvml.nvmlDeviceGetMemoryInfo, handle)
        ecc = self._ask(nvml.nvmlDeviceGetEccMode, handle)
        mig = self._ask(nvml.nvmlDeviceGetMigMode, handle)
        power_mw = self._ask(nvml.nvmlDeviceGetPowerManagementLimit, handle)
        links = len(self._link_ends(handle))
        capability = self._ask(nvml.nvmlDeviceGetCudaComputeCapability, handle)
        return Gpu(
            index=index,
            name=as_text(nvml.nvmlDeviceGetName(handle)),
            uuid=as_text(nvml.nvmlDeviceGetUUID(handle)),
            pci_bus_id=address,
            memory_bytes=0 if memory is None else int(memory.total),
            # NVML's own NUMA id is that of the GPU's memory where that is a NUMA node (Grace).
            numa_node=numa_node_of(self._root / PCI_DEVICES / address),
            max_sm_clock_mhz=self._ask(nvml.nvmlDeviceGetMaxClockInfo, handle, nvml.NVML_CLOCK_SM),
            power_limit_w=None if power_mw is None else power_mw / 1000,
            ecc=None if ecc is None else bool(ecc[0]),
            mig=None if mig is None else bool(mig[0]),
            nvlinks=links,
            nvlink_gb_per_s=self._link_rate(handle) if links else None,
            compute_capability=None if capability is None else ".".join(map(str, capability)),
        )

    def _link_ends(self, handle: Any) -> list[str]:
        """Returns what is at the other end of each active NVLink: a PCI address or ``switch``."""
        nvml = self._nvml
        found = []
        for link in range(nvml.NVML_NVLINK_MAX_LINKS):
            if not self._ask(nvml.nvmlDeviceGetNvLinkState, handle, link):
                continue
            kind = self._ask(nvml.nvmlDeviceGetNvLinkRemoteDeviceType, handle, link)
            pci = self._ask(nvml.nvmlDeviceGetNvLinkRemotePciInfo, handle, link)
            address = "" if pci is None else _address(pci)
            device = kind in (nvml.NVML_NVLINK_DEVICE_TYPE_GPU, nvml.NVML_NVLINK_DEVICE_TYPE_IBMNPU)
            # Virtual machines name neither (the address is all F): what is no GPU of this machine
            # is then a switch.
            known = address in self._on_pci or (device and not address.startswith(_NO_ADDRESS))
            found.append(address if known else _SWITCH)
        return found

    def _link_rate(self, handle: Any) -> float | None:
        """Returns GB/s of one link in one direction; NVML counts MB/s (26562 on an H200).

        Hopper answers by link and not by the common field, older GPUs the other way round.
        """
        nvml = self._nvml
        by_link = (nvml.NVML_FI_DEV_NVLINK_GET_SPEED, 0)
        for wanted in (by_link, nvml.NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON):
            fields = self._ask(nvml.nvmlDeviceGetFieldValues, handle, [wanted])
            if fields and fields[0].nvmlReturn == 0 and fields[0].value.uiVal:
                return float(fields[0].value.uiVal) / 1000
        return None

    def links(self, gpus: Sequence[Gpu]) -> tuple[GpuLink, ...]:
        """Returns how each pair of GPUs is linked, as ``nvidia-smi topo -m`` writes it.

        Two GPUs with NVLinks to a switch reach each other through it with the fewer of their
        links.
        """
        handles = [self._nvml.nvmlDeviceGetHandleByIndex(gpu.index) for gpu in gpus]
        ends = [self._link_ends(handle) for handle in handles]
        found = []
        for a in range(len(gpus)):
            for b in range(a + 1, len(gpus)):
                direct = ends[a].count(gpus[b].pci_bus_id)
                switched = min(ends[a].count(_SWITCH), ends[b].count(_SWITCH))
                width = direct or switched
                kind = f"NV{width}" if width else self._pci_level(handles[a], handles[b])
                found.append(GpuLink(a=gpus[a].index, b=gpus[b].index, kind=kind))
        return tuple(found)

    def _pci_level(self, a: Any, b: Any) -> str:
        level = self._ask(self._nvml.nvmlDeviceGetTopologyCommonAncestor, a, b)
        return "?" if level is None else _LEVELS.get(int(level), "?")
