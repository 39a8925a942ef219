"""NCCL's log lines of every supported release, as facts and calls."""

from pathlib import Path

import pytest

from collbench.probe.nccl_log import Call, LogReader, Transport, parse

LOGS = Path(__file__).parents[1] / "data" / "nccl_logs"
INFO = "node0:100:100 [0] NCCL INFO "
NOTHING_AVAILABLE = (
    "No algorithm/protocol available for function Broadcast with datatype ncclFloat32."
    " NCCL_ALGO was set to NVLS."
)
EVERY_ALGORITHM = ("Tree", "Ring", "CollNetDirect", "CollNetChain", "NVLS", "NVLSTree", "PAT")


def facts_of(name):
    return parse((LOGS / name).read_text().splitlines())


def calls_of(name):
    reader = LogReader(LOGS / name)
    reader.read()
    return reader.take_calls()


def call(function, size_bytes, algorithm, protocol=None, channels=None):
    return Call(
        function=function,
        size_bytes=size_bytes,
        algorithm=algorithm,
        protocol=protocol,
        channels=channels,
    )


NO_GDR_COPY = "RMA/Socket : rma_socket requires GDRCopy; and GDR Copy is not available"
NOTHING_SELECTED = "algSelection: no algorithm in the selected set is available for AllReduce"

