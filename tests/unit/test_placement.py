import re

import pytest

from collbench.engine.placement import GpuMissing, Slots, Wanted, choose_slots
from collbench.errors import NothingMeasured, UsageError
from collbench.model import Gpu, RankPlace
from collbench.probe.gpu import GpuSurvey

PCI = ("0000:19:00.0", "0000:3b:00.0")
CORES = frozenset(range(8))
NUMA = {0: frozenset(range(4)), 1: frozenset(range(4, 8))}
NOTHING = GpuSurvey(error="NVML: NVML Shared Library Not Found")
NO_DRIVER = GpuSurvey(on_pci=PCI, error="NVML: Driver Not Loaded")


def gpu(index, numa=0):
    return Gpu(
        index=index,
        name="NVIDIA H200",
        uuid=f"GPU-{index}",
        pci_bus_id=PCI[index % 2],
        memory_bytes=1,
        numa_node=numa,
    )


TWO_GPUS = GpuSurvey(on_pci=PCI, gpus=(gpu(0, 0), gpu(1, 1)), driver="580.95.05")


def choose(survey, environ=None, cores=CORES, numa=None, **wanted):
    return choose_slots(Wanted(**wanted), survey, environ or {}, cores, numa or NUMA)


def says(text):
    return f"^{re.escape(text)}$"


def test_a_machine_without_a_gpu_runs_two_gloo_ranks_and_says_so():
    assert choose(NOTHING) == Slots(
        backend="gloo",
        world_size=2,
        cpusets=("0-3", "4-7"),
        note="NO GPU: CPU loopback over Gloo, 2 ranks; says nothing about a cluster",
    )


def test_a_machine_with_gpus_runs_nccl_over_all_of_them():
    assert choose(TWO_GPUS) == Slots(
        backend="nccl", world_size=2, gpus=TWO_GPUS.gpus, cpusets=("0-3", "4-7")
    )


def test_gpus_that_sysfs_does_not_show_are_used_all_the_same():
    hidden = GpuSurvey(gpus=TWO_GPUS.gpus, driver="580.95.05")

    assert choose(hidden).backend == "nccl"


def test_gloo_on_a_machine_with_gpus_says_that_they_are_not_used():
    slots = choose(TWO_GPUS, backend="gloo", ranks=4)

    assert (slots.backend, slots.world_size, slots.gpus) == ("gloo", 4, ())
    assert slots.note == (
        "GPUs NOT USED, as asked: CPU loopback over Gloo, 4 ranks; says nothing about a cluster"
    )


def test_gloo_as_asked_runs_where_the_gpus_cannot_be_opened():
    assert choose(NO_DRIVER, backend="gloo").backend == "gloo"


def test_one_gloo_rank_is_one_rank():
    assert choose(NOTHING, ranks=1).note == (
        "NO GPU: CPU loopback over Gloo, 1 rank; says nothing about a cluster"
    )


def test_gpus_on_pci_without_a_driver_are_an_error_that_names_them():
    with pytest.raises(
        NothingMeasured,
        match=says(
            "a GPU is present but none can be used: on PCI: 0000:19:00.0, 0000:3b:00.0;"
            " the NVIDIA driver is not loaded; NVML: Driver Not Loaded;"
            " look at nvidia-smi on this node; to measure the CPU on purpose: --backend gloo"
        ),
    ):
        choose(NO_DRIVER)


@pytest.mark.parametrize("backend", ["auto", "nccl"])
def test_gpus_hidden_by_cuda_visible_devices_are_an_error_that_says_so(backend):
    with pytest.raises(
        NothingMeasured,
        match=says(
            "a GPU is present but none can be used: on PCI: 0000:19:00.0, 0000:3b:00.0;"
            " CUDA_VISIBLE_DEVICES='-1' leaves 0 of 2;"
            " look at nvidia-smi on this node; to measure the CPU on purpose: --backend gloo"
        ),
    ):
        choose(TWO_GPUS, {"CUDA_VISIBLE_DEVICES": "-1"}, backend=backend)


def test_hidden_gpus_are_no_reason_for_gloo_where_sysfs_shows_none():
    with pytest.raises(NothingMeasured):
        choose(GpuSurvey(gpus=TWO_GPUS.gpus, driver="1"), {"CUDA_VISIBLE_DEVICES": ""})


def test_a_promised_gpu_that_is_not_there_is_an_error_that_names_the_promise():
    with pytest.raises(
        GpuMissing,
        match=says(
            "a GPU is promised but none can be used: on PCI: none;"
            " NVML: NVML Shared Library Not Found; promised by SLURM_GPUS_ON_NODE=8;"
            " look at nvidia-smi on this node; to measure the CPU on purpose: --backend gloo"
        ),
    ):
        choose(NOTHING, {"SLURM_GPUS_ON_NODE": "8"})


