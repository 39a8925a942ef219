"""Baselines: what is kept of runs, for which hardware, and what a later run is to them."""

from __future__ import annotations

import math
from pathlib import Path

import msgspec
import numpy as np
import pytest
from records import make_trial
from setting_trials import RING_LL, ended, under

from collbench.analyze.baseline import (
    Bars,
    BarVerdict,
    Baseline,
    baseline_bytes,
    check_against,
    class_differences,
    hardware_class,
    make_baseline,
    read_baseline,
)
from collbench.analyze.limit import Limit
from collbench.errors import RecordError, UsageError
from collbench.model import (
    Environment,
    Gpu,
    LibraryVersion,
    Mode,
    Nic,
    Node,
    Policy,
    RankPlace,
    ReasonCode,
    Run,
    Status,
    Topology,
)
from collbench.store import StoredRun, read_run

RESULTS = Path(__file__).parents[2] / "results"
RUN = Run(
    run_id="20261130-0412-7f3a",
    command="sweep",
    argv=["sweep"],
    cluster="lab",
    suite={},
    policy=Policy(),
    repeats=3,
    seed=1,
    planned_trials=1,
    backend="nccl",
    world_size=2,
    environment=Environment(
        collbench="0.1.0",
        python="3.12",
        torch="2.13.0",
        nccl=LibraryVersion(version="2.28.9"),
        driver="580.1",
        kernel="6.8",
        os="Linux",
    ),
    started_at="2026-11-30T04:12:00.000+00:00",
)
SIZES = [8 << (2 * k) for k in range(12)]


def gpu(index: int, name: str = "NVIDIA H200") -> Gpu:
    return Gpu(index=index, name=name, uuid=f"u{index}", pci_bus_id=f"{index}", memory_bytes=1)


def nic(kind: str, rate: float | None) -> Nic:
    return Nic(name="x", kind=kind, rate_gbit_per_s=rate, state="up")


def place(*names: str, nics=(), gpus=(0, 1), model="NVIDIA H200", cpu="EPYC") -> Topology:
    """Nodes of two GPUs each, of which the ranks use ``gpus``."""
    nodes = [
        Node(
            name=name,
            cpu_model=cpu,
            cpus=8,
            numa_nodes=1,
            memory_bytes=1,
            gpus=[gpu(0, model), gpu(1, model)],
            nics=list(nics),
        )
        for name in names
    ]
    ranks = [(name, local, index) for name in names for local, index in enumerate(gpus)]
    return Topology(
        nodes=nodes,
        ranks=[
            RankPlace(rank=rank, node=name, local_rank=local, gpu=index)
            for rank, (name, local, index) in enumerate(ranks)
        ],
    )


HERE = place("a")


def quiet(repeats: int, level: float) -> list[float]:
    """Repeats that differ by 0.2 % and less, evenly around a level."""
    return (level * (1 + 0.001 * np.linspace(-1, 1, repeats))).tolist()


def trials_of(repeats: int, factor: float = 1.0, sizes=SIZES, slow=()):
    """A trial a size and repeat; ``slow`` sizes take ``factor`` times as long."""
    found = []
    for k, size in enumerate(sizes):
        scale = factor if size in slow or not slow else 1.0
        times = quiet(repeats, (50.0 + 10 * k) * scale)
        found += [make_trial(size, time, repeat=r) for r, time in enumerate(times)]
    return found


def stored(trials, topology: Topology = HERE, **changes) -> StoredRun:
    run = msgspec.structs.replace(RUN, **changes)
    return StoredRun(folder=Path(), run=run, topology=topology, trials=tuple(trials), problems=())


def baseline(repeats: int = 5, **changes) -> Baseline:
    return make_baseline([stored(trials_of(repeats), **changes)])


def verdicts(trials, made: Baseline, tolerance: float = 0.05):
    bars = Bars(baseline=made, source="b", tolerance=tolerance)
    return check_against(trials, RUN, bars, lambda case, proof: None)


