"""The list of stored runs."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from collbench.cli.main import cli


def put(root: Path, cluster: str, run_id: str, *, trials: int = 0, **changes) -> None:
    folder = root / cluster / run_id
    folder.mkdir(parents=True)
    header = {
        "schema": 1,
        "run_id": run_id,
        "command": "sweep",
        "cluster": cluster,
        "backend": "nccl",
        "world_size": 8,
        "planned_trials": 90,
        "started_at": f"2026-11-{run_id[6:8]}T04:12:59.000+00:00",
        "simulated": False,
        "planted": None,
        "exit_code": 0,
    }
    (folder / "run.json").write_bytes(msgspec.json.encode(header | changes))
    lines = [b'{"trial_id":"%d","status":"ok","reason":null}\n' % n for n in range(trials)]
    (folder / "trials.jsonl").write_bytes(b"".join(lines))


def listed(*arguments: str) -> str:
    result = CliRunner().invoke(cli, ["runs", *arguments], catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


@pytest.fixture
def root(tmp_path) -> Path:
    put(tmp_path, "lab", "20261128-0412-aa11", trials=90)
    put(tmp_path, "lab", "20261130-0412-bb22", trials=3, exit_code=130)
    put(tmp_path, "a-much-longer-name", "20261129-0412-cc33", trials=12, exit_code=None)
    return tmp_path


def test_what_ran_beyond_the_plan_has_no_share(tmp_path):
    put(tmp_path, "lab", "20261130-0412-bb22", trials=88, planned_trials=56, command="pairwise")

    assert (
        listed("--results", str(tmp_path))
        .splitlines()[1]
        .endswith("8 ranks nccl    88  finished, exit 0")
    )


def test_runs_are_a_plain_table_newest_first(root):
    assert listed("--results", str(root)) == (
        "run                 command  cluster             started (UTC)     on            "
        "    kept  status\n"
        "20261130-0412-bb22  sweep    lab                 2026-11-30 04:12  8 ranks nccl  "
        " 3 of 90  interrupted\n"
        "20261129-0412-cc33  sweep    a-much-longer-name  2026-11-29 04:12  8 ranks nccl  "
        "12 of 90  running?\n"
        "20261128-0412-aa11  sweep    lab                 2026-11-28 04:12  8 ranks nccl  "
        "90 of 90  finished, exit 0\n"
    )


def test_simulated_and_planted_runs_are_marked(tmp_path):
    put(tmp_path, "lab", "20261130-0412-bb22", simulated=True, planted="wrong_element")
    assert listed("--results", str(tmp_path)).endswith("finished, exit 0  SIMULATED, PLANTED\n")


def test_damaged_and_newer_runs_are_listed_as_such(root):
    put(root, "lab", "20261127-0412-dd44", schema=2)
    (root / "lab" / "20261128-0412-aa11" / "run.json").write_text("{")
    lines = listed("--results", str(root)).splitlines()
    assert lines[3].endswith("schema 2: newer")
    assert lines[4].split() == (
        ["20261128-0412-aa11", "-", "lab", "-", "-", "90", "of", "?", "run.json", "damaged"]
    )


def test_a_long_row_stays_one_line_when_piped(tmp_path):
    put(tmp_path, "c" * 100, "20261130-0412-bb22")
    lines = listed("--results", str(tmp_path)).splitlines()
    assert len(lines) == 2
    assert "c" * 100 in lines[1]


def test_markup_in_a_stored_name_is_only_text(tmp_path):
    put(tmp_path, "lab", "20261130-0412-bb22", command="[red]sweep")
    assert "[red]sweep" in listed("--results", str(tmp_path))


def test_json_is_one_list_and_nothing_else(root):
    (root / "lab" / "20261128-0412-aa11" / "run.json").write_text("{")
    found = json.loads(listed("--results", str(root), "--json"))
    assert found[0] == {
        "folder": str(root / "lab" / "20261130-0412-bb22"),
        "status": "interrupted",
        "kept_trials": 3,
        "schema": 1,
        "run_id": "20261130-0412-bb22",
        "command": "sweep",
        "cluster": "lab",
        "backend": "nccl",
        "world_size": 8,
        "planned_trials": 90,
        "started_at": "2026-11-30T04:12:59.000+00:00",
        "simulated": False,
        "planted": None,
        "exit_code": 130,
    }
    assert found[2] == {
        "folder": str(root / "lab" / "20261128-0412-aa11"),
        "status": "run.json damaged",
        "kept_trials": 90,
    }


def test_no_runs_is_an_answer_and_says_how_to_make_one(tmp_path, monkeypatch):
    monkeypatch.setenv("COLLBENCH_RESULTS", str(tmp_path))
    assert listed() == f"no runs in '{tmp_path}'; 'collbench sweep' makes one\n"
    assert listed("--json") == "[]\n"
