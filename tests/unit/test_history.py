"""Stored runs as histories: which trials are of which release, what keeps series apart."""

from __future__ import annotations

import msgspec
import pytest
from history_runs import history_run
from records import make_trial
from stored_runs import environment_of, law, stored_run, topology_of, trials_of

from collbench.analyze.history import Loaded, histories_of, version_order
from collbench.model import LibraryVersion, Mode
from collbench.nccl.settings import LIBRARY, PLUGIN

LAW = law(10, 100)
TWO = ("2.28.9", "2.29.7")
SMALL = {"collectives": ("all_reduce",), "sizes": (1024, 4096)}


def run_of(nccl: str, run_id: str, repeats: int = 3, **changes):
    """A sweep through torch on one library."""
    place = changes.pop("topology", None)
    environment = environment_of(nccl, **changes)
    trials = trials_of(LAW, repeats=repeats, sizes=(1024, 4096))
    return stored_run(trials, run_id, environment=environment, topology=place)


def test_a_run_of_several_libraries_is_as_many_releases_and_the_library_no_setting():
    (series,) = histories_of([history_run(TWO, **SMALL)]).series

    assert series.versions == ["2.28.9", "2.29.7"]
    assert {tuple(case.setting) for case in series.cases.values()} == {()}
    assert series.releases[0].times.keys() == series.releases[1].times.keys()
    assert {len(times) for times in series.releases[0].times.values()} == {3}


def test_runs_of_one_library_each_make_the_same_history():
    (series,) = histories_of([run_of("2.29.7", "b"), run_of("2.28.9+cuda13.0", "a")]).series

    assert series.versions == ["2.28.9", "2.29.7"]
    assert series.facts["torch"] == "2.13.0"
    assert "NCCL" not in series.facts


def test_releases_stand_in_the_order_of_their_numbers_and_not_of_their_text():
    versions = ["2.9.9", "2.28.10", "2.28.9", "2.3.7"]

    assert sorted(versions, key=version_order) == ["2.3.7", "2.9.9", "2.28.9", "2.28.10"]


def test_what_comes_before_a_final_release_stands_before_it():
    versions = ["2.14.0+cu130", "2.14.0.dev20261101+cu130", "2.13.0", "2.14.0rc2", "2.25.1.post1"]

    assert sorted(versions, key=version_order) == [
        "2.13.0",
        "2.14.0rc2",
        "2.14.0.dev20261101+cu130",
        "2.14.0+cu130",
        "2.25.1.post1",
    ]


def test_other_hardware_and_another_driver_are_histories_of_their_own():
    runs = [
        run_of("2.28.9", "a"),
        run_of("2.29.7", "b"),
        run_of("2.30.7", "c", driver="590.2"),
        run_of("2.29.7", "d", topology=topology_of(model="NVIDIA H100")),
    ]
    found = histories_of(runs)

    assert [one.versions for one in found.series] == [["2.28.9", "2.29.7"], ["2.29.7"], ["2.30.7"]]
    assert set(found.differing) == {"hardware", "driver"}
    joined = histories_of(runs, across=[Loaded.DRIVER])
    assert joined.series[0].versions == ["2.28.9", "2.29.7", "2.30.7"]


def test_a_network_plug_in_is_a_history_of_its_own_and_can_be_the_axis():
    trials = []
    for plugin in (None, "/opt/ofi-1.9/libnccl-net.so", "/opt/ofi-1.17/libnccl-net.so"):
        for repeat in range(3):
            one = make_trial(1024, 10.0, repeat=repeat)
            setting = {LIBRARY: "a"} | ({} if plugin is None else {PLUGIN: plugin})
            case = msgspec.structs.replace(one.case, setting=setting)
            trials.append(msgspec.structs.replace(one, case=case))
    libraries = {"a": LibraryVersion(version="2.30.7")}
    run = stored_run(trials, environment=environment_of(libraries=libraries))

    assert {one.facts["network plug-in"] for one in histories_of([run]).series} == {
        "none",
        "/opt/ofi-1.9/libnccl-net.so",
        "/opt/ofi-1.17/libnccl-net.so",
    }
    (series,) = histories_of([run], axis=Loaded.PLUGIN).series
    assert series.versions == ["/opt/ofi-1.9/libnccl-net.so", "/opt/ofi-1.17/libnccl-net.so"]


def test_torch_can_be_the_axis_where_its_own_nccl_may_differ():
    runs = [run_of("2.28.9", "a", torch="2.11.0"), run_of("2.29.7", "b", torch="2.13.0")]

    assert [len(one.releases) for one in histories_of(runs, axis=Loaded.TORCH).series] == [1, 1]
    (series,) = histories_of(runs, axis=Loaded.TORCH, across=[Loaded.NCCL]).series
    assert series.versions == ["2.11.0", "2.13.0"]


def test_a_run_without_a_library_is_left_out_and_named():
    gloo = run_of("2.28.9", "gloo-run", cuda=None)
    gloo = msgspec.structs.replace(gloo.run.environment, nccl=None), gloo
    environment, stored = gloo
    stored = stored_run(stored.trials, "gloo-run", environment=environment)
    found = histories_of([stored, run_of("2.29.7", "b")])

    assert found.left_out == ("1 run without a NCCL version (gloo-run)",)
    assert [one.versions for one in found.series] == [["2.29.7"]]


def test_runs_that_hold_both_releases_count_alone_where_they_have_repeats_enough():
    both = history_run(TWO, run_id="both", **SMALL)
    later = history_run(("2.29.7",), run_id="later", seed=2, **SMALL)
    (series,) = histories_of([both, later]).series

    base, new = series.sides([0], 1)
    assert [stored.run.run_id for stored in new.runs] == ["both"]
    assert [stored.run.run_id for stored in series.releases[1].side.runs] == ["both", "later"]
    assert [stored.run.run_id for stored in base.runs] == ["both"]


@pytest.mark.parametrize("repeats", [1, 2])
def test_with_too_few_repeats_in_one_go_all_runs_count(repeats):
    both = history_run(TWO, run_id="both", repeats=repeats, **SMALL)
    later = history_run(("2.29.7",), run_id="later", seed=2, **SMALL)
    (series,) = histories_of([both, later]).series

    _, new = series.sides([0], 1)
    assert [stored.run.run_id for stored in new.runs] == ["both", "later"]


def test_the_repeats_of_several_releases_count_as_one_side():
    (series,) = histories_of([history_run(("2.27.7", *TWO), **SMALL)]).series

    ((base, new),) = series.source.tables([0, 1], 2).tables
    key = next(key for key in series.cases if key.mode is Mode.EAGER)
    assert base[key] == (*series.releases[0].times[key], *series.releases[1].times[key])
    assert len(new[key]) == 3
