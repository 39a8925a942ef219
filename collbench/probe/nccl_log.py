"""What NCCL's log says of a communicator: read while it is written, kept as facts.

The shapes of the lines are those of NCCL 2.18 to 2.32 at NCCL_DEBUG=INFO with
NCCL_DEBUG_SUBSYS=INIT,ENV,NET,GRAPH,TUNING, one file for each process. A line is looked up by its
first word before any expression is tried on it, because the log of a rank has hundreds of lines
and a fleet thousands of ranks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from collbench.nccl.variables import READ_BY_EACH_COMMUNICATOR

_INFO = " NCCL INFO "
_WARN = " NCCL WARN "
_ATTENTION = " NCCL ATTN "
"""NCCL 2.32 tells so what older releases tell at INFO: a network that failed to start."""
_WARNINGS_KEPT = 5
_RING = 4
_TREES = (1, 2, 3)
"""NCCL_TOPO_PATTERN_* of src/include/graph.h; the chain of CollNet is printed as 3 after Tree."""

_ALGORITHMS = {
    "TREE": "Tree",
    "RING": "Ring",
    "COLLNET_DIRECT": "CollNetDirect",
    "COLLNET_CHAIN": "CollNetChain",
    "NVLS_TREE": "NVLSTree",
    "0": "Tree",
    "1": "Ring",
    "2": "CollNetDirect",
    "3": "CollNetChain",
    "4": "NVLS",
    "5": "NVLSTree",
    "6": "PAT",
}
"""From a log's names (2.24 and later) or numbers to NCCL_ALGO's spelling, where it differs."""

_PROTOCOLS = {"SIMPLE": "Simple", "0": "LL", "1": "LL128", "2": "Simple"}

_CALL = re.compile(r"(?:(\w+)(?: \[([^\]]+)\])?: )?(\d+) Bytes -> (.*)")
_TUNED = re.compile(r"Algo (\w+) proto (\w+)(?: channel\{Lo\.\.Hi\}=\{(\d+)\.\.(\d+)\})?")
_SYMMETRIC = re.compile(r"Kernel (\S+) nchannels (\d+)")
_NET_TAIL = re.compile(r"(NET|COLLNET)/([^/]+)/(\d+)(?:\((\d+)\))?(?:/(.*))?")
_NET_LINE = re.compile(r"NET/([^:]+?) ?: (.*)")
_DEVICE = re.compile(r"\[\d+\](?:=\{([^}]*)\}|([^\s:]+):)")
_MERGED_DEVICE = re.compile(r"\] ([^\s:]+):")
_VIRTUAL_DEVICE = re.compile(r"Made virtual device \[(\d+)\] name=(\S+)")
_PLUGIN = re.compile(r"Loaded net plugin (.+?) \(v\d+\)")
_CHANNELS = re.compile(r"(\d+) coll channels, (?:\d+ collnet channels, )?(\d+) nvls channels")
_RANK = re.compile(r"\brank (\d+) n[rR]anks (\d+)")
_NODES = re.compile(r"nNodes (\d+) localRanks \d+ localRank (\d+)")
_PATTERN = re.compile(r"Pattern (\d+), .* type (\w+)/(\w+),")
_VERSION = re.compile(r"NCCL version (\d+)\.(\d+)\.(\d+)")
_VARIABLE = re.compile(r"(NCCL_\w+) set by environment to (.*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One collective as it was put into the queue; rank 0 of a communicator alone tells it."""

    function: str | None
    """NCCL's name, ``AllReduce``; NCCL 2.20 to 2.22 leave it out."""
    size_bytes: int
    """As printed. From 2.24 on count x item size, the bytes of one rank's share for AllGather and
    ReduceScatter; before, all ranks' shares together."""
    algorithm: str
    """As NCCL_ALGO spells it; ``Symmetric/KERNEL``, ``CopyEngine`` or ``CopyEngine/Hierarchical``
    where neither NCCL_ALGO nor NCCL_PROTO decides."""
    protocol: str | None
    channels: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Transport:
    """One way to reach a peer, without the peer."""

    kind: str
    """``P2P``, ``SHM``, ``NET`` or ``COLLNET``."""
    name: str
    """``CUMEM``, ``direct pointer``, ``IPC``, ``direct``; for networks ``IB``, ``Socket``."""
    device: int | None = None
    """The network's own number of the device."""
    proxy_rank: int | None = None
    """The rank whose GPU is between (PXN)."""
    options: tuple[str, ...] = ()
    """``read``, ``CE``, ``GDRDMA``, ``GDRDMA(PCI)``, ``Shared``."""

    @property
    def label(self) -> str:
        """``P2P/CUMEM``, ``NET/IB``."""
        return f"{self.kind}/{self.name}"

    @property
    def gpu_direct(self) -> bool:
        """Whether the network device reads and writes GPU memory itself."""
        return any(option.startswith("GDRDMA") for option in self.options)


