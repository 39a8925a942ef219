"""What a writer leaves on disk, whatever happens while it writes."""

from __future__ import annotations

import errno
import json
import os
import re
import subprocess
from pathlib import Path

import msgspec
import numpy as np
import pytest
from records import make_run

from collbench.errors import StoreError
from collbench.model import Case, Run, SampleRef, Status, Topology, Trial
from collbench.store import RunWriter, new_run_id, read_run
from collbench.store import writer as writer_module

TIMES_US = np.array([[10, 20, 30], [9, 18, 24]], dtype=np.float32)
TOPOLOGY = Topology(nodes=[])


def a_run(**changes) -> Run:
    run = make_run(seed=7, planned_trials=9, backend="gloo")
    return msgspec.structs.replace(run, **changes)


def a_trial(number: int = 1) -> Trial:
    case = Case(
        collective="broadcast",
        backend="gloo",
        dtype="float32",
        root=0,
        size_bytes=4 * number,
        requested_bytes=4 * number,
        count=number,
        world_size=2,
        in_place=True,
    )
    return Trial(
        trial_id=f"{case.case_id}.0",
        case_id=case.case_id,
        case=case,
        repeat=0,
        status=Status.OK,
        started_at="2026-11-30T04:12:01.000+00:00",
        duration_s=0.5,
    )


class LimitedFile:
    """A file on a disk that has room for so many bytes; then every write fails in its midst."""

    def __init__(self, path: Path, room_bytes: int, error: BaseException) -> None:
        self._file = path.open("ab", buffering=0)
        self.room_bytes = room_bytes
        self._error = error
        self.refused = 0
        self.fileno, self.tell, self.close = self._file.fileno, self._file.tell, self._file.close

    def write(self, data) -> int:
        if self.room_bytes == 0:
            self.refused += 1
            raise self._error
        written = self._file.write(bytes(data[: self.room_bytes]))
        self.room_bytes -= written
        return written


def writer_on(tmp_path: Path, *, trials_room=10**6, samples_room=10**6, error: BaseException):
    RunWriter.create(tmp_path, a_run(), TOPOLOGY).close()
    folder = tmp_path / "lab" / a_run().run_id
    files = (
        LimitedFile(folder / "trials.jsonl", trials_room, error),
        LimitedFile(folder / "samples.bin", samples_room, error),
    )
    return RunWriter(folder, a_run(), trials=files[0], samples=files[1]), *files


def no_space() -> OSError:
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_new_run_has_its_five_parts_and_reads_back(tmp_path):
    writer = RunWriter.create(tmp_path / "results", a_run(), TOPOLOGY)
    writer.close()
    assert writer.folder == tmp_path / "results" / "lab" / "20261130-0412-7f3a"
    assert sorted(entry.name for entry in writer.folder.iterdir()) == [
        "logs",
        "run.json",
        "samples.bin",
        "topology.json",
        "trials.jsonl",
    ]
    assert writer.logs == writer.folder / "logs"
    stored = read_run(writer.folder)
    assert (stored.run, stored.topology, stored.trials, stored.problems) == (
        a_run(),
        TOPOLOGY,
        (),
        (),
    )


def test_a_taken_id_is_never_written_into_but_replaced(tmp_path):
    first = RunWriter.create(tmp_path, a_run(seed=1), TOPOLOGY)
    second = RunWriter.create(tmp_path, a_run(seed=2), TOPOLOGY)
    first.close()
    second.close()
    assert second.run.run_id != first.run.run_id
    assert second.folder.name == second.run.run_id
    assert read_run(first.folder).run.seed == 1
    assert read_run(second.folder).run == second.run


def test_ids_that_are_all_taken_end_the_search(tmp_path, monkeypatch):
    monkeypatch.setattr(writer_module, "new_run_id", lambda: a_run().run_id)
    RunWriter.create(tmp_path, a_run(), TOPOLOGY).close()
    with pytest.raises(StoreError, match=f"{re.escape(str(tmp_path))}/lab: 100 run ids are taken"):
        RunWriter.create(tmp_path, a_run(), TOPOLOGY)


