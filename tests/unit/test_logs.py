"""Where the output of workers goes: a file, or memory that leaves nothing behind."""

from __future__ import annotations

import os
import subprocess

import pytest

from collbench.engine.logs import IN_MEMORY, LogPlace


@pytest.fixture(params=["a file", "memory"])
def place(request, tmp_path):
    return LogPlace(tmp_path if request.param == "a file" else None)


@pytest.fixture
def log(place):
    made = place.open("rank0.log")
    yield made
    made.close()


def test_a_log_without_a_line_has_no_tail(log):
    assert log.tail() == []


def test_the_tail_is_the_last_ten_lines(log):
    os.write(log.fileno(), b"".join(b"line %d\n" % number for number in range(30)))

    assert log.tail() == [f"line {number}" for number in range(20, 30)]


def test_the_tail_of_a_log_of_one_endless_line_is_bounded(log):
    os.write(log.fileno(), b"x" * 100_000)

    assert log.tail() == ["x" * 16384]


def test_bytes_that_are_no_text_are_shown_as_such(log):
    os.write(log.fileno(), b"before \xff after\n")

    assert log.tail() == ["before � after"]


def test_several_writers_append_and_reading_does_not_disturb_them(log):
    for number in range(3):
        command = ["sh", "-c", f"echo out {number}; echo error {number} >&2"]
        subprocess.run(command, stdout=log.fileno(), stderr=log.fileno(), check=True)
        assert log.tail()[-2:] == [f"out {number}", f"error {number}"]

    assert len(log.tail()) == 6


def test_closing_twice_does_no_harm(log):
    log.close()
    log.close()


def test_files_have_their_names_in_the_folder_as_it_was_then(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "logs").mkdir()
    place = LogPlace((tmp_path / "logs").relative_to(tmp_path))
    monkeypatch.chdir("/")
    log = place.open("rank3.log")
    os.write(log.fileno(), b"a line\n")
    log.close()

    assert (tmp_path / "logs" / "rank3.log").read_text() == "a line\n"
    assert place.where() == str(tmp_path / "logs")


def test_a_file_is_continued_by_the_next_worker_of_the_rank(tmp_path):
    place = LogPlace(tmp_path)
    for line in (b"first\n", b"second\n"):
        log = place.open("rank0.log")
        os.write(log.fileno(), line)
        log.close()

    assert (tmp_path / "rank0.log").read_text() == "first\nsecond\n"


def test_nccl_writes_into_a_file_of_each_process(tmp_path):
    place = LogPlace(tmp_path)
    files = {place.nccl_file(seat, 3) for seat in (7, 8)}

    assert files == {f"{tmp_path}/nccl-seat7-rank3.log", f"{tmp_path}/nccl-seat8-rank3.log"}


def test_memory_leaves_no_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    place = LogPlace(None)
    log = place.open("rank0.log")
    os.write(log.fileno(), b"a line\n")
    log.close()

    assert list(tmp_path.iterdir()) == []
    assert place.nccl_file(7, 3) == IN_MEMORY
    assert place.where() == "kept in memory on that node"
