"""What ran: a rank's facts, the odd ones among ranks, and whether it is what was asked for."""

import time
from pathlib import Path

import pytest

from collbench.model import Proof, RankProof, ReasonCode
from collbench.probe.nccl_log import Call, LogReader, parse
from collbench.probe.proof import compare_ranks, flags, judge, rank_proof

LOGS = Path(__file__).parents[1] / "data" / "nccl_logs"
NODES, LOCAL_RANKS = 500, 8


def read(name):
    reader = LogReader(LOGS / name)
    reader.read()
    return reader.facts, reader.take_calls()


def fleet(nodes=2, local_ranks=8, altered=None):
    """Ranks of a fleet with a network device for each local rank; ``altered``: rank -> fields."""
    altered = altered or {}
    proofs = []
    for rank in range(nodes * local_ranks):
        place = rank % local_ranks
        fields = {
            "network": "IB",
            "coll_channels": 24,
            "transports": ["NET/IB", "P2P/CUMEM"],
            "devices": [f"mlx5_{place}"],
            "gpu_direct": True,
            "nvls": True,
            "nodes": nodes,
            "local_rank": place,
            "intra_path": "NVL",
            "inter_path": "PXB",
        }
        proofs.append(RankProof(**(fields | altered.get(rank, {}))))
    return proofs


# A rank


def test_a_rank_of_the_recorded_node_shows_its_path_and_the_last_call():
    facts, calls = read("one_node_2.28.9.log")

    assert rank_proof(facts, calls, "all_reduce") == RankProof(
        algorithm="Ring",
        protocol="Simple",
        channels=24,
        coll_channels=24,
        network="Socket",
        transports=["P2P/direct pointer"],
        nodes=1,
        local_rank=0,
        intra_path="NVL",
        no_rdma_device=True,
    )


def test_a_rank_of_the_recorded_pair_of_nodes_shows_sockets():
    facts, calls = read("two_nodes_socket_rank1_2.28.9.log")

    assert rank_proof(facts, calls, "all_reduce") == RankProof(
        coll_channels=2,
        network="Socket",
        transports=["NET/Socket"],
        devices=["eth0"],
        gpu_direct=False,
        nodes=2,
        local_rank=0,
        no_rdma_device=True,
    )


@pytest.mark.parametrize(
    ("name", "devices", "gpu_direct", "nvls", "sharp"),
    [
        ("written_2.18.6.log", ["mlx5_0", "mlx5_1"], True, False, False),
        ("written_2.20.5.log", ["mlx5_2", "mlx5_0+mlx5_1"], False, True, False),
        ("written_2.22.3.log", [], None, False, False),
        ("written_2.23.4.log", ["device 0"], True, True, False),
        ("written_2.24.3.log", ["mlx5_0+mlx5_1"], True, False, False),
        ("written_2.26.6.log", ["mlx5_0"], True, True, True),
        ("written_2.27.7.log", ["mlx5_0", "mlx5_3"], True, True, False),
        ("written_2.29.7.log", [], None, False, False),
        ("written_2.30.7.log", ["mlx5_1"], True, True, False),
        ("written_2.32.3.log", ["mlx5_0"], True, True, False),
    ],
)
def test_devices_in_use_and_what_the_hardware_offers(name, devices, gpu_direct, nvls, sharp):
    facts, calls = read(name)
    proof = rank_proof(facts, calls, "all_reduce")

    assert (proof.devices, proof.gpu_direct, proof.nvls, proof.sharp) == (
        devices,
        gpu_direct,
        nvls,
        sharp,
    )


