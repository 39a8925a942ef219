"""What ran, proved from NCCL's logs: a rank's facts, compared over ranks, held against the request.

A setting is a request: NCCL may take another path without an error, and then a figure would stand
under a name it does not deserve. Ranks differ where they should not when one node is cabled or
configured unlike the others, which a collective shows only as a lower rate of all.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import TypeVar

from collbench.model import Proof, RankProof, Reason, ReasonCode
from collbench.nccl.grammar import DEFAULT, Kind, chosen
from collbench.nccl.legality import Release, ll128_is_automatic
from collbench.probe.nccl_log import Call, LogFacts

_Value = TypeVar("_Value", bound=Hashable)

_TUNED_FUNCTIONS = {
    "all_reduce": "AllReduce",
    "all_gather": "AllGather",
    "reduce_scatter": "ReduceScatter",
    "broadcast": "Broadcast",
    "reduce": "Reduce",
}
_OTHER_FUNCTIONS = {"all_to_all": "AlltoAll", "gather": "Gather", "scatter": "Scatter"}
"""NCCL tells of these only where copy engines carry them."""

_COUNTS_ALL_SHARES = {"AllGather", "ReduceScatter"}
_COUNTS_ONE_SHARE_SINCE = (2, 24, 0)
_REFUSES_SINCE = (2, 24, 0)
_NVLINK = {"NVL", "NVB"}
_WARNING_LENGTH = 160
_ODD_LINES = 20
_PEERS_NEEDED = 3
"""Ranks of one local rank, below which their majority says nothing."""


def rank_proof(
    facts: LogFacts, calls: Sequence[Call], collective: str, count_bytes: int | None = None
) -> RankProof:
    """Returns what one rank shows for a case.

    Args:
        facts: of the rank's log, read after the case.
        calls: those told during the case; the last one that fits counts.
        collective: torch.distributed's word.
        count_bytes: count x item size of the case, so that calls of other sizes do not fit; any
            size if None.
    """
    fitting = [call for call in calls if _fits(call, facts, collective, count_bytes)]
    call = fitting[-1] if fitting else None
    transports = facts.transports.values()
    network_paths = [transport for transport in transports if transport.kind == "NET"]
    intra, inter = facts.ring_paths or facts.tree_paths or (None, None)
    return RankProof(
        algorithm=call.algorithm if call else None,
        protocol=call.protocol if call else None,
        channels=call.channels if call else None,
        coll_channels=facts.coll_channels,
        network=facts.network,
        transports=sorted({transport.label for transport in transports}),
        devices=_devices_in_use(facts),
        gpu_direct=all(path.gpu_direct for path in network_paths) if network_paths else None,
        nvls=facts.nvls_available is not False and bool(facts.nvls_channels),
        sharp=facts.collnet_connected or any(path.kind == "COLLNET" for path in transports),
        nodes=facts.nodes,
        local_rank=facts.local_rank,
        intra_path=None if intra == "LOC" else intra,
        inter_path=None if facts.nodes == 1 else inter,
        no_rdma_device=facts.no_rdma_device,
        warning=facts.warnings[-1][:_WARNING_LENGTH] if facts.warnings else None,
    )


def compare_ranks(proofs: Sequence[RankProof]) -> Proof:
    """Returns what most ranks share, and a line for each rank that differs where it should not.

    What differs by place is no difference: which transports a rank has depends on where in a ring
    it stands, which network device on its local rank. Such facts are compared with the ranks of
    the same local rank on other nodes.

    Args:
        proofs: one a rank, in the order of ranks.
    """
    told = [proof for proof in proofs if proof != _NOTHING]
    odd: dict[int, str] = {}
    for trait in _TRAITS:
        odd = _odd_by(trait, proofs) | odd
    lines = [f"rank {rank}: {odd[rank]}" for rank in sorted(odd)]
    if len(lines) > _ODD_LINES:
        lines[_ODD_LINES:] = [f"and {_ranks(len(lines) - _ODD_LINES)} more"]
    return Proof(
        algorithm=_most_common(proof.algorithm for proof in told),
        protocol=_most_common(proof.protocol for proof in told),
        channels=_most_common(proof.channels for proof in told),
        coll_channels=_most_common(proof.coll_channels for proof in told),
        network=_most_common(proof.network for proof in told),
        transports=sorted({name for proof in told for name in proof.transports}),
        devices=_in_order({name for proof in told for name in proof.devices}),
        gpu_direct=_most_common(proof.gpu_direct for proof in told),
        nvls=bool(_most_common(proof.nvls for proof in told)),
        sharp=bool(_most_common(proof.sharp for proof in told)),
        nodes=_most_common(proof.nodes for proof in told),
        intra_path=_most_common(proof.intra_path for proof in told),
        inter_path=_most_common(proof.inter_path for proof in told),
        no_rdma_device=bool(_most_common(proof.no_rdma_device for proof in told)),
        ranks=len(told),
        odd=lines,
    )


def judge(
    asked: Mapping[str, str], proof: Proof, *, collective: str, version: Release | None
) -> Reason | None:
    """Returns why a case is ``path_not_used``, None where what was asked for ran or is unknown.

    Args:
        asked: the case's setting, values in canonical spelling.
        proof: of all ranks.
        collective: torch.distributed's word.
        version: NCCL's, where known.
    """
    return (
        _judge_network(asked, proof)
        or _judge_choice("algorithm", asked, proof, collective, version)
        or _judge_choice("protocol", asked, proof, collective, version)
    )


def flags(
    asked: Mapping[str, str],
    proof: Proof,
    *,
    collective: str,
    version: Release,
    compute_capability: tuple[int, int] | None,
) -> list[str]:
    """Returns the codes of ``collbench.notes`` that what ran asks for.

    ``ll128_forced``: NCCL_PROTO turned LL128 on where NCCL itself leaves it off, because data may
    arrive torn there.

    Args:
        asked: the case's setting, values in canonical spelling.
        proof: of all ranks.
        collective: torch.distributed's word.
        version: NCCL's.
        compute_capability: of all GPUs.
    """
    value = asked.get("NCCL_PROTO", DEFAULT)
    named = value != DEFAULT and "LL128" in chosen("protocol", value, collective)
    if not named or proof.protocol not in (None, "LL128"):
        return []
    inter = "PIX" if proof.nodes == 1 else proof.inter_path  # as NCCL has it where none is used
    automatic = ll128_is_automatic(version, compute_capability, proof.intra_path, inter)
    return ["ll128_forced"] if automatic is False else []


# A rank


def _fits(call: Call, facts: LogFacts, collective: str, count_bytes: int | None) -> bool:
    function = _TUNED_FUNCTIONS.get(collective)
    if call.function is None:  # NCCL 2.20 to 2.22 name none, and tell of the tuned ones alone
        if function is None:
            return False
    elif call.function != (function or _OTHER_FUNCTIONS.get(collective)):
        return False
    if count_bytes is None:
        return True
    counts_all = facts.version is not None and facts.version < _COUNTS_ONE_SHARE_SINCE
    shares = facts.ranks if counts_all and function in _COUNTS_ALL_SHARES else 1
    return call.size_bytes == count_bytes * (shares or 1)


def _devices_in_use(facts: LogFacts) -> list[str]:
    names = set()
    for transport in facts.transports.values():
        if transport.kind == "NET":
            found = facts.devices.get(transport.name)
            if found is None and transport.name.startswith("IB"):
                found = facts.devices.get("IB")  # plug-ins list their devices as NET/IB
            number = transport.device or 0
            names.add((found or {}).get(number, f"device {number}"))
    return _in_order(names)


def _in_order(names: Iterable[str]) -> list[str]:
    return sorted(names, key=lambda name: (len(name), name))


# Over ranks


class _Peers(Enum):
    """Whom a fact is compared with."""

    ALL = auto()
    PLACE_FIRST = auto()
    """Ranks of the same local rank where they are enough, else all."""
    PLACE = auto()
    """Ranks of the same local rank alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Trait:
    """One fact that ranks should share."""

    value: Callable[[RankProof], Hashable | None]
    """None where the fact does not apply to a rank."""
    told: Callable[[RankProof], str]
    """What a rank that differs has."""
    verb: str = "have"
    others: Callable[[Hashable], str] = str
    """What the others have."""
    expected: Callable[[Hashable], bool] = bool
    """Which value is right where as many ranks have one as the other."""
    peers: _Peers = _Peers.ALL