def test_an_id_is_the_minute_and_four_random_digits():
    assert re.fullmatch(r"\d{8}-\d{4}-[0-9a-f]{4}", new_run_id())


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError) as caught:
        RunWriter.create(tmp_path / "file", a_run(), TOPOLOGY)
    assert str(caught.value) == (f"cannot keep results in {tmp_path}/file/lab: Not a directory")


def test_a_disk_full_at_the_start_leaves_no_folder(tmp_path, monkeypatch):
    def full(_descriptor: int) -> None:
        raise no_space()

    monkeypatch.setattr(writer_module.os, "fsync", full)
    with pytest.raises(StoreError, match="No space left on device"):
        RunWriter.create(tmp_path, a_run(), TOPOLOGY)
    assert list((tmp_path / "lab").iterdir()) == []


def test_a_trial_and_its_samples_come_back_exactly(tmp_path):
    writer = RunWriter.create(tmp_path, a_run(), TOPOLOGY)
    kept = [
        writer.append(a_trial(1), TIMES_US, "fake"),
        writer.append(a_trial(2), None, ""),
        writer.append(a_trial(3), TIMES_US + 1, "fake"),
    ]
    writer.close()
    assert kept[0].samples == SampleRef(
        offset_bytes=0, layout="rank_sample", ranks=2, samples=3, clock="fake"
    )
    assert kept[1].samples is None
    assert kept[2].samples is not None
    assert kept[2].samples.offset_bytes == 24
    stored = read_run(writer.folder)
    assert stored.trials == tuple(kept)
    assert stored.times_us(kept[0]).tolist() == TIMES_US.tolist()
    assert stored.times_us(kept[2]).tolist() == (TIMES_US + 1).tolist()
    assert stored.times_us(kept[1]) is None


def test_each_line_is_in_the_file_as_soon_as_append_returns(tmp_path):
    writer = RunWriter.create(tmp_path, a_run(), TOPOLOGY)
    trial = writer.append(a_trial(), TIMES_US, "fake")
    lines = (writer.folder / "trials.jsonl").read_bytes()
    writer.close()
    assert lines.endswith(b"\n")
    assert msgspec.json.decode(lines, type=Trial) == trial


def test_a_trial_without_any_sample_refers_to_none(tmp_path):
    writer = RunWriter.create(tmp_path, a_run(), TOPOLOGY)
    trial = writer.append(a_trial(), np.empty((2, 0), dtype=np.float32), "fake")
    writer.close()
    assert trial.samples is None


def test_20_000_values_are_kept_whole_and_more_are_reduced(tmp_path):
    whole = np.arange(20_000, dtype=np.float32).reshape(2, 10_000)
    more = np.arange(20_002, dtype=np.float32).reshape(2, 10_001)
    writer = RunWriter.create(tmp_path, a_run(), TOPOLOGY)
    first = writer.append(a_trial(1), whole, "fake")
    second = writer.append(a_trial(2), more, "fake")
    writer.close()
    stored = read_run(writer.folder)
    assert (first.samples.layout, second.samples.layout) == ("rank_sample", "reduced")
    assert second.samples.offset_bytes == 80_000
    assert (writer.folder / "samples.bin").stat().st_size == 80_000 + 4 * (3 * 10_001 + 2 * 3)
    assert stored.times_us(first).shape == (2, 10_000)
    assert stored.times_us(second) is None
    assert stored.over_ranks_us(second)[:, :2].tolist() == [
        [0, 1],
        [5000.5, 5001.5],
        [10_001, 10_002],
    ]
    assert stored.rank_quantiles_us(second).tolist() == [[500, 5000, 9500], [10501, 15001, 19501]]