@pytest.mark.parametrize(
    ("name", "collective", "count_bytes", "ran"),
    [
        ("one_node_2.28.9.log", "all_reduce", 8, ("Ring", "LL", 1)),
        ("one_node_2.28.9.log", "all_reduce", 9, (None, None, None)),
        ("one_node_2.28.9.log", "all_gather", None, (None, None, None)),
        ("one_node_2.28.9.log", "send_recv", None, (None, None, None)),
        # 2.20 names no function, and never tells of those that it does not tune
        ("written_2.20.5.log", "all_reduce", 4096, ("Tree", "LL", None)),
        ("written_2.20.5.log", "all_reduce", None, ("NVLS", "Simple", None)),
        ("written_2.20.5.log", "all_to_all", None, (None, None, None)),
        # below 2.24 the size is that of all 4 or 16 ranks' shares
        ("written_2.20.5.log", "all_gather", 1024, ("Tree", "LL", None)),
        ("written_2.23.4.log", "all_gather", 65536, ("Ring", "LL128", None)),
        ("written_2.23.4.log", "all_gather", 1048576, (None, None, None)),
        ("written_2.23.4.log", "all_reduce", 1073741824, ("NVLSTree", "Simple", None)),
        ("written_2.27.7.log", "reduce_scatter", 2097152, ("PAT", "Simple", 8)),
        ("written_2.30.7.log", "all_reduce", 65536, ("Symmetric/AllReduce_AGxLL_R", None, 4)),
        ("written_2.30.7.log", "all_gather", None, ("CopyEngine", None, None)),
        ("written_2.30.7.log", "all_to_all", None, ("CopyEngine/Hierarchical", None, None)),
    ],
)
def test_the_call_of_a_case(name, collective, count_bytes, ran):
    facts, calls = read(name)
    proof = rank_proof(facts, calls, collective, count_bytes)

    assert (proof.algorithm, proof.protocol, proof.channels) == ran


def test_the_last_of_several_calls_counts():
    calls = [
        Call(function="AllReduce", size_bytes=8, algorithm=name, protocol="LL", channels=1)
        for name in ("Ring", "Tree")
    ]

    assert rank_proof(parse([]), calls, "all_reduce", 8).algorithm == "Tree"


def test_a_log_without_lines_proves_nothing():
    assert rank_proof(parse([]), [], "all_reduce") == RankProof()


def test_a_long_warning_is_cut():
    facts = parse(["h:1:1 [0] f.cc:1 NCCL WARN " + "x" * 500])

    assert rank_proof(facts, [], "all_reduce").warning == "x" * 160


# Over ranks


def test_what_all_ranks_share_stands_once():
    proofs = fleet(altered={0: {"algorithm": "Ring", "protocol": "LL", "channels": 4}})

    assert compare_ranks(proofs) == Proof(
        algorithm="Ring",
        protocol="LL",
        channels=4,
        coll_channels=24,
        network="IB",
        transports=["NET/IB", "P2P/CUMEM"],
        devices=[f"mlx5_{number}" for number in range(8)],
        gpu_direct=True,
        nvls=True,
        nodes=2,
        intra_path="NVL",
        inter_path="PXB",
        ranks=16,
    )


INSIDE = {"transports": ["P2P/CUMEM"], "devices": [], "gpu_direct": None}


@pytest.mark.parametrize(
    ("nodes", "altered", "odd"),
    [
        (2, {5: {"gpu_direct": False}}, ["rank 5: no GDRDMA on mlx5_5; the other 15 have it"]),
        (4, {5: {"gpu_direct": False}}, ["rank 5: no GDRDMA on mlx5_5; the other 31 have it"]),
        (
            2,
            {5: {"gpu_direct": False, "devices": ["mlx5_4", "mlx5_5"]}},
            ["rank 5: GDRDMA not on all of mlx5_4, mlx5_5; the other 15 have it"],
        ),
        (
            2,
            {7: {"network": "Socket", "gpu_direct": False, "devices": ["eth0"]}},
            ["rank 7: NET/Socket; the other 15 use NET/IB"],
        ),
        (
            1,
            {3: {"coll_channels": 2}, 4: {"coll_channels": 1}},
            ["rank 3: 2 channels; the other 6 have 24", "rank 4: 1 channel; the other 6 have 24"],
        ),
        (
            1,
            {3: {"transports": ["SHM/direct"]}},
            ["rank 3: SHM/direct; the other 7 use P2P"],
        ),
        (
            3,
            {13: {"devices": ["mlx5_4"]}},
            ["rank 13: mlx5_4; the other 2 of local rank 5 use mlx5_5"],
        ),
        (1, {2: {"nvls": False}}, ["rank 2: no NVLS; the other 7 have it"]),
        (1, {2: {"sharp": True}}, ["rank 2: CollNet; the other 7 have none"]),
        (1, {2: {"no_rdma_device": True}}, ["rank 2: no RDMA device; the other 7 have one"]),
        (
            2,
            {9: {"inter_path": "SYS"}},
            ["rank 9: SYS to its network device; the other 15 have PXB"],
        ),
        (
            2,
            {9: {"intra_path": "PHB", "nvls": False}},
            ["rank 9: PHB between GPUs; the other 15 have NVL"],
        ),
        (
            1,
            {6: {"warning": "Call to connect failed"}},
            ["rank 6: a warning (Call to connect failed); the other 7 have none"],
        ),
    ],
)
def test_a_rank_that_differs_is_named(nodes, altered, odd):
    assert compare_ranks(fleet(nodes=nodes, altered=altered)).odd == odd


