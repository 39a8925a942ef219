import msgspec
import pytest

from collbench.analyze.limit import Limit, wire_limit
from collbench.model import Case, Gpu, GpuLink, Nic, Node, Proof, RankPlace, Topology


def topology(count, kind="NV18", *, name="NVIDIA H200", links=18, rates=None, used=None):
    """One node of ``count`` GPUs, every pair linked alike."""
    rates = rates or [26.562] * count
    gpus = [
        Gpu(
            index=i,
            name=name,
            uuid=f"GPU-{i}",
            pci_bus_id="",
            memory_bytes=1,
            nvlinks=links,
            nvlink_gb_per_s=rate,
        )
        for i, rate in enumerate(rates)
    ]
    pairs = [GpuLink(a=a, b=b, kind=kind) for a in range(count) for b in range(a + 1, count)]
    node = Node(
        name="n", cpu_model="c", cpus=8, numa_nodes=1, memory_bytes=1, gpus=gpus, gpu_links=pairs
    )
    places = [
        RankPlace(rank=rank, node="n", local_rank=rank, gpu=index)
        for rank, index in enumerate(range(count) if used is None else used)
    ]
    return Topology(nodes=[node], ranks=places)


def case(world_size=2, *, backend="nccl", collective="all_reduce", setting=None):
    return Case(
        collective=collective,
        backend=backend,
        dtype="float32",
        redop="sum",
        size_bytes=1024,
        requested_bytes=1024,
        count=256,
        world_size=world_size,
        in_place=True,
        setting=setting or {},
    )


@pytest.mark.parametrize("collective", ["all_reduce", "all_gather", "broadcast", "send_recv"])
def test_two_gpus_cannot_pass_the_links_between_them(collective):
    limit = wire_limit(case(collective=collective), topology(2), {})

    assert limit == Limit(pytest.approx(478.116), "18 NVLinks x 26.6 GB/s")


def test_two_gpus_of_a_mesh_have_the_links_of_their_pair():
    mesh = topology(4, "NV4", name="NVIDIA A100-SXM4-40GB", links=12, rates=[25.0] * 4, used=[1, 3])

    assert wire_limit(case(), mesh, {}) == Limit(100.0, "4 NVLinks x 25.0 GB/s")


def test_one_link_is_one_link():
    bridge = topology(2, "NV1", links=1, rates=[25.0] * 2)

    assert wire_limit(case(), bridge, {}) == Limit(25.0, "1 NVLink x 25.0 GB/s")


def test_the_slower_gpu_sets_the_limit():
    limit = wire_limit(case(), topology(2, rates=[26.0, 20.0]), {})

    assert limit == Limit(360.0, "18 NVLinks x 20.0 GB/s")


def test_more_gpus_that_can_reduce_in_the_switch_have_no_known_limit():
    assert wire_limit(case(4), topology(4), {}) is None
    assert wire_limit(case(4), topology(4), {"NCCL_NVLS_ENABLE": "1"}) is None


@pytest.mark.parametrize(
    ("variables", "setting"),
    [({"NCCL_NVLS_ENABLE": "0"}, {}), ({"NCCL_NVLS_ENABLE": "1"}, {"NCCL_NVLS_ENABLE": "0"})],
    ids=["environment", "the case's setting goes before it"],
)
def test_more_gpus_with_nvls_off_have_the_limit_of_their_links(variables, setting):
    limit = wire_limit(case(4, setting=setting), topology(4), variables)

    assert limit == Limit(pytest.approx(478.116), "18 NVLinks x 26.6 GB/s")


def test_nvls_switched_on_by_the_case_leaves_no_known_limit():
    on = case(4, setting={"NCCL_NVLS_ENABLE": "2"})

    assert wire_limit(on, topology(4), {"NCCL_NVLS_ENABLE": "0"}) is None


@pytest.mark.parametrize("name", ["NVIDIA A100-SXM4-80GB", "NVIDIA A800-SXM4-80GB"])
def test_gpus_older_than_nvls_have_the_limit_of_their_links(name):
    box = topology(8, "NV12", name=name, links=12, rates=[25.0] * 8)

    assert wire_limit(case(8), box, {}) == Limit(300.0, "12 NVLinks x 25.0 GB/s")


def test_more_than_two_gpus_of_a_mesh_have_no_known_limit():
    mesh = topology(4, "NV4", name="NVIDIA A100-SXM4-40GB", links=12, rates=[25.0] * 4)

    assert wire_limit(case(4), mesh, {}) is None


@pytest.mark.parametrize(
    "variables",
    [{"NCCL_P2P_DISABLE": "1"}, {"NCCL_P2P_LEVEL": "LOC"}, {"NCCL_HOSTID": "a"}],
)
def test_data_that_a_variable_takes_off_nvlink_have_no_known_limit(variables):
    assert wire_limit(case(), topology(2), variables) is None