def _odd_by(trait: _Trait, proofs: Sequence[RankProof]) -> dict[int, str]:
    """Returns rank -> what differs, for the ranks that one fact sets apart."""
    values = [trait.value(proof) for proof in proofs]
    everyone = Counter(value for value in values if value is not None)
    if len(everyone) < 2:
        return {}
    places = _places(trait, proofs, values)
    norms = {place: _norm(trait, counter) for place, counter in places.items()}
    found = {}
    for rank, (proof, value) in enumerate(zip(proofs, values, strict=True)):
        if value is None:
            continue
        place = proof.local_rank if proof.local_rank in norms else None
        if place is None and trait.peers is _Peers.PLACE:
            continue
        norm = _norm(trait, everyone) if place is None else norms[place]
        if value != norm:
            alike = places[place] if place is not None and len({*norms.values()}) > 1 else everyone
            where = "" if alike is everyone else f" of local rank {place}"
            others = _others(alike[norm], where, trait.verb)
            found[rank] = f"{trait.told(proof)}; {others} {trait.others(norm)}"
    return found


def _places(
    trait: _Trait, proofs: Sequence[RankProof], values: Sequence[Hashable | None]
) -> dict[int | None, Counter[Hashable]]:
    """Returns the values of each local rank that has enough ranks and a majority among them."""
    places: dict[int | None, Counter[Hashable]] = defaultdict(Counter)
    if trait.peers is _Peers.ALL:
        return {}
    for proof, value in zip(proofs, values, strict=True):
        if proof.local_rank is not None and value is not None:
            places[proof.local_rank][value] += 1
    return {
        place: counter
        for place, counter in places.items()
        if counter.total() >= _PEERS_NEEDED and 2 * counter.most_common(1)[0][1] > counter.total()
    }


