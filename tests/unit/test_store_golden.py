"""What is stored keeps its names and its meaning: the golden run and the pinned field names."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from collbench import model
from collbench.model import (
    Case,
    Check,
    Culprit,
    Environment,
    Finding,
    Gpu,
    GpuLink,
    LibraryVersion,
    Mode,
    Nic,
    Node,
    NodeState,
    Pattern,
    Policy,
    Proof,
    RankPlace,
    Reason,
    ReasonCode,
    Record,
    Run,
    SampleRef,
    Status,
    StopReason,
    Summary,
    Topology,
    Trial,
    WrongElement,
)
from collbench.store import StoredRun, read_run

GOLDEN = Path(__file__).parents[1] / "data" / "golden" / "v1"
REFERENCE = Path(__file__).parents[2] / "results/2xh200/20261130-0635-3947"

CASE = Case(
    collective="all_reduce",
    backend="gloo",
    dtype="float32",
    redop="sum",
    root=None,
    size_bytes=1024,
    requested_bytes=1024,
    count=256,
    world_size=2,
    nodes=1,
    in_place=True,
    mode=Mode.EAGER,
    pattern=Pattern.BACK_TO_BACK,
    setting={},
)
CHECK = Check(checked=True, checked_elements=512, wrong_elements=0, first_wrong=None)
CULPRIT = Culprit(
    rank=1,
    node="host-a",
    local_rank=1,
    pid=4711,
    gpu=None,
    calls=812,
    what="stopped",
    evidence=["state T in /proc/4711/stat"],
    log_tail=["[rank 1] calling"],
)
SUMMARY = Summary(
    samples=3,
    ops_per_sample=1,
    warmup_samples=2,
    median_us=20.0,
    ci95_us=None,
    effective_samples=3.0,
    min_us=10.0,
    p5_us=11.0,
    p95_us=None,
    p99_us=None,
    mean_over_ranks_us=18.5,
    algbw_gb_per_s=0.0512,
    busbw_gb_per_s=0.0512,
    skew=0.1,
    late_rank=None,
    late_share=None,
    slowest_rank=None,
)


def vary(record: Record, **changes) -> Record:
    return msgspec.structs.replace(record, **changes)


def sized(size_bytes: int, **changes) -> Case:
    """The case with another size, asked for and moved alike."""
    sizes = {"size_bytes": size_bytes, "requested_bytes": size_bytes, "count": size_bytes // 4}
    return vary(CASE, **sizes, **changes)


def reason(code: ReasonCode, text: str) -> Reason:
    return Reason(code=code, text=text)


NO_RATE = vary(SUMMARY, algbw_gb_per_s=None, busbw_gb_per_s=None)
REDUCED = vary(
    SUMMARY,
    samples=4,
    median_us=3.5,
    ci95_us=(3.0, 4.0),
    p95_us=4.75,
    p99_us=5.0,
    late_rank=1,
    late_share=0.9,
    slowest_rank=0,
)
WRONG = WrongElement(rank=1, index=7, expected="2", got="3", when="last")

EXPECTED = [
    (
        "all_reduce/float32/sum/1KiB/eager#fd998561",
        CASE,
        Status.OK,
        {
            "stop_reason": StopReason.PRECISE,
            "check": CHECK,
            "summary": SUMMARY,
            "samples": SampleRef(
                offset_bytes=0, layout="rank_sample", ranks=2, samples=3, clock="fake"
            ),
            "notes": ["few_samples"],
            "proof": Proof(algorithm="ring"),
        },
    ),
    (
        "all_reduce/float32/sum/4KiB/eager#45bb8a8d",
        sized(4096, setting={"NCCL_ALGO": "Ring"}),
        Status.OK,
        {
            "stop_reason": StopReason.TIME,
            "check": Check(checked=False),
            "summary": REDUCED,
            "samples": SampleRef(
                offset_bytes=24, layout="reduced", ranks=2, samples=4, clock="cuda_event"
            ),
            "events": ["GPU 1: power capped for 12 ms"],
        },
    ),
    (
        "all_gather/float32/-/1KiB/eager#40ce087e",
        vary(CASE, collective="all_gather", redop=None, in_place=False),
        Status.DATA_WRONG,
        {
            "reason": reason(ReasonCode.WRONG_ELEMENT, "rank 1: element 7 is 3, expected 2"),
            "stop_reason": StopReason.FIXED,
            "check": vary(CHECK, wrong_elements=1, first_wrong=WRONG),
            "summary": NO_RATE,
        },
    ),
    (
        "all_reduce/float8_e4m3fn/sum/1KiB/eager#f87ec66e",
        vary(CASE, dtype="float8_e4m3fn", count=1024),
        Status.UNSUPPORTED,
        {"reason": reason(ReasonCode.NO_SUCH_DTYPE, "gloo has no float8_e4m3fn")},
    ),
    (
        "all_reduce/float32/sum/1KiB/eager#12d1bcc9",
        vary(CASE, setting={"NCCL_NET": "IB"}),
        Status.PATH_NOT_USED,
        {"summary": NO_RATE, "check": CHECK, "stop_reason": StopReason.PRECISE},
    ),
    (
        "all_reduce/float32/sum/16KiB/eager#2156c1d8",
        sized(16384),
        Status.HUNG,
        {
            "reason": reason(ReasonCode.NO_PROGRESS, "no progress for 60 s"),
            "culprits": [CULPRIT],
        },
    ),
    (
        "all_reduce/float32/sum/64KiB/eager#f64d6905",
        sized(65536),
        Status.CRASHED,
        {
            "reason": reason(ReasonCode.KILLED, "rank 1 was killed by SIGKILL"),
            "culprits": [vary(CULPRIT, what="dead: SIGKILL", gpu=1)],
        },
    ),
    (
        "all_reduce/float32/avg/1KiB/eager#09b1fdfd",
        vary(CASE, redop="avg"),
        Status.FAILED,
        {"reason": reason(ReasonCode.RAISED, "RuntimeError: connection closed")},
    ),
    (
        "broadcast/float32/-/1KiB/graph#efb0a170",
        vary(
            CASE,
            collective="broadcast",
            redop=None,
            root=0,
            mode=Mode.GRAPH,
            pattern=Pattern.ISOLATED,
        ),
        Status.NODE_LOST,
        {"reason": reason(ReasonCode.NODE_LOST, "host-b is lost")},
    ),
    (
        "all_reduce/float32/sum/1TiB/eager#3200b05d",
        sized(2**40),
        Status.SKIPPED,
        {"reason": reason(ReasonCode.NO_MEMORY, "needs 3 TiB a rank, 8 GiB are free")},
    ),
]


@pytest.fixture(scope="module")
def stored() -> StoredRun:
    return read_run(GOLDEN)


def test_the_golden_run_decodes_to_exactly_this_header(stored):
    assert stored.problems == ()
    assert stored.run == Run(
        schema=1,
        run_id="20261130-0412-7f3a",
        command="sweep",
        argv=["sweep", "-N", "1"],
        cluster="lab",
        suite={"name": "sweep", "sizes": [1024, 4096]},
        policy=Policy(
            precision=0.02,
            max_time_s=0.5,
            samples=None,
            warmup=None,
            check=True,
            deadline_s=60.0,
            init_deadline_s=120.0,
        ),
        repeats=1,
        seed=7,
        planned_trials=10,
        backend="gloo",
        world_size=2,
        environment=Environment(
            collbench="0.1.0",
            python="3.11.9",
            torch="2.13.0",
            cuda="13.0",
            nccl=LibraryVersion(version="2.28.9", path="/usr/lib/libnccl.so.2", compiled="2.28.8"),
            driver="580.159.04",
            kernel="6.8.0",
            os="Ubuntu 24.04",
            variables={"NCCL_DEBUG": "WARN"},
            config_files={"/etc/nccl.conf": "NCCL_DEBUG=WARN\n"},
        ),
        simulated=True,
        planted="wrong_element",
        started_at="2026-11-30T04:12:00.000+00:00",
        ended_at="2026-11-30T04:12:20.000+00:00",
        exit_code=1,
        findings=[
            Finding(
                code="data_wrong",
                severity="bad",
                text="all_gather returned a wrong element",
                evidence=["rank 1, element 7"],
                next_step="run it again",
            )
        ],
    )


def test_the_golden_topology_decodes_to_exactly_this(stored):
    gpus = [
        Gpu(
            index=index,
            name="NVIDIA H200",
            uuid=f"GPU-{index}",
            pci_bus_id=f"0000:{index}a:00.0",
            memory_bytes=150_754_820_096,
            numa_node=0,
            max_sm_clock_mhz=1980,
            power_limit_w=700.0,
            ecc=True,
            mig=False,
            nvlinks=18,
            nvlink_gb_per_s=26.562,
        )
        for index in (0, 1)
    ]
    nic = Nic(
        name="mlx5_0",
        kind="infiniband",
        rate_gbit_per_s=400.0,
        state="ACTIVE",
        pci_bus_id="0000:9a:00.0",
        numa_node=0,
    )
    node = Node(
        name="host-a",
        state=NodeState.PRESENT,
        cpu_model="Test CPU",
        cpus=4,
        numa_nodes=1,
        memory_bytes=2**33,
        l3_bytes=2**25,
        gpus=gpus,
        gpu_links=[GpuLink(a=0, b=1, kind="NV18")],
        nics=[nic],
    )
    places = [
        RankPlace(rank=0, node="host-a", local_rank=0, gpu=0, cpuset="0-1"),
        RankPlace(rank=1, node="host-a", local_rank=1, gpu=1, cpuset="2-3"),
    ]
    assert stored.topology == Topology(schema=1, nodes=[node], ranks=places)


@pytest.mark.parametrize("index", range(len(EXPECTED)))
def test_each_golden_trial_decodes_to_exactly_this(stored, index):
    case_id, case, status, rest = EXPECTED[index]
    assert stored.trials[index] == Trial(
        schema=1,
        trial_id=f"{case_id}.0",
        case_id=case_id,
        case=case,
        repeat=0,
        status=status,
        started_at=f"2026-11-30T04:12:{index + 1:02d}.500+00:00",
        duration_s=0.5,
        **rest,
    )


def test_case_ids_stay_what_they_were(stored):
    assert [trial.case.case_id for trial in stored.trials] == [row[0] for row in EXPECTED]


def test_case_ids_of_the_reference_run_stay_what_they_were():
    """It was measured before cases had ``via`` and ``emulated``."""
    case = Case(
        collective="all_gather",
        backend="nccl",
        dtype="float32",
        size_bytes=65536,
        requested_bytes=65536,
        count=8192,
        world_size=2,
        in_place=False,
        mode=Mode.GRAPH,
    )
    named = {trial.case_id: trial.case for trial in read_run(REFERENCE).trials}

    assert case.case_id == "all_gather/float32/-/64KiB/graph#f7088b53"
    assert named[case.case_id] == case
    assert [case.case_id for case in named.values()] == list(named)


def test_what_a_later_field_says_makes_another_case():
    cases = [CASE, vary(CASE, via="native"), vary(CASE, emulated=True)]

    assert len({case.case_id for case in cases}) == 3


def test_the_golden_run_has_every_status(stored):
    assert {trial.status for trial in stored.trials} == set(Status)


def test_the_golden_samples_of_both_layouts_are_exactly_these(stored):
    whole, reduced, *rest = stored.trials
    assert stored.times_us(whole).tolist() == [[10, 20, 30], [9, 18, 24]]
    assert stored.over_ranks_us(whole).tolist() == [[9, 18, 24], [9.5, 19, 27], [10, 20, 30]]
    assert stored.times_us(reduced) is None
    assert stored.over_ranks_us(reduced).tolist() == [
        [1, 2, 3, 4],
        [1.5, 2.5, 3.5, 4.5],
        [2, 3, 4, 5],
    ]
    assert stored.rank_quantiles_us(reduced).tolist() == [[1, 2, 3], [4, 5, 6]]
    assert [stored.over_ranks_us(trial) for trial in rest] == [None] * 8
    assert [stored.rank_quantiles_us(trial) for trial in rest] == [None] * 8


FIELDS = {
    "Case": "collective backend dtype redop root size_bytes requested_bytes count world_size nodes"
    " in_place mode pattern setting via emulated",
    "Check": "checked checked_elements wrong_elements first_wrong",
    "Culprit": "rank node local_rank pid gpu calls what evidence log_tail",
    "Environment": "collbench python torch cuda nccl driver kernel os variables config_files",
    "Finding": "code severity text evidence next_step",
    "Gpu": "index name uuid pci_bus_id memory_bytes numa_node max_sm_clock_mhz power_limit_w ecc"
    " mig nvlinks nvlink_gb_per_s compute_capability",
    "GpuLink": "a b kind",
    "GroupPlace": "name round ranks alone",
    "LibraryVersion": "version path compiled",
    "Nic": "name kind rate_gbit_per_s state pci_bus_id numa_node",
    "Node": "name state cpu_model cpus numa_nodes memory_bytes l3_bytes gpus gpu_links nics leaf",
    "Policy": "precision max_time_s samples warmup check proof walk_bytes window deadline_s"
    " init_deadline_s",
    "Proof": "algorithm protocol channels coll_channels network transports devices gpu_direct nvls"
    " sharp nodes intra_path inter_path no_rdma_device ranks odd problem twin",
    "RankPlace": "rank node local_rank gpu cpuset fake_host",
    "RankProof": "algorithm protocol channels coll_channels network transports devices gpu_direct"
    " nvls sharp nodes local_rank intra_path inter_path no_rdma_device warning",
    "Reason": "code text",
    "Run": "schema run_id command argv cluster suite policy repeats seed planned_trials backend"
    " world_size environment note simulated emulated via planted started_at resumed_at"
    " ended_at zygotes"
    " workers communicators proof_s exit_code findings",
    "SampleRef": "offset_bytes layout ranks samples clock",
    "Summary": "samples ops_per_sample warmup_samples median_us ci95_us effective_samples min_us"
    " p5_us p95_us p99_us mean_over_ranks_us algbw_gb_per_s busbw_gb_per_s skew late_rank"
    " late_share slowest_rank host_us_per_call reported_algbw_gb_per_s reported_busbw_gb_per_s",
    "Topology": "schema nodes ranks",
    "Trial": "schema trial_id case_id case repeat status reason stop_reason culprits proof check"
    " summary samples notes events started_at duration_s",
    "Window": "lead_s timed_s tail_s",
    "WrongElement": "rank index expected got when",
}
"""Field names that are on people's disks: nothing may leave this list, new ones may join it."""


