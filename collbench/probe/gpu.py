"""The GPUs: what is on PCI (sysfs), what the driver opens (NVML), how they are linked.

CUDA is never called: a process that has called it can no longer fork workers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from collbench.model import Gpu, GpuLink
from collbench.probe.environment import driver_version

T = TypeVar("T")
_NVIDIA = "0x10de"
_DISPLAY_CLASSES = ("0x0300", "0x0302")
_HIDING = ("", "-1", "NoDevFiles")
_LEVELS = {0: "PIX", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}


@dataclass(frozen=True, kw_only=True)
class GpuSurvey:
    """What was found, by two ways that need not agree."""

    on_pci: tuple[str, ...] = ()
    """PCI addresses of NVIDIA GPUs, whether or not a driver serves them."""
    gpus: tuple[Gpu, ...] = ()
    """Those NVML opens, in PCI order."""
    links: tuple[GpuLink, ...] = ()
    driver: str | None = None
    error: str | None = None
    """Why NVML opens none, in words."""


def survey_gpus(root: Path = Path("/"), nvml: Any = None) -> GpuSurvey:
    """Looks for GPUs. Never raises for hardware: what is wrong is in ``error``.

    Args:
        root: where /sys is, for tests.
        nvml: a module like ``pynvml``; imported here if None.
    """
    on_pci = _on_pci(root)
    if nvml is None:
        import pynvml

        nvml = pynvml
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as problem:
        return GpuSurvey(on_pci=on_pci, driver=driver_version(root), error=f"NVML: {problem}")
    try:
        reader = _Nvml(nvml)
        gpus = tuple(reader.gpu(index) for index in range(nvml.nvmlDeviceGetCount()))
        return GpuSurvey(
            on_pci=on_pci,
            gpus=gpus,
            links=reader.links(gpus),
            driver=_word(nvml.nvmlSystemGetDriverVersion()),
        )
    except nvml.NVMLError as problem:
        return GpuSurvey(on_pci=on_pci, driver=driver_version(root), error=f"NVML: {problem}")
    finally:
        nvml.nvmlShutdown()


def visible_gpus(gpus: Sequence[Gpu], environ: Mapping[str, str]) -> tuple[Gpu, ...]:
    """Returns the GPUs that CUDA_VISIBLE_DEVICES leaves, in CUDA's order.

    Indices count in PCI order, which is CUDA's order too where all GPUs are of one model. As in
    CUDA, the first entry that names no GPU ends the list.
    """
    text = environ.get("CUDA_VISIBLE_DEVICES")
    if text is None:
        return tuple(gpus)
    found: list[Gpu] = []
    for word in (part.strip() for part in text.split(",")):
        match = [
            gpu
            for gpu in gpus
            if (word.isdigit() and gpu.index == int(word))
            or (word.startswith("GPU-") and gpu.uuid.startswith(word))
        ]
        if word in _HIDING or len(match) != 1:
            break
        found.append(match[0])
    return tuple(found)


def _on_pci(root: Path) -> tuple[str, ...]:
    found = []
    for device in sorted((root / "sys/bus/pci/devices").glob("*")):
        try:
            vendor = (device / "vendor").read_text().strip()
            kind = (device / "class").read_text().strip()
        except OSError:
            continue
        if vendor == _NVIDIA and kind.startswith(_DISPLAY_CLASSES):
            found.append(device.name)
    return tuple(found)


def _word(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _address(pci: Any) -> str:
    """NVML writes the domain with eight digits, sysfs with four."""
    return _word(pci.busId).lower()[-12:]


class _Nvml:
    """Reads one GPU's facts; what a GPU does not support stays unknown."""

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml

    def _ask(self, question: Callable[..., T], *arguments: Any) -> T | None:
        try:
            return question(*arguments)
        except self._nvml.NVMLError:
            return None

    def gpu(self, index: int) -> Gpu:
        """Returns the record of one GPU."""
        nvml = self._nvml
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        pci = nvml.nvmlDeviceGetPciInfo(handle)
        ecc = self._ask(nvml.nvmlDeviceGetEccMode, handle)
        mig = self._ask(nvml.nvmlDeviceGetMigMode, handle)
        numa = self._ask(nvml.nvmlDeviceGetNumaNodeId, handle)
        power_mw = self._ask(nvml.nvmlDeviceGetPowerManagementLimit, handle)
        remotes = self._remotes(handle)
        return Gpu(
            index=index,
            name=_word(nvml.nvmlDeviceGetName(handle)),
            uuid=_word(nvml.nvmlDeviceGetUUID(handle)),
            pci_bus_id=_address(pci),
            memory_bytes=int(nvml.nvmlDeviceGetMemoryInfo(handle).total),
            numa_node=numa,
            max_sm_clock_mhz=self._ask(nvml.nvmlDeviceGetMaxClockInfo, handle, nvml.NVML_CLOCK_SM),
            power_limit_w=None if power_mw is None else power_mw / 1000,
            ecc=None if ecc is None else bool(ecc[0]),
            mig=None if mig is None else bool(mig[0]),
            nvlinks=len(remotes),
            nvlink_gb_per_s=self._link_rate(handle) if remotes else None,
        )

    def _remotes(self, handle: Any) -> list[str]:
        """Returns the PCI address at the other end of each active NVLink."""
        nvml = self._nvml
        found = []
        for link in range(nvml.NVML_NVLINK_MAX_LINKS):
            if self._ask(nvml.nvmlDeviceGetNvLinkState, handle, link):
                remote = self._ask(nvml.nvmlDeviceGetNvLinkRemotePciInfo, handle, link)
                found.append("" if remote is None else _address(remote))
        return found

    def _link_rate(self, handle: Any) -> float | None:
        """Returns GB/s of one link in one direction; NVML counts MB/s (26562 on an H200)."""
        nvml = self._nvml
        fields = self._ask(
            nvml.nvmlDeviceGetFieldValues, handle, [nvml.NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON]
        )
        if not fields or fields[0].nvmlReturn != 0:
            return None
        return float(fields[0].value.uiVal) / 1000 or None

    def links(self, gpus: Sequence[Gpu]) -> tuple[GpuLink, ...]:
        """Returns how each pair of GPUs is linked, as ``nvidia-smi topo -m`` writes it."""
        nvml = self._nvml
        handles = [nvml.nvmlDeviceGetHandleByIndex(gpu.index) for gpu in gpus]
        remotes = [self._remotes(handle) for handle in handles]
        addresses = {gpu.pci_bus_id for gpu in gpus}
        found = []
        for a in range(len(gpus)):
            for b in range(a + 1, len(gpus)):
                direct = remotes[a].count(gpus[b].pci_bus_id)
                # Links that end at no GPU end at a switch, which reaches every GPU on it.
                switched = min(
                    sum(remote not in addresses for remote in remotes[end]) for end in (a, b)
                )
                width = direct or switched
                kind = f"NV{width}" if width else self._pci_level(handles[a], handles[b])
                found.append(GpuLink(a=gpus[a].index, b=gpus[b].index, kind=kind))
        return tuple(found)

    def _pci_level(self, a: Any, b: Any) -> str:
        level = self._ask(self._nvml.nvmlDeviceGetTopologyCommonAncestor, a, b)
        return "?" if level is None else _LEVELS.get(int(level), "?")