def _norm(trait: _Trait, counter: Counter[Hashable]) -> Hashable:
    return max(counter, key=lambda value: (counter[value], trait.expected(value)))


def _others(count: int, where: str, verb: str) -> str:
    if count == 1:
        return f"the other{where} {'has' if verb == 'have' else verb + 's'}"
    return f"the other {count:,}{where} {verb}"


def _ranks(count: int) -> str:
    return "1 rank" if count == 1 else f"{count:,} ranks"


def _most_common(values: Iterable[_Value | None]) -> _Value | None:
    counter = Counter(value for value in values if value is not None)
    return counter.most_common(1)[0][0] if counter else None


def _it_or_none(value: Hashable) -> str:
    return "it" if value else "none"


def _inside_node(proof: RankProof) -> list[str]:
    return [name for name in proof.transports if name.startswith(("P2P/", "SHM/"))]


def _uses_shared_memory(proof: RankProof) -> bool | None:
    inside = _inside_node(proof)
    return any(name.startswith("SHM/") for name in inside) if inside else None


def _only_device(proof: RankProof) -> str | None:
    return proof.devices[0] if len(proof.devices) == 1 else None


def _told_gpu_direct(proof: RankProof) -> str:
    devices = ", ".join(proof.devices)
    if len(proof.devices) > 1 and not proof.gpu_direct:
        return f"GDRDMA not on all of {devices}"
    return ("GDRDMA" if proof.gpu_direct else "no GDRDMA") + (f" on {devices}" if devices else "")


_NOTHING = RankProof()

_TRAITS = (
    _Trait(
        value=lambda proof: proof != _NOTHING,
        told=lambda proof: "no NCCL log" if proof == _NOTHING else "an NCCL log",
        others=lambda value: "one" if value else "none",
    ),
    _Trait(
        value=lambda proof: proof.network,
        told=lambda proof: f"NET/{proof.network}",
        verb="use",
        others=lambda value: f"NET/{value}",
        expected=lambda value: value != "Socket",
    ),
    _Trait(
        value=lambda proof: proof.intra_path,
        told=lambda proof: f"{proof.intra_path} between GPUs",
        expected=lambda value: value == "NVL",
    ),
    _Trait(
        value=lambda proof: _uses_shared_memory(proof) if proof.intra_path == "NVL" else None,
        told=lambda proof: " and ".join(_inside_node(proof)),
        verb="use",
        others=lambda value: "SHM" if value else "P2P",
        expected=lambda value: not value,
    ),
    _Trait(
        # Without NVLink between all GPUs, neighbours across CPU sockets use SHM as a rule.
        value=lambda proof: None if proof.intra_path == "NVL" else _uses_shared_memory(proof),
        told=lambda proof: " and ".join(_inside_node(proof)),
        verb="use",
        others=lambda value: "SHM" if value else "P2P",
        peers=_Peers.PLACE,
    ),
    _Trait(
        value=lambda proof: proof.gpu_direct,
        told=_told_gpu_direct,
        others=_it_or_none,
        peers=_Peers.PLACE_FIRST,
    ),
    _Trait(
        value=_only_device,
        told=lambda proof: proof.devices[0],
        verb="use",
        peers=_Peers.PLACE,
    ),
    _Trait(
        value=lambda proof: not proof.no_rdma_device,
        told=lambda proof: "no RDMA device" if proof.no_rdma_device else "an RDMA device",
        others=lambda value: "one" if value else "none",
    ),
    _Trait(
        value=lambda proof: proof.inter_path,
        told=lambda proof: f"{proof.inter_path} to its network device",
    ),
    _Trait(
        value=lambda proof: proof.coll_channels,
        told=lambda proof: (
            f"{proof.coll_channels} channel{'' if proof.coll_channels == 1 else 's'}"
        ),
    ),
    _Trait(
        value=lambda proof: proof.nvls,
        told=lambda proof: "NVLS" if proof.nvls else "no NVLS",
        others=_it_or_none,
    ),
    _Trait(
        value=lambda proof: proof.sharp,
        told=lambda proof: "CollNet" if proof.sharp else "no CollNet",
        others=_it_or_none,
    ),
    _Trait(
        value=lambda proof: proof.warning is not None,
        told=lambda proof: f"a warning ({proof.warning})" if proof.warning else "no warning",
        others=lambda value: "one" if value else "none",
        expected=lambda value: not value,
    ),
)
"""The most telling first: a rank is named once."""