def test_no_stored_record_is_missing_from_the_pinned_list():
    stored_kinds = {
        name
        for name, kind in vars(model).items()
        if isinstance(kind, type) and issubclass(kind, Record) and kind is not Record
    }
    assert stored_kinds == set(FIELDS)


@pytest.mark.parametrize("name", sorted(FIELDS))
def test_no_field_of_a_stored_record_is_renamed_or_removed(name):
    fields = set(getattr(model, name).__struct_fields__)
    assert set(FIELDS[name].split()) - fields == set()


@pytest.mark.parametrize("name", sorted(FIELDS))
def test_a_field_that_joined_a_record_later_has_a_default(name):
    """Else the older files of the same schema could not be read."""
    added = [
        field
        for field in msgspec.structs.fields(getattr(model, name))
        if field.name not in FIELDS[name].split()
    ]
    assert [field.name for field in added if field.required] == []


LATER = {
    "Case": {"via": "torch", "emulated": False},
    "Gpu": {"compute_capability": None},
    "Node": {"leaf": None},
    "Policy": {"proof": True, "walk_bytes": None},
    "RankPlace": {"fake_host": None},
    "Run": {
        "emulated": False,
        "via": "torch",
        "zygotes": 0,
        "workers": 0,
        "communicators": 0,
        "proof_s": 0.0,
    },
    "Summary": {"host_us_per_call": None},
    "Trial": {"proof": None},
}
"""What a file of before says, that has no such field."""


@pytest.mark.parametrize("name", sorted(LATER))
def test_a_file_without_a_later_field_means_what_it_meant(name):
    fields = {field.name: field.default for field in msgspec.structs.fields(getattr(model, name))}

    assert {field: fields[field] for field in LATER[name]} == LATER[name]


WORDS = {
    "Status": "ok data_wrong unsupported path_not_used hung crashed failed node_lost skipped",
    "ReasonCode": "no_such_dtype no_such_redop no_such_mode no_in_place no_out_of_place"
    " needs_two_ranks refused illegal needs_newer_nccl no_network_used no_rdma_device"
    " other_network other_algorithm other_protocol interrupted no_memory zero_bytes node_lost"
    " budget no_progress no_start exited killed raised wrong_element",
    "StopReason": "precise time fixed full",
    "Mode": "eager graph eager_device",
    "Pattern": "back_to_back isolated",
    "NodeState": "present absent excluded gpu_missing unkillable lost",
}


@pytest.mark.parametrize("name", sorted(WORDS))
def test_no_stored_word_is_renamed_or_removed(name):
    assert set(WORDS[name].split()) - {str(member) for member in getattr(model, name)} == set()