@dataclass(frozen=True, kw_only=True)
class GpuCounters:
    """Cumulative counters of one GPU at one moment."""

    power_ns: int | None = None
    thermal_ns: int | None = None
    ecc_errors: int | None = None
    sm_clock_mhz: int | None = None


Reading = Mapping[int, GpuCounters]


@dataclass
class GpuWatch:
    """Counters to difference around a case. Reading takes a millisecond a GPU: never in a window.

    Args:
        indices: NVML indices of the GPUs in use; none: every reading is empty.
        nvml: a module like ``pynvml``; imported here if None.
    """

    indices: Sequence[int] = ()
    nvml: Any = None
    _handles: dict[int, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Opens NVML once for the run."""
        if not self.indices:
            return
        if self.nvml is None:
            import pynvml

            self.nvml = pynvml
        self.nvml.nvmlInit()
        self._handles = {i: self.nvml.nvmlDeviceGetHandleByIndex(i) for i in self.indices}

    def read(self) -> Reading:
        """Returns the counters of every GPU."""
        return {index: self._counters(handle) for index, handle in self._handles.items()}

    def _counters(self, handle: Any) -> GpuCounters:
        nvml = self.nvml

        def violation(policy: int) -> int | None:
            found = self._ask(nvml.nvmlDeviceGetViolationStatus, handle, policy)
            return None if found is None else int(found.violationTime)

        return GpuCounters(
            power_ns=violation(nvml.NVML_PERF_POLICY_POWER),
            thermal_ns=violation(nvml.NVML_PERF_POLICY_THERMAL),
            ecc_errors=self._ask(
                nvml.nvmlDeviceGetTotalEccErrors,
                handle,
                nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
                nvml.NVML_VOLATILE_ECC,
            ),
            sm_clock_mhz=self._ask(nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_SM),
        )

    def _ask(self, question: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return question(*arguments)
        except self.nvml.NVMLError:
            return None

    def difference(self, before: Reading, after: Reading) -> list[str]:
        """Returns what happened between two readings, a sentence each; none where all is well."""
        found = []
        for index, start in before.items():
            end = after[index]
            for what, a, b in (
                ("power capped", start.power_ns, end.power_ns),
                ("thermally throttled", start.thermal_ns, end.thermal_ns),
            ):
                if a is not None and b is not None and b - a >= 1_000_000:
                    found.append(f"GPU {index}: {what} for {(b - a) / 1e6:.0f} ms")
            if start.ecc_errors is not None and end.ecc_errors is not None:
                errors = end.ecc_errors - start.ecc_errors
                if errors > 0:
                    found.append(f"GPU {index}: {errors} uncorrected ECC errors")
        return found

    def close(self) -> None:
        """Closes NVML."""
        if self._handles:
            self._handles = {}
            self.nvml.nvmlShutdown()