# What was asked for


def _judge_network(asked: Mapping[str, str], proof: Proof) -> Reason | None:
    ib, net = asked.get("ib"), asked.get("NCCL_NET", DEFAULT)
    if ib is None and net == DEFAULT:
        return None
    used = [name for name in proof.transports if name.startswith(("NET/", "COLLNET/"))]
    if not used:
        return _no_network(proof, "IB" if ib is not None else "NCCL_NET")
    if ib == "on" and "NET/Socket" in used:
        return _over_sockets(proof)
    others = [name for name in used if name != "NET/Socket"]
    if ib == "off" and others:
        return Reason(
            code=ReasonCode.OTHER_NETWORK,
            text=f"IB was to be off, the data went over {', '.join(others)}",
        )
    others = [name for name in used if name.lower() != f"net/{net}".lower()]
    others = [name for name in others if name.startswith("NET/")]
    if net != DEFAULT and others:
        return Reason(
            code=ReasonCode.OTHER_NETWORK,
            text=f"NCCL_NET={net} was asked for, the data went over {', '.join(others)}",
        )
    return None


def _no_network(proof: Proof, variable: str) -> Reason | None:
    if proof.nodes == 1:
        start = "all ranks are on one node; the data"
    elif proof.transports:
        start = "no network carried the data; it"
    else:
        return None
    return Reason(
        code=ReasonCode.NO_NETWORK_USED,
        text=f"{start} went over {_path_of_data(proof)} whatever {variable} was set to",
    )


def _path_of_data(proof: Proof) -> str:
    peer = ", ".join(name for name in proof.transports if name.startswith("P2P/"))
    shared = ", ".join(name for name in proof.transports if name.startswith("SHM/"))
    nvlink = proof.intra_path in _NVLINK
    words = []
    if peer:
        words.append(f"NVLink ({peer})" if nvlink else peer)
    if shared:
        words.append(f"shared memory ({shared})")
    return " and ".join(words) or ("NVLink" if nvlink else "no network")


def _over_sockets(proof: Proof) -> Reason:
    text = "IB was asked for, the data went over NET/Socket"
    if proof.no_rdma_device:
        return Reason(code=ReasonCode.NO_RDMA_DEVICE, text=f"{text}: no IB device found")
    return Reason(code=ReasonCode.OTHER_NETWORK, text=text)


def _judge_choice(
    kind: Kind, asked: Mapping[str, str], proof: Proof, collective: str, version: Release | None
) -> Reason | None:
    variable = {"algorithm": "NCCL_ALGO", "protocol": "NCCL_PROTO"}[kind]
    value = asked.get(variable, DEFAULT)
    ran = proof.algorithm if kind == "algorithm" else proof.protocol or proof.algorithm
    wanted = chosen(kind, value, collective)
    if ran is None or ran in wanted or wanted == chosen(kind, DEFAULT, collective):
        return None
    if version is not None and version < _REFUSES_SINCE:
        text = f"{variable}={value} fell back to {ran} silently, as NCCL below 2.24 does"
    else:
        text = f"{variable}={value} was asked for, {ran} ran"
    codes = {"algorithm": ReasonCode.OTHER_ALGORITHM, "protocol": ReasonCode.OTHER_PROTOCOL}
    return Reason(code=codes[kind], text=text)