def test_a_case_keeps_the_geometric_mean_the_scatter_and_every_repeat():
    trials = [make_trial(1024, time, repeat=r) for r, time in enumerate([10.0, 20.0, 40.0])]
    (case,) = make_baseline([stored(trials)]).cases

    assert case.time_us == pytest.approx(20.0)
    # all_reduce of 2 ranks: busbw = algbw = 1024 B / 20 us.
    assert case.busbw_gb_per_s == pytest.approx(0.0512)
    assert case.scatter == pytest.approx(math.log(2))
    assert (case.repeats, case.times_us) == (3, [10.0, 20.0, 40.0])
    assert case.case == trials[0].case


def test_one_repeat_has_no_scatter_and_a_case_without_rate_none():
    (case,) = make_baseline([stored([make_trial(8, 5.0, rate=False)])]).cases

    assert (case.scatter, case.busbw_gb_per_s, case.repeats) == (None, None, 1)


def test_runs_of_one_class_add_their_repeats_whatever_the_hosts_are_called():
    made = make_baseline(
        [
            stored([make_trial(8, 10.0)], run_id="1"),
            stored([make_trial(8, 11.0)], place("other"), run_id="2"),
        ]
    )

    assert made.run_ids == ["1", "2"]
    assert made.cases[0].times_us == [10.0, 11.0]
    assert len(made.software) == 1
    assert b"other" not in baseline_bytes(made)


def test_software_of_several_releases_is_kept_once_each():
    newer = msgspec.structs.replace(RUN.environment, nccl=LibraryVersion(version="2.30.7"))
    made = make_baseline(
        [
            stored([make_trial(8, 10.0)], run_id="1"),
            stored([make_trial(8, 10.0)], run_id="2", environment=newer),
        ]
    )

    assert [one.nccl for one in made.software] == ["2.28.9", "2.30.7"]


def test_trials_that_are_not_ok_are_left_out():
    bad = ended(make_trial(16, 9.0), Status.PATH_NOT_USED, ReasonCode.NO_NETWORK_USED, "no")
    made = make_baseline([stored([make_trial(8, 10.0), bad])])

    assert [item.case.size_bytes for item in made.cases] == [8]


@pytest.mark.parametrize(
    ("runs", "text"),
    [
        (
            [stored([make_trial(8, 1.0)], planted="stop:rank=1")],
            "run 20261130-0412-7f3a has a planted fault (stop:rank=1)",
        ),
        ([stored([])], "no trial of 20261130-0412-7f3a is ok"),
        (
            [stored([make_trial(8, 1.0)]), stored([make_trial(8, 1.0)])],
            "a run is given twice",
        ),
        (
            [stored([make_trial(8, 1.0)]), stored([make_trial(8, 1.0)], simulated=True)],
            "one is simulated, the other is not",
        ),
        (
            [
                stored([make_trial(8, 1.0)], run_id="1"),
                stored([make_trial(8, 1.0)], place("a", model="NVIDIA A100"), run_id="2"),
            ],
            (
                "runs 1 and 2 are of different hardware: GPU or CPU NVIDIA H200 and NVIDIA A100;"
                " write one for each class"
            ),
        ),
    ],
)
def test_what_makes_no_baseline_is_refused(runs, text):
    with pytest.raises(UsageError) as caught:
        make_baseline(runs)
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("topology", "changes", "expected"),
    [
        (place("b"), {}, []),
        (place("a", cpu="Xeon"), {}, []),
        (place("a", nics=[nic("ethernet", 100)]), {}, []),
        (place("a", model="NVIDIA A100"), {}, [("GPU or CPU", "NVIDIA H200", "NVIDIA A100")]),
        (place("a", "b"), {}, [("nodes", "1", "2"), ("ranks", "2", "4")]),
        (place("a", gpus=(1,)), {}, [("GPUs a node", "2", "1"), ("ranks", "2", "1")]),
        (
            place("a", nics=[nic("infiniband", 400), nic("infiniband", 400), nic("roce", None)]),
            {},
            [("NICs", "none", "2 x infiniband 400 Gbit/s + 1 x roce of unknown rate")],
        ),
        (
            place("a", gpus=(None, None)),
            {"backend": "gloo"},
            [
                ("GPU or CPU", "NVIDIA H200", "EPYC"),
                ("GPUs a node", "2", "0"),
                ("back end", "nccl", "gloo"),
            ],
        ),
        (place("a"), {"emulated": True}, [("emulated", "False", "True")]),
    ],
)
def test_a_class_is_the_hardware_in_use(topology, changes, expected):
    other = hardware_class(msgspec.structs.replace(RUN, **changes), topology)

    assert class_differences(hardware_class(RUN, HERE), other) == expected


