"""The records: what is asked, what came out, and every word for how it ended.

All records are frozen and keyword-only. They are what stands in ``run.json``, ``topology.json``
and ``trials.jsonl`` and in the messages between processes. Units stand in the names. Readers
ignore fields they do not know; a change of meaning raises ``SCHEMA_VERSION`` and adds a migration
and a golden file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from enum import StrEnum

import msgspec

from collbench.units import format_size

SCHEMA_VERSION = 1


class Record(msgspec.Struct, frozen=True):
    """Base of every stored record."""


class Status(StrEnum):
    """How a trial ended."""

    OK = "ok"
    DATA_WRONG = "data_wrong"
    """The collective returned a wrong element: no rate is shown."""
    UNSUPPORTED = "unsupported"
    """The back end cannot do it; it was not measured."""
    PATH_NOT_USED = "path_not_used"
    """The path asked for did not carry the data: the time is kept, no rate is shown."""
    HUNG = "hung"
    """No rank's progress counter moved within the deadline."""
    CRASHED = "crashed"
    """A worker process died."""
    FAILED = "failed"
    """A worker raised, or NCCL returned an error."""
    NODE_LOST = "node_lost"
    SKIPPED = "skipped"


class ReasonCode(StrEnum):
    """Why a trial is not ``ok``: stable, made for grep."""

    # unsupported
    NO_SUCH_DTYPE = "no_such_dtype"
    NO_SUCH_REDOP = "no_such_redop"
    NO_SUCH_MODE = "no_such_mode"
    NO_IN_PLACE = "no_in_place"
    NO_OUT_OF_PLACE = "no_out_of_place"
    NEEDS_TWO_RANKS = "needs_two_ranks"
    REFUSED = "refused"
    """The library itself refused the call; its words are in the text."""
    ILLEGAL = "illegal"
    """NCCL has no such algorithm or protocol there; decided by the table, not run."""
    NEEDS_NEWER_NCCL = "needs_newer_nccl"
    # path_not_used
    NO_NETWORK_USED = "no_network_used"
    """All data stayed inside a node, whatever the network was set to."""
    NO_RDMA_DEVICE = "no_rdma_device"
    """IB was asked for; there is none, and the data went over sockets."""
    OTHER_NETWORK = "other_network"
    OTHER_ALGORITHM = "other_algorithm"
    OTHER_PROTOCOL = "other_protocol"
    # skipped
    INTERRUPTED = "interrupted"
    NO_MEMORY = "no_memory"
    ZERO_BYTES = "zero_bytes"
    NODE_LOST = "node_lost"
    BUDGET = "budget"
    # hung
    NO_PROGRESS = "no_progress"
    NO_START = "no_start"
    """The group was not ready within the init deadline."""
    # crashed
    EXITED = "exited"
    KILLED = "killed"
    # failed
    RAISED = "raised"
    # data_wrong
    WRONG_ELEMENT = "wrong_element"


class StopReason(StrEnum):
    """Why sampling ended."""

    PRECISE = "precise"
    """The interval of the median is within the precision asked for."""
    TIME = "time"
    """``--max-time`` was over."""
    FIXED = "fixed"
    """The number of samples asked for by ``-n`` was taken."""
    FULL = "full"
    """The largest number of samples kept for a trial was reached."""


class Mode(StrEnum):
    """How calls reach the device."""

    EAGER = "eager"
    """Call by call, as a PyTorch program: the host's launch cost is in the time."""
    GRAPH = "graph"
    """Captured in a CUDA graph and replayed: device time."""
    EAGER_DEVICE = "eager_device"
    """Call by call into a queue held back by a spin kernel: device time without a graph."""


class Pattern(StrEnum):
    """How calls follow each other."""

    BACK_TO_BACK = "back_to_back"
    """The next call is issued at once: throughput of a stream of calls."""
    ISOLATED = "isolated"
    """Every call starts after a barrier, alone: latency of one call."""


