"""Where runs are kept, and how a person names one."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import msgspec
import pytest

from collbench.errors import RunNotFound, UsageError
from collbench.store import (
    check_writable,
    cluster_name,
    find_run,
    list_runs,
    paths,
    results_root,
)


def put(root: Path, cluster: str, run_id: str, started_at: str | None = None, **more) -> Path:
    """Writes the run.json of a run and nothing else."""
    folder = root / cluster / run_id
    folder.mkdir(parents=True)
    header = {
        "schema": 1,
        "run_id": run_id,
        "command": "sweep",
        "cluster": cluster,
        "backend": "gloo",
        "world_size": 2,
        "planned_trials": 3,
        "started_at": started_at or f"2026-11-{run_id[6:8]}T04:12:00.000+00:00",
    }
    (folder / "run.json").write_bytes(msgspec.json.encode(header | more))
    return folder


@pytest.fixture
def root(tmp_path) -> Path:
    """Three runs of two clusters."""
    root = tmp_path / "results"
    put(root, "lab", "20261128-0412-aa11")
    put(root, "lab", "20261130-0412-bb22")
    put(root, "other", "20261129-0412-cc33")
    return root


def test_the_option_beats_the_variable_beats_the_default():
    environ = {"COLLBENCH_RESULTS": "/from/variable"}
    assert results_root("/from/option", environ) == Path("/from/option")
    assert results_root(None, environ) == Path("/from/variable")
    assert results_root(None, {}) == Path("results")
    assert results_root(None, {"COLLBENCH_RESULTS": ""}) == Path("results")


def test_the_cluster_is_the_option_then_slurms_then_the_host(monkeypatch):
    monkeypatch.setattr(paths.socket, "gethostname", lambda: "node-7.example.org")
    environ = {"SLURM_CLUSTER_NAME": "big"}
    assert cluster_name("mine.v2", environ) == "mine.v2"
    assert cluster_name(None, environ) == "big"
    assert cluster_name(None, {}) == "node-7"


def test_a_found_cluster_name_is_made_safe():
    assert cluster_name(None, {"SLURM_CLUSTER_NAME": "big iron/2"}) == "big_iron_2"


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "-x", "a b", "é", "x" * 101])
def test_a_cluster_that_can_be_no_folder_is_refused(name):
    with pytest.raises(UsageError) as caught:
        cluster_name(name, {})
    assert str(caught.value) == (
        f"--cluster '{name}' cannot be a folder's name; give --cluster up to 100 letters,"
        " digits, '.', '_' or '-', a letter or digit first"
    )


def test_a_variable_that_can_be_no_folder_is_named():
    with pytest.raises(UsageError, match=r"^SLURM_CLUSTER_NAME '\.\.' cannot be a folder's name"):
        cluster_name(None, {"SLURM_CLUSTER_NAME": ".."})


def test_a_writable_folder_is_left_as_it_was(tmp_path):
    check_writable(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_yet_to_be_made_is_not_made_by_asking(tmp_path):
    check_writable(tmp_path / "a" / "b")
    assert list(tmp_path.iterdir()) == []


def test_a_results_folder_under_a_file_is_refused_in_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError) as caught:
        check_writable(tmp_path / "file" / "results")
    assert str(caught.value) == (
        f"results folder '{tmp_path}/file/results' is not writable: Not a directory;"
        " give another with --results"
    )


def test_a_dangling_link_as_results_folder_is_refused(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "gone")
    with pytest.raises(UsageError, match="is not writable: No such file or directory"):
        check_writable(tmp_path / "link")


def test_a_folder_without_the_right_to_write_is_refused(tmp_path, monkeypatch):
    def denied(**_options):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(paths.tempfile, "TemporaryFile", denied)
    with pytest.raises(UsageError) as caught:
        check_writable(tmp_path)
    assert str(caught.value) == (
        f"results folder '{tmp_path}' is not writable: Permission denied;"
        " give another with --results"
    )


def test_runs_are_listed_newest_first_over_all_clusters(root):
    found = list_runs(root)
    assert [(listed.header.cluster, listed.header.run_id) for listed in found] == [
        ("lab", "20261130-0412-bb22"),
        ("other", "20261129-0412-cc33"),
        ("lab", "20261128-0412-aa11"),
    ]


def test_two_runs_of_one_minute_are_ordered_by_their_start(tmp_path):
    put(tmp_path, "lab", "20261130-0412-ff00", "2026-11-30T04:12:05.000+00:00")
    put(tmp_path, "lab", "20261130-0412-00ff", "2026-11-30T04:12:40.000+00:00")
    assert find_run("last", tmp_path).name == "20261130-0412-00ff"


def test_a_damaged_header_is_listed_last_and_is_never_the_last_run(root):
    (root / "lab" / "20261130-0412-bb22" / "run.json").write_text('{"schema": 1,')
    found = list_runs(root)
    assert found[-1].header is None
    assert found[-1].folder.name == "20261130-0412-bb22"
    assert find_run("last", root).name == "20261129-0412-cc33"


def test_folders_that_are_no_runs_and_files_are_passed_over(root):
    (root / "README.md").write_text("x")
    (root / "lab" / "notes.txt").write_text("x")
    (root / "lab" / "half-made").mkdir()
    assert len(list_runs(root)) == 3


def test_a_results_folder_that_is_not_there_holds_no_runs(tmp_path):
    assert list_runs(tmp_path / "nowhere") == []


def test_kept_trials_are_whole_lines_that_no_interruption_left_out(root):
    folder = root / "lab" / "20261128-0412-aa11"
    lines = [
        b'{"trial_id":"a","status":"ok","reason":null}',
        b'{"trial_id":"b","status":"skipped","reason":{"code":"no_memory","text":"x"}}',
        b'{"trial_id":"c","status":"skipped","reason":{"code":"interrupted","text":"x"}}',
        b'{"trial_id":"a","status":"ok","reason":null}',
        b'{"status":"ok","reason":null}',
        b"# a note",
        b'{"status":"ok","rea',
    ]
    (folder / "trials.jsonl").write_bytes(b"\n".join(lines))
    assert [listed.kept_trials() for listed in list_runs(root)] == [0, 0, 2]


def test_a_run_is_found_by_folder_id_beginning_and_last(root):
    expected = root / "other" / "20261129-0412-cc33"
    assert find_run(str(expected), root) == expected
    assert find_run("20261129-0412-cc33", root) == expected
    assert find_run("20261129", root) == expected
    assert find_run("last", root).name == "20261130-0412-bb22"


def test_last_is_this_users_newest_run(root, monkeypatch):
    mine = root / "lab" / "20261128-0412-aa11"
    owners = dict.fromkeys(root.glob("*/*"), 1) | {mine: 2}
    real_stat = Path.stat

    class Owned:
        def __init__(self, uid: int) -> None:
            self.st_uid = uid

    def stat(self: Path, **options):
        return Owned(owners[self]) if self in owners else real_stat(self, **options)

    monkeypatch.setattr(Path, "stat", stat)
    monkeypatch.setattr(paths.os, "getuid", lambda: 2)
    assert find_run("last", root) == mine
    monkeypatch.setattr(paths.os, "getuid", lambda: 3)
    assert find_run("last", root).name == "20261130-0412-bb22"


def test_a_whole_id_wins_over_longer_ids_that_begin_with_it(root):
    exact = put(root, "lab", "20261128-0412")
    assert find_run("20261128-0412", root) == exact


def test_an_unknown_run_is_told_with_the_newest(root):
    with pytest.raises(RunNotFound) as caught:
        find_run("x", root)
    assert str(caught.value) == (
        f"no run 'x' in '{root}'; the newest are 20261130-0412-bb22, 20261129-0412-cc33,"
        " 20261128-0412-aa11; 'collbench runs' lists all"
    )


@pytest.mark.parametrize("name", ["", "n" * 5000, "results/lab/none"])
def test_odd_names_are_no_runs(root, name, monkeypatch):
    monkeypatch.chdir(root.parent)
    with pytest.raises(RunNotFound, match=r"^no run '"):
        find_run(name, root)


def test_an_ambiguous_beginning_lists_five_candidates_newest_first(root):
    for day in range(11, 15):
        put(root, "lab", f"202611{day}-0412-dd44")
    with pytest.raises(RunNotFound) as caught:
        find_run("202611", root)
    ids = ["lab/20261130-0412-bb22", "other/20261129-0412-cc33", "lab/20261128-0412-aa11"]
    ids += ["lab/20261114-0412-dd44", "lab/20261113-0412-dd44"]
    candidates = ", ".join(f"{root}/{name}" for name in ids)
    assert str(caught.value) == (
        f"run '202611' may be any of 7: {candidates}, ...; give more of its id, or its folder"
    )


@pytest.mark.parametrize("name", ["last", "2026"])
def test_without_any_run_it_says_how_to_make_one(tmp_path, name):
    with pytest.raises(RunNotFound) as caught:
        find_run(name, tmp_path)
    assert str(caught.value) == (
        f"no run '{name}': there are no runs in '{tmp_path}'; measure with 'collbench sweep', or"
        " give another folder with --results"
    )
