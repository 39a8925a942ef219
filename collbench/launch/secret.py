"""The secret by which the processes of a run know each other. Never logged, never recorded."""

from __future__ import annotations

import os
import secrets
import stat
import time
from collections.abc import Mapping
from pathlib import Path

from collbench.errors import UsageError
from collbench.launch.detect import Launch
from collbench.launch.launchers import Launcher
from collbench.launch.meeting import Meeting, MeetingKind, file_name
from collbench.launch.options import LaunchOptions
from collbench.launch.private_files import MEETING_FOLDER, make_folder, read_own, write_new

SECRET_VARIABLE = "COLLBENCH_SECRET"  # noqa: S105  the variable's name
LEAST_CHARACTERS = 16
_TOKEN_BYTES = 32
_POLL_S = 0.1


def new_token() -> str:
    """Returns what only the processes of one run will know, 64 characters."""
    return secrets.token_hex(_TOKEN_BYTES)


def run_secret(
    environ: Mapping[str, str],
    options: LaunchOptions,
    meeting: Meeting,
    results: Path,
    *,
    launch: Launch,
    token: str | None = None,
) -> bytes:
    """Returns the run's secret; the same in every process.

    In this order: COLLBENCH_SECRET, ``--secret-file``, the token that came with the announcement,
    and in a Slurm step a file in the results folder, which process 0 makes and the others wait
    for. Where the announcement brings the token, process 0 gives the one that it has announced.

    Args:
        environ: this process's variables.
        options: by the user; ``wait_s`` bounds the waiting for process 0's file.
        meeting: where the processes meet.
        results: the folder of all runs.
        launch: who this process is.
        token: of the announcement, for a meeting that has one.

    Raises:
        UsageError: there is no secret, or it is too short, or others may read it.
    """
    given = environ.get(SECRET_VARIABLE)
    if given is not None:
        return _checked(given, SECRET_VARIABLE)
    if options.secret_file is not None:
        return _from_file(Path(options.secret_file))
    if meeting.kind is MeetingKind.NONE:
        return new_token().encode()
    if meeting.kind is not MeetingKind.ADDRESS:
        assert token is not None, "such a meeting brings a token"
        return token.encode()
    path = _slurm_file(launch, results)
    if path is None:
        raise UsageError(
            f"the processes that meet at {meeting.host} need a secret to know each other by; set"
            f" {SECRET_VARIABLE} to the same {LEAST_CHARACTERS} or more random characters on every"
            " node (openssl rand -hex 32), or give --secret-file"
        )
    return _drawn(path) if launch.process == 0 else _awaited(path, options.wait_s)


def forget_secret(launch: Launch, results: Path) -> None:
    """Removes the file that process 0 may have made. Process 0 calls it when all have met."""
    path = _slurm_file(launch, results)
    if path is not None and launch.process == 0:
        path.unlink(missing_ok=True)


def _slurm_file(launch: Launch, results: Path) -> Path | None:
    """Returns where the secret of a Slurm step stands; None elsewhere.

    A step's id is never used twice, which no other launcher's is sure of.
    """
    if launch.launcher is not Launcher.SRUN or launch.job is None:
        return None
    return results.absolute() / MEETING_FOLDER / f"{file_name(launch.job)}.secret"


def _checked(text: str, source: str) -> bytes:
    secret = text.strip()
    if len(secret) < LEAST_CHARACTERS:
        raise UsageError(
            f"{source} holds {len(secret)} characters, which can be guessed; it must have at least"
            f" {LEAST_CHARACTERS} (openssl rand -hex 32)"
        )
    return secret.encode()


def _from_file(path: Path) -> bytes:
    source = f"--secret-file '{path}'"
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            about = os.fstat(descriptor)
            if not stat.S_ISREG(about.st_mode):
                raise UsageError(f"{source} is no file; name one that holds the secret")
            if about.st_uid != os.geteuid() or stat.S_IMODE(about.st_mode) & 0o077:
                raise UsageError(
                    f"{source} can be read or changed by others (owner {about.st_uid}, mode"
                    f" {stat.S_IMODE(about.st_mode):04o}); it must be yours with mode 0600:"
                    f" chmod 600 {path}"
                )
            return _checked(file.read(4096).decode(errors="replace"), source)
    except OSError as problem:
        raise UsageError(
            f"{source} cannot be read: {problem.strerror}; name a file that holds the secret"
        ) from None


def _drawn(path: Path) -> bytes:
    """Draws the secret and writes it for the others."""
    token = new_token()
    try:
        make_folder(path.parent)
        write_new(path, f"{token}\n".encode())
    except FileExistsError:
        raise UsageError(
            f"the secret '{path}' of this Slurm step is there already; remove it, or set"
            f" {SECRET_VARIABLE} on every node"
        ) from None
    except OSError as problem:
        raise UsageError(
            f"the secret '{path}' cannot be written: {problem.strerror}; set {SECRET_VARIABLE} on"
            " every node, or give --results on a shared folder"
        ) from None
    return token.encode()


def _awaited(path: Path, wait_s: float) -> bytes:
    """Waits until process 0 has written the secret; its last character is the line's end."""
    end_s = time.monotonic() + wait_s
    while True:
        try:
            data = read_own(path)
        except OSError:
            data = None
        if data is not None and data.endswith(b"\n"):
            return data.strip()
        left_s = end_s - time.monotonic()
        if left_s <= 0:
            raise UsageError(
                f"process 0 has written no secret to '{path}' within {wait_s:g} s; if the results"
                f" folder is not shared by the nodes, set {SECRET_VARIABLE} on every node before"
                " srun, or give --secret-file"
            )
        time.sleep(min(_POLL_S, left_s))
