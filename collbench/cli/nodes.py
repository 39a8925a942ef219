"""What a command does with the other processes that were started with it."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import Callable, Collection
from contextlib import closing as closed_after
from dataclasses import dataclass
from pathlib import Path

from collbench.engine.agent import Agent
from collbench.engine.logs import LogPlace
from collbench.engine.loops import end_loop
from collbench.engine.meet import Met, hold_meeting, own_address
from collbench.engine.orders import Finish, Report
from collbench.engine.placement import Slots
from collbench.engine.ras import free_ras_address
from collbench.engine.reception import Presence, Reception, Versions
from collbench.engine.station import Station
from collbench.errors import ExitCode, NothingMeasured
from collbench.launch.detect import Launch, detect
from collbench.launch.interface import address_of, interface_of
from collbench.launch.meeting import Meeting, where_to_meet
from collbench.launch.options import LaunchOptions
from collbench.launch.rendezvous import withdraw
from collbench.launch.secret import forget_secret, new_token, run_secret
from collbench.model import Environment, LibraryVersion, Node
from collbench.probe.watch import HardwareWatch


@dataclass(frozen=True, kw_only=True)
class Company:
    """This process among those that were started together, and where they meet."""

    launch: Launch
    options: LaunchOptions
    meeting: Meeting
    results: Path

    @property
    def alone(self) -> bool:
        """Whether there is one process."""
        return self.launch.processes == 1

    @property
    def leads(self) -> bool:
        """Whether this is node 0's process, which plans, stores and prints."""
        return self.launch.process == 0

    def own_variables(self, backend: str) -> dict[str, str]:
        """Returns what this station's workers need of it: interfaces, an address for NCCL's watch.

        What the environment says already stays.
        """
        found: dict[str, str] = {}
        if backend == "nccl":
            found["NCCL_RAS_ADDR"] = free_ras_address()
        if not self.alone:
            name = interface_of(address_of(self.options.interface, self.meeting.host))
            found |= {} if name is None else {"GLOO_SOCKET_IFNAME": name}
            if name is not None and self.options.interface is not None:
                found["NCCL_SOCKET_IFNAME"] = name
        return {key: value for key, value in found.items() if key not in os.environ}


def look_for_company(options: LaunchOptions, results: Path) -> Company:
    """Returns who else was started.

    Raises:
        UsageError: variables contradict each other, or there is no place to meet.
    """
    launch = detect(os.environ, options, socket.gethostname())
    meeting = where_to_meet(launch, os.environ, options, results)
    return Company(launch=launch, options=options, meeting=meeting, results=results)


def presence_of(
    company: Company,
    slots: Slots,
    hardware: Node,
    environment: Environment,
    library: LibraryVersion | None,
) -> Presence:
    """Returns what this process says of itself."""
    launch = company.launch
    return Presence(
        process=launch.process,
        processes=launch.processes,
        local_process=launch.local_process,
        node=launch.node_name,
        slots=slots,
        hardware=hardware,
        versions=Versions(
            collbench=environment.collbench,
            torch=environment.torch,
            nccl=None if library is None else library.version,
            driver=environment.driver,
            backend=slots.backend,
            gpus=f"{len(slots.gpus)} x {slots.gpus[0].name}" if slots.gpus else "no GPU",
        ),
        pid=os.getpid(),
    )


class Gathering:
    """Node 0's event loop, and in it the meeting with the other processes, if there are any.

    An executor takes both over and closes them; ``close`` does it where none came to be, so that
    nobody waits for a run that does not begin.
    """

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.reception: Reception | None = None

    def meet(self, company: Company, own: Presence) -> Met:
        """Holds the meeting. See ``hold_meeting``."""
        token = new_token()
        secret = run_secret(
            os.environ,
            company.options,
            company.meeting,
            company.results,
            launch=company.launch,
            token=token,
        )
        self.reception = Reception(secret, own, own_address(company.meeting, company.options))
        try:
            met = hold_meeting(
                self.loop, self.reception, company.launch, company.meeting, company.options, token
            )
        finally:
            forget_secret(company.launch, company.results)
        if met.announcement is not None:
            withdraw(company.meeting, met.announcement)
        return met

    def close(self) -> None:
        """Lets everybody go; may be called twice."""
        if self.loop.is_closed():
            return
        if self.reception is not None:
            self.reception.dismiss("node 0 has ended before the run began")
            self.loop.run_until_complete(self.reception.close(Finish()))
        end_loop(self.loop)


def serve(
    company: Company,
    own: Presence,
    *,
    via: str,
    swept: Collection[str],
    init_deadline_s: float,
) -> int:
    """Serves node 0 from this process until it is let go; returns the exit status.

    Raises:
        NothingMeasured: node 0 does not answer, or is lost.
    """
    variables = company.own_variables(own.slots.backend)
    with closed_after(HardwareWatch([gpu.index for gpu in own.slots.gpus])) as watch:

        def make_station(logs: LogPlace, report: Callable[[Report], None]) -> Station:
            return Station(
                via=via,
                environ=os.environ,
                own_variables=variables,
                logs=logs,
                watch=watch,
                init_deadline_s=init_deadline_s,
                report=report,
            )

        agent = Agent(
            presence=own,
            meeting=company.meeting,
            secret_of=lambda token: run_secret(
                os.environ,
                company.options,
                company.meeting,
                company.results,
                launch=company.launch,
                token=token,
            ),
            swept=swept,
            make_station=make_station,
            wait_s=company.options.wait_s,
        )
        try:
            why = asyncio.run(agent.serve())
        except NothingMeasured as problem:
            raise NothingMeasured(f"{company.launch.node_name}: {problem}") from None
    if why is not None:
        sys.stderr.write(f"collbench: {company.launch.node_name}: {why}\n")
    return ExitCode.FINE