@pytest.mark.parametrize("variables", [{"NCCL_P2P_DISABLE": "0"}, {"NCCL_P2P_LEVEL": "NVL"}])
def test_values_that_leave_data_on_nvlink_change_nothing(variables):
    assert wire_limit(case(), topology(2), variables) == wire_limit(case(), topology(2), {})


def test_no_nvlink_no_known_limit():
    assert wire_limit(case(), topology(2, "SYS", links=0), {}) is None


def test_a_link_whose_rate_is_not_known_gives_no_limit():
    assert wire_limit(case(), topology(2, rates=[26.0, None]), {}) is None


def test_a_single_rank_moves_nothing_and_has_no_limit():
    assert wire_limit(case(1), topology(1), {}) is None


def test_gloo_and_ranks_without_a_gpu_each_have_no_limit():
    assert wire_limit(case(backend="gloo"), topology(2), {}) is None
    assert wire_limit(case(), topology(2, used=[0, 0]), {}) is None


def test_more_than_one_node_has_no_known_limit():
    one = topology(2)
    two = Topology(nodes=[*one.nodes, *one.nodes], ranks=one.ranks)

    assert wire_limit(case(), two, {}) is None


# With a proof of what ran


def proved(algorithm="Ring", *, transports=("P2P/CUMEM",), intra_path="NVL", **facts):
    facts = {"ranks": 2, "nodes": 1, **facts}
    return Proof(
        algorithm=algorithm,
        protocol="Simple",
        transports=list(transports),
        intra_path=intra_path,
        **facts,
    )


@pytest.mark.parametrize(
    ("algorithm", "rate", "text"),
    [
        ("Ring", 478.116, "18 NVLinks x 26.6 GB/s, Ring"),
        ("Tree", 478.116, "18 NVLinks x 26.6 GB/s, Tree"),
        ("NVLS", 478.116 * 14 / 9, "18 NVLinks x 26.6 GB/s x 1.56, NVLS"),
    ],
)
def test_on_one_node_the_bound_is_that_of_the_algorithm_that_ran(algorithm, rate, text):
    limit = wire_limit(case(8), topology(8), {}, proved(algorithm))

    assert limit == Limit(pytest.approx(rate), text)


def test_nvls_of_two_ranks_sends_more_than_a_ring():
    limit = wire_limit(case(2), topology(2), {}, proved("NVLS", transports=()))

    assert limit == Limit(pytest.approx(478.116 * 2 / 3), "18 NVLinks x 26.6 GB/s x 0.667, NVLS")


def test_sends_and_receives_have_no_algorithm_and_the_links():
    limit = wire_limit(case(8, collective="all_to_all"), topology(8), {}, proved(None))

    assert limit == Limit(pytest.approx(478.116), "18 NVLinks x 26.6 GB/s")


def test_an_algorithm_that_is_not_known_has_what_holds_for_all():
    symmetric = proved("Symmetric")

    assert wire_limit(case(8), topology(8), {}, symmetric) is None
    assert wire_limit(case(2), topology(2), {}, symmetric) == wire_limit(case(2), topology(2), {})


@pytest.mark.parametrize(
    "proof",
    [
        proved(transports=["SHM/direct"], intra_path="SYS"),
        proved(transports=["P2P/CUMEM", "SHM/direct"]),
        proved(intra_path="PIX"),
        proved(intra_path="NVB"),
        proved(transports=["NET/Socket", "P2P/CUMEM"]),
    ],
    ids=["shared memory", "part of it", "PCIe", "through another GPU", "network on one node"],
)
def test_data_that_did_not_go_over_nvlink_have_no_known_limit(proof):
    assert wire_limit(case(), topology(2), {}, proof) is None


def test_what_ran_goes_before_what_variables_may_do():
    off = {"NCCL_P2P_DISABLE": "1"}

    assert wire_limit(case(), topology(2), off) is None
    assert wire_limit(case(), topology(2), off, proved()) is not None
    assert wire_limit(case(), topology(2), off, proved(transports=())) is None


def test_a_proof_without_a_log_is_none():
    nothing = Proof(problem="no log", ranks=0)

    assert wire_limit(case(), topology(2), {}, nothing) == wire_limit(case(), topology(2), {})


# Several nodes


