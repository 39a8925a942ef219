from types import SimpleNamespace

import pytest

from collbench.model import Gpu, GpuLink
from collbench.probe.gpu import GpuCounters, GpuSurvey, GpuWatch, survey_gpus, visible_gpus

ADDRESSES = ("0000:19:00.0", "0000:3b:00.0", "0000:9a:00.0")
GPU, NPU, SWITCH = 0, 1, 2
MS = 1_000_000


class FakeError(Exception):
    """NVML's error."""


class FakeNvml:
    """A ``pynvml`` of so many GPUs; whatever ``unsupported`` names raises.

    ``ends`` is, for each GPU, what its active NVLinks end at: (device type, PCI address).
    """

    NVMLError = FakeError
    NVML_NVLINK_MAX_LINKS = 36
    NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON = 90
    NVML_FI_DEV_NVLINK_GET_SPEED = 164
    NVML_NVLINK_DEVICE_TYPE_GPU = GPU
    NVML_NVLINK_DEVICE_TYPE_IBMNPU = NPU
    NVML_CLOCK_SM = 1
    NVML_PERF_POLICY_POWER = 0
    NVML_PERF_POLICY_THERMAL = 1
    NVML_MEMORY_ERROR_TYPE_UNCORRECTED = 1
    NVML_VOLATILE_ECC = 0

    def __init__(self, ends=(), *, unsupported=(), no_init=None, lost=None, level=50):
        self.ends, self.unsupported = ends, set(unsupported)
        self.no_init, self.lost, self.level = no_init, lost, level
        self.opened = 0
        self.speeds_mb_per_s = {(164, 0): 26562}
        self.violations_ns = {0: 0, 1: 0}
        self.ecc_errors = 0
        self.sm_clock_mhz = 1980

    def __getattribute__(self, name):
        if name.startswith("nvml") and name in super().__getattribute__("unsupported"):
            return self._refuse
        return super().__getattribute__(name)

    def _refuse(self, *arguments):
        raise FakeError("Not Supported")

    def nvmlInit(self):  # noqa: N802
        if self.no_init:
            raise FakeError(self.no_init)
        self.opened += 1

    def nvmlShutdown(self):  # noqa: N802
        self.opened -= 1

    def nvmlSystemGetDriverVersion(self):  # noqa: N802
        return "580.159.04"

    def nvmlDeviceGetCount(self):  # noqa: N802
        return len(self.ends)

    def nvmlDeviceGetHandleByIndex(self, index):  # noqa: N802
        if index == self.lost:
            raise FakeError("GPU is lost")
        return index

    def nvmlDeviceGetPciInfo(self, handle):  # noqa: N802
        return SimpleNamespace(busId=f"0000{ADDRESSES[handle].upper()}")

    def nvmlDeviceGetName(self, handle):  # noqa: N802
        return b"NVIDIA H200"

    def nvmlDeviceGetCudaComputeCapability(self, handle):  # noqa: N802
        return (9, 0)

    def nvmlDeviceGetUUID(self, handle):  # noqa: N802
        return f"GPU-{handle}aaa"

    def nvmlDeviceGetMemoryInfo(self, handle):  # noqa: N802
        return SimpleNamespace(total=150 * 2**30)

    def nvmlDeviceGetEccMode(self, handle):  # noqa: N802
        return [1, 1]

    def nvmlDeviceGetMigMode(self, handle):  # noqa: N802
        return [0, 0]

    def nvmlDeviceGetPowerManagementLimit(self, handle):  # noqa: N802
        return 700_000

    def nvmlDeviceGetMaxClockInfo(self, handle, clock):  # noqa: N802
        return {self.NVML_CLOCK_SM: 1980}[clock]

    def nvmlDeviceGetNvLinkState(self, handle, link):  # noqa: N802
        if link >= 18:
            raise FakeError("Invalid Argument")
        return int(link < len(self.ends[handle]))

    def nvmlDeviceGetNvLinkRemoteDeviceType(self, handle, link):  # noqa: N802
        return self.ends[handle][link][0]

    def nvmlDeviceGetNvLinkRemotePciInfo(self, handle, link):  # noqa: N802
        return SimpleNamespace(busId=self.ends[handle][link][1])

    def nvmlDeviceGetFieldValues(self, handle, fields):  # noqa: N802
        speeds = [self.speeds_mb_per_s.get(wanted) for wanted in fields]
        return [
            SimpleNamespace(nvmlReturn=3 * (mb is None), value=SimpleNamespace(uiVal=mb or 0))
            for mb in speeds
        ]

    def nvmlDeviceGetTopologyCommonAncestor(self, a, b):  # noqa: N802
        return self.level

    def nvmlDeviceGetViolationStatus(self, handle, policy):  # noqa: N802
        return SimpleNamespace(violationTime=self.violations_ns[policy])

    def nvmlDeviceGetTotalEccErrors(self, handle, kind, counter):  # noqa: N802
        return self.ecc_errors

    def nvmlDeviceGetClockInfo(self, handle, clock):  # noqa: N802
        return self.sm_clock_mhz