@pytest.mark.parametrize(
    ("nodes", "altered"),
    [
        (2, dict.fromkeys((1, 2, 3, 4, 5, 6, 9, 10), INSIDE)),  # in the middle of their nodes
        (2, {5: {"devices": ["mlx5_4"]}}),  # one against one
        (3, {13: {"devices": ["mlx5_5", "mlx5_6"]}}),  # one more channel's device
        (4, {rank: {"gpu_direct": False} for rank in (3, 11, 19, 27)}),  # a rail without
        # neighbours across sockets
        (3, {rank: {"intra_path": "SYS"} for rank in range(24) if rank % 8 != 3}
         | {rank: {"intra_path": "SYS", "transports": ["SHM/direct"]} for rank in (3, 11, 19)}),
        (1, {rank: {"intra_path": "SYS"} for rank in range(7)}
         | {7: {"intra_path": "SYS", "transports": ["SHM/direct"]}}),
        (2, {rank: {"algorithm": "Ring"} for rank in (0,)}),
    ],
)  # fmt: skip
def test_differences_by_place_are_none(nodes, altered):
    assert compare_ranks(fleet(nodes=nodes, altered=altered)).odd == []


def test_a_rail_is_compared_with_itself():
    rail = {rank: {"gpu_direct": False} for rank in (3, 11, 19, 27)}
    proofs = fleet(nodes=4, altered={**rail, 8: {"gpu_direct": False}})

    assert compare_ranks(proofs).odd == [
        "rank 8: no GDRDMA on mlx5_0; the other 3 of local rank 0 have it"
    ]


def test_across_sockets_a_rank_is_compared_with_its_place():
    altered = {rank: {"intra_path": "SYS"} for rank in range(24)}
    altered[11] = {"intra_path": "SYS", "transports": ["SHM/direct"]}

    assert compare_ranks(fleet(nodes=3, altered=altered)).odd == [
        "rank 11: SHM/direct; the other 23 use P2P"
    ]


@pytest.mark.parametrize(
    ("altered", "odd"),
    [
        ({0: {"gpu_direct": False}}, ["rank 0: no GDRDMA on mlx5_0; the other has it"]),
        ({0: {"network": "Socket"}}, ["rank 0: NET/Socket; the other uses NET/IB"]),
        ({0: {"intra_path": "SYS"}}, ["rank 0: SYS between GPUs; the other has NVL"]),
    ],
)
def test_of_two_ranks_the_worse_is_named(altered, odd):
    assert compare_ranks(fleet(nodes=2, local_ranks=1, altered=altered)).odd == odd


def test_a_rank_without_a_log_is_named_and_not_counted():
    proofs = fleet(nodes=1)
    proofs[4] = RankProof()
    proof = compare_ranks(proofs)

    assert proof.odd == ["rank 4: no NCCL log; the other 7 have one"]
    assert proof.ranks == 7


@pytest.mark.parametrize("ranks", [0, 3])
def test_where_no_rank_has_a_log_nothing_is_proved(ranks):
    assert compare_ranks([RankProof()] * ranks) == Proof()