def test_a_node_without_ranks_is_not_of_the_class():
    both = place("a", "b")
    alone = msgspec.structs.replace(both, ranks=[p for p in both.ranks if p.node == "a"])

    assert hardware_class(RUN, alone) == hardware_class(RUN, HERE)


def test_a_file_reads_back_as_it_was_with_a_case_a_line(tmp_path):
    made = make_baseline([read_run(RESULTS / "2xh200/20261130-0635-3947")])
    path = tmp_path / "b.json"
    path.write_bytes(baseline_bytes(made))

    assert read_baseline(path) == made
    lines = path.read_text().splitlines()
    assert sum('"collective"' in line for line in lines) == len(made.cases) == 90


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        (b"baseline/1", b"baseline/2", "its schema is 'collbench.baseline/2'"),
        (b'"schema"', b'"shema"', "it has no schema"),
        (b'"repeats":5', b'"repeats":4', "do not agree"),
        (b'"time_us":', b'"time_us":1', "do not agree"),
        (b'"times_us":[', b'"times_us":[-1,', "do not agree"),
        (b'"run_ids"', b'"runs"', "missing required field `run_ids`"),
        (b'"cases"', b"cases", "is damaged"),
    ],
)
def test_a_file_that_is_no_baseline_says_why(tmp_path, old, new, text):
    path = tmp_path / "b.json"
    path.write_bytes(baseline_bytes(baseline()).replace(old, new, 1))

    with pytest.raises(RecordError) as caught:
        read_baseline(path)
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"[]", b"[" * 100_000, b"\xff"])
def test_a_file_of_something_else_is_refused(tmp_path, content):
    path = tmp_path / "b.json"
    path.write_bytes(content)

    with pytest.raises(RecordError):
        read_baseline(path)


def test_a_file_that_cannot_be_read_is_the_users_mistake(tmp_path):
    with pytest.raises(UsageError, match="cannot be read: No such file or directory"):
        read_baseline(tmp_path / "none.json")


@pytest.mark.parametrize("repeats", [3, 5])
@pytest.mark.parametrize(
    ("factor", "verdict"),
    [
        (0.5, BarVerdict.MET),
        (1.0, BarVerdict.MET),
        (1.04, BarVerdict.MET),
        (1.06, BarVerdict.BELOW),
        (2.0, BarVerdict.BELOW),
    ],
)
def test_with_repeats_on_both_sides_the_comparison_decides(repeats, factor, verdict):
    report = verdicts(trials_of(repeats, factor, slow=[SIZES[3]]), baseline(repeats))
    case = report.cases[3]

    assert case.verdict is verdict
    assert case.ratio == pytest.approx(factor, rel=1e-6)
    assert case.low < factor < case.high
    assert [other.verdict for other in report.cases if other is not case] == [BarVerdict.MET] * 11
    assert report.verdict is verdict


def test_the_tolerance_is_the_sites():
    trials = trials_of(5, 1.06, slow=[SIZES[3]])

    assert verdicts(trials, baseline(), tolerance=0.08).verdict is BarVerdict.MET


def test_a_noisy_case_that_looks_slower_is_unclear():
    noisy = [make_trial(8, time, repeat=r) for r, time in enumerate([100, 140, 70, 180, 90])]
    made = make_baseline([stored([*trials_of(5, sizes=SIZES[1:]), *noisy])])
    again = [make_trial(8, time, repeat=r) for r, time in enumerate([110, 170, 75, 210, 95])]
    report = verdicts([*trials_of(5, sizes=SIZES[1:]), *again], made)

    assert report.cases[0].verdict is BarVerdict.UNCLEAR
    assert "noisy" in report.cases[0].reason
    assert report.verdict is BarVerdict.UNCLEAR


