"""Which rank is where."""

from __future__ import annotations

import pytest

from collbench.engine.placement import Slots
from collbench.engine.roster import berths_of
from collbench.engine.seats import Post
from collbench.model import Gpu


def gpu(index: int) -> Gpu:
    return Gpu(index=index, name="NVIDIA H200", uuid=f"GPU-{index}", pci_bus_id="", memory_bytes=1)


def post(node: str) -> Post:
    return Post(node, f"address of {node}", lambda order: None)


def test_ranks_count_over_stations_and_local_ranks_over_those_of_a_node():
    offers = [Slots(backend="gloo", world_size=ranks) for ranks in (2, 1, 2)]
    posts = [post("a"), post("a"), post("b")]
    berths = berths_of(offers, posts)

    assert [(b.rank, b.post.node, b.local_rank) for b in berths] == [
        (0, "a", 0),
        (1, "a", 1),
        (2, "a", 2),
        (3, "b", 0),
        (4, "b", 1),
    ]
    assert [berth.post for berth in berths] == [posts[0]] * 2 + [posts[1]] + [posts[2]] * 2


def test_on_a_cpu_no_rank_has_a_gpu_and_all_of_a_station_share_the_device():
    berths = berths_of([Slots(backend="gloo", world_size=2)], [post("a")])

    found = [(b.gpu, b.cuda_index, b.cpuset, b.ranks_on_device, b.fake_host) for b in berths]
    assert found == [(None, None, "", 2, None)] * 2


def test_gpus_have_the_node_s_number_and_that_of_cuda_in_their_process():
    first = Slots(backend="nccl", world_size=2, gpus=(gpu(0), gpu(1)), cpusets=("0-3", "4-7"))
    second = Slots(backend="nccl", world_size=2, gpus=(gpu(2), gpu(3)), cpusets=("8-11", "12-15"))
    berths = berths_of([first, second], [post("a"), post("a")])

    assert [(b.gpu, b.cuda_index, b.cpuset, b.local_rank, b.ranks_on_device) for b in berths] == [
        (0, 0, "0-3", 0, 1),
        (1, 1, "4-7", 1, 1),
        (2, 0, "8-11", 2, 1),
        (3, 1, "12-15", 3, 1),
    ]


def test_fake_hosts_may_share_a_gpu():
    offer = Slots(
        backend="nccl",
        world_size=2,
        gpus=(gpu(5), gpu(5)),
        fake_hosts=("fake-host-0", "fake-host-1"),
    )
    berths = berths_of([offer], [post("a")])

    assert [(b.gpu, b.cuda_index, b.ranks_on_device, b.fake_host) for b in berths] == [
        (5, 0, 2, "a-fake-host-0"),
        (5, 0, 2, "a-fake-host-1"),
    ]


def test_fake_hosts_of_several_stations_differ_and_share_gpus():
    offers = [
        Slots(backend="nccl", world_size=1, gpus=(gpu(index % 2),), fake_hosts=("fake-host-0",))
        for index in range(4)
    ]
    berths = berths_of(offers, [post(node) for node in "abcd"])

    assert [(b.gpu, b.cuda_index, b.ranks_on_device, b.fake_host) for b in berths] == [
        (0, 0, 2, "a-fake-host-0"),
        (1, 0, 2, "b-fake-host-0"),
        (0, 0, 2, "c-fake-host-0"),
        (1, 0, 2, "d-fake-host-0"),
    ]


def test_all_stations_of_a_node_share_its_cpu():
    offers = [Slots(backend="gloo", world_size=1) for _ in range(3)]
    berths = berths_of(offers, [post("a"), post("a"), post("b")])

    assert [berth.ranks_on_device for berth in berths] == [2, 2, 1]


def test_an_offer_without_a_post_is_an_error():
    with pytest.raises(ValueError, match="shorter"):
        berths_of([Slots(backend="gloo", world_size=1)], [])
