"""The export for asv: exact files of a small history, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace

import msgspec
import pytest
from asv_runs import MACHINE, MIB, TWO, small
from history_runs import history_run
from records import make_trial
from stored_runs import environment_of, stored_run, topology_of

from collbench.analyze.history import histories_of
from collbench.errors import EngineError, UsageError
from collbench.interop import asv_check
from collbench.interop.asv_benchmarks import benchmarks_of
from collbench.interop.asv_files import export_asv
from collbench.interop.asv_values import case_value
from collbench.model import Mode
from collbench.nccl.releases import known_releases, read_releases


def series_of(*runs):
    return histories_of(list(runs)).series


def exported(folder, *runs, **options):
    return export_asv(folder, series_of(*runs), known_releases(), **options)


def documents(folder):
    """Returns the content of each result file by its release."""
    paths = asv_check.result_files(folder / "results")
    found = [json.loads(path.read_text()) for path in paths]
    dates = {int(r.uploaded.timestamp()) * 1000: r.version for r in known_releases()}
    return {dates[document["date"]]: document for document in found}


def row(document, name):
    return dict(zip(document["result_columns"], document["results"][name], strict=False))


def torn(run, version, *, keep):
    """Returns a run without some trials of a release."""
    trials = [t for t in run.trials if t.case.setting["nccl"] != version or keep(t)]
    return replace(run, trials=tuple(trials))


# --- values ------------------------------------------------------------------------------------


def test_the_interval_is_students_over_the_logarithms():
    value = case_value(make_trial(MIB, 1.0).case, [100.0, 110.0, 121.0])

    assert value.median_s == 110e-6
    # ln 1.1 apart: s = ln 1.1, t(0.995, 2) = 9.924843, half-width = t s / sqrt(3).
    assert value.low_s == pytest.approx(110e-6 / 1.7265, rel=1e-4)
    assert value.high_s == pytest.approx(110e-6 * 1.7265, rel=1e-4)
    assert (value.quartile_low_s, value.quartile_high_s) == (105e-6, 115.5e-6)
    assert value.repeats == 3
    assert value.samples_s is None


def test_one_repeat_has_no_interval():
    value = case_value(make_trial(MIB, 1.0).case, [100.0])

    assert (value.median_s, value.low_s, value.high_s) == (1e-4, None, None)


@pytest.mark.parametrize(("repeats", "there"), [(6, False), (7, True)])
def test_samples_are_there_from_seven_repeats_on(repeats, there):
    times = [100.0 + k for k in range(repeats)]
    value = case_value(make_trial(MIB, 1.0).case, times)

    assert value.samples_s == (tuple(time / 1e6 for time in times) if there else None)


def test_a_rate_is_that_of_the_median_time():
    case = msgspec.structs.replace(make_trial(MIB, 1.0).case, world_size=4)

    assert case_value(case, [100.0, 90.0, 300.0]).busbw_gb_per_s == pytest.approx(
        MIB / 100e-6 / 1e9 * 1.5, rel=1e-6
    )


def test_one_rank_has_no_rate():
    case = msgspec.structs.replace(make_trial(MIB, 1.0).case, world_size=1)

    assert case_value(case, [100.0]).busbw_gb_per_s is None


# --- benchmarks --------------------------------------------------------------------------------


def test_parameters_stand_in_rising_order_and_as_labels():
    sizes = (MIB, 4, 2**30, 4097)
    (found,) = benchmarks_of(series_of(small(sizes=sizes)))

    assert found.names == ("size", "mode", "ranks", "setting")
    assert found.values == (
        ("'4B'", "'4097B'", "'1MiB'", "'1GiB'"),
        ("'eager'", "'graph'"),
        ("2",),
        ("'default'",),
    )


def test_what_varies_becomes_a_parameter():
    other = small(dtype="bfloat16", run={}).trials
    run = small()
    both = replace(run, trials=(*run.trials, *other))
    (found,) = benchmarks_of(series_of(both))

    assert found.names == ("size", "mode", "ranks", "setting", "dtype")
    assert found.values[-1] == ("'bfloat16'", "'float32'")
    assert all(slot is not None for slot in found.cases[0])
    assert found.slots == 8


def test_what_only_series_differ_in_is_no_parameter():
    torch = [
        stored_run([make_trial(MIB, 90.0)], f"20261130-0000-{k}", environment=environment_of(v))
        for k, v in enumerate(TWO)
    ]
    (found,) = benchmarks_of(series_of(small(), *torch))

    assert "via" not in found.names


# --- files -------------------------------------------------------------------------------------


def test_files_hold_times_in_seconds_and_rates(tmp_path):
    planted = {("all_reduce", Mode.GRAPH, MIB, "2.30.7"): 1.3}
    made = exported(tmp_path, small(planted=planted))

    assert (made.files, made.values, made.machines) == (2, 16, (MACHINE,))
    found = documents(tmp_path)
    assert found.keys() == set(TWO)
    old, new = (row(found[version], "all_reduce.time") for version in TWO)
    # alpha + S / B of the maker: 30 and 8 us, 250 GB/s.
    eager_s, graph_s = 30e-6 + MIB / 250e9, 8e-6 + MIB / 250e9
    assert old["result"] == pytest.approx([30e-6, 8e-6, eager_s, graph_s], rel=1e-5)
    assert new["result"][:3] == old["result"][:3]
    assert new["result"][3] == pytest.approx(1.3 * graph_s, rel=1e-6)
    assert old["stats_ci_99_a"] == pytest.approx(old["result"], rel=1e-6)
    assert (old["stats_number"], old["stats_repeat"]) == ([1] * 4, [3] * 4)
    assert "samples" not in old
    assert old["started_at"] == 1796011920000
    rates = row(found["2.29.7"], "all_reduce.busbw")
    assert rates["result"][3] == pytest.approx(MIB / graph_s / 1e9, rel=1e-6)
    assert rates.keys() == {"result", "params", "version", "started_at"}


def test_what_stands_beside_the_values(tmp_path):
    exported(tmp_path, small())
    found = documents(tmp_path)["2.30.7"]
    benchmarks = json.loads((tmp_path / "results/benchmarks.json").read_text())
    machine = json.loads((tmp_path / f"results/{MACHINE}/machine.json").read_text())

    assert found["params"] == {
        "machine": MACHINE,
        "gpu": "NVIDIA H200",
        "nodes": "1",
        "torch": "none",
        "cuda": "13.0",
        "driver": "580.1",
        "plugin": "none",
        "via": "native",
    }
    assert found["python"] == "3.12.3"
    assert found["version"] == benchmarks["version"] == 2
    assert machine == {
        "machine": MACHINE,
        "gpu": "NVIDIA H200",
        "placement": "1 node x 2 GPUs",
        "version": 1,
    }
    time, rate = benchmarks["all_reduce.time"], benchmarks["all_reduce.busbw"]
    assert (time["type"], time["unit"]) == ("time", "seconds")
    assert (rate["type"], rate["unit"]) == ("track", "GB/s")
    assert time["params"] == [["'4B'", "'1MiB'"], ["'eager'", "'graph'"], ["2"], ["'default'"]]


def test_the_configuration_judges_times_alone(tmp_path):
    exported(tmp_path, small(), threshold=0.08)
    found = json.loads((tmp_path / "asv.conf.json").read_text())

    assert found["regressions_first_commits"] == {".*busbw.*": None}
    assert found["regressions_thresholds"] == {".*": 0.08}
    assert (found["repo"], found["branches"]) == ("releases", ["main"])
    assert found["project"] == "NCCL releases"


def test_seven_repeats_have_samples(tmp_path):
    exported(tmp_path, small(repeats=7))
    found = row(documents(tmp_path)["2.29.7"], "all_reduce.time")

    assert [len(samples) for samples in found["samples"]] == [7] * 4


def test_a_case_that_a_release_lacks_is_null(tmp_path):
    run = torn(small(), "2.30.7", keep=lambda t: (t.case.size_bytes, t.case.mode) != (4, "graph"))
    made = exported(tmp_path, run)
    found = documents(tmp_path)["2.30.7"]

    assert row(found, "all_reduce.time")["result"][1] is None
    assert row(found, "all_reduce.time")["stats_number"] == [1, None, 1, 1]
    assert row(found, "all_reduce.busbw")["result"][1] is None
    assert made.values == 14


def test_a_collective_that_a_release_lacks_has_no_row(tmp_path):
    run = small(collectives=("all_reduce", "all_gather"))
    run = torn(run, "2.29.7", keep=lambda t: t.case.collective == "all_reduce")
    exported(tmp_path, run)

    assert documents(tmp_path)["2.29.7"]["results"].keys() == {
        "all_reduce.time",
        "all_reduce.busbw",
    }


def test_the_same_store_gives_the_same_bytes(tmp_path):
    for name in ("one", "other"):
        exported(tmp_path / name, small(noise=0.01))
    exported(tmp_path / "other", small(noise=0.01))

    contents = []
    for name in ("one", "other"):
        root = tmp_path / name
        files = [path for path in root.rglob("*") if path.is_file() and ".git" not in path.parts]
        contents.append({path.relative_to(root): path.read_bytes() for path in files})
    assert contents[0] == contents[1]
    assert len(contents[0]) == 8


def test_a_newer_export_replaces_the_older_one_whole(tmp_path):
    exported(tmp_path, history_run(("2.28.9", *TWO), collectives=("all_gather",)))
    exported(tmp_path, small())

    assert documents(tmp_path).keys() == set(TWO)


# --- series ------------------------------------------------------------------------------------


def test_two_makes_of_hardware_are_two_machines(tmp_path):
    here = small()
    there = replace(small(run_id="20261130-1300-bbbb"), topology=topology_of(model="NVIDIA H100"))
    made = exported(tmp_path, here, there)

    assert set(made.machines) == {MACHINE, "nvidia-h100-1-node-x-2-gpus"}
    assert made.files == 4


def test_two_drivers_are_two_files_of_one_machine(tmp_path):
    other = small(run_id="20261130-1300-bbbb")
    environment = msgspec.structs.replace(other.run.environment, driver="590.2")
    run = msgspec.structs.replace(other.run, environment=environment)
    made = exported(tmp_path, small(), replace(other, run=run))

    assert made.machines == (MACHINE, MACHINE)
    found = asv_check.result_files(tmp_path / "results")
    assert len(found) == 4
    drivers = {json.loads(path.read_text())["params"]["driver"] for path in found}
    assert drivers == {"580.1", "590.2"}


# --- refused -----------------------------------------------------------------------------------


def test_a_release_that_nobody_knows_is_named_with_what_to_do(tmp_path):
    run = history_run(("2.29.7", "2.99.1"), sizes=(4,))
    with pytest.raises(UsageError, match=r"NCCL 2\.99\.1 is not in the table.*--releases FILE"):
        exported(tmp_path / "out", run)
    assert not (tmp_path / "out").exists()

    more = tmp_path / "more.csv"
    more.write_text("version,uploaded\n2.99.1,2026-12-01T00:00:00Z\n")
    made = export_asv(tmp_path / "out", series_of(run), read_releases(more))
    assert made.files == 2


def test_one_release_is_no_history(tmp_path):
    with pytest.raises(UsageError, match="needs 2 releases of one history, and the longest has 1"):
        exported(tmp_path / "out", history_run(("2.29.7",), sizes=(4,)))


def test_a_folder_of_something_else_is_left_alone(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match=r"no export of 'collbench history' and not empty"):
        exported(tmp_path, small())
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_what_was_written_wrong_is_found(tmp_path):
    exported(tmp_path, small())
    path = asv_check.result_files(tmp_path / "results")[0]
    document = json.loads(path.read_text())
    hashes = {version: found["commit_hash"] for version, found in documents(tmp_path).items()}
    assert asv_check.check_results(tmp_path / "results", hashes) == 16

    document["results"]["all_reduce.time"][0].pop()
    path.write_text(json.dumps(document))
    with pytest.raises(EngineError, match=r"all_reduce\.time result: 3, not 4"):
        asv_check.check_results(tmp_path / "results", hashes)
    with pytest.raises(EngineError, match="is no commit of a release"):
        asv_check.check_results(tmp_path / "results", {})