FACTS = {
    "one_node_2.28.9.log": {
        "version": (2, 28, 9),
        "network": "Socket",
        "no_rdma_device": True,
        "failed_networks": ["IB"],
        "devices": {"IB": {}, "Socket": {0: "eth0"}},
        "variables": {"NCCL_NVLS_ENABLE": "0"},
        "coll_channels": 24,
        "nvls_channels": 0,
        "nvls_available": None,
        "ring_connected": True,
        "tree_connected": False,
        "rank": 0,
        "ranks": 2,
        "nodes": 1,
        "local_rank": 0,
        "ring_paths": ("NVL", "PIX"),
        "tree_paths": ("NVL", "PIX"),
        "enabled": {},
        "warnings": [],
    },
    "one_node_2.32.3.log": {
        "version": (2, 32, 3),
        "network": "Socket",
        "no_rdma_device": True,
        "failed_networks": ["IB"],
        "devices": {"IB": {}, "Socket": {0: "eth0"}},
        "variables": {"NCCL_NVLS_ENABLE": "0"},
        "coll_channels": 24,
        "nvls_channels": 0,
        "nvls_available": None,
        "ring_connected": True,
        "tree_connected": False,
        "rank": 0,
        "ranks": 2,
        "nodes": 1,
        "local_rank": 0,
        "ring_paths": ("NVL", "PIX"),
        "tree_paths": ("NVL", "PIX"),
        "enabled": {},
        "warnings": [NO_GDR_COPY],
        "no_algorithm": None,
    },
    "alg_selection_2.32.3.log": {
        "version": (2, 32, 3),
        "failed_networks": ["IB"],
        "ring_connected": True,
        "tree_connected": True,
        "warnings": [NO_GDR_COPY, NOTHING_SELECTED],
        "no_algorithm": NOTHING_SELECTED,
    },
    "two_nodes_ib_asked_for_2.28.9.log": {
        "network": "Socket",
        "no_rdma_device": True,
        "failed_networks": ["IB"],
        "devices": {"IB": {}, "Socket": {0: "eth0"}},
        "variables": {
            "NCCL_IB_DISABLE": "0",
            "NCCL_HOSTID": "fake-host-0",
            "NCCL_NVLS_ENABLE": "0",
        },
        "nodes": 2,
        "local_rank": 0,
        "ring_paths": ("LOC", "PHB"),
        "tree_paths": ("LOC", "PHB"),
        "warnings": [],
    },
    "two_communicators_2.28.9.log": {
        "no_rdma_device": False,
        "failed_networks": [],
        "variables": {
            "NCCL_HOSTID": "fake-host-0",
            "NCCL_NVLS_ENABLE": "0",
            "NCCL_ALGO": "PAT",
        },
        "enabled": dict.fromkeys(
            ("Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce"),
            frozenset({"LL", "LL128", "Simple", "PAT"}),
        ),
    },
    "no_network_2.28.9.log": {
        "version": (2, 28, 9),
        "network": None,
        "no_rdma_device": True,
        "failed_networks": ["IB"],
        "ranks": None,
        "warnings": ["Failed to initialize any NET plugin"],
    },
    "two_nodes_socket_rank1_2.28.9.log": {
        "network": "Socket",
        "variables": {"NCCL_HOSTID": "node1", "NCCL_NVLS_ENABLE": "0"},
        "coll_channels": 2,
        "rank": 1,
        "nodes": 2,
        "local_rank": 0,
        "ring_paths": None,
    },
    "written_2.18.6.log": {
        "version": (2, 18, 6),
        "network": "IB",
        "devices": {"IB": {0: "mlx5_0", 1: "mlx5_1"}},
        "variables": {"NCCL_ALGO": "Tree"},
        "coll_channels": 4,
        "nvls_channels": 0,
        "nvls_available": False,
        "tree_connected": True,
        "rank": 0,
        "ranks": 16,
        "nodes": None,
        "local_rank": None,
        "ring_paths": ("NVL", "PXB"),
        "tree_paths": ("NVL", "PIX"),
    },
    "written_2.20.5.log": {
        "devices": {"IB": {0: "mlx5_0+mlx5_1", 1: "mlx5_2"}},
        "variables": {"NCCL_IB_TIMEOUT": "22"},
        "coll_channels": 2,
        "nvls_channels": 16,
        "nvls_available": True,
        "nvls_connected": True,
        "nodes": 2,
    },
    "written_2.22.3.log": {
        "network": "Socket",
        "no_rdma_device": True,
        "failed_networks": [],
        "devices": {"Socket": {0: "eth0", 1: "eth1"}},
        "rank": 1,
        "local_rank": 1,
        "ring_paths": ("SYS", "PIX"),
    },
    "written_2.23.4.log": {
        "network": "AWS Libfabric",
        "plugins": ["AWS Libfabric"],
        "devices": {},
        "ranks": 16,
        "nvls_connected": True,
    },
    "written_2.24.3.log": {
        "devices": {"IB": {0: "mlx5_0", 1: "mlx5_1", 2: "mlx5_0+mlx5_1"}},
        "variables": {"NCCL_PROTO": "^LL128", "NCCL_ALGO": "allreduce:ring"},
        "enabled": {
            **dict.fromkeys(
                ("Broadcast", "Reduce", "AllGather", "ReduceScatter"),
                frozenset({"LL", "Simple", *EVERY_ALGORITHM}),
            ),
            "AllReduce": frozenset({"LL", "Simple", "Ring"}),
        },
    },
    "written_2.26.6.log": {
        "network": "IBext_v9",
        "devices": {"IB": {0: "mlx5_0", 1: "mlx5_3"}},
        "variables": {"NCCL_COLLNET_ENABLE": "1"},
        "collnet_connected": True,
        "nvls_available": True,
    },
    "written_2.27.7.log": {
        "network": "IB",
        "nvls_available": True,
        "nvls_connected": True,
        "ring_connected": True,
        "tree_connected": False,
        "collnet_connected": False,
    },
    "written_2.29.7.log": {
        "version": (2, 29, 7),
        "rank": 0,
        "ranks": 2,
        "nvls_available": False,
        "no_algorithm": (
            "Error : no algorithm/protocol available for function AllGather with datatype"
            " ncclInt8. NCCL_ALGO was set to Tree."
        ),
    },
    "written_2.30.7.log": {
        "devices": {"IB": {0: "mlx5_0", 1: "mlx5_1"}},
        "nvls_available": True,
        "warnings": [NOTHING_AVAILABLE],
    },
    "written_2.32.3.log": {
        "version": (2, 32, 3),
        "network": "IB",
        "devices": {"IB": {0: "mlx5_0", 1: "mlx5_1"}},
        "nvls_available": True,
        "nvls_channels": 16,
    },
}