@pytest.mark.parametrize(("number", "last"), [(21, "and 1 rank more"), (25, "and 5 ranks more")])
def test_at_most_twenty_ranks_are_named(number, last):
    odd = compare_ranks(fleet(8, altered={rank: {"nvls": False} for rank in range(number)})).odd

    assert odd[0] == f"rank 0: no NVLS; the other {64 - number} have it"
    assert odd[-1] == last
    assert len(odd) == 21


def rank_log(template, rank):
    """The recorded log with the places of a rank of a fleet, over IB."""
    place = rank % LOCAL_RANKS
    ours = f"rank {rank} nRanks {NODES * LOCAL_RANKS} nNodes {NODES} localRanks {LOCAL_RANKS}"
    return (
        template.replace("rank 0 nRanks 2 nNodes 2 localRanks 1", ours)
        .replace("localRank 0", f"localRank {place}")
        .replace("NET/IB : No device found.", DEVICES)
        .replace("Failed to initialize NET plugin IB", "Initialized NET plugin IB")
        .replace("NET plugin Socket", "NET plugin IB")
        .replace("Using network Socket", "Using network IB")
        .replace("via NET/Socket/0", f"via NET/IB/{place}/GDRDMA")
    )


DEVICES = "NET/IB : Using " + " ".join(f"[{number}]mlx5_{number}:1/IB" for number in range(8))


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (("/GDRDMA", ""), "rank 2222: no GDRDMA on mlx5_6; the other 3,999 have it"),
        (("IB", "Socket"), "rank 2222: NET/Socket; the other 3,999 use NET/IB"),
        (("2 coll", "1 coll"), "rank 2222: 1 channel; the other 3,999 have 2"),
    ],
)
def test_four_thousand_logs_are_read_and_compared_within_ten_seconds(change, line):
    template = (LOGS / "two_nodes_socket_rank0_2.28.9.log").read_text()
    logs = [rank_log(template, rank) for rank in range(NODES * LOCAL_RANKS)]
    logs[2222] = logs[2222].replace(*change)

    start = time.perf_counter()
    proof = compare_ranks([rank_proof(parse(log.splitlines()), [], "all_reduce") for log in logs])
    elapsed_s = time.perf_counter() - start

    assert proof.odd == [line]
    assert proof.ranks == 4000
    assert elapsed_s < 10


# What was asked for

ON_ONE_NODE = "all ranks are on one node; the data went over"
ONE_NODE = Proof(
    ranks=2, nodes=1, network="IB", transports=["P2P/CUMEM"], intra_path="NVL", algorithm="Ring"
)
OVER_IB = Proof(
    ranks=16,
    nodes=2,
    network="IB",
    transports=["NET/IB", "P2P/CUMEM"],
    algorithm="Ring",
    protocol="Simple",
)
OVER_SOCKETS = Proof(ranks=2, nodes=2, network="Socket", transports=["NET/Socket"])


def changed(proof, **fields):
    """A copy of a record with other fields."""
    return type(proof)(
        **({name: getattr(proof, name) for name in proof.__struct_fields__} | fields)
    )


