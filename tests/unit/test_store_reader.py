"""Reading runs that are damaged, torn, foreign, old or too new."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from collbench import model
from collbench.errors import RecordError
from collbench.store import read_run
from collbench.store.migrations import MIGRATIONS

GOLDEN = Path(__file__).parents[1] / "data" / "golden" / "v1"


@pytest.fixture
def folder(tmp_path) -> Path:
    """A copy of the golden run: 10 trials, samples for the first two."""
    return Path(shutil.copytree(GOLDEN, tmp_path / "run"))


def change(path: Path, edit: Callable[[dict], object]) -> None:
    record = json.loads(path.read_text())
    edit(record)
    path.write_text(json.dumps(record))


def lines_of(folder: Path) -> list[bytes]:
    return (folder / "trials.jsonl").read_bytes().splitlines(keepends=True)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"# a note\n", "JSON is malformed: invalid character (byte 0)"),
        (b"[1, 2]\n", "Expected `object`, got `array`"),
        (b'{"event": "x"}\n', "Object missing required field `trial_id`"),
        (b'{"schema": 7, "event": "x"}\n', "Object missing required field `trial_id`"),
        (b'{"schema": "x", "trial_id": "y"}\n', "Expected `int`, got `str` - at `$.schema`"),
        (b"\0\0\0\n", "JSON is malformed: invalid character (byte 0)"),
        (b'"\xff\xfe"\n', "Invalid UTF-8 encoded string"),
        (b"[" * 100_000 + b"\n", "maximum recursion depth exceeded"),
    ],
)
def test_a_foreign_line_is_named_by_number_and_the_rest_is_read(folder, line, why):
    lines = lines_of(folder)
    (folder / "trials.jsonl").write_bytes(b"".join([*lines[:3], line, *lines[3:]]))
    stored = read_run(folder)
    assert len(stored.trials) == 10
    assert len(stored.problems) == 1
    assert stored.problems[0].startswith(f"trials.jsonl line 4: not a trial ({why}")
    assert stored.problems[0].endswith("); ignored")


def test_a_line_nested_without_end_is_foreign_too(folder):
    with (folder / "trials.jsonl").open("ab") as stream:
        stream.write(b'{"schema":' + b"[" * 100_000 + b"\n")
    stored = read_run(folder)
    assert len(stored.trials) == 10
    assert len(stored.problems) == 1


def test_a_torn_last_line_is_named_and_ignored(folder):
    data = (folder / "trials.jsonl").read_bytes()
    (folder / "trials.jsonl").write_bytes(data[:-40])
    stored = read_run(folder)
    assert len(stored.trials) == 9
    assert stored.problems == ("trials.jsonl line 10: cut off; ignored",)


def test_a_last_line_that_lacks_only_its_line_feed_counts(folder):
    data = (folder / "trials.jsonl").read_bytes()
    (folder / "trials.jsonl").write_bytes(data[:-1])
    stored = read_run(folder)
    assert len(stored.trials) == 10
    assert stored.problems == ()


def test_empty_lines_are_nothing_to_report(folder):
    lines = lines_of(folder)
    (folder / "trials.jsonl").write_bytes(b"\n".join(lines))
    stored = read_run(folder)
    assert (len(stored.trials), stored.problems) == (10, ())


def test_unknown_fields_are_passed_over(folder):
    line = json.loads(lines_of(folder)[0]) | {"invented_later": [1]}
    (folder / "trials.jsonl").write_text(json.dumps(line) + "\n")
    change(folder / "run.json", lambda record: record.update(invented_later=1))
    stored = read_run(folder)
    assert (len(stored.trials), stored.problems) == (1, ())


def test_samples_that_are_cut_off_are_named_and_their_trials_stay(folder):
    with (folder / "samples.bin").open("r+b") as stream:
        stream.truncate(95)
    stored = read_run(folder)
    lost = stored.trials[1].trial_id
    assert stored.problems == (
        f"samples.bin (95 bytes) lacks the samples of 1 of 2 trials, first {lost}",
    )
    assert stored.times_us(stored.trials[0]).shape == (2, 3)
    assert stored.over_ranks_us(stored.trials[1]) is None
    assert stored.rank_quantiles_us(stored.trials[1]) is None


def test_samples_that_are_gone_are_named(folder):
    (folder / "samples.bin").unlink()
    stored = read_run(folder)
    assert len(stored.problems) == 1
    assert stored.problems[0].startswith("samples.bin (0 bytes) lacks the samples of 2 of 2 trials")
    assert stored.times_us(stored.trials[0]) is None


@pytest.mark.parametrize(
    "place",
    [{"offset_bytes": -4}, {"ranks": -1}, {"samples": 0}, {"layout": "other"}, {"ranks": 10**9}],
)
def test_a_place_of_samples_that_cannot_be_is_missing(folder, place):
    line = json.loads(lines_of(folder)[0])
    line["samples"] |= place
    (folder / "trials.jsonl").write_text(json.dumps(line) + "\n")
    stored = read_run(folder)
    assert len(stored.problems) == 1
    assert stored.times_us(stored.trials[0]) is None
    assert stored.over_ranks_us(stored.trials[0]) is None


def test_a_run_without_trials_yet_is_read_and_said(folder):
    (folder / "trials.jsonl").unlink()
    stored = read_run(folder)
    assert stored.trials == ()
    assert stored.problems == ("trials.jsonl is missing: no trials",)


def test_a_folder_without_run_json_is_no_run(tmp_path):
    with pytest.raises(RecordError) as caught:
        read_run(tmp_path)
    assert str(caught.value) == (
        f"{tmp_path}/run.json cannot be read: No such file or directory; not a run folder?"
    )


@pytest.mark.parametrize("name", ["run.json", "topology.json"])
@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"schema": 1,', "is damaged: "),
        ("", "is damaged: "),
        ("[" * 100_000, "is damaged: "),
        ("[]", "is no record of collbench: not a JSON object"),
        ('{"schema": 1}', "is damaged: Object missing required field"),
        ("{}", "says no schema version; it is no record of collbench"),
        ('{"schema": 0}', "says no schema version; it is no record of collbench"),
    ],
)
def test_a_damaged_record_is_one_line_that_names_the_file(folder, name, text, why):
    (folder / name).write_text(text)
    with pytest.raises(RecordError) as caught:
        read_run(folder)
    assert str(caught.value).startswith(f"{folder}/{name} {why}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["run.json", "topology.json"])
def test_a_newer_schema_asks_for_an_upgrade(folder, name):
    change(folder / name, lambda record: record.update(schema=2))
    with pytest.raises(RecordError) as caught:
        read_run(folder)
    assert str(caught.value) == (
        f"{folder}/{name} is of schema 2; this collbench reads up to 1: upgrade collbench"
    )


@pytest.mark.parametrize("readable", [True, False])
def test_one_line_of_a_newer_schema_refuses_the_whole_run(folder, readable):
    line = json.loads(lines_of(folder)[0]) | {"schema": 2}
    if not readable:
        line["status"] = "invented_later"
    with (folder / "trials.jsonl").open("a") as stream:
        stream.write(json.dumps(line) + "\n")
    with pytest.raises(RecordError) as caught:
        read_run(folder)
    assert str(caught.value) == (
        f"{folder}/trials.jsonl line 11 is of schema 2; this collbench reads up to 1:"
        " upgrade collbench"
    )


def test_older_records_are_brought_up_step_by_step(folder, monkeypatch):
    def to_2(record: dict) -> dict:
        """Version 2 called a run's seed ``seed``; here version 1 says ``number``."""
        if "number" in record:
            record["seed"] = record.pop("number")
        return record

    def to_3(record: dict) -> dict:
        if "trial_id" in record:
            record["repeat"] += 10
        return record

    change(folder / "run.json", lambda record: record.update(number=record.pop("seed")))
    monkeypatch.setattr(model, "SCHEMA_VERSION", 3)
    monkeypatch.setitem(MIGRATIONS, 1, to_2)
    monkeypatch.setitem(MIGRATIONS, 2, to_3)
    stored = read_run(folder)
    assert (stored.run.schema, stored.run.seed) == (3, 7)
    assert stored.topology.schema == 3
    assert {trial.repeat for trial in stored.trials} == {10}
    assert {trial.schema for trial in stored.trials} == {3}
    assert stored.problems == ()


def test_an_older_line_that_no_longer_decodes_is_migrated_as_well(folder, monkeypatch):
    def to_2(record: dict) -> dict:
        if record.get("status") == "fine":
            record["status"] = "ok"
        return record

    data = (folder / "trials.jsonl").read_bytes().replace(b'"status":"ok"', b'"status":"fine"')
    (folder / "trials.jsonl").write_bytes(data)
    monkeypatch.setattr(model, "SCHEMA_VERSION", 2)
    monkeypatch.setitem(MIGRATIONS, 1, to_2)
    stored = read_run(folder)
    assert [trial.status for trial in stored.trials[:2]] == [model.Status.OK, model.Status.OK]
    assert stored.problems == ()


def test_every_older_version_has_a_migration_and_a_golden_run():
    assert sorted(MIGRATIONS) == list(range(1, model.SCHEMA_VERSION))
    kept = {folder.name for folder in GOLDEN.parent.iterdir()}
    assert kept == {f"v{version}" for version in range(1, model.SCHEMA_VERSION + 1)}