def test_both_layouts_answer_alike(tmp_path, monkeypatch):
    writer = RunWriter.create(tmp_path, a_run(), TOPOLOGY)
    whole = writer.append(a_trial(1), TIMES_US, "fake")
    monkeypatch.setattr(writer_module, "MOST_VALUES", 5)
    reduced = writer.append(a_trial(2), TIMES_US, "fake")
    writer.close()
    stored = read_run(writer.folder)
    assert stored.over_ranks_us(whole).tolist() == [[9, 18, 24], [9.5, 19, 27], [10, 20, 30]]
    assert stored.over_ranks_us(reduced).tolist() == stored.over_ranks_us(whole).tolist()
    assert stored.rank_quantiles_us(whole).shape == (2, 3)
    assert np.array_equal(stored.rank_quantiles_us(reduced), stored.rank_quantiles_us(whole))


def test_the_disk_is_told_once_a_second_and_when_asked(tmp_path, monkeypatch):
    now_s = [100.0]
    synced: list[int] = []
    writer = RunWriter.create(tmp_path, a_run(), TOPOLOGY)
    monkeypatch.setattr(writer_module.time, "monotonic", lambda: now_s[0])
    monkeypatch.setattr(writer_module.os, "fsync", synced.append)
    writer.sync()
    assert len(synced) == 2
    now_s[0] += 1.0
    writer.append(a_trial(1), None, "")
    assert len(synced) == 2
    now_s[0] += 0.1
    writer.append(a_trial(2), None, "")
    assert len(synced) == 4
    writer.append(a_trial(3), None, "")
    assert len(synced) == 4
    writer.close()


def test_update_rewrites_both_records_and_leaves_no_temporary_file(tmp_path):
    writer = RunWriter.create(tmp_path, a_run(), TOPOLOGY)
    ended = a_run(exit_code=4, ended_at="2026-11-30T04:13:00.000+00:00")
    topology = msgspec.structs.replace(TOPOLOGY, ranks=[])
    writer.update(ended, topology)
    writer.close()
    assert read_run(writer.folder).run == ended
    assert json.loads((writer.folder / "run.json").read_text())["exit_code"] == 4
    assert list(writer.folder.glob("*.tmp")) == []


def test_update_without_a_topology_keeps_it(tmp_path):
    writer = RunWriter.create(tmp_path, a_run(), TOPOLOGY)
    before = (writer.folder / "topology.json").stat().st_ino
    writer.update(a_run(exit_code=0))
    writer.close()
    assert (writer.folder / "topology.json").stat().st_ino == before
    assert read_run(writer.folder).run.exit_code == 0


def test_a_discarded_run_is_no_run_but_keeps_what_workers_said(tmp_path):
    writer = RunWriter.create(tmp_path, a_run(), TOPOLOGY)
    (writer.logs / "rank0.log").write_text("no such device\n")
    writer.discard()
    assert [entry.name for entry in writer.folder.iterdir()] == ["logs"]
    assert (writer.logs / "rank0.log").read_text() == "no such device\n"


def test_a_disk_full_in_the_midst_of_a_line_stops_the_writing(tmp_path):
    line_bytes = len(msgspec.json.encode(a_trial(1))) + 1
    writer, trials, _ = writer_on(tmp_path, trials_room=line_bytes + 40, error=no_space())
    writer.append(a_trial(1), None, "")
    expected = (
        f"results can no longer be written: {writer.folder}: No space left on device;"
        " 1 of 9 trials are kept and readable"
    )
    with pytest.raises(StoreError) as caught:
        writer.append(a_trial(2), None, "")
    assert str(caught.value) == expected

    trials.room_bytes = 10**6  # somebody makes room: still nothing goes behind the torn line
    with pytest.raises(StoreError) as again:
        writer.append(a_trial(3), TIMES_US, "fake")
    with pytest.raises(StoreError):
        writer.sync()
    writer.close()
    assert str(again.value) == expected
    assert trials.refused == 1
    stored = read_run(writer.folder)
    assert stored.trials == (a_trial(1),)
    assert stored.problems == ("trials.jsonl line 2: cut off; ignored",)