class NodeState(StrEnum):
    """What became of a node that was asked for."""

    PRESENT = "present"
    ABSENT = "absent"
    EXCLUDED = "excluded"
    GPU_MISSING = "gpu_missing"
    """A GPU that it is promised cannot be used; left out at the start."""
    UNKILLABLE = "unkillable"
    """A process of it survives SIGKILL; lost from then on."""
    LOST = "lost"
    """Out of reach, or without workers, since some moment of the run."""


class Case(Record, frozen=True, kw_only=True):
    """One point of a sweep. Two cases with the same ``case_id`` ask the same question."""

    collective: str
    backend: str
    """``nccl``, ``gloo`` or ``simulated``."""
    dtype: str
    redop: str | None = None
    root: int | None = None
    size_bytes: int
    """The whole message really moved, as nccl-tests counts it."""
    requested_bytes: int
    """The size asked for, before it was rounded to whole elements a rank."""
    count: int
    """Elements of one rank's share (nccl-tests' ``count`` column)."""
    world_size: int
    nodes: int = 1
    in_place: bool
    mode: Mode = Mode.EAGER
    pattern: Pattern = Pattern.BACK_TO_BACK
    setting: dict[str, str] = {}
    """The swept variables, for instance ``NCCL_ALGO``; see ``collbench.nccl.settings``."""
    via: str = "torch"
    """Through what the library was called: ``torch``, or ``native``."""
    emulated: bool = False
    """Its nodes are fake hosts on one machine: exercises code, says nothing of a network."""

    @property
    def case_id(self) -> str:
        """A readable, unique name: ``all_reduce/float32/sum/1MiB/graph#9f3c1a20``."""
        identity = msgspec.structs.asdict(self)
        del identity["requested_bytes"]
        # Fields that came later count where they say something: older runs' names hold.
        for name, absent in _LATER_FIELDS.items():
            if identity[name] == absent:
                del identity[name]
        digest = hashlib.blake2b(
            msgspec.json.encode(identity, order="deterministic"), digest_size=4
        ).hexdigest()
        words = [self.collective, self.dtype, self.redop or "-"]
        words += [format_size(self.size_bytes).replace(" ", ""), str(self.mode)]
        return "/".join(words) + f"#{digest}"

    def trial_id(self, repeat: int) -> str:
        """Returns the name of this case's trial in a repeat."""
        return f"{self.case_id}.{repeat}"


_LATER_FIELDS: dict[str, object] = {"via": "torch", "emulated": False}


class Window(Record, frozen=True, kw_only=True):
    """When groups that share links are timed: calls go on before and after, so that all run.

    Counted from the start of a case, which groups of a round begin together.
    """

    lead_s: float
    """Calls are not timed yet."""
    timed_s: float
    tail_s: float
    """Calls are not timed any more."""

    @property
    def total_s(self) -> float:
        """Returns how long a case takes of it."""
        return self.lead_s + self.timed_s + self.tail_s


class Policy(Record, frozen=True, kw_only=True):
    """How every case of a run is measured."""

    precision: float = 0.02
    """Half-width of the 95 % interval of the median, as a share of it, at which sampling stops."""
    max_time_s: float = 1.0
    """Ends warm-up and sampling of one case, whatever the precision."""
    samples: int | None = None
    """A fixed number of samples instead of precision and time."""
    warmup: int | None = None
    """A fixed number of warm-up samples instead of detected warm-up."""
    check: bool = True
    proof: bool = True
    """Read back what ran from NCCL's log."""
    walk_bytes: int | None = None
    """Calls go one message behind the other through a buffer of so many bytes, as nccl-tests' do;
    None: spread over twice the last cache."""
    window: Window | None = None
    """Instead of warm-up, precision, time and number of samples."""
    deadline_s: float = 60.0
    """No progress for so long, or 20 x the longest call, is ``hung``."""
    init_deadline_s: float = 120.0
    """The same for starting processes and communicators."""


class Reason(Record, frozen=True, kw_only=True):
    """A stable code and one line for people."""

    code: ReasonCode
    text: str


