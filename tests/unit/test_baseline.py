"""Baselines: what is kept of runs, for which hardware, and how it is read back."""

from __future__ import annotations

import math

import msgspec
import pytest
from bar_runs import HERE, RESULTS, RUN, baseline, nic, place, stored
from records import make_trial
from setting_trials import ended

from collbench.analyze.baseline import (
    baseline_bytes,
    class_differences,
    hardware_class,
    make_baseline,
    read_baseline,
)
from collbench.errors import RecordError, UsageError
from collbench.model import LibraryVersion, ReasonCode, Status
from collbench.store import read_run


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


def test_a_run_of_several_libraries_names_them_all():
    libraries = {name: LibraryVersion(version=name) for name in ("2.28.9", "2.32.3")}
    both = msgspec.structs.replace(RUN.environment, libraries=libraries)
    made = make_baseline([stored([make_trial(8, 10.0)], environment=both)])

    assert [one.nccl for one in made.software] == ["2.28.9 and 2.32.3"]


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
