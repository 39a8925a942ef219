"""What NCCL can run: collective x algorithm x protocol x release x place, as data.

A combination that NCCL cannot run costs fresh processes and ends in an error (2.24 and later) or
in a measurement of something else (before), so a plan asks here first. ``ROWS`` says which pairs
exist from which release on, ``LIMITS`` where they cannot run; each names the file of NCCL's source
and the release it was read from. Where a fact is not known, nothing is called illegal: NCCL's own
refusal still stands behind this table. Some facts are never known here and so never decide: whether
there is an NVSwitch (NVLS and CollNetDirect need one), and what a CollNet plug-in can reduce.
NCCL_PAT_ENABLE and NCCL_COLLNET_NODE_THRESHOLD are taken to be unset.

2.31 and 2.32 have no published source. Their libraries carry the same names and the same messages
of the grammar and of the refusal, so the rows of 2.30.7 hold for them; so they do for any later
release, and those of 2.18 for any earlier one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from collbench.model import Node
from collbench.nccl.grammar import ALGORITHMS, PROTOCOLS, chosen, ignores_choice

Release = tuple[int, int, int]
"""A version of NCCL: ``(2, 28, 9)``."""

PLACE_WORDS = "; here "
"""Between why and where in the texts of ``why_illegal``."""
_FIRST: Release = (2, 18, 0)
_FUNCTIONS_SINCE: Release = (2, 24, 0)

_SWITCH_REDOPS = {
    **dict.fromkeys(
        ("int32", "int64", "uint32", "uint64", "float16", "bfloat16"),
        frozenset({"sum", "min", "max"}),
    ),
    **dict.fromkeys(("float32", "float64"), frozenset({"sum"})),
}
"""What the switch reduces: ncclNvlsSupported in src/include/device.h, 2.19.1 to 2.30.7, and
NCCL_NVLS_SUPPORTS in src/include/collectives.h, 2.18.1."""

_PATHS = ("LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "P2C", "PXN", "PHB", "SYS", "NET", "DIS")
"""topoPathTypeStr in src/graph/topo.cc 2.27.5, shortest first; earlier releases lack a word or two
and 2.27.3 has P2C behind PXN, which changes no answer here."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Where a collective is to run, as far as it decides what NCCL can run; None is not known."""

    version: Release
    nodes: int
    """As NCCL counts them: an NVLink domain over several hosts (MNNVL) is one."""
    ranks: int
    compute_capability: tuple[int, int] | None = None
    """The lowest of all GPUs."""
    nvls: bool | None = None
    """False where it is known to be off: NCCL_NVLS_ENABLE=0, or a driver without multicast."""
    collnet: bool = False
    """Whether NCCL_COLLNET_ENABLE=1; NCCL leaves CollNet off without it."""
    dtype: str | None = None
    """torch's name of the element type."""
    redop: str | None = None

    @property
    def release_text(self) -> str:
        """``NCCL 2.28.9``."""
        return f"NCCL {'.'.join(map(str, self.version))}"

    @property
    def text(self) -> str:
        """All that is known: ``NCCL 2.28.9, 2 ranks on 1 node, sm_90, float32, sum``."""
        capability = self.compute_capability
        facts = (
            self.release_text,
            f"{self.ranks} ranks on {self.nodes} node{'s' if self.nodes > 1 else ''}",
            None if capability is None else f"sm_{capability[0]}{capability[1]}",
            self.dtype,
            self.redop,
        )
        return ", ".join(fact for fact in facts if fact is not None)

    @property
    def fewest_ranks_a_node(self) -> int:
        """Some node has at most so many ranks, however they are spread."""
        return self.ranks // self.nodes

    @property
    def most_ranks_a_node(self) -> int:
        """Some node has at least so many ranks, however they are spread."""
        return -(-self.ranks // self.nodes)


@dataclass(frozen=True, slots=True)
class Row:
    """Protocols that an algorithm has for a collective, from a release on."""

    collective: str
    algorithm: str
    protocols: tuple[str, ...]
    since: Release
    source: str


_OLDEST, _2_19, _2_20, _2_23 = (
    f"src/graph/tuning.cc {release}" for release in ("2.18.1", "2.19.1", "2.20.3", "2.23.4")
)
_SIMPLE = ("Simple",)

ROWS = (
    Row("all_reduce", "Ring", PROTOCOLS, _FIRST, _OLDEST),
    Row("all_reduce", "Tree", PROTOCOLS, _FIRST, _OLDEST),
    Row("all_reduce", "NVLS", _SIMPLE, _FIRST, _OLDEST),
    Row("all_reduce", "NVLSTree", _SIMPLE, _FIRST, _OLDEST),
    Row("all_reduce", "CollNetDirect", _SIMPLE, _FIRST, _OLDEST),
    Row("all_reduce", "CollNetChain", _SIMPLE, _FIRST, _OLDEST),
    Row("all_gather", "Ring", PROTOCOLS, _FIRST, _OLDEST),
    Row("all_gather", "NVLS", _SIMPLE, (2, 19, 0), _2_19),
    Row("all_gather", "CollNetDirect", _SIMPLE, (2, 20, 0), _2_20),
    Row("all_gather", "PAT", _SIMPLE, (2, 23, 0), _2_23),
    Row("reduce_scatter", "Ring", PROTOCOLS, _FIRST, _OLDEST),
    Row("reduce_scatter", "NVLS", _SIMPLE, (2, 19, 0), _2_19),
    Row("reduce_scatter", "CollNetDirect", _SIMPLE, (2, 20, 0), _2_20),
    Row("reduce_scatter", "PAT", _SIMPLE, (2, 23, 0), _2_23),
    Row("broadcast", "Ring", PROTOCOLS, _FIRST, _OLDEST),
    Row("reduce", "Ring", PROTOCOLS, _FIRST, _OLDEST),
)
"""In the order of ``legal_pairs``."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Limit:
    """A place where algorithms that have a row cannot run."""

    algorithms: tuple[str, ...]
    collectives: tuple[str, ...] = ("all_reduce", "all_gather", "reduce_scatter")
    since: Release = _FIRST
    before: Release | None = None
    """First release without the limit; None where every later one has it."""
    holds: Callable[[Place], bool]
    """Whether a place is such a place; False where a fact that decides is not known."""
    needs: str
    """What follows the algorithm's name in a sentence: ``needs sm_90 or newer``."""
    source: str

    def stops(self, collective: str, algorithm: str, place: Place) -> bool:
        """Returns whether this keeps an algorithm from running a collective at a place."""
        release = max(place.version, _FIRST)
        return (
            algorithm in self.algorithms
            and collective in self.collectives
            and self.since <= release
            and (self.before is None or release < self.before)
            and self.holds(place)
        )


_SWITCH = ("NVLS", "NVLSTree")
_SHARES = ("all_gather", "reduce_scatter")


def _switch_cannot_reduce(place: Place) -> bool:
    if place.dtype is None:
        return place.redop not in (None, "sum", "min", "max")
    redops = _SWITCH_REDOPS.get(place.dtype, frozenset())
    return not redops if place.redop is None else place.redop not in redops


LIMITS = (
    Limit(
        algorithms=_SWITCH,
        holds=lambda place: place.nvls is False,
        needs="is off (NCCL_NVLS_ENABLE=0, or no multicast)",
        source="ncclNvlsInit in src/transport/nvls.cc 2.18.1",
    ),
    Limit(
        algorithms=_SWITCH,
        holds=lambda place: (place.compute_capability or (9, 0)) < (9, 0),
        needs="needs sm_90 or newer",
        source="ncclTopoCompute in src/graph/search.cc 2.18.1",
    ),
    Limit(
        algorithms=_SWITCH,
        before=(2, 28, 7),
        holds=lambda place: place.fewest_ranks_a_node < 3,
        needs="needs 3 GPUs a node before NCCL 2.28.7",
        source="ncclNvlsInit in src/transport/nvls.cc 2.18.1 to 2.28.3",
    ),
    Limit(
        algorithms=_SWITCH,
        since=(2, 28, 7),
        holds=lambda place: place.fewest_ranks_a_node < 2,
        needs="needs 2 GPUs a node",
        source="ncclNvlsInit in src/transport/nvls.cc 2.28.7",
    ),
    Limit(
        algorithms=("NVLSTree",),
        holds=lambda place: place.nodes == 1,
        needs="needs at least 2 nodes",
        source=_OLDEST,
    ),
    Limit(
        algorithms=("NVLS",),
        collectives=_SHARES,
        before=(2, 27, 0),
        holds=lambda place: place.nodes > 1,
        needs="runs it on one node only before NCCL 2.27",
        source="src/enqueue.cc 2.19.1 to 2.26.6",
    ),
    Limit(
        algorithms=("NVLS",),
        holds=lambda place: place.nodes > 1 and not place.collnet,
        needs="over several nodes needs CollNet (NCCL_COLLNET_ENABLE=1 and a plug-in)",
        source="src/enqueue.cc 2.18.1",
    ),
    Limit(
        algorithms=("NVLS",),
        collectives=_SHARES,
        since=(2, 25, 0),
        holds=lambda place: place.most_ranks_a_node > 32,
        needs="runs it on at most 32 GPUs a node",
        source="src/enqueue.cc 2.25.1 (all ranks, on one node), 2.27.3",
    ),
    Limit(
        algorithms=_SWITCH,
        collectives=("all_reduce", "reduce_scatter"),
        holds=_switch_cannot_reduce,
        needs="reduces sum, min and max of 32 and 64 bit integers and 16 bit floats, and sum of"
        " float32 and float64",
        source="src/include/collectives.h 2.18.1; src/include/device.h 2.19.1",
    ),
    Limit(
        algorithms=("NVLS",),
        collectives=("all_gather",),
        since=(2, 20, 0),
        before=(2, 22, 0),
        holds=lambda place: place.dtype is not None and place.dtype not in _SWITCH_REDOPS,
        needs="gathers only types that it can sum before NCCL 2.22",
        source="src/enqueue.cc 2.20.3, 2.21.5",
    ),
    Limit(
        algorithms=("CollNetDirect", "CollNetChain"),
        holds=lambda place: not place.collnet,
        needs="needs CollNet (NCCL_COLLNET_ENABLE=1 and a plug-in)",
        source="src/init.cc 2.18.1",
    ),
    Limit(
        algorithms=("CollNetDirect", "CollNetChain"),
        holds=lambda place: place.nodes == 1,
        needs="needs at least 2 nodes",
        source="NCCL_COLLNET_NODE_THRESHOLD in src/init.cc 2.18.1",
    ),
    Limit(
        algorithms=("CollNetDirect",),
        holds=lambda place: place.most_ranks_a_node > 8,
        needs="needs at most 8 GPUs a node",
        source="src/init.cc 2.18.1 to 2.22.3; src/enqueue.cc 2.23.4",
    ),
    Limit(
        algorithms=("CollNetChain",),
        before=(2, 23, 0),
        holds=lambda place: place.most_ranks_a_node > 8,
        needs="needs at most 8 GPUs a node before NCCL 2.23",
        source="src/init.cc 2.18.1 to 2.22.3",
    ),
    Limit(
        algorithms=("CollNetChain",),
        since=(2, 28, 0),
        holds=lambda place: place.most_ranks_a_node > 8,
        needs="needs at most 8 GPUs a node",
        source="src/enqueue.cc 2.28.3",
    ),
    Limit(
        algorithms=("PAT",),
        holds=lambda place: place.nodes != place.ranks,
        needs="needs one GPU a node",
        source="ncclPatEnable in src/graph/tuning.cc 2.23.4",
    ),
    Limit(
        algorithms=("PAT",),
        collectives=("reduce_scatter",),
        holds=lambda place: place.redop == "avg",
        needs="cannot scale, so it has no avg",
        source="src/enqueue.cc 2.23.4",
    ),
)
"""The most basic fact first: of several limits at a place the first is told."""


def legal_pairs(collective: str, place: Place) -> tuple[tuple[str, str], ...]:
    """Returns all (algorithm, protocol) that may run at a place, in the order of ``ROWS``.

    Empty for a collective that ignores the variables; Ring with Simple on one rank, which is what
    NCCL calls its copy.
    """
    if place.ranks <= 1 and not ignores_choice(collective):
        return (("Ring", "Simple"),)
    return tuple(
        (row.algorithm, protocol)
        for row in _rows(collective, place)
        if _limit(row, place) is None
        for protocol in row.protocols
    )


def why_illegal(
    collective: str, algorithm_value: str, protocol_value: str, place: Place
) -> str | None:
    """Returns why NCCL cannot run what two values leave on, None if it can or if it is not known.

    Below 2.24 too, where NCCL would run something else (``falls_back_silently``).

    Args:
        collective: torch.distributed's word.
        algorithm_value: of NCCL_ALGO, as ``grammar.canonical_choice`` returns it.
        protocol_value: of NCCL_PROTO, likewise.
        place: where it is to run.
    """
    if place.ranks <= 1 or ignores_choice(collective):
        return None
    if place.version < _FUNCTIONS_SINCE and any(
        mark in value for value in (algorithm_value, protocol_value) for mark in ":;"
    ):
        return (
            "NCCL_ALGO and NCCL_PROTO take no function before NCCL 2.24;"
            f" here {place.release_text}; write a plain list"
        )
    pairs = legal_pairs(collective, place)
    algorithms = chosen("algorithm", algorithm_value, collective)
    protocols = chosen("protocol", protocol_value, collective)
    if any(algorithm in algorithms and protocol in protocols for algorithm, protocol in pairs):
        return None
    if not (algorithms and protocols):
        empty = "protocol" if algorithms else "algorithm"
        return f"the value leaves no {empty} on for {collective}"
    legal = dict.fromkeys(algorithm for algorithm, protocol in pairs if protocol in protocols)
    return f"{_reason(collective, algorithms, protocols, place)}; legal: {', '.join(legal)}"


def falls_back_silently(version: Release) -> bool:
    """Returns whether NCCL may run something else where it cannot run what was asked.

    2.19 to 2.23 take Ring (``ringbdw`` in src/graph/tuning.cc 2.19.1 to 2.23.4), up to 2.21 with
    every protocol. 2.18 never turns Ring off but for all_reduce, where CollNet that is absent is
    replaced and the rest is refused. 2.24 and later refuse at the first call of the collective
    (src/enqueue.cc 2.24.3).
    """
    return version < (2, 24, 0)


def ll128_is_automatic(
    version: Release,
    compute_capability: tuple[int, int] | None,
    intra: str | None,
    inter: str | None,
) -> bool | None:
    """Returns whether NCCL itself would turn LL128 on, None where that is not known.

    As src/graph/tuning.cc has it in 2.18.1, 2.18.3, 2.25.1, 2.27.3 and 2.30.7, for GPUs of one
    kind. Builds of NCCL for CUDA 11.8, which leave it off for all_reduce over 2 ranks of sm_90,
    and NCCL_LL128_C2C=0 are not taken into account.

    Args:
        version: NCCL's.
        compute_capability: of all GPUs.
        intra: the path between GPUs of a node as NCCL's log writes it: ``NVL``, ``NVB``, ``SYS``.
        inter: the path from a GPU to its network device, likewise.
    """
    last_intra = "NVL" if version < (2, 18, 3) else "NVB"
    answers = (
        _reaches(intra, last_intra),
        # sm_90 goes as far as PXN since 2.18.1; P2C, new in 2.27, lies behind PXB and before PXN.
        _reaches(inter, "PXN" if (compute_capability or (9, 0)) >= (9, 0) else "PXB"),
        None if compute_capability is None else _ll128_knows(version, compute_capability),
    )
    if False in answers:
        return False
    return None if None in answers else True


def _reaches(path: str | None, last: str) -> bool | None:
    if path not in _PATHS:
        return None
    return _PATHS.index(path) <= _PATHS.index(last)


def _ll128_knows(version: Release, compute_capability: tuple[int, int]) -> bool:
    if version >= (2, 27, 0):
        return compute_capability >= (7, 0)
    known = {(7, 0), (8, 0), (9, 0)}
    if version >= (2, 25, 0):
        known |= {(10, 0), (12, 0)}
    return compute_capability in known


def _rows(collective: str, place: Place) -> tuple[Row, ...]:
    release = max(place.version, _FIRST)
    return tuple(row for row in ROWS if row.collective == collective and row.since <= release)


def _limit(row: Row, place: Place) -> Limit | None:
    stopping = (limit for limit in LIMITS if limit.stops(row.collective, row.algorithm, place))
    return next(stopping, None)


def _reason(
    collective: str, algorithms: frozenset[str], protocols: frozenset[str], place: Place
) -> str:
    """The cause nearest to a run: a protocol that is off, then the place, then no such row."""
    rows = [row for row in _rows(collective, place) if row.algorithm in algorithms]
    runnable = [row for row in rows if _limit(row, place) is None]
    if runnable:
        names = ", ".join(row.algorithm for row in runnable)
        on = ", ".join(name for name in PROTOCOLS if name in protocols)
        return f"{names} runs {', '.join(runnable[0].protocols)} only, not {on}"
    if rows:
        causes = [f"{row.algorithm} {limit.needs}" for row in rows if (limit := _limit(row, place))]
        return f"{'; '.join(causes)}{PLACE_WORDS}{place.text}"
    missing = [_missing(collective, name) for name in ALGORITHMS if name in algorithms]
    return f"{collective} has no {', '.join(missing)} in {place.release_text}"


def _missing(collective: str, algorithm: str) -> str:
    """An algorithm's name, with the release that brings it for the collective."""
    for row in ROWS:
        if (row.collective, row.algorithm) == (collective, algorithm):
            return f"{algorithm} (new in {row.since[0]}.{row.since[1]})"
    return algorithm


def lowest_capability(nodes: Sequence[Node]) -> tuple[int, int] | None:
    """Returns the lowest compute capability of all GPUs, ``(9, 0)``; None where it is not known."""
    found = [gpu.compute_capability for node in nodes for gpu in node.gpus]
    pairs = [tuple(map(int, text.split("."))) for text in found if text is not None]
    lowest = min(pairs, default=None)
    return None if lowest is None else (lowest[0], lowest[1])