class Culprit(Record, frozen=True, kw_only=True):
    """The process that a fault is laid to, with what shows it."""

    rank: int
    node: str
    local_rank: int
    pid: int
    gpu: int | None = None
    calls: int
    """Its progress counter: collective calls issued in this trial."""
    what: str
    """``stopped``, ``dead: SIGKILL``, ``raised``, ``behind``."""
    evidence: list[str] = []
    log_tail: list[str] = []


class WrongElement(Record, frozen=True, kw_only=True):
    """The first element of a rank's output that differs from the known answer."""

    rank: int
    index: int
    expected: str
    got: str
    when: str
    """``first`` call or ``last`` call of the trial."""


class Check(Record, frozen=True, kw_only=True):
    """What the comparison of the data with the known answer found."""

    checked: bool
    checked_elements: int = 0
    """Elements compared, all ranks together."""
    wrong_elements: int = 0
    first_wrong: WrongElement | None = None


class Summary(Record, frozen=True, kw_only=True):
    """What the samples say. Per sample the slowest rank counts; then these over the samples."""

    samples: int
    ops_per_sample: int
    warmup_samples: int
    median_us: float
    ci95_us: tuple[float, float] | None = None
    """Nonparametric 95 % interval of the median; absent below 10 samples."""
    effective_samples: float = 0.0
    """Samples left after lag-1 autocorrelation."""
    min_us: float
    p5_us: float
    p95_us: float | None = None
    """From 20 samples on."""
    p99_us: float | None = None
    """From 100 samples on."""
    mean_over_ranks_us: float
    """Mean over ranks and samples: what nccl-tests prints by default."""
    algbw_gb_per_s: float | None = None
    busbw_gb_per_s: float | None = None
    """Absent where no rate may be shown (data wrong, path not used) or the factor is zero."""
    reported_algbw_gb_per_s: float | None = None
    """As another program printed it, of a trial that was taken in from there."""
    reported_busbw_gb_per_s: float | None = None
    skew: float = 0.0
    """Median over samples of (slowest - fastest rank) / slowest."""
    late_rank: int | None = None
    """The rank that enters late: shortest in at least 80 % of samples, skew above 10 %."""
    late_share: float | None = None
    """The share of samples in which that rank was the shortest."""
    slowest_rank: int | None = None
    """The rank with the largest median time."""
    host_us_per_call: float | None = None
    """Host time of issuing a call, the costliest rank's median; absent in a graph."""


class SampleRef(Record, frozen=True, kw_only=True):
    """Where a trial's samples stand in ``samples.bin`` (float32, microseconds, little-endian)."""

    offset_bytes: int
    layout: str
    """``rank_sample``: [ranks, samples]. ``reduced``: [3, samples] (min, mean, max over ranks),
    then [ranks, 3] (p5, p50, p95 over samples)."""
    ranks: int
    samples: int
    clock: str
    """``cuda_event``, ``perf_counter`` or ``fake``."""


class RankProof(Record, frozen=True, kw_only=True):
    """What one rank's NCCL log shows of a case. Facts travel, logs stay."""

    algorithm: str | None = None
    """As NCCL_ALGO spells it; known on rank 0 of a communicator alone."""
    protocol: str | None = None
    channels: int | None = None
    """Channels that the call used."""
    coll_channels: int | None = None
    """Channels that the communicator has for collectives."""
    network: str | None = None
    """The network that the communicator has: ``IB``, ``Socket``, a plug-in's name."""
    transports: list[str] = []
    """How this rank reaches its peers, each once: ``P2P/CUMEM``, ``SHM/direct``, ``NET/IB``."""
    devices: list[str] = []
    """Network devices in use: ``mlx5_0``, ``eth0``."""
    gpu_direct: bool | None = None
    """Whether the network reads GPU memory itself; None where no network is in use."""
    nvls: bool = False
    sharp: bool = False
    nodes: int | None = None
    local_rank: int | None = None
    intra_path: str | None = None
    """Path between GPUs of a node as NCCL's topology names it: ``NVL``, ``PIX``, ``SYS``."""
    inter_path: str | None = None
    """Path from a GPU to its network device."""
    no_rdma_device: bool = False
    """NCCL looked for RDMA devices and found none."""
    warning: str | None = None
    """NCCL's last warning."""