@dataclass(slots=True, kw_only=True)
class LogFacts:
    """What a log has said so far; ``network`` and all after it belong to one communicator."""

    version: tuple[int, int, int] | None = None
    """NCCL 2.18 prints it on rank 0 alone."""
    plugins: list[str] = field(default_factory=list)
    """Network plug-ins that were loaded."""
    devices: dict[str, dict[int, str]] = field(default_factory=dict)
    """Network -> number -> name of the devices found."""
    no_rdma_device: bool = False
    failed_networks: list[str] = field(default_factory=list)
    variables: dict[str, str] = field(default_factory=dict)
    """Variables that NCCL says it took."""

    network: str | None = None
    transports: dict[str, Transport] = field(default_factory=dict)
    """By NCCL's own words after "via"; those of connections that this rank made."""
    coll_channels: int | None = None
    nvls_channels: int | None = None
    nvls_available: bool | None = None
    nvls_connected: bool = False
    collnet_connected: bool = False
    ring_connected: bool = False
    tree_connected: bool = False
    rank: int | None = None
    ranks: int | None = None
    nodes: int | None = None
    """NCCL 2.18 does not print it."""
    local_rank: int | None = None
    ring_paths: tuple[str, str] | None = None
    """The longest path between GPUs, and from a GPU to its network device, of the rings."""
    tree_paths: tuple[str, str] | None = None
    enabled: dict[str, frozenset[str]] = field(default_factory=dict)
    """NCCL's function -> protocols and algorithms left on; printed from 2.24 on, on rank 0, where
    NCCL_ALGO or NCCL_PROTO is set."""
    warnings: list[str] = field(default_factory=list)
    """The last five."""
    no_algorithm: str | None = None
    """NCCL's words where nothing of what was asked for can run."""

    def for_next_communicator(self) -> LogFacts:
        """Returns the facts of the process alone: NCCL does not print them a second time."""
        kept = self.variables.items()
        return LogFacts(
            version=self.version,
            plugins=self.plugins,
            devices=self.devices,
            no_rdma_device=self.no_rdma_device,
            failed_networks=self.failed_networks,
            variables={key: value for key, value in kept if key not in READ_BY_EACH_COMMUNICATOR},
        )


class LogReader:
    """Reads one process's log while NCCL writes it.

    Args:
        path: the file of NCCL_DEBUG_FILE; until it exists there are no facts.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._parser = _Parser()

    @property
    def facts(self) -> LogFacts:
        """What the lines read so far say of the process and its present communicator."""
        return self._parser.facts

    def new_communicator(self) -> None:
        """Forgets what belongs to a communicator; call it before the next one is formed."""
        self.read()
        self._parser = _Parser(self._parser.facts.for_next_communicator())

    def read(self) -> None:
        """Takes in the whole lines written since the last time; a torn last line waits."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        self._parser.take_all(whole.decode(errors="replace").splitlines())

    def take_calls(self) -> list[Call]:
        """Returns the calls told since the last time, in order; empty but on rank 0."""
        calls, self._parser.calls = self._parser.calls, []
        return calls


