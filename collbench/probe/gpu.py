"""The GPUs: what is on PCI (sysfs), what the driver opens (NVML), how they are linked.

CUDA is never called: a process that has called it can no longer fork workers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collbench.model import Gpu, GpuLink
from collbench.probe.environment import driver_version
from collbench.probe.files import text_of
from collbench.probe.nvml import PCI_DEVICES, NvmlReader, as_text, ask

_NVIDIA = "0x10de"
_DISPLAY_CLASSES = ("0x0300", "0x0302")
_CLOCK_DROP = 0.1
_SHORTEST_VIOLATION_NS = 1_000_000


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
    """Why NVML opens none, or which one it does not open, in words."""


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
    driver = driver_version(root)
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as problem:
        return GpuSurvey(on_pci=on_pci, driver=driver, error=f"NVML: {problem}")
    try:
        reader = NvmlReader(nvml, root, on_pci)
        driver = as_text(nvml.nvmlSystemGetDriverVersion())
        gpus, problems = reader.gpus()
        return GpuSurvey(
            on_pci=on_pci,
            gpus=gpus,
            links=reader.links(gpus),
            driver=driver,
            error="; ".join(problems) or None,
        )
    except nvml.NVMLError as problem:
        return GpuSurvey(on_pci=on_pci, driver=driver, error=f"NVML: {problem}")
    finally:
        nvml.nvmlShutdown()


def visible_gpus(gpus: Sequence[Gpu], environ: Mapping[str, str]) -> tuple[Gpu, ...]:
    """Returns the GPUs that CUDA_VISIBLE_DEVICES leaves, in CUDA's order.

    Takes indices and UUIDs (a beginning is enough). Indices count in PCI order, which is CUDA's
    own order (CUDA_DEVICE_ORDER=FASTEST_FIRST) too where all GPUs are of one model. As in CUDA,
    the first entry that names no GPU (-1, NoDevFiles, a MIG instance) ends the list, and a GPU
    named twice leaves none.
    """
    text = environ.get("CUDA_VISIBLE_DEVICES")
    if text is None:
        return tuple(gpus)
    found: list[Gpu] = []
    for word in (part.strip() for part in text.split(",")):
        match = [gpu for gpu in gpus if _names(word, gpu)]
        if len(match) != 1:
            break
        if match[0] in found:
            return ()
        found.append(match[0])
    return tuple(found)


def _names(word: str, gpu: Gpu) -> bool:
    if word.isdecimal():
        return gpu.index == int(word)
    return word.startswith("GPU-") and gpu.uuid.startswith(word)


def _on_pci(root: Path) -> tuple[str, ...]:
    return tuple(
        device.name
        for device in sorted((root / PCI_DEVICES).glob("*"))
        if text_of(device / "vendor") == _NVIDIA
        and text_of(device / "class").startswith(_DISPLAY_CLASSES)
    )


@dataclass(frozen=True, kw_only=True)
class GpuCounters:
    """Cumulative counters of one GPU at one moment."""

    power_ns: int | None = None
    thermal_ns: int | None = None
    ecc_errors: int | None = None


Reading = Mapping[int, GpuCounters]


class GpuWatch:
    """Counters to difference around a case. Reading takes a millisecond a GPU: never in a window.

    Args:
        indices: NVML indices of the GPUs in use; none: every reading is empty.
        nvml: a module like ``pynvml``; imported here if None.
    """

    def __init__(self, indices: Sequence[int] = (), nvml: Any = None) -> None:
        self._handles: dict[int, Any] = {}
        self._nvml: Any = None
        self._lowest_mhz: dict[int, int] = {}
        if not indices:
            return
        if nvml is None:
            import pynvml

            nvml = pynvml
        try:
            nvml.nvmlInit()
        except nvml.NVMLError:
            return  # no counters is no reason not to measure
        self._nvml = nvml
        for index in indices:
            handle = self._ask(nvml.nvmlDeviceGetHandleByIndex, index)
            if handle is not None:
                self._handles[index] = handle

    def read(self) -> Reading:
        """Returns the counters of every GPU; one that no longer answers has none.

        Forgets the clocks sampled so far: what is sampled from here on belongs to what follows.
        """
        self._lowest_mhz.clear()
        return {index: self._counters(handle) for index, handle in self._handles.items()}

    def sample_clocks(self) -> None:
        """Notes the SM clocks of this moment; for long cases, from outside the workers."""
        for index, handle in self._handles.items():
            mhz = self._ask(self._nvml.nvmlDeviceGetClockInfo, handle, self._nvml.NVML_CLOCK_SM)
            if mhz is not None:
                self._lowest_mhz[index] = min(mhz, self._lowest_mhz.get(index, mhz))

    def slowed(self) -> list[str]:
        """Returns a sentence for each GPU whose sampled clock was far below its highest."""
        found = []
        for index, lowest in sorted(self._lowest_mhz.items()):
            nvml, handle = self._nvml, self._handles[index]
            highest = self._ask(nvml.nvmlDeviceGetMaxClockInfo, handle, nvml.NVML_CLOCK_SM)
            if highest and lowest < (1 - _CLOCK_DROP) * highest:
                found.append(f"GPU {index}: SM clock as low as {lowest} of {highest} MHz")
        return found

    def difference(self, before: Reading, after: Reading) -> list[str]:
        """Returns what happened between two readings, a sentence each; none where all is well."""
        found = []
        for index in sorted(before.keys() & after.keys()):
            start, end = before[index], after[index]
            for what, nanoseconds in (
                ("power capped", _grown(start.power_ns, end.power_ns)),
                ("thermally throttled", _grown(start.thermal_ns, end.thermal_ns)),
            ):
                if nanoseconds >= _SHORTEST_VIOLATION_NS:
                    found.append(f"GPU {index}: {what} for {nanoseconds / 1e6:.0f} ms")
            errors = _grown(start.ecc_errors, end.ecc_errors)
            if errors > 0:
                found.append(f"GPU {index}: {errors} uncorrected ECC errors")
        return found

    def close(self) -> None:
        """Closes NVML; may be called twice."""
        self._handles = {}
        if self._nvml is not None:
            self._ask(self._nvml.nvmlShutdown)
            self._nvml = None

    def _counters(self, handle: Any) -> GpuCounters:
        nvml = self._nvml

        def violation_ns(policy: int) -> int | None:
            found = self._ask(nvml.nvmlDeviceGetViolationStatus, handle, policy)
            return None if found is None else int(found.violationTime)

        return GpuCounters(
            power_ns=violation_ns(nvml.NVML_PERF_POLICY_POWER),
            thermal_ns=violation_ns(nvml.NVML_PERF_POLICY_THERMAL),
            ecc_errors=self._ask(
                nvml.nvmlDeviceGetTotalEccErrors,
                handle,
                nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
                nvml.NVML_VOLATILE_ECC,
            ),
        )

    def _ask(self, question: Callable[..., Any], *arguments: Any) -> Any:
        return ask(self._nvml, question, *arguments)


def _grown(start: int | None, end: int | None) -> int:
    """Returns end - start, 0 where either is not known."""
    return 0 if start is None or end is None else end - start