class Proof(Record, frozen=True, kw_only=True):
    """What ran, as all ranks' logs show it: what most of them share, and who differs."""

    algorithm: str | None = None
    protocol: str | None = None
    channels: int | None = None
    coll_channels: int | None = None
    network: str | None = None
    transports: list[str] = []
    """Of all ranks, each once."""
    devices: list[str] = []
    gpu_direct: bool | None = None
    nvls: bool = False
    sharp: bool = False
    nodes: int | None = None
    intra_path: str | None = None
    inter_path: str | None = None
    no_rdma_device: bool = False
    ranks: int = 0
    """Ranks whose logs were read."""
    odd: list[str] = []
    """A line for each rank that differs from the others where it should not."""
    problem: str | None = None
    """Why nothing could be read, in words."""
    twin: bool = False
    """Read in processes of their own, started alike: a log would be part of an eager time."""


class GroupPlace(Record, frozen=True, kw_only=True):
    """Which of a run's ranks ran a case together, where not all of them did."""

    name: str
    """``node3-node7``; unique within its round."""
    round: int
    """Rounds count from 0 through the run; the groups of one ran at the same time."""
    ranks: list[int]
    alone: bool = False
    """No other group ran at the same time."""


class Trial(Record, frozen=True, kw_only=True):
    """One case in one repeat: a line of ``trials.jsonl``."""

    schema: int = SCHEMA_VERSION
    trial_id: str
    case_id: str
    case: Case
    repeat: int
    status: Status
    reason: Reason | None = None
    stop_reason: StopReason | None = None
    culprits: list[Culprit] = []
    proof: Proof | None = None
    """What ran, as read back from NCCL's log; absent where nothing was proved."""
    check: Check | None = None
    summary: Summary | None = None
    samples: SampleRef | None = None
    notes: list[str] = []
    """Codes of ``collbench.notes``: what this back end really does."""
    events: list[str] = []
    """What the hardware's own counters said meanwhile, in words."""
    group: GroupPlace | None = None
    """Absent where all ranks of the run took part."""
    counters: dict[str, dict[str, int]] = {}
    """By node, what counters of errors and retransmissions rose by meanwhile. A counter that is not
    there could not be read; of single RDMA counters only those that rose are there."""
    started_at: str
    """UTC, ISO 8601."""
    duration_s: float


class Finding(Record, frozen=True, kw_only=True):
    """One conclusion of a command: what was seen, and what to do next."""

    code: str
    severity: str
    """``info``, ``warning`` or ``bad``."""
    text: str
    evidence: list[str] = []
    next_step: str | None = None


class LibraryVersion(Record, frozen=True, kw_only=True):
    """A library that is mapped into the workers."""

    version: str
    path: str | None = None
    compiled: str | None = None
    """The version torch was built with, where it can differ from the loaded one."""


class Environment(Record, frozen=True, kw_only=True):
    """The recorded software."""

    collbench: str
    python: str
    torch: str | None = None
    cuda: str | None = None
    nccl: LibraryVersion | None = None
    libraries: dict[str, LibraryVersion] = {}
    """NCCL libraries by the names that settings call them by, where there are several."""
    driver: str | None = None
    kernel: str
    os: str
    variables: dict[str, str] = {}
    """By allow-list, never the whole environment."""
    config_files: dict[str, str] = {}
    """Content of /etc/nccl.conf and ~/.nccl.conf."""