@pytest.mark.parametrize(
    ("asked", "proof", "code", "text"),
    [
        (
            {"ib": "on"},
            ONE_NODE,
            ReasonCode.NO_NETWORK_USED,
            f"{ON_ONE_NODE} NVLink (P2P/CUMEM) whatever IB was set to",
        ),
        (
            {"ib": "off"},
            changed(ONE_NODE, intra_path="PHB", transports=["P2P/IPC", "SHM/direct"]),
            ReasonCode.NO_NETWORK_USED,
            f"{ON_ONE_NODE} P2P/IPC and shared memory (SHM/direct) whatever IB was set to",
        ),
        (
            {"ib": "off"},
            changed(ONE_NODE, transports=[], algorithm="NVLS"),
            ReasonCode.NO_NETWORK_USED,
            f"{ON_ONE_NODE} NVLink whatever IB was set to",
        ),
        (
            {"NCCL_NET": "Socket"},
            ONE_NODE,
            ReasonCode.NO_NETWORK_USED,
            f"{ON_ONE_NODE} NVLink (P2P/CUMEM) whatever NCCL_NET was set to",
        ),
        (
            {"ib": "on"},
            changed(ONE_NODE, nodes=None),
            ReasonCode.NO_NETWORK_USED,
            "no network carried the data; it went over NVLink (P2P/CUMEM) whatever IB was set to",
        ),
        (
            {"ib": "on"},
            changed(ONE_NODE, nodes=2, transports=["P2P/MNNVL"]),
            ReasonCode.NO_NETWORK_USED,
            "no network carried the data; it went over NVLink (P2P/MNNVL) whatever IB was set to",
        ),
        (
            {"ib": "on"},
            changed(OVER_SOCKETS, no_rdma_device=True),
            ReasonCode.NO_RDMA_DEVICE,
            "IB was asked for, the data went over NET/Socket: no IB device found",
        ),
        (
            {"ib": "on"},
            OVER_SOCKETS,
            ReasonCode.OTHER_NETWORK,
            "IB was asked for, the data went over NET/Socket",
        ),
        (
            {"ib": "off", "NCCL_NET": "Socket"},
            changed(OVER_IB, transports=["COLLNET/SHARP", "NET/IBext_v9"]),
            ReasonCode.OTHER_NETWORK,
            "IB was to be off, the data went over COLLNET/SHARP, NET/IBext_v9",
        ),
        (
            {"NCCL_NET": "IB"},
            OVER_SOCKETS,
            ReasonCode.OTHER_NETWORK,
            "NCCL_NET=IB was asked for, the data went over NET/Socket",
        ),
        (
            {"NCCL_ALGO": "Tree", "NCCL_PROTO": "LL"},
            OVER_IB,
            ReasonCode.OTHER_ALGORITHM,
            "NCCL_ALGO=Tree was asked for, Ring ran",
        ),
        (
            {"NCCL_ALGO": "allreduce:^Ring"},
            OVER_IB,
            ReasonCode.OTHER_ALGORITHM,
            "NCCL_ALGO=allreduce:^Ring was asked for, Ring ran",
        ),
        (
            {"NCCL_ALGO": "Ring", "NCCL_PROTO": "LL,LL128"},
            OVER_IB,
            ReasonCode.OTHER_PROTOCOL,
            "NCCL_PROTO=LL,LL128 was asked for, Simple ran",
        ),
        (
            {"NCCL_ALGO": "Ring"},
            changed(OVER_IB, algorithm="CopyEngine", protocol=None),
            ReasonCode.OTHER_ALGORITHM,
            "NCCL_ALGO=Ring was asked for, CopyEngine ran",
        ),
        (
            {"NCCL_PROTO": "LL"},
            changed(OVER_IB, algorithm="Symmetric/AllReduce_AGxLL_R", protocol=None),
            ReasonCode.OTHER_PROTOCOL,
            "NCCL_PROTO=LL was asked for, Symmetric/AllReduce_AGxLL_R ran",
        ),
    ],
)
def test_what_was_asked_for_and_did_not_run(asked, proof, code, text):
    reason = judge(asked, proof, collective="all_reduce", version=(2, 28, 9))

    assert reason is not None
    assert (reason.code, reason.text) == (code, text)