def switched(count):
    return [(SWITCH, "00000000:C1:00.0")] * count


def to_gpu(index, count):
    return [(GPU, f"0000{ADDRESSES[index].upper()}")] * count


def pci_device(root, address, *, vendor="0x10de", kind="0x030200", numa=0):
    folder = root / "sys/bus/pci/devices" / address
    folder.mkdir(parents=True)
    for name, text in (("vendor", vendor), ("class", kind), ("numa_node", numa)):
        (folder / name).write_text(f"{text}\n")


@pytest.fixture
def root(tmp_path):
    """A machine with three GPUs, a switch, another maker's display and an NVIDIA audio device."""
    for numa, address in enumerate(ADDRESSES):
        pci_device(tmp_path, address, numa=numa)
    pci_device(tmp_path, "0000:c1:00.0", kind="0x068000")
    pci_device(tmp_path, "0000:02:00.0", vendor="0x1a03", kind="0x030000")
    pci_device(tmp_path, "0000:19:00.1", kind="0x040300")
    return tmp_path


def gpus(count):
    return tuple(
        Gpu(index=i, name="NVIDIA H200", uuid=f"GPU-{i}aaa", pci_bus_id="", memory_bytes=1)
        for i in range(count)
    )


def indices(found):
    return [gpu.index for gpu in found]


def test_two_gpus_behind_a_switch_are_surveyed_in_full(root):
    nvml = FakeNvml([switched(18), switched(18)])

    found = survey_gpus(root, nvml)

    assert found.gpus[1] == Gpu(
        index=1,
        name="NVIDIA H200",
        uuid="GPU-1aaa",
        pci_bus_id="0000:3b:00.0",
        memory_bytes=150 * 2**30,
        numa_node=1,
        max_sm_clock_mhz=1980,
        power_limit_w=700.0,
        ecc=True,
        mig=False,
        nvlinks=18,
        nvlink_gb_per_s=26.562,
        compute_capability="9.0",
    )
    assert len(found.gpus) == 2
    assert found.links == (GpuLink(a=0, b=1, kind="NV18"),)
    assert (found.on_pci, found.driver, found.error) == (ADDRESSES, "580.159.04", None)
    assert nvml.opened == 0


def test_a_machine_without_nvml_says_why_and_still_what_is_on_pci(root):
    found = survey_gpus(root, FakeNvml(no_init="Driver Not Loaded"))

    assert found == GpuSurvey(on_pci=ADDRESSES, error="NVML: Driver Not Loaded")


def test_an_error_after_the_start_is_said_and_nvml_is_closed(root):
    nvml = FakeNvml([[]], unsupported=["nvmlDeviceGetCount"])

    found = survey_gpus(root, nvml)

    assert found == GpuSurvey(on_pci=ADDRESSES, driver="580.159.04", error="NVML: Not Supported")
    assert nvml.opened == 0


def test_a_lost_gpu_is_named_and_the_others_are_kept(root):
    found = survey_gpus(root, FakeNvml([switched(4)] * 3, lost=1))

    assert indices(found.gpus) == [0, 2]
    assert found.links == (GpuLink(a=0, b=2, kind="NV4"),)
    assert found.error == "NVML does not open GPU 1: GPU is lost"


