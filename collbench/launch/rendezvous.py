"""How process 0 says where it listens, and how the others hear of it.

Only for meetings that need it: at a file, in torchrun's store, over MPI. Where the processes know
the address already, process 0 listens at the first of its ports that is free and the others try
them all.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

from collbench.errors import EngineError, NothingMeasured, UsageError
from collbench.launch.meeting import Meeting, MeetingKind
from collbench.launch.private_files import make_folder, read_own, replace_whole
from collbench.model import Record

_POLL_S = 0.1
_STORE_START_S = 60.0
"""On top of the waiting: the store's client imports torch."""
_MPI_BYTES = 1024


class Announcement(Record, frozen=True, kw_only=True):
    """Where process 0 listens, and what only the processes of its run know."""

    host: str
    port: int
    token: str
    """Drawn anew for each run (``secret.new_token``), so it tells the runs apart too."""
    key: str = ""
    """The meeting's."""


def publish(meeting: Meeting, announcement: Announcement, deadline_s: float = 60.0) -> None:
    """Says where process 0 listens. Process 0 calls it, once it listens.

    Over MPI every process has to be in ``find`` meanwhile: it waits for them without a limit.

    Args:
        meeting: as ``where_to_meet`` gave it.
        announcement: what is said; the meeting's key is added.
        deadline_s: so long torchrun's store may take.

    Raises:
        UsageError: the file cannot be written.
        NothingMeasured: torchrun's store does not take it.
    """
    data = msgspec.json.encode(msgspec.structs.replace(announcement, key=meeting.key))
    if meeting.kind is MeetingKind.FILE:
        path = _path_of(meeting)
        try:
            make_folder(path.parent)
            replace_whole(path, data)
        except OSError as problem:
            raise UsageError(
                f"'{path}', where the nodes are to meet, cannot be written: {problem.strerror};"
                " give --rendezvous HOST:PORT, or file:PATH on a shared folder"
            ) from None
    elif meeting.kind is MeetingKind.TORCHRUN_STORE:
        _ask_store(meeting, "set", deadline_s, data)
    elif meeting.kind is MeetingKind.MPI:
        _broadcast(data)


def find(
    meeting: Meeting, deadline_s: float, *, not_this: Announcement | None = None
) -> Announcement:
    """Returns where process 0 listens. Every process but 0 calls it; it waits.

    A file may be left over from a run that was killed: who finds nobody there calls again with
    ``not_this``, which then waits for another announcement. Over MPI there is no limit.

    Args:
        meeting: as ``where_to_meet`` gave it.
        deadline_s: the longest waiting, seconds from now.
        not_this: an announcement that was found before and led nowhere.

    Raises:
        NothingMeasured: nobody has said anything within the time.
    """
    if meeting.kind is MeetingKind.FILE:
        return _find_file(meeting, deadline_s, not_this)
    if meeting.kind is MeetingKind.TORCHRUN_STORE:
        return _decoded(_ask_store(meeting, "get", deadline_s), meeting)
    if meeting.kind is MeetingKind.MPI:
        return _decoded(_broadcast(None), meeting)
    raise EngineError(f"nothing is announced at a meeting of kind {meeting.kind}")


def withdraw(meeting: Meeting, announcement: Announcement) -> None:
    """Removes the file, if it is still this run's. Process 0 calls it at its end."""
    if meeting.kind is not MeetingKind.FILE:
        return
    path = _path_of(meeting)
    found = _read(path)
    if found is not None and found.token == announcement.token:
        path.unlink(missing_ok=True)


def _path_of(meeting: Meeting) -> Path:
    assert meeting.path is not None, "a meeting at a file has its path"
    return Path(meeting.path)


def _find_file(meeting: Meeting, deadline_s: float, not_this: Announcement | None) -> Announcement:
    path, end_s = _path_of(meeting), time.monotonic() + deadline_s
    while True:
        found = _read(path)
        if found is not None and found.key == meeting.key and found != not_this:
            return found
        left_s = end_s - time.monotonic()
        if left_s <= 0:
            raise NothingMeasured(
                f"process 0 has not said in '{path}' where it listens within {deadline_s:g} s; is"
                " it started, and is the folder shared by the nodes? --wait sets how long to wait"
            )
        time.sleep(min(_POLL_S, left_s))


def _read(path: Path) -> Announcement | None:
    """Returns what a file announces; None for what is not there yet, or no announcement."""
    try:
        data = read_own(path)
        return None if data is None else msgspec.json.decode(data, type=Announcement)
    except (OSError, msgspec.MsgspecError):
        return None


def _decoded(data: bytes, meeting: Meeting) -> Announcement:
    try:
        return msgspec.json.decode(data, type=Announcement)
    except msgspec.MsgspecError as problem:
        raise NothingMeasured(
            f"what process 0 said by {meeting.why} cannot be read ({problem}); start the same"
            " version of collbench everywhere"
        ) from None


def _ask_store(meeting: Meeting, verb: str, deadline_s: float, value: bytes = b"") -> bytes:
    """Talks to torchrun's store in a process of its own, since that takes torch.

    What is said goes through pipes: a command line can be read by every user of the machine.
    """
    assert meeting.host is not None, "torchrun's store has a host"
    where = [meeting.host, str(meeting.ports[0]), meeting.key, f"{deadline_s:g}"]
    command = [sys.executable, "-m", "collbench.launch.torchrun_store", verb, *where]
    try:
        done = subprocess.run(
            command,
            input=value,
            capture_output=True,
            timeout=deadline_s + _STORE_START_S,
            check=False,
        )
        problem = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
    except subprocess.TimeoutExpired as late:
        raise _no_store(meeting, f"no answer within {late.timeout:g} s") from None
    if done.returncode:
        raise _no_store(meeting, problem or f"exit status {done.returncode}")
    return done.stdout


def _no_store(meeting: Meeting, problem: str) -> NothingMeasured:
    return NothingMeasured(
        f"torchrun's store at {meeting.host}:{meeting.ports[0]} did not help to meet: {problem};"
        " give --rendezvous HOST:PORT to meet without it"
    )


def _broadcast(data: bytes | None) -> bytes:
    """Returns process 0's bytes; collective over MPI's processes. None: receive only.

    As plain bytes, since mpi4py pickles objects.
    """
    mpi: Any = importlib.import_module("mpi4py.MPI")
    buffer = bytearray(data.ljust(_MPI_BYTES) if data is not None else _MPI_BYTES)
    if len(buffer) != _MPI_BYTES:
        raise EngineError(f"an announcement of {len(buffer)} bytes where {_MPI_BYTES} are the most")
    mpi.COMM_WORLD.Bcast(buffer, root=0)
    return bytes(buffer).rstrip()
