import pytest

from collbench.analyze.limit import Limit, wire_limit
from collbench.model import Case, Gpu, GpuLink, Node, RankPlace, Topology


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