def test_what_a_gpu_does_not_support_stays_unknown(root):
    unsupported = [
        "nvmlDeviceGetMemoryInfo",
        "nvmlDeviceGetEccMode",
        "nvmlDeviceGetMigMode",
        "nvmlDeviceGetPowerManagementLimit",
        "nvmlDeviceGetMaxClockInfo",
        "nvmlDeviceGetCudaComputeCapability",
        "nvmlDeviceGetNvLinkState",
        "nvmlDeviceGetTopologyCommonAncestor",
    ]

    found = survey_gpus(root, FakeNvml([switched(2)] * 2, unsupported=unsupported))

    gpu = found.gpus[0]
    assert (gpu.memory_bytes, gpu.ecc, gpu.mig) == (0, None, None)
    assert (gpu.power_limit_w, gpu.max_sm_clock_mhz) == (None, None)
    assert gpu.compute_capability is None
    assert (gpu.nvlinks, gpu.nvlink_gb_per_s) == (0, None)
    assert found.links == (GpuLink(a=0, b=1, kind="?"),)
    assert found.error is None


@pytest.mark.parametrize(
    ("speeds_mb_per_s", "gb_per_s"),
    [({90: 25781}, 25.781), ({90: 0, (164, 0): 26562}, 26.562), ({(164, 0): 0}, None), ({}, None)],
    ids=["older GPUs: the common field", "Hopper: by link", "zero", "neither"],
)
def test_the_rate_of_a_link_is_read_from_the_field_that_answers(root, speeds_mb_per_s, gb_per_s):
    nvml = FakeNvml([switched(2)])
    nvml.speeds_mb_per_s = speeds_mb_per_s

    assert survey_gpus(root, nvml).gpus[0].nvlink_gb_per_s == gb_per_s


def test_a_link_rate_that_cannot_be_asked_for_is_none(root):
    nvml = FakeNvml([switched(2)], unsupported=["nvmlDeviceGetFieldValues"])

    assert survey_gpus(root, nvml).gpus[0].nvlink_gb_per_s is None


def test_a_mesh_has_the_width_of_each_pair(root):
    ends = [to_gpu(1, 2), [*to_gpu(0, 2), *to_gpu(2, 1)], to_gpu(1, 1)]

    found = survey_gpus(root, FakeNvml(ends, level=50))

    assert found.links == (
        GpuLink(a=0, b=1, kind="NV2"),
        GpuLink(a=0, b=2, kind="SYS"),
        GpuLink(a=1, b=2, kind="NV1"),
    )


def test_links_to_a_gpu_that_this_container_does_not_see_reach_no_other(root):
    elsewhere = [(GPU, "00000000:DD:00.0")] * 4

    found = survey_gpus(root, FakeNvml([elsewhere, elsewhere], level=40))

    assert found.links == (GpuLink(a=0, b=1, kind="NODE"),)


def test_behind_a_switch_the_gpu_with_fewer_active_links_sets_the_width(root):
    found = survey_gpus(root, FakeNvml([switched(18), switched(17)]))

    assert found.links == (GpuLink(a=0, b=1, kind="NV17"),)


def test_where_the_remote_kind_is_not_told_what_is_no_gpu_of_the_machine_is_a_switch(root):
    hidden = ["nvmlDeviceGetNvLinkRemoteDeviceType"]
    direct = [to_gpu(1, 3), to_gpu(0, 3)]

    through = survey_gpus(root, FakeNvml([switched(6)] * 2, unsupported=hidden))
    straight = survey_gpus(root, FakeNvml(direct, unsupported=hidden))

    assert through.links[0].kind == "NV6"
    assert straight.links[0].kind == "NV3"


@pytest.mark.parametrize("kind", [GPU, 255])
def test_a_remote_address_of_all_f_in_a_virtual_machine_is_a_switch(root, kind):
    ends = [[(kind, "FFFFFFFF:FF:FF.F")] * 18] * 2

    assert survey_gpus(root, FakeNvml(ends)).links[0].kind == "NV18"


def test_where_nothing_is_told_of_the_remote_end_it_is_a_switch(root):
    hidden = ["nvmlDeviceGetNvLinkRemoteDeviceType", "nvmlDeviceGetNvLinkRemotePciInfo"]

    found = survey_gpus(root, FakeNvml([to_gpu(1, 3), to_gpu(0, 3)], unsupported=hidden))

    assert found.links[0].kind == "NV3"