def test_fewer_gpus_than_expected_refuse_and_are_not_left_out():
    with pytest.raises(NothingMeasured, match=r"^--expect-gpus 3, but 2 can be used") as problem:
        choose(TWO_GPUS, expect_gpus=3)
    assert not isinstance(problem.value, GpuMissing)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("CUDA_VISIBLE_DEVICES", "0"),
        ("CUDA_VISIBLE_DEVICES", "GPU-1"),
        ("SLURM_JOB_GPUS", "0"),
        ("SLURM_STEP_GPUS", "0,1"),
        ("SLURM_GPUS", "h100:8"),
        ("NVIDIA_VISIBLE_DEVICES", "all"),
    ],
)
def test_each_variable_of_a_launcher_can_promise_a_gpu(name, value):
    with pytest.raises(NothingMeasured, match=f"promised by {name}={value};"):
        choose(NOTHING, {name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("CUDA_VISIBLE_DEVICES", ""),
        ("CUDA_VISIBLE_DEVICES", "-1"),
        ("CUDA_VISIBLE_DEVICES", "NoDevFiles"),
        ("SLURM_GPUS_ON_NODE", "0"),
        ("SLURM_GPUS", "0"),
        ("NVIDIA_VISIBLE_DEVICES", "void"),
        ("NVIDIA_VISIBLE_DEVICES", "none"),
        ("NVIDIA_VISIBLE_DEVICES", ""),
    ],
)
def test_a_variable_that_names_no_gpu_promises_none(name, value):
    assert choose(NOTHING, {name: value}).backend == "gloo"


def test_a_broken_gpu_is_not_left_out_in_silence():
    partial = GpuSurvey(
        on_pci=PCI, gpus=(gpu(0),), driver="1", error="NVML does not open GPU 1: GPU is lost"
    )
    with pytest.raises(
        NothingMeasured,
        match=says(
            "NVML does not open GPU 1: GPU is lost, while 1 other opens; to measure without it"
            " name those by UUID in CUDA_VISIBLE_DEVICES"
        ),
    ):
        choose(partial)

    assert choose(partial, {"CUDA_VISIBLE_DEVICES": "GPU-0"}).gpus == (gpu(0),)


def test_another_number_of_gpus_than_expected_is_an_error_with_both_numbers():
    with pytest.raises(
        NothingMeasured,
        match=says(
            "--expect-gpus 8, but 2 can be used: on PCI: 0000:19:00.0, 0000:3b:00.0;"
            " nvidia-smi on this node says which open, the job's request which it has"
        ),
    ):
        choose(TWO_GPUS, expect_gpus=8)


def test_the_number_of_gpus_that_is_expected_passes():
    assert choose(TWO_GPUS, expect_gpus=2).world_size == 2
    assert choose(NOTHING, expect_gpus=0).backend == "gloo"


@pytest.mark.parametrize(
    ("wanted", "asked"), [({"backend": "nccl"}, "--backend nccl"), ({"gpus": 2}, "--gpus 2")]
)
def test_what_needs_a_gpu_is_refused_without_one(wanted, asked):
    with pytest.raises(
        UsageError,
        match=says(
            f"{asked} needs an NVIDIA GPU and none is on PCI here; leave it out to measure the"
            " CPU over Gloo"
        ),
    ):
        choose(NOTHING, **wanted)


@pytest.mark.parametrize(("option", "wanted"), [("--ranks", "ranks"), ("--gpus", "gpus")])
def test_more_than_the_gpus_here_is_refused(option, wanted):
    with pytest.raises(
        UsageError,
        match=says(
            f"{option} 3 is more than the GPUs that can be used here (2), and NCCL takes one rank"
            " a GPU; ask for at most 2"
        ),
    ):
        choose(TWO_GPUS, **{wanted: 3})


@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        ({"ranks": 0}, "--ranks 0 is too few; it must be at least 1"),
        ({"ranks": -1}, "--ranks -1 is too few; it must be at least 1"),
        ({"gpus": 0}, "--gpus 0 is too few; it must be at least 1"),
        ({"expect_gpus": -1}, "--expect-gpus -1 is too few; it must be at least 0"),
        (
            {"gpus": 2, "backend": "gloo"},
            (
                "--gpus 2 and --backend gloo exclude each other: Gloo runs on the CPU; leave out"
                " one of them (--ranks sets the number of ranks)"
            ),
        ),
        (
            {"gpus": 1, "ranks": 2},
            "--gpus 1 and --ranks 2 differ, and NCCL takes one rank a GPU; leave out one of them",
        ),
    ],
)
def test_what_cannot_be_on_any_machine_is_refused(wanted, text):
    with pytest.raises(UsageError, match=says(text)):
        choose(TWO_GPUS, **wanted)