def parse(lines: Iterable[str]) -> LogFacts:
    """Returns what a whole log says; its calls are left out."""
    parser = _Parser()
    parser.take_all(lines)
    return parser.facts


class _Parser:
    """Sorts lines into facts and calls."""

    def __init__(self, facts: LogFacts | None = None) -> None:
        self.facts = facts or LogFacts()
        self.calls: list[Call] = []
        self._table_columns: list[str] | None = None

    def take_all(self, lines: Iterable[str]) -> None:
        for line in lines:
            _, info, text = line.partition(_INFO)
            if info:
                self._table_columns = [] if text.startswith("Enabled NCCL Func") else None
                self._take_info(text)
            elif _WARN in line:
                _take_warning(self.facts, line.partition(_WARN)[2])
            elif _ATTENTION in line:
                self._take_info(line.partition(_ATTENTION)[2])
            elif self._table_columns is not None:
                self._take_table_row(line)

    def _take_info(self, text: str) -> None:
        word = text.partition(" ")[0]
        handler = _HANDLERS.get(word)
        if handler is not None:
            handler(self.facts, text)
        elif word.startswith("NET/"):
            _take_network_line(self.facts, text)
        elif word.startswith("NCCL_"):
            _take_variable(self.facts, text)
        elif " Bytes -> " in text:
            self._take_call(text)
        elif " coll channels, " in text:
            _take_channels(self.facts, text)
        elif "Init START" in text:
            _take_rank(self.facts, text)

    def _take_call(self, text: str) -> None:
        found = _CALL.match(text)
        if found is None:
            return
        function, shape, size_bytes, how = found.groups()
        ran = _what_ran(shape, how)
        if ran is not None:
            algorithm, protocol, channels = ran
            self.calls.append(
                Call(
                    function=function,
                    size_bytes=int(size_bytes),
                    algorithm=algorithm,
                    protocol=protocol,
                    channels=channels,
                )
            )

    def _take_table_row(self, line: str) -> None:
        """The table of what is enabled goes on over lines without a prefix."""
        name, _, cells = line.partition("|")
        words = cells.replace("|", " ").split()
        if not self._table_columns:
            self._table_columns = words
        elif len(words) == len(self._table_columns):
            pairs = zip(self._table_columns, words, strict=True)
            on = frozenset(column for column, value in pairs if value != "0")
            self.facts.enabled[name.strip()] = on


def _what_ran(shape: str | None, how: str) -> tuple[str, str | None, int | None] | None:
    if shape == "Copy Engine":
        return "CopyEngine", None, None
    if shape == "Hierarchical CE":
        return "CopyEngine/Hierarchical", None, None
    if shape == "Symmetric" and (kernel := _SYMMETRIC.match(how)):
        return f"Symmetric/{kernel[1]}", None, int(kernel[2])
    tuned = _TUNED.match(how)
    if tuned is None:
        return None
    algorithm, protocol, low, high = tuned.groups()
    channels = None if low is None else int(high) - int(low) + 1
    return (
        _ALGORITHMS.get(algorithm, algorithm),
        _PROTOCOLS.get(protocol, protocol),
        channels,
    )


def _take_warning(facts: LogFacts, text: str) -> None:
    facts.warnings = [*facts.warnings, text.strip()][-_WARNINGS_KEPT:]
    if "no algorithm" in text.lower():
        facts.no_algorithm = text.strip()


def _take_connection(facts: LogFacts, text: str) -> None:
    _, via, tail = text.rpartition(" via ")
    if via and tail not in facts.transports:
        facts.transports[tail] = _transport(tail)


def _transport(tail: str) -> Transport:
    net = _NET_TAIL.fullmatch(tail)
    if net is not None:
        kind, name, device, proxy, options = net.groups()
        return Transport(
            kind=kind,
            name=name,
            device=int(device),
            proxy_rank=None if proxy is None else int(proxy),
            options=tuple(options.split("/")) if options else (),
        )
    kind, *words = tail.split("/")
    if kind == "SHM":
        return Transport(kind=kind, name="CE" if "CE" in words else "direct")
    return Transport(kind=kind, name=words[0] if words else "", options=tuple(words[1:]))