@pytest.mark.parametrize("name", FACTS)
def test_facts_of_each_release(name):
    facts = facts_of(name)

    assert {key: getattr(facts, key) for key in FACTS[name]} == FACTS[name]


def test_every_log_of_the_folder_has_expectations():
    assert {path.name for path in LOGS.glob("*.log")} == {
        *FACTS,
        "two_nodes_socket_rank0_2.28.9.log",
    }


def told_by(name):
    """The facts that a log says anything of."""
    facts, silent = facts_of(name), parse([])
    return {key for key in facts.__slots__ if getattr(facts, key) != getattr(silent, key)}


def test_the_recorded_log_of_2_32_tells_what_the_written_one_promises():
    missing = told_by("written_2.32.3.log") - told_by("one_node_2.32.3.log")

    assert missing == {"nvls_available"}, "NVLS was off in the recorded run"
    written, recorded = calls_of("written_2.32.3.log")[0], calls_of("one_node_2.32.3.log")[1]
    assert (written.function, written.size_bytes) == (recorded.function, recorded.size_bytes)


@pytest.mark.parametrize("level", ["INFO", "ATTN"])
def test_a_network_that_failed_is_told_at_either_level(level):
    line = f"node0:1:1 [0] plugin/net.cc:229 NCCL {level} Failed to initialize NET plugin IB"

    assert parse([line]).failed_networks == ["IB"]
    assert parse([line]).warnings == []


@pytest.mark.parametrize(
    ("name", "transports"),
    [
        ("one_node_2.28.9.log", [Transport(kind="P2P", name="direct pointer")]),
        ("one_node_2.32.3.log", [Transport(kind="P2P", name="CUMEM")]),
        ("no_network_2.28.9.log", []),
        (
            "two_nodes_socket_rank0_2.28.9.log",
            [Transport(kind="NET", name="Socket", device=0)],
        ),
        (
            "two_nodes_ib_asked_for_2.28.9.log",
            [Transport(kind="NET", name="Socket", device=0)],
        ),
        (
            "written_2.18.6.log",
            [
                Transport(kind="NET", name="IB", device=0, options=("GDRDMA",)),
                Transport(kind="P2P", name="IPC", options=("read",)),
                Transport(
                    kind="NET", name="IB", device=1, proxy_rank=1, options=("GDRDMA", "Shared")
                ),
            ],
        ),
        (
            "written_2.20.5.log",
            [
                Transport(kind="SHM", name="direct"),
                Transport(kind="NET", name="IB", device=1),
                Transport(kind="NET", name="IB", device=0),
            ],
        ),
        ("written_2.22.3.log", [Transport(kind="SHM", name="CE")]),
        (
            "written_2.23.4.log",
            [
                Transport(kind="NET", name="AWS Libfabric", device=0, options=("GDRDMA",)),
                Transport(kind="P2P", name="CUMEM", options=("read",)),
            ],
        ),
        (
            "written_2.26.6.log",
            [
                Transport(kind="NET", name="IBext_v9", device=0, options=("GDRDMA",)),
                Transport(kind="P2P", name="IPC"),
                Transport(kind="COLLNET", name="SHARP", device=0, options=("GDRDMA",)),
            ],
        ),
        (
            "written_2.27.7.log",
            [
                Transport(kind="NET", name="IB", device=0, options=("GDRDMA(PCI)",)),
                Transport(
                    kind="NET",
                    name="IB",
                    device=3,
                    proxy_rank=3,
                    options=("GDRDMA(PCI)", "Shared"),
                ),
                Transport(kind="P2P", name="MNNVL"),
                Transport(kind="P2P", name="indirect", options=("3[3]", "read")),
            ],
        ),
        (
            "written_2.30.7.log",
            [
                Transport(kind="NET", name="IB", device=1, options=("GDRDMA", "Shared")),
                Transport(kind="SHM", name="direct"),
            ],
        ),
    ],
)
def test_transports_each_once_in_the_order_of_connecting(name, transports):
    assert list(facts_of(name).transports.values()) == transports