@pytest.mark.parametrize("wanted", [{"gpus": 1}, {"ranks": 1}])
def test_fewer_gpus_than_there_are_take_the_first(wanted):
    slots = choose(TWO_GPUS, **wanted)

    assert (slots.world_size, slots.gpus, slots.cpusets) == (1, (gpu(0, 0),), ("0-3",))


def test_ranks_follow_the_order_of_cuda_visible_devices():
    slots = choose(TWO_GPUS, {"CUDA_VISIBLE_DEVICES": "1,0"})

    assert [place.gpu for place in slots.places("n")] == [1, 0]
    assert slots.cpusets == ("4-7", "0-3")


def test_gpus_of_one_numa_node_share_its_usable_cores():
    survey = GpuSurvey(on_pci=PCI, gpus=(gpu(0, 1), gpu(1, 1)), driver="1")

    assert choose(survey, cores=frozenset({0, 1, 4, 5, 6})).cpusets == ("4", "5")


@pytest.mark.parametrize("numa_node", [None, 7])
def test_gpus_of_no_known_numa_node_share_all_cores(numa_node):
    survey = GpuSurvey(on_pci=PCI, gpus=(gpu(0, numa_node), gpu(1, numa_node)), driver="1")

    assert choose(survey).cpusets == ("0-3", "4-7")


def test_a_gpu_whose_numa_node_has_no_usable_core_takes_the_cores_there_are():
    survey = GpuSurvey(on_pci=PCI[:1], gpus=(gpu(0, 1),), driver="1")

    assert choose(survey, cores=frozenset({0, 1})).cpusets == ("0-1",)


def test_more_ranks_than_cores_are_not_bound():
    assert choose(NOTHING, ranks=3, cores=frozenset({0, 1})).cpusets == ("", "", "")


def test_places_say_where_each_rank_runs():
    on_gpus = choose(TWO_GPUS).places("node1")
    unbound = Slots(backend="simulated", world_size=1).places("node1")

    assert on_gpus == [
        RankPlace(rank=0, node="node1", local_rank=0, gpu=0, cpuset="0-3"),
        RankPlace(rank=1, node="node1", local_rank=1, gpu=1, cpuset="4-7"),
    ]
    assert unbound == [RankPlace(rank=0, node="node1", local_rank=0)]