def cluster(nodes, gpus=8, *, rate=400.0, kind="NV18", names=None):
    """Nodes of GPUs behind a switch, a network device a GPU."""
    one = topology(gpus, kind).nodes[0]
    nics = [
        Nic(name=name, kind="infiniband", rate_gbit_per_s=rate, state="ACTIVE")
        for name in names or [f"mlx5_{k}" for k in range(gpus)]
    ]
    ethernet = Nic(name="eth0", kind="ethernet", rate_gbit_per_s=25.0, state="up")
    return Topology(
        nodes=[
            msgspec.structs.replace(one, name=f"n{k}", nics=[*nics, ethernet]) for k in range(nodes)
        ],
        ranks=[
            RankPlace(rank=gpus * k + local, node=f"n{k}", local_rank=local, gpu=local)
            for k in range(nodes)
            for local in range(gpus)
        ],
    )


def over_ib(algorithm, nodes, devices=8, **facts):
    facts = {"transports": ["NET/IB", "P2P/CUMEM"], **facts}
    names = [f"mlx5_{k}" for k in range(devices)]
    return proved(algorithm, network="IB", devices=names, nodes=nodes, **facts)


@pytest.mark.parametrize(
    ("collective", "algorithm", "nodes", "rate", "text"),
    [
        ("all_reduce", "Ring", 2, 400.0, "8 NICs x 50.0 GB/s, Ring, 2 nodes"),
        ("all_gather", "Ring", 31, 400.0, "8 NICs x 50.0 GB/s, Ring, 31 nodes"),
        ("all_reduce", "Tree", 4, 387.5, "8 NICs x 50.0 GB/s x 0.969, Tree, 4 nodes"),
        ("all_to_all", None, 2, 93.75, "8 NICs x 50.0 GB/s x 0.234, 2 nodes"),
        # The network would carry 750: the NVLinks inside are less.
        (
            "all_reduce",
            "Tree",
            2,
            478.116 * 15 / 14,
            "18 NVLinks x 26.6 GB/s x 1.07, Tree, 2 nodes",
        ),
        ("all_reduce", "NVLSTree", 2, 750.0, "8 NICs x 50.0 GB/s x 1.88, NVLSTree, 2 nodes"),
    ],
)
def test_several_nodes_have_the_bound_of_the_devices_that_carried_the_data(
    collective, algorithm, nodes, rate, text
):
    asked = case(8 * nodes, collective=collective)

    limit = wire_limit(asked, cluster(nodes), {}, over_ib(algorithm, nodes))

    assert limit == Limit(pytest.approx(rate), text)


def test_only_devices_in_use_count():
    limit = wire_limit(case(16), cluster(2), {}, over_ib("Ring", 2, devices=2))

    assert limit == Limit(100.0, "2 NICs x 50.0 GB/s, Ring, 2 nodes")


def test_a_device_of_two_ports_is_both():
    proof = over_ib("Ring", 2)
    joined = msgspec.structs.replace(proof, devices=["mlx5_0+mlx5_1"])

    limit = wire_limit(case(16), cluster(2), {}, joined)

    assert limit == Limit(100.0, "2 NICs x 50.0 GB/s, Ring, 2 nodes")


def test_sockets_have_the_rate_of_their_interface():
    proof = over_ib("Ring", 2, transports=["NET/Socket"])
    sockets = msgspec.structs.replace(proof, devices=["eth0"])

    limit = wire_limit(case(2), cluster(2, 1), {}, sockets)

    assert limit == Limit(pytest.approx(3.125), "1 NIC x 3.1 GB/s, Ring, 2 nodes")


def test_the_network_bounds_where_the_links_inside_are_not_known():
    limit = wire_limit(case(16), cluster(2, kind="SYS"), {}, over_ib("Tree", 2))

    assert limit == Limit(750.0, "8 NICs x 50.0 GB/s x 1.88, Tree, 2 nodes")


@pytest.mark.parametrize(
    ("where", "proof"),
    [
        (cluster(2), None),
        (cluster(2), over_ib("CollNetDirect", 2)),
        (cluster(2), over_ib("Ring", 1)),
        (cluster(2, rate=None), over_ib("Ring", 2)),
        (cluster(2, names=["ib0"]), over_ib("Ring", 2)),
        (cluster(2), over_ib("Ring", 2, devices=0)),
    ],
    ids=[
        "no proof",
        "an algorithm without a bound",
        "NCCL saw another number of nodes",
        "no rate",
        "devices that the topology does not know",
        "no device named",
    ],
)
def test_several_nodes_have_no_limit_where_a_fact_is_missing(where, proof):
    assert wire_limit(case(16), where, {}, proof) is None


def test_nodes_with_different_numbers_of_ranks_have_no_limit():
    uneven = cluster(2)
    uneven = msgspec.structs.replace(uneven, ranks=uneven.ranks[:12])

    assert wire_limit(case(12), uneven, {}, over_ib("Ring", 2)) is None


def test_emulated_nodes_have_no_limit():
    emulated = msgspec.structs.replace(case(16), emulated=True)

    assert wire_limit(emulated, cluster(2), {}, over_ib("Ring", 2)) is None