@pytest.mark.parametrize(
    ("base", "new", "factor", "verdict", "reason"),
    [
        (5, 1, 1.04, BarVerdict.MET, None),
        (5, 1, 1.2, BarVerdict.BELOW, None),
        (5, 2, 1.2, BarVerdict.BELOW, None),
        (3, 1, 1.2, BarVerdict.BELOW, None),
        # Two repeats or one tell no scatter.
        (2, 5, 1.2, BarVerdict.UNCLEAR, "too few repeats: 2 + 5 repeats, needs 3 + 3"),
        (1, 1, 9.0, BarVerdict.UNCLEAR, "too few repeats: 1 + 1 repeats, needs 3 + 3"),
        (1, 1, 1.0, BarVerdict.MET, None),
    ],
)
def test_few_repeats_are_below_only_where_the_baselines_scatter_is_passed(
    base, new, factor, verdict, reason
):
    report = verdicts(trials_of(new, factor, slow=[SIZES[3]]), baseline(base))
    case = report.cases[3]

    assert (case.verdict, case.reason) == (verdict, reason)
    assert (case.low, case.high) == (None, None)


def test_one_repeat_within_three_scatters_is_unclear():
    wide = [make_trial(8, time, repeat=r) for r, time in enumerate([90, 95, 100, 105, 110])]
    made = make_baseline([stored([*trials_of(5, sizes=SIZES[1:]), *wide])])
    scatter = made.cases[0].scatter
    inside = 100 * math.exp(2.9 * scatter)
    report = verdicts([*trials_of(1, sizes=SIZES[1:]), make_trial(8, inside)], made)

    assert report.cases[0].ratio > 1.2
    assert report.cases[0].verdict is BarVerdict.UNCLEAR
    assert report.cases[0].reason.startswith("few repeats: sure only above +")


def test_a_case_that_lacks_a_repeat_is_not_compared_with_the_others():
    trials = trials_of(5, 1.2, slow=[SIZES[3]])
    torn = [t for t in trials if (t.case.size_bytes, t.repeat) != (SIZES[3], 4)]
    report = verdicts(torn, baseline())

    assert report.cases[3].verdict is BarVerdict.BELOW  # beyond the baseline's scatter
    assert report.cases[3].low is None


def test_what_is_on_one_side_only_is_said():
    trials = [*trials_of(5, sizes=SIZES[:6]), make_trial(1 << 30, 9.0), under(RING_LL, 8, 3.0)]
    report = verdicts(trials, baseline())
    found = [case.verdict for case in report.cases]

    assert found.count(BarVerdict.NO_BAR) == 2
    assert found.count(BarVerdict.MET) == 6
    assert report.not_measured == 6
    assert report.verdict is BarVerdict.MET


def test_a_case_of_the_baseline_that_ended_otherwise_is_unclear():
    lost = ended(make_trial(8, 9.0), Status.PATH_NOT_USED, ReasonCode.NO_NETWORK_USED, "no")
    report = verdicts([lost, *trials_of(5, sizes=SIZES[1:])], baseline())

    assert report.cases[0].verdict is BarVerdict.UNCLEAR
    assert report.cases[0].reason == "not measured: path_not_used"
    assert report.not_measured == 0


def test_nothing_in_common_is_no_verdict():
    report = verdicts([make_trial(1 << 30, 9.0)], baseline())

    assert report.verdict is BarVerdict.NO_BAR


@pytest.mark.parametrize(("repeats", "most"), [(5, 1), (1, 4)])
def test_few_tables_in_which_nothing_changed_are_below(repeats, most):
    """Of 60 draws of the recorded repeats: 5 + 5 by the comparison, 5 + 1 by the scatter."""
    random, below = np.random.default_rng(11), 0
    reference = read_run(RESULTS / "2xh200/20261130-0635-3947")
    by_key = {(t.case.case_id, t.repeat): t for t in reference.trials}
    cases = list(dict.fromkeys(t.case.case_id for t in reference.trials))
    for _ in range(60):
        order = random.permutation(20)
        sides = [
            [
                msgspec.structs.replace(by_key[case, row], repeat=repeat)
                for case in cases
                for repeat, row in enumerate(rows)
            ]
            for rows in (order[:5].tolist(), order[5 : 5 + repeats].tolist())
        ]
        made = make_baseline([stored(sides[0])])
        below += verdicts(sides[1], made).verdict is BarVerdict.BELOW
    assert below <= most