FOUR_GPUS = GpuSurvey(
    on_pci=PCI, gpus=tuple(gpu(index, index // 2) for index in range(4)), driver="580.95.05"
)


@pytest.mark.parametrize(
    ("survey", "wanted", "gpus", "hosts"),
    [
        (TWO_GPUS, {"fake_hosts": 8}, [0, 1] * 4, [0, 1, 2, 3, 4, 5, 6, 7]),
        (TWO_GPUS, {"fake_hosts": 2}, [0, 1], [0, 1]),
        (TWO_GPUS, {"fake_hosts": 2, "ranks": 4}, [0, 1, 0, 1], [0, 0, 1, 1]),
        (TWO_GPUS, {"fake_hosts": 3}, [0, 1, 0], [0, 1, 2]),
        (TWO_GPUS, {"fake_hosts": 2, "gpus": 1}, [0, 0], [0, 1]),
        (FOUR_GPUS, {"fake_hosts": 2}, [0, 1, 2, 3], [0, 0, 1, 1]),
        (FOUR_GPUS, {"fake_hosts": 2, "gpus": 3, "ranks": 6}, [0, 1, 2] * 2, [0, 0, 0, 1, 1, 1]),
    ],
    ids=[
        "8 on 2 GPUs",
        "2 on 2",
        "2 of 2 ranks",
        "3 on 2",
        "2 on 1 of 2",
        "2 on 4",
        "2 of 3 ranks",
    ],
)
def test_fake_hosts_have_as_many_ranks_each_on_gpus_of_their_own(survey, wanted, gpus, hosts):
    slots = choose(survey, **wanted)

    assert (slots.backend, slots.world_size) == ("nccl", len(hosts))
    assert [gpu.index for gpu in slots.gpus] == gpus
    assert slots.fake_hosts == tuple(f"fake-host-{host}" for host in hosts)
    assert slots.hosts == max(hosts) + 1
    pairs = list(zip(slots.fake_hosts, gpus, strict=True))
    assert len(set(pairs)) == len(pairs), "NCCL refuses a GPU twice on one host"


def test_fake_hosts_are_said_before_everything_else():
    assert choose(TWO_GPUS, fake_hosts=8).note == (
        "EMULATED: 8 fake hosts on one machine, 8 ranks on 2 x NVIDIA H200; exercises the network"
        " code, says nothing about a network"
    )


def test_a_single_fake_host_is_for_one_of_several_processes():
    slots = choose(TWO_GPUS, {"CUDA_VISIBLE_DEVICES": "1"}, fake_hosts=1, alone=False)

    assert [(gpu.index, host) for gpu, host in zip(slots.gpus, slots.fake_hosts, strict=True)] == [
        (1, "fake-host-0")
    ]
    with pytest.raises(UsageError, match="--fake-hosts 1 is what there is; emulate 2 or more"):
        choose(TWO_GPUS, fake_hosts=1)


def test_ranks_that_share_a_gpu_know_its_number():
    shared = choose(TWO_GPUS, {"CUDA_VISIBLE_DEVICES": "1,0"}, fake_hosts=3)

    assert [shared.cuda_index(rank) for rank in range(3)] == [0, 1, 0]
    assert [gpu.index for gpu in shared.gpus] == [1, 0, 1]


def test_without_fake_hosts_every_rank_has_its_gpu_or_all_share_the_cpu():
    on_gpus, on_cpu = choose(TWO_GPUS), choose(NOTHING, ranks=3)

    assert [on_gpus.cuda_index(rank) for rank in range(2)] == [0, 1]
    assert on_cpu.cuda_index(2) is None
    assert (on_gpus.hosts, on_cpu.hosts) == (1, 1)


def test_places_carry_the_fake_host():
    places = choose(TWO_GPUS, fake_hosts=2).places("node1")

    assert places == [
        RankPlace(
            rank=0, node="node1", local_rank=0, gpu=0, cpuset="0-3", fake_host="node1-fake-host-0"
        ),
        RankPlace(
            rank=1, node="node1", local_rank=1, gpu=1, cpuset="4-7", fake_host="node1-fake-host-1"
        ),
    ]


@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        (
            {"fake_hosts": 2, "ranks": 3},
            (
                "3 ranks on 2 fake hosts over 2 GPUs do not go: every host has the same number of"
                " ranks, each on a GPU of its own; allowed: --ranks 2, 4"
            ),
        ),
        (
            {"fake_hosts": 2, "ranks": 6},
            (
                "6 ranks on 2 fake hosts over 2 GPUs do not go: every host has the same number of"
                " ranks, each on a GPU of its own; allowed: --ranks 2, 4"
            ),
        ),
        (
            {"fake_hosts": 4, "ranks": 2, "gpus": 1},
            (
                "2 ranks on 4 fake hosts over 1 GPUs do not go: every host has the same number of"
                " ranks, each on a GPU of its own; allowed: --ranks 4"
            ),
        ),
        (
            {"fake_hosts": 2, "gpus": 3},
            "--gpus 3 is more than the GPUs that can be used here (2); ask for at most 2",
        ),
    ],
    ids=["3 ranks", "3 ranks a host", "fewer than hosts", "more GPUs"],
)
def test_ranks_that_fake_hosts_cannot_share_evenly_are_refused(wanted, text):
    with pytest.raises(UsageError, match=says(text)):
        choose(TWO_GPUS, **wanted)


@pytest.mark.parametrize("survey", [NOTHING, TWO_GPUS], ids=["no GPU", "as asked"])
def test_gloo_has_no_fake_hosts(survey):
    with pytest.raises(
        UsageError,
        match=says(
            "--fake-hosts 2 works through NCCL_HOSTID, which Gloo does not know; it needs an"
            " NVIDIA GPU"
        ),
    ):
        choose(survey, backend="gloo", fake_hosts=2)


# One of several processes


def test_a_process_takes_its_share_of_the_gpus_that_it_sees():
    slots = choose_slots(Wanted(), TWO_GPUS, {}, CORES, NUMA, lambda visible: visible[1:])

    assert [gpu.index for gpu in slots.gpus] == [1]
    assert (slots.world_size, slots.cuda_index(0)) == (1, 0)


def test_a_process_without_a_share_of_the_gpus_is_an_error_and_no_stand_in():
    with pytest.raises(NothingMeasured, match="a GPU is present but none can be used"):
        choose_slots(Wanted(), TWO_GPUS, {}, CORES, NUMA, lambda visible: ())


def test_on_a_cpu_the_number_of_ranks_that_nobody_gives_is_the_caller_s():
    assert choose(NOTHING, default_ranks=1).world_size == 1
    assert choose(NOTHING, default_ranks=1, ranks=4).world_size == 4
