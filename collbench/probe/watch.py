"""Everything that is differenced around a case: GPU counters and the network devices' errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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
TCP_RETRANSMISSIONS = "tcp RetransSegs"
RDMA_ERRORS = "rdma errors"
"""The sum of all RDMA devices' counters of errors."""
_ETHERNET_ERRORS = ("rx_errors", "tx_errors", "rx_missed_errors", "tx_carrier_errors")

NicReading = Mapping[str, int]
"""``device counter`` -> its value."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """All counters at one moment."""

    gpus: GpuReading
    nics: NicReading
    tcp_retransmissions: int | None
    """Segments that this network namespace sent again; None where it cannot be read."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """What happened since a reading."""

    events: Sequence[str] = ()
    """A sentence each; none where all is well."""
    counters: Mapping[str, int] = field(default_factory=dict)
    """``tcp RetransSegs`` and ``rdma errors`` where they can be read, and each RDMA counter that
    rose: what they rose by."""


class HardwareWatch:
    """Counters of this machine's GPUs and network devices; read between cases, never in a window.

    Args:
        gpus: NVML indices of the GPUs in use.
        root: where /sys is, for tests.
    """

    def __init__(self, gpus: Sequence[int] = (), root: Path = Path("/")) -> None:
        self._gpus = GpuWatch(gpus)
        self._files = _error_files(root)
        self._rdma = {
            f"{device.name} {name.rpartition('/')[2]}"
            for device in (root / "sys/class/infiniband").glob("*")
            for name in _RDMA_ERRORS
        }
        self._snmp = root / "proc/net/snmp"

    def read(self) -> Reading:
        """Returns all counters; forgets the clocks sampled so far."""
        return Reading(
            gpus=self._gpus.read(), nics=self._read_nics(), tcp_retransmissions=self._read_tcp()
        )

    def sample_clocks(self) -> None:
        """Notes the GPUs' clocks of this moment, for cases that last."""
        self._gpus.sample_clocks()

    def since(self, before: Reading) -> Change:
        """Returns what happened since a reading."""
        slowed = self._gpus.slowed()
        after = self.read()
        rises = {
            name: count - before.nics[name]
            for name, count in after.nics.items()
            if name in before.nics
        }
        risen = {name: rise for name, rise in rises.items() if rise > 0}
        errors = [f"{name}: {rise} more" for name, rise in risen.items()]
        counters: dict[str, int] = {}
        if before.tcp_retransmissions is not None and after.tcp_retransmissions is not None:
            counters[TCP_RETRANSMISSIONS] = after.tcp_retransmissions - before.tcp_retransmissions
        of_rdma = rises.keys() & self._rdma
        if of_rdma:
            counters[RDMA_ERRORS] = sum(max(0, rises[name]) for name in of_rdma)
            counters |= {name: risen[name] for name in sorted(of_rdma & risen.keys())}
        events = [*slowed, *self._gpus.difference(before.gpus, after.gpus), *errors]
        return Change(events=events, counters=counters)

    def _read_tcp(self) -> int | None:
        names, values = "", ""
        for line in text_of(self._snmp).splitlines():
            if line.startswith("Tcp:"):
                names, values = values, line
        columns = dict(zip(names.split(), values.split(), strict=False))
        found = columns.get("RetransSegs", "")
        return int(found) if found.isdecimal() else None

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