@pytest.mark.parametrize(
    ("bars", "expected"),
    [
        ({"min_busbw_gb_per_s": 10.0}, ["pass", "pass"]),
        ({"min_busbw_gb_per_s": 20.0}, ["pass", "below"]),
        ({"min_busbw_of": {"all_gather": 5.0}}, ["pass"]),
        ({"min_busbw_gb_per_s": 25.0, "min_busbw_of": {"all_gather": 5.0}}, ["below", "pass"]),
    ],
)
def test_the_peak_of_each_question_is_held_against_the_rate(bars, expected):
    # Peaks: all_reduce 20.97 GB/s at 1 MiB, all_gather half of it.
    trials = [
        make_trial(1024, 10.0),
        make_trial(2**20, 50.0),
        make_trial(2**20, 50.0, name="all_gather"),
    ]
    report = check_against(trials, RUN, Bars(**bars), lambda case, proof: None)

    assert [str(peak.verdict) for peak in report.peaks] == expected
    assert {peak.case.size_bytes for peak in report.peaks} == {2**20}
    assert report.cases == ()


def test_modes_are_judged_each_and_of_settings_the_best():
    trials = [
        make_trial(2**20, 50.0),
        make_trial(2**20, 100.0, mode=Mode.GRAPH),
        under(RING_LL, 2**20, 25.0),
    ]
    bars = Bars(min_busbw_gb_per_s=15.0)
    report = check_against(trials, RUN, bars, lambda case, proof: None)

    assert [(peak.case.mode, str(peak.verdict)) for peak in report.peaks] == [
        (Mode.EAGER, "pass"),
        (Mode.GRAPH, "below"),
    ]
    assert report.peaks[0].case.setting == RING_LL


@pytest.mark.parametrize(
    ("times", "bar", "verdict"),
    [
        # 2**20 B in 50 us are 20.97 GB/s; one repeat's interval is 10 % (records.make_trial).
        ([50.0], 22.0, BarVerdict.UNCLEAR),
        ([50.0], 24.0, BarVerdict.BELOW),
        ([50.0, 52.0, 46.0], 22.0, BarVerdict.UNCLEAR),
        ([50.0, 52.0, 49.0], 22.0, BarVerdict.BELOW),
    ],
)
def test_a_bar_within_the_interval_or_the_repeats_cannot_be_told(times, bar, verdict):
    trials = [make_trial(2**20, time, repeat=r) for r, time in enumerate(times)]
    report = check_against(trials, RUN, Bars(min_busbw_gb_per_s=bar), lambda case, proof: None)

    assert report.verdict is verdict


def test_without_a_rate_a_peak_cannot_be_told():
    report = check_against(
        [make_trial(8, 5.0, rate=False)],
        RUN,
        Bars(min_busbw_gb_per_s=1.0),
        lambda case, proof: None,
    )

    assert report.verdict is BarVerdict.UNCLEAR
    assert report.peaks[0].reason == "no bus bandwidth was measured"


@pytest.mark.parametrize(
    ("limit", "verdict", "bar"),
    [
        (Limit(24.0, "a wire"), BarVerdict.MET, 20.4),
        (Limit(30.0, "a wire"), BarVerdict.BELOW, 25.5),
        (None, BarVerdict.UNCLEAR, None),
    ],
)
def test_a_share_of_the_limit_is_asked_of_the_case_and_what_ran(limit, verdict, bar):
    asked = []
    trial = make_trial(2**20, 50.0)

    def limit_of(case, proof):
        asked.append((case, proof))
        return limit

    report = check_against([trial], RUN, Bars(min_of_limit=0.85), limit_of)

    assert asked == [(trial.case, trial.proof)]
    assert report.verdict is verdict
    assert report.peaks[0].bar_gb_per_s == (bar and pytest.approx(bar))