@pytest.mark.parametrize(
    ("transport", "gpu_direct"),
    [
        (Transport(kind="NET", name="IB", device=0, options=("GDRDMA",)), True),
        (Transport(kind="NET", name="IB", device=0, options=("GDRDMA(PCI)", "Shared")), True),
        (Transport(kind="NET", name="IB", device=0, options=("Shared",)), False),
    ],
)
def test_gpu_direct_is_an_option_of_a_connection(transport, gpu_direct):
    assert transport.gpu_direct is gpu_direct
    assert transport.label == "NET/IB"


@pytest.mark.parametrize(
    ("name", "calls"),
    [
        ("written_2.18.6.log", []),
        (
            "written_2.20.5.log",
            [call(None, 4096, "Tree", "LL"), call(None, 67108864, "NVLS", "Simple")],
        ),
        (
            "written_2.23.4.log",
            [
                call("AllGather", 1048576, "Ring", "LL128"),
                call("AllReduce", 1073741824, "NVLSTree", "Simple"),
            ],
        ),
        ("written_2.24.3.log", [call("AllReduce", 8, "Ring", "LL", 2)]),
        ("written_2.26.6.log", [call("AllReduce", 4194304, "CollNetDirect", "Simple", 16)]),
        (
            "written_2.27.7.log",
            [
                call("ReduceScatter", 2097152, "PAT", "Simple", 8),
                call("AllReduce", 268435456, "NVLSTree", "Simple", 16),
            ],
        ),
        (
            "written_2.30.7.log",
            [
                call("AllReduce", 65536, "Symmetric/AllReduce_AGxLL_R", None, 4),
                call("AllGather", 67108864, "CopyEngine"),
                call("AlltoAll", 1048576, "CopyEngine/Hierarchical"),
            ],
        ),
        (
            "written_2.32.3.log",
            [
                call("AllReduce", 1048576, "Ring", "LL128", 8),
                call("AllGather", 8388608, "CopyEngine/Hierarchical"),
            ],
        ),
        ("two_nodes_socket_rank1_2.28.9.log", []),
        (
            "one_node_2.32.3.log",
            [call("AllReduce", 8, "Ring", "LL", 1), call("AllReduce", 2**20, "Ring", "LL", 24)],
        ),
        (
            "alg_selection_2.32.3.log",
            [
                call("AllReduce", 2**20, "Ring", "LL", 24),
                call("AllReduce", 2**20, "Tree", "Simple", 22),
            ],
        ),
        (
            "two_communicators_2.28.9.log",
            [
                call("AllGather", 4, "Ring", "LL", 1),
                call("AllGather", 2**19, "Ring", "Simple", 2),
                call("AllGather", 4, "PAT", "Simple", 1),
                call("AllGather", 2**19, "PAT", "Simple", 2),
            ],
        ),
    ],
)
def test_calls_of_each_release(name, calls):
    assert calls_of(name) == calls


def test_calls_of_the_recorded_run():
    calls = calls_of("one_node_2.28.9.log")

    assert calls[0] == call("AllReduce", 8, "Ring", "LL", 1)
    assert calls[-1] == call("AllReduce", 1073741824, "Ring", "Simple", 24)
    assert call("AllReduce", 262144, "Ring", "LL", 22) in calls


def test_only_the_last_five_warnings_are_kept():
    warn = "node0:100:100 [0] misc/socket.cc:10 NCCL WARN "

    assert parse(f"{warn}try {number}" for number in range(7)).warnings == [
        "try 2",
        "try 3",
        "try 4",
        "try 5",
        "try 6",
    ]


@pytest.mark.parametrize(
    "line",
    [
        INFO + "Channel 00/02 : 0 1",
        INFO + "NET/Socket: Using 4 threads and 2 sockets per thread",
        INFO + "NET/OFI Selected provider is efa",
        INFO + "Pattern of something else",
        INFO + "NCCL_SOCKET_IFNAME set to eth0",
        INFO + "AllReduce: 8 Bytes -> something new",
        INFO,
        "     Function |       LL   |          Tree",
        "text of a program",
        "",
    ],
)
def test_other_lines_say_nothing(line):
    assert parse([line]) == parse([])