def test_a_disk_full_in_the_midst_of_samples_writes_no_line_for_them(tmp_path):
    writer, _, _ = writer_on(tmp_path, samples_room=30, error=no_space())
    first = writer.append(a_trial(1), TIMES_US, "fake")
    with pytest.raises(StoreError, match="1 of 9 trials are kept"):
        writer.append(a_trial(2), TIMES_US, "fake")
    writer.close()
    stored = read_run(writer.folder)
    assert stored.trials == (first,)
    assert stored.problems == ()
    assert stored.times_us(first).tolist() == TIMES_US.tolist()


@pytest.mark.parametrize("number", [errno.EFBIG, errno.EIO, errno.EDQUOT])
def test_every_error_of_the_system_stops_the_writing_alike(tmp_path, number):
    writer, _, _ = writer_on(tmp_path, trials_room=10, error=OSError(number, os.strerror(number)))
    with pytest.raises(StoreError, match=f"{os.strerror(number)}; 0 of 9 trials are kept"):
        writer.append(a_trial(), None, "")
    writer.close()


def test_the_end_can_still_be_told_where_only_trials_could_not(tmp_path):
    writer, _, _ = writer_on(tmp_path, trials_room=10, error=no_space())
    with pytest.raises(StoreError):
        writer.append(a_trial(), None, "")
    writer.update(a_run(exit_code=3))
    writer.close()
    assert read_run(writer.folder).run.exit_code == 3


def test_a_second_failure_repeats_the_first_and_damages_nothing(tmp_path, monkeypatch):
    def denied(_descriptor: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    writer, _, _ = writer_on(tmp_path, trials_room=10, error=no_space())
    with pytest.raises(StoreError) as first:
        writer.append(a_trial(), None, "")
    monkeypatch.setattr(writer_module.os, "fsync", denied)
    with pytest.raises(StoreError) as second:
        writer.update(a_run(exit_code=3), TOPOLOGY)
    writer.close()
    assert str(second.value) == str(first.value)
    assert read_run(writer.folder).run == a_run()
    assert list(writer.folder.glob("*.tmp")) == []


def test_a_write_broken_off_by_a_signal_is_undone_before_the_next(tmp_path):
    writer, trials, _ = writer_on(tmp_path, trials_room=40, error=KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        writer.append(a_trial(1), TIMES_US, "fake")
    trials.room_bytes = 10**6
    kept = writer.append(a_trial(2), TIMES_US + 1, "fake")
    writer.close()
    stored = read_run(writer.folder)
    assert stored.trials == (kept,)
    assert stored.problems == ()
    assert kept.samples.offset_bytes == 0
    assert stored.times_us(kept).tolist() == (TIMES_US + 1).tolist()


@pytest.fixture
def small_disk(tmp_path):
    """A real file system of 64 KiB."""
    place = tmp_path / "small"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "collbench-test", str(place)]
    try:
        mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("no mount command here")
    if mounted.returncode != 0:
        pytest.skip(f"a 64 KiB tmpfs cannot be mounted: {mounted.stderr.strip()}")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_real_full_disk_keeps_what_was_written_readable(small_disk):
    writer = RunWriter.create(small_disk, a_run(), TOPOLOGY)
    times_us = np.ones((2, 1000), dtype=np.float32)
    kept: list[Trial] = []

    def fill() -> None:
        for number in range(1, 100):
            kept.append(writer.append(a_trial(number), times_us, "fake"))

    with pytest.raises(StoreError) as caught:
        fill()
    with pytest.raises(StoreError) as end:
        writer.update(a_run(exit_code=3, suite={"filler": "x" * 70_000}), TOPOLOGY)
    writer.close()
    assert 0 < len(kept) < 9
    assert str(caught.value) == (
        f"results can no longer be written: {writer.folder}: No space left on device;"
        f" {len(kept)} of 9 trials are kept and readable"
    )
    assert str(end.value) == str(caught.value)
    stored = read_run(writer.folder)
    assert stored.run == a_run()
    assert stored.trials == tuple(kept)
    assert stored.times_us(kept[-1]).tolist() == times_us.tolist()
