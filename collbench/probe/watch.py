"""Everything that is differenced around a case: GPU counters and the network devices' errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from collbench.probe.files import text_of
from collbench.probe.gpu import GpuWatch
from collbench.probe.gpu import Reading as GpuReading

_RDMA_ERRORS = (
    "counters/symbol_error",
    "counters/link_downed",
    "counters/link_error_recovery",
    "counters/port_rcv_errors",
    "counters/port_xmit_discards",
    "counters/local_link_integrity_errors",
    "hw_counters/local_ack_timeout_err",
    "hw_counters/out_of_sequence",
    "hw_counters/packet_seq_err",
    "hw_counters/rnr_nak_retry_err",
    "hw_counters/roce_adp_retrans",
)
_ETHERNET_ERRORS = ("rx_errors", "tx_errors", "rx_missed_errors", "tx_carrier_errors")

NicReading = Mapping[str, int]
"""``device counter`` -> its value."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """All counters at one moment."""

    gpus: GpuReading
    nics: NicReading


class HardwareWatch:
    """Counters of this machine's GPUs and network devices; read between cases, never in a window.

    Args:
        gpus: NVML indices of the GPUs in use.
        root: where /sys is, for tests.
    """

    def __init__(self, gpus: Sequence[int] = (), root: Path = Path("/")) -> None:
        self._gpus = GpuWatch(gpus)
        self._files = _error_files(root)

    def read(self) -> Reading:
        """Returns all counters; forgets the clocks sampled so far."""
        return Reading(gpus=self._gpus.read(), nics=self._read_nics())

    def sample_clocks(self) -> None:
        """Notes the GPUs' clocks of this moment, for cases that last."""
        self._gpus.sample_clocks()

    def events(self, before: Reading) -> list[str]:
        """Returns what happened since a reading, a sentence each; none where all is well."""
        slowed = self._gpus.slowed()
        after = self.read()
        errors = [
            f"{name}: {count - before.nics[name]} more"
            for name, count in after.nics.items()
            if name in before.nics and count > before.nics[name]
        ]
        return [*slowed, *self._gpus.difference(before.gpus, after.gpus), *errors]

    def _read_nics(self) -> dict[str, int]:
        texts = {name: text_of(path).strip() for name, path in self._files.items()}
        return {name: int(text) for name, text in texts.items() if text.isdecimal()}

    def close(self) -> None:
        """Closes NVML; may be called twice."""
        self._gpus.close()


def _error_files(root: Path) -> dict[str, Path]:
    """Returns the counters that exist here: none of veth, bridge or loopback."""
    found = {}
    for device in sorted((root / "sys/class/infiniband").glob("*")):
        for name in _RDMA_ERRORS:
            found[f"{device.name} {name.rpartition('/')[2]}"] = device / "ports/1" / name
    for device in sorted((root / "sys/class/net").glob("*")):
        if (device / "device").exists():
            for name in _ETHERNET_ERRORS:
                found[f"{device.name} {name}"] = device / "statistics" / name
    return {name: path for name, path in found.items() if path.exists()}