@pytest.mark.parametrize(
    ("asked", "proof"),
    [
        ({}, ONE_NODE),
        ({"NCCL_BUFFSIZE": "4194304"}, ONE_NODE),
        ({"ib": "on"}, OVER_IB),
        ({"ib": "on"}, changed(OVER_IB, transports=["NET/AWS Libfabric"])),
        ({"ib": "on", "NCCL_NET": "ib"}, OVER_IB),
        ({"ib": "off", "NCCL_NET": "Socket"}, OVER_SOCKETS),
        ({"NCCL_NET": "IB"}, changed(OVER_IB, transports=["COLLNET/SHARP", "NET/IB"])),
        ({"NCCL_NET": "default", "NCCL_ALGO": "default", "NCCL_PROTO": "default"}, ONE_NODE),
        ({"NCCL_ALGO": "Ring", "NCCL_PROTO": "^LL"}, OVER_IB),
        ({"NCCL_ALGO": "allgather:Tree"}, OVER_IB),
        ({"NCCL_ALGO": "allgather:Tree"}, changed(OVER_IB, algorithm="CopyEngine")),
        ({"ib": "on", "NCCL_ALGO": "Tree", "NCCL_PROTO": "LL"}, Proof()),
        ({"ib": "on"}, changed(OVER_IB, transports=[])),
        ({"NCCL_ALGO": "Tree"}, OVER_SOCKETS),
    ],
)
def test_what_ran_as_asked_or_is_not_known_has_no_reason(asked, proof):
    assert judge(asked, proof, collective="all_reduce", version=(2, 28, 9)) is None


def test_copy_engines_are_no_other_algorithm_where_the_variable_is_not_read():
    proof = changed(OVER_IB, algorithm="CopyEngine", protocol=None)
    asked = {"NCCL_ALGO": "Ring", "NCCL_PROTO": "LL"}

    assert judge(asked, proof, collective="all_to_all", version=(2, 30, 7)) is None


@pytest.mark.parametrize(
    ("version", "text"),
    [
        ((2, 23, 4), "NCCL_ALGO=NVLS fell back to Ring silently, as NCCL below 2.24 does"),
        ((2, 24, 0), "NCCL_ALGO=NVLS was asked for, Ring ran"),
        (None, "NCCL_ALGO=NVLS was asked for, Ring ran"),
    ],
)
def test_a_silent_fall_back_is_said_below_2_24(version, text):
    reason = judge({"NCCL_ALGO": "NVLS"}, OVER_IB, collective="all_reduce", version=version)

    assert reason is not None
    assert reason.text == text


def test_a_recorded_run_without_ib_is_judged_by_its_logs():
    proofs = [
        rank_proof(*read(f"two_nodes_socket_rank{rank}_2.28.9.log"), "all_reduce")
        for rank in (0, 1)
    ]
    proof = compare_ranks(proofs)
    reason = judge({"ib": "on"}, proof, collective="all_reduce", version=(2, 28, 9))

    assert proof.odd == []
    assert reason is not None
    assert reason.code is ReasonCode.NO_RDMA_DEVICE
    assert judge({"ib": "off"}, proof, collective="all_reduce", version=(2, 28, 9)) is None


PXB = changed(OVER_IB, intra_path="NVL", inter_path="PXB", protocol="LL128")


@pytest.mark.parametrize(
    ("asked", "proof", "expected"),
    [
        ({"NCCL_PROTO": "LL128"}, changed(PXB, inter_path="SYS"), ["ll128_forced"]),
        ({"NCCL_PROTO": "LL,LL128"}, changed(PXB, intra_path="SYS"), ["ll128_forced"]),
        ({"NCCL_PROTO": "^Simple"}, changed(PXB, intra_path="SYS"), ["ll128_forced"]),
        ({"NCCL_PROTO": "LL128"}, PXB, []),
        ({"NCCL_PROTO": "LL128"}, changed(PXB, nodes=1, inter_path=None), []),
        ({"NCCL_PROTO": "LL128"}, changed(PXB, intra_path=None), []),
        ({"NCCL_PROTO": "LL,LL128"}, changed(PXB, intra_path="SYS", protocol="LL"), []),
        ({"NCCL_PROTO": "LL"}, changed(PXB, intra_path="SYS", protocol="LL"), []),
        ({"NCCL_PROTO": "default"}, changed(PXB, intra_path="SYS"), []),
        ({}, changed(PXB, intra_path="SYS"), []),
    ],
)
def test_ll128_is_flagged_where_nccl_itself_leaves_it_off(asked, proof, expected):
    found = flags(
        asked, proof, collective="all_reduce", version=(2, 28, 9), compute_capability=(9, 0)
    )

    assert found == expected