class Gpu(Record, frozen=True, kw_only=True):
    """One GPU as NVML and sysfs describe it."""

    index: int
    name: str
    uuid: str
    pci_bus_id: str
    memory_bytes: int
    numa_node: int | None = None
    max_sm_clock_mhz: int | None = None
    power_limit_w: float | None = None
    ecc: bool | None = None
    mig: bool | None = None
    nvlinks: int = 0
    """Active NVLinks."""
    nvlink_gb_per_s: float | None = None
    """Rate of one link in one direction."""
    compute_capability: str | None = None
    """``9.0`` of an H100."""


class GpuLink(Record, frozen=True, kw_only=True):
    """How two GPUs of a node reach each other."""

    a: int
    b: int
    kind: str
    """``NV18``, ``PIX``, ``PXB``, ``PHB``, ``NODE``, ``SYS`` as nvidia-smi writes them."""


class Nic(Record, frozen=True, kw_only=True):
    """One network device."""

    name: str
    kind: str
    """``infiniband``, ``roce``, ``rdma`` (another fabric, such as EFA) or ``ethernet``."""
    rate_gbit_per_s: float | None = None
    state: str
    pci_bus_id: str | None = None
    numa_node: int | None = None


class Node(Record, frozen=True, kw_only=True):
    """One machine of a run."""

    name: str
    state: NodeState = NodeState.PRESENT
    cpu_model: str
    cpus: int
    """Cores this run may use."""
    numa_nodes: int
    memory_bytes: int
    l3_bytes: int = 0
    gpus: list[Gpu] = []
    gpu_links: list[GpuLink] = []
    nics: list[Nic] = []
    leaf: str | None = None
    """The leaf switches that its NICs are joined to, by a name that nodes of one leaf share (one
    switch a rail counts as one leaf); None where it is not known."""


class RankPlace(Record, frozen=True, kw_only=True):
    """Where a rank runs."""

    rank: int
    node: str
    local_rank: int
    gpu: int | None = None
    """Index into the node's ``gpus``."""
    cpuset: str = ""
    """Cores it is bound to, as ``0-7,16``; empty where it is not bound."""
    fake_host: str | None = None
    """The host that it is made to be on (NCCL_HOSTID), where hosts are emulated."""


class Topology(Record, frozen=True, kw_only=True):
    """Hardware and placement."""

    schema: int = SCHEMA_VERSION
    nodes: list[Node]
    ranks: list[RankPlace] = []

    def with_leaves(self, leaf_of: Mapping[str, str | None]) -> Topology:
        """Returns the same with each node in the leaf that is given for its name; else in none."""
        nodes = [msgspec.structs.replace(n, leaf=leaf_of.get(n.name)) for n in self.nodes]
        return msgspec.structs.replace(self, nodes=nodes)

    @property
    def leaf_of(self) -> dict[str, str | None]:
        """Each node's leaf, by name."""
        return {node.name: node.leaf for node in self.nodes}


class Run(Record, frozen=True, kw_only=True):
    """One invocation: ``run.json``."""

    schema: int = SCHEMA_VERSION
    run_id: str
    command: str
    argv: list[str]
    cluster: str
    suite: dict[str, object]
    """The whole suite as it was resolved, options included."""
    policy: Policy
    repeats: int
    seed: int
    planned_trials: int
    backend: str
    world_size: int
    environment: Environment
    note: str | None = None
    """What the first line must say before everything else."""
    simulated: bool = False
    emulated: bool = False
    """Its nodes were fake hosts on one machine."""
    via: str = "torch"
    """Through what the library was called."""
    planted: str | None = None
    """A fault planted on purpose (``--plant``): such a run proves the tool, not the hardware."""
    started_at: str
    resumed_at: list[str] = []
    """When it was continued (``--resume``)."""
    ended_at: str | None = None
    """Of the part that ended last."""
    zygotes: int = 0
    """Started in all, as workers and communicators, by the parts that could say so."""
    workers: int = 0
    communicators: int = 0
    proof_s: float = 0.0
    """Time that went into proving in processes of their own."""
    exit_code: int | None = None
    """Absent while the run goes on, or where it ended without a chance to say."""
    findings: list[Finding] = []