@pytest.mark.parametrize(
    ("level", "kind"), [(10, "PIX"), (20, "PXB"), (30, "PHB"), (40, "NODE"), (50, "SYS")]
)
def test_without_nvlink_the_pci_topology_says_how_far_two_gpus_are(root, level, kind):
    assert survey_gpus(root, FakeNvml([[], []], level=level)).links[0].kind == kind


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("0,1,2", [0, 1, 2]),
        ("2, 0", [2, 0]),
        ("GPU-1", [1]),
        ("GPU-2aaa,GPU-0aaa", [2, 0]),
        ("", []),
        ("-1", []),
        ("NoDevFiles", []),
        ("0,-1,2", [0]),
        ("0,7,2", [0]),
        ("GPU-", []),
        ("MIG-1aaa", []),
        ("1,1", []),
    ],
)
def test_cuda_visible_devices_is_read_as_cuda_reads_it(text, left):
    assert indices(visible_gpus(gpus(3), {"CUDA_VISIBLE_DEVICES": text})) == left


def test_without_cuda_visible_devices_all_gpus_are_visible():
    assert indices(visible_gpus(gpus(3), {})) == [0, 1, 2]


def test_counters_are_read_for_the_gpus_in_use_alone():
    watch = GpuWatch([1], FakeNvml([[], []]))

    assert watch.read() == {1: GpuCounters(power_ns=0, thermal_ns=0, ecc_errors=0)}


def test_what_the_counters_moved_by_is_said_in_sentences():
    nvml = FakeNvml([[], []])
    watch = GpuWatch([1], nvml)
    before = watch.read()
    nvml.violations_ns = {0: 12 * MS, 1: 3 * MS}
    nvml.ecc_errors = 2

    assert watch.difference(before, watch.read()) == [
        "GPU 1: power capped for 12 ms",
        "GPU 1: thermally throttled for 3 ms",
        "GPU 1: 2 uncorrected ECC errors",
    ]


def test_counters_that_stand_still_or_move_less_than_matters_say_nothing():
    nvml = FakeNvml([[]])
    watch = GpuWatch([0], nvml)
    before = watch.read()
    nvml.violations_ns = {0: MS - 1, 1: 0}

    assert watch.difference(before, watch.read()) == []


def test_counters_that_are_not_supported_or_get_lost_say_nothing():
    nvml = FakeNvml([[]])
    watch = GpuWatch([0], nvml)
    before = watch.read()
    nvml.unsupported |= {"nvmlDeviceGetViolationStatus", "nvmlDeviceGetTotalEccErrors"}

    assert watch.read() == {0: GpuCounters()}
    assert watch.difference(before, watch.read()) == []
    assert watch.difference(watch.read(), before) == []


def sampled(nvml, watch, *clocks_mhz):
    for nvml.sm_clock_mhz in clocks_mhz:
        watch.sample_clocks()


def test_the_lowest_sampled_clock_far_below_the_highest_is_said():
    nvml = FakeNvml([[]])
    watch = GpuWatch([0], nvml)

    sampled(nvml, watch, 1980, 1200, 1500)

    assert watch.slowed() == ["GPU 0: SM clock as low as 1200 of 1980 MHz"]


def test_a_clock_within_a_tenth_of_the_highest_says_nothing():
    nvml = FakeNvml([[]])
    watch = GpuWatch([0], nvml)

    sampled(nvml, watch, 1782)

    assert watch.slowed() == []


def test_reading_the_counters_forgets_the_clocks_of_the_case_before():
    nvml = FakeNvml([[]])
    watch = GpuWatch([0], nvml)
    sampled(nvml, watch, 1200)

    watch.read()

    assert watch.slowed() == []


def test_clocks_that_are_not_supported_say_nothing():
    watch = GpuWatch([0], FakeNvml([[]], unsupported=["nvmlDeviceGetClockInfo"]))

    watch.sample_clocks()

    assert watch.slowed() == []


@pytest.mark.parametrize(
    "watch",
    [
        GpuWatch(),
        GpuWatch([0], FakeNvml([[]], no_init="Driver Not Loaded")),
        GpuWatch([0], FakeNvml([[]], lost=0)),
    ],
    ids=["no GPU in use", "no driver", "a lost GPU"],
)
def test_a_watch_without_counters_reads_nothing(watch):
    assert watch.read() == {}
    watch.sample_clocks()
    assert watch.slowed() == []
    watch.close()


def test_closing_a_watch_twice_closes_nvml_once():
    nvml = FakeNvml([[]])
    watch = GpuWatch([0], nvml)
    assert nvml.opened == 1

    watch.close()
    watch.close()

    assert nvml.opened == 0
    assert watch.read() == {}
