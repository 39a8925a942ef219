"""The run's secret: where it comes from, and that a poor one is refused."""

from __future__ import annotations

import os
import re
import stat
from concurrent.futures import ThreadPoolExecutor

import pytest

from collbench.errors import UsageError
from collbench.launch.detect import Launch, Launcher
from collbench.launch.meeting import Meeting, MeetingKind
from collbench.launch.options import LaunchOptions
from collbench.launch.secret import forget_secret, new_token, run_secret

GOOD = "0123456789abcdef"
ADDRESS = Meeting(kind=MeetingKind.ADDRESS, host="node0", ports=(1,), why="a test")
FILE = Meeting(kind=MeetingKind.FILE, path="/x", why="a test")


def launched(process=0, launcher=Launcher.SRUN, job="7.3") -> Launch:
    return Launch(launcher=launcher, process=process, processes=2, node_name="here", job=job)


def secret_of(
    results, meeting=ADDRESS, *, environ=None, token=None, wait_s=60.0, file=None, **launch
):
    return run_secret(
        environ or {},
        LaunchOptions(wait_s=wait_s, secret_file=None if file is None else str(file)),
        meeting,
        results,
        launch=launched(**launch),
        token=token,
    )


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "secret"
    path.write_text(f"{GOOD}\n")
    path.chmod(0o600)
    return path


def test_the_variable_comes_first(tmp_path, file):
    environ = {"COLLBENCH_SECRET": "f" * 64}

    assert secret_of(tmp_path, FILE, environ=environ, file=file, token="t") == b"f" * 64


def test_then_the_file(tmp_path, file):
    assert secret_of(tmp_path, FILE, file=file, token="t") == GOOD.encode()


@pytest.mark.parametrize("kind", [MeetingKind.FILE, MeetingKind.TORCHRUN_STORE, MeetingKind.MPI])
def test_then_the_token_of_the_announcement(tmp_path, kind):
    assert secret_of(tmp_path, Meeting(kind=kind, why="a test"), token="t") == b"t"


def test_one_process_needs_none_and_draws_one(tmp_path):
    alone = Meeting(kind=MeetingKind.NONE, why="a test")

    assert len(secret_of(tmp_path, alone)) == 64
    assert secret_of(tmp_path, alone) != secret_of(tmp_path, alone)


def test_tokens_are_long_and_new():
    assert len({new_token() for _ in range(100)}) == 100
    assert all(re.fullmatch("[0-9a-f]{64}", new_token()) for _ in range(10))


def test_in_a_slurm_step_process_0_draws_one_for_the_others(tmp_path):
    with ThreadPoolExecutor(1) as threads:
        awaited = threads.submit(secret_of, tmp_path, process=1)
        drawn = secret_of(tmp_path, process=0)

        assert awaited.result(60) == drawn
    assert re.fullmatch(b"[0-9a-f]{64}", drawn)
    made = tmp_path / ".meeting" / "7.3.secret"
    assert stat.S_IMODE(made.stat().st_mode) == 0o600

    forget_secret(launched(process=1), tmp_path)
    assert made.exists()
    forget_secret(launched(process=0), tmp_path)
    forget_secret(launched(process=0), tmp_path)
    assert list(made.parent.iterdir()) == []


def test_half_a_secret_is_not_taken(tmp_path):
    (tmp_path / ".meeting").mkdir()
    (tmp_path / ".meeting" / "7.3.secret").write_text("0123456789abcdef0123")

    with pytest.raises(UsageError, match="has written no secret"):
        secret_of(tmp_path, process=1, wait_s=0.0)


def test_another_steps_secret_is_not_taken(tmp_path):
    secret_of(tmp_path, job="7.2")

    with pytest.raises(UsageError) as refused:
        secret_of(tmp_path, process=1, wait_s=0.0)

    assert str(refused.value) == (
        f"process 0 has written no secret to '{tmp_path}/.meeting/7.3.secret' within 0 s; if the"
        " results folder is not shared by the nodes, set COLLBENCH_SECRET on every node before"
        " srun, or give --secret-file"
    )


def test_a_secret_that_is_there_already_is_not_overwritten(tmp_path):
    secret_of(tmp_path)

    with pytest.raises(UsageError, match="of this Slurm step is there already; remove it, or set"):
        secret_of(tmp_path)


def test_a_results_folder_that_cannot_be_written_is_said(tmp_path):
    (tmp_path / "results").write_text("in the way")

    with pytest.raises(UsageError, match="cannot be written: Not a directory; set COLLBENCH_SECR"):
        secret_of(tmp_path / "results")


@pytest.mark.parametrize(
    "launch", [{"launcher": Launcher.PLAIN, "job": None}, {"launcher": Launcher.KUBERNETES}]
)
@pytest.mark.parametrize("process", [0, 1])
def test_an_address_alone_needs_a_secret(tmp_path, launch, process):
    with pytest.raises(UsageError) as refused:
        secret_of(tmp_path, process=process, **launch)

    assert str(refused.value) == (
        "the processes that meet at node0 need a secret to know each other by; set"
        " COLLBENCH_SECRET to the same 16 or more random characters on every node (openssl rand"
        " -hex 32), or give --secret-file"
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ["", "short", "0123456789abcde", f"  {'a' * 15} \n"])
def test_a_secret_that_can_be_guessed_is_refused_and_not_shown(tmp_path, file, text):
    file.write_text(text)
    for source, given in (
        ("COLLBENCH_SECRET", {"environ": {"COLLBENCH_SECRET": text}}),
        (f"--secret-file '{file}'", {"file": file}),
    ):
        with pytest.raises(UsageError) as refused:
            secret_of(tmp_path, **given)

        assert str(refused.value) == (
            f"{source} holds {len(text.strip())} characters, which can be guessed; it must have at"
            " least 16 (openssl rand -hex 32)"
        )


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o610])
def test_a_file_that_others_may_touch_is_refused(tmp_path, file, mode):
    file.chmod(mode)

    with pytest.raises(UsageError) as refused:
        secret_of(tmp_path, file=file)

    assert str(refused.value) == (
        f"--secret-file '{file}' can be read or changed by others (owner {os.geteuid()}, mode"
        f" {mode:04o}); it must be yours with mode 0600: chmod 600 {file}"
    )


def test_somebody_elses_file_is_refused(tmp_path, file, monkeypatch):
    monkeypatch.setattr("collbench.launch.secret.os.geteuid", lambda: 4_000_000_000)

    with pytest.raises(UsageError, match="it must be yours with mode 0600"):
        secret_of(tmp_path, file=file)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda path: None, "cannot be read: No such file or directory"),
        (lambda path: path.mkdir(), "cannot be read: Is a directory"),
        (os.mkfifo, "is no file"),
    ],
    ids=["absent", "folder", "pipe"],
)
def test_what_is_no_file_is_refused(tmp_path, make, text):
    make(tmp_path / "x")

    with pytest.raises(UsageError, match=re.escape(f"--secret-file '{tmp_path}/x' {text}")):
        secret_of(tmp_path, file=tmp_path / "x")