def _take_network_line(facts: LogFacts, text: str) -> None:
    found = _NET_LINE.match(text)
    if found is None:
        return
    network, said = found.groups()
    if said.startswith("Using ["):
        # Numbered by position: 2.20 to 2.23 print a physical number where nothing is merged,
        # while connections name the place in this list.
        listed = _DEVICE.finditer(said.partition("; OOB")[0])
        names = [one[2] or "+".join(_MERGED_DEVICE.findall(one[1])) for one in listed]
        facts.devices.setdefault(network, {}).update(enumerate(names))
    elif said.startswith("No device found"):
        facts.no_rdma_device = True
    elif virtual := _VIRTUAL_DEVICE.match(said):
        facts.devices.setdefault(network, {})[int(virtual[1])] = virtual[2]
    elif plugin := _PLUGIN.match(said):
        facts.plugins.append(plugin[1])


def _take_variable(facts: LogFacts, text: str) -> None:
    found = _VARIABLE.match(text)
    if found is not None:
        facts.variables[found[1]] = found[2].removesuffix(".")


def _take_channels(facts: LogFacts, text: str) -> None:
    found = _CHANNELS.match(text)
    if found is not None:
        facts.coll_channels, facts.nvls_channels = int(found[1]), int(found[2])


def _take_rank(facts: LogFacts, text: str) -> None:
    if (found := _RANK.search(text)) is not None:
        facts.rank, facts.ranks = int(found[1]), int(found[2])
    if (found := _NODES.search(text)) is not None:
        facts.nodes, facts.local_rank = int(found[1]), int(found[2])


def _take_pattern(facts: LogFacts, text: str) -> None:
    found = _PATTERN.match(text)
    if found is None:
        return
    pattern, paths = int(found[1]), (found[2], found[3])
    if pattern == _RING:
        facts.ring_paths = paths
    elif pattern in _TREES and facts.tree_paths is None:
        facts.tree_paths = paths


def _take_nvls(facts: LogFacts, text: str) -> None:
    if text.startswith("NVLS multicast support is "):
        facts.nvls_available = not text.startswith("NVLS multicast support is not ")
    elif text.startswith("NVLS comm "):
        facts.nvls_connected = True


def _take_connected(facts: LogFacts, text: str) -> None:
    what = text.removeprefix("Connected ").lower()
    if what.startswith("all rings"):
        facts.ring_connected = True
    elif what.startswith("all trees"):
        facts.tree_connected = True
    elif what.startswith("nvls"):
        facts.nvls_connected = True
    elif what.startswith("collnet"):
        facts.collnet_connected = True


def _take_collnet(facts: LogFacts, text: str) -> None:
    if text.endswith(" Connected CollNet"):
        facts.collnet_connected = True


def _take_using(facts: LogFacts, text: str) -> None:
    if text.startswith("Using network "):
        facts.network = text.removeprefix("Using network ").strip()


def _take_assigned(facts: LogFacts, text: str) -> None:
    _, marker, rest = text.partition("Assigned NET plugin ")
    if marker:
        facts.network = rest.removesuffix(" to comm")


def _take_failed(facts: LogFacts, text: str) -> None:
    _, marker, network = text.partition("Failed to initialize NET plugin ")
    if marker and network not in facts.failed_networks:
        facts.failed_networks.append(network)


def _take_version(facts: LogFacts, text: str) -> None:
    found = _VERSION.match(text)
    if found is not None:
        facts.version = (int(found[1]), int(found[2]), int(found[3]))


_HANDLERS: dict[str, Callable[[LogFacts, str], None]] = {
    "Assigned": _take_assigned,
    "Channel": _take_connection,
    "CollNet": _take_connection,
    "Connected": _take_connected,
    "Failed": _take_failed,
    "NCCL": _take_version,
    "NVLS": _take_nvls,
    "Pattern": _take_pattern,
    "Using": _take_using,
    "comm": _take_rank,
    "rank": _take_collnet,
}
"""By the first word of a line."""
