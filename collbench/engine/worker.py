"""A worker: one rank. Joins a group, measures and proves cases as told, ends."""

from __future__ import annotations

import os
import re
import socket
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path

import msgspec

from collbench.engine.logs import IN_MEMORY
from collbench.engine.member import JoinGroup, Member
from collbench.engine.progress import SharedProgress
from collbench.engine.wire import (
    Channel,
    Closed,
    Connect,
    Connected,
    Done,
    FromWorker,
    Hosting,
    Join,
    Measure,
    Prove,
    Proved,
    Quit,
    Raised,
    Renew,
    ToWorker,
)
from collbench.measure.loop import call_once, measure_case
from collbench.measure.protocols import Phase
from collbench.model import Case, RankProof
from collbench.probe.nccl_log import LogReader
from collbench.probe.proof import rank_proof

_REFUSALS = re.compile(
    r"not support|unsupported|not implemented|unhandled|invalid (scalar|data|tensor|reduce)"
    r"|no algorithm/protocol|not available|expected .*type"
    r"|ncclInvalid(Argument|Usage)|InvalidArgument|InvalidUsage",
    re.IGNORECASE,
)
"""How torch, Gloo and NCCL word that they cannot do a call."""


class _Worker:
    """What a worker has between two messages."""

    def __init__(
        self, channel: Channel[ToWorker], progress: SharedProgress, join_group: JoinGroup
    ) -> None:
        self._channel, self._progress, self._join_group = channel, progress, join_group
        self._member: Member | None = None
        self._log: LogReader | None = None
        self._known_warnings: tuple[str, ...] = ()
        """NCCL's warnings of before: they say nothing of what goes wrong now."""

    @property
    def member(self) -> Member:
        """The rank's place in its group; there is one from ``Join`` on."""
        assert self._member is not None
        return self._member

    def obey(self, message: ToWorker) -> FromWorker:
        """Does as told and returns the answer."""
        self._progress.phase(Phase.JOINING)
        if self._log is not None:
            self._log.read()
            self._known_warnings = tuple(self._log.facts.warnings)
        match message:
            case Join():
                if self._member is not None:
                    self._member.close()
                    self._member = None
                self._log = LogReader(_nccl_log()) if message.logged else None
                self._member = self._join_group(
                    message, lambda port: self._channel.send(Hosting(port=port)), self._progress
                )
                return self.member.facts()
            case Renew():
                if self._log is not None:
                    self._log.new_communicator()
                set_variables(message.variables)
                self.member.renew()
                return self.member.facts()
            case Connect():
                call_once(message.case, self.member.backend, self.member.control, self._progress)
                return Connected()
            case Measure():
                result = measure_case(
                    message.case,
                    message.policy,
                    self.member.backend,
                    self.member.control,
                    self._progress,
                )
                if self._log is not None:
                    result = msgspec.structs.replace(result, proof=self._proof(message.case))
                self._progress.phase(Phase.IDLE)
                return Done(result=result)
            case Prove():
                call_once(message.case, self.member.backend, self.member.control, self._progress)
                self._progress.phase(Phase.IDLE)
                return Proved(proof=self._proof(message.case))
            case Quit():
                raise AssertionError("the loop ends before")

    def _proof(self, case: Case) -> RankProof:
        assert self._log is not None
        self._log.read()
        return rank_proof(self._log.facts, self._log.take_calls(), case.collective)

    def reason_of(self, problem: Exception) -> str:
        """Returns the problem in a line, in NCCL's own words where its log has them."""
        text = _one_line(problem)
        if self._log is not None:
            self._log.read()
            known = self._known_warnings
            fresh = [line for line in self._log.facts.warnings if line not in known]
            text = f"{fresh[-1]} ({text})" if fresh else text
        return text


def work(sock: socket.socket, progress_fd: int, join_group: JoinGroup) -> int:
    """Obeys the supervisor until told to quit; returns the exit status."""
    channel: Channel[ToWorker] = Channel(sock, ToWorker)
    progress = SharedProgress(progress_fd)
    worker = _Worker(channel, progress, join_group)
    while True:
        try:
            message = channel.receive()
            if isinstance(message, Quit):
                return 0
            channel.send(worker.obey(message))
        except Closed:
            return 0
        except Exception as problem:  # noqa: BLE001  the boundary of a case: it becomes a record
            traceback.print_exc()
            sys.stderr.flush()
            # A refusal comes with the first call, or with the communicator itself.
            refused = progress.calls <= 1 and bool(_REFUSALS.search(str(problem)))
            channel.send(Raised(text=worker.reason_of(problem), refused=refused))


def _nccl_log() -> Path:
    """Returns where NCCL writes; in memory it is a file of this process alone."""
    path = os.environ["NCCL_DEBUG_FILE"]
    if path == IN_MEMORY:
        path = f"/proc/self/fd/{os.memfd_create('collbench-nccl')}"
        os.environ["NCCL_DEBUG_FILE"] = path
    return Path(path)


def set_variables(variables: Mapping[str, str | None]) -> None:
    """Sets variables of this process, and takes away those that are None."""
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _one_line(problem: Exception) -> str:
    """Returns type and message without the C++ stack that torch appends."""
    text = str(problem).split("Exception raised from", maxsplit=1)[0]
    words = " ".join(text.split())
    return f"{type(problem).__name__}: {words[:500]}"
