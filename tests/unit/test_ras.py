"""NCCL RAS as evidence: the telling lines, the first answer of several connections, no answer."""

import asyncio

from collbench.engine.ras import free_ras_address, ras_report, telling_lines

# As NCCL 2.28.9 wrote it with one rank of two stopped (2 x H200), shortened.
STATUS = """\
NCCL version 2.28.9 compiled with CUDA 13.0
CUDA runtime version 13000, driver version 13000

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      1          2            1          2        2

Communicators...
================

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         1         2         2         2   UNKNOWN  INCOMPLETE

Errors
======

INCOMPLETE
  Missing communicator data from 1 job process
  Process 1314 on node 192.0.2.2 managing GPU 1

#0-0 (30b378cab0ed6dec) INCOMPLETE
  Missing communicator data from 1 rank
  Rank 1 -- GPU 1 managed by process 1314 on node 192.0.2.2

Warnings
========

"""


def test_the_telling_lines_stand_once_and_the_summary_does_not():
    assert telling_lines(STATUS) == [
        "NCCL RAS: INCOMPLETE",
        "NCCL RAS: Missing communicator data from 1 job process",
        "NCCL RAS: Process 1314 on node 192.0.2.2 managing GPU 1",
        "NCCL RAS: #0-0 (30b378cab0ed6dec) INCOMPLETE",
        "NCCL RAS: Missing communicator data from 1 rank",
        "NCCL RAS: Rank 1 -- GPU 1 managed by process 1314 on node 192.0.2.2",
    ]


WELL, _, _ = STATUS.replace("UNKNOWN  INCOMPLETE", "RUNNING  OK").partition("INCOMPLETE")
WELL += "Warnings\n========\n\n"


def answered(silent_connections: int, answer_s: float = 5.0, well: int = 0) -> list[str]:
    """What a server says that leaves its first connections without an answer.

    Args:
        silent_connections: how many.
        answer_s: the longest waiting.
        well: how many connections after those reach another job, whose ranks are well.
    """
    count = 0

    async def serve(reader, writer):
        nonlocal count
        count += 1
        silent = count <= silent_connections
        try:
            assert (await reader.readline()).strip() == b"verbose status"
            if silent:
                await reader.read()  # a stopped process takes connections and never answers
                return
            status = WELL if count <= silent_connections + well else STATUS
            half = len(status) // 2
            writer.write(status[:half].encode())
            await writer.drain()
            writer.write(status[half:].encode())
        finally:
            writer.close()

    async def ask():
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        try:
            return await ras_report(f"127.0.0.1:{port}", answer_s)
        finally:
            server.close()
            await asyncio.sleep(0.05)  # the other ends close after their peers

    return asyncio.run(ask())


def test_the_first_answer_counts_though_a_stopped_process_shares_the_port():
    assert answered(silent_connections=3) == telling_lines(STATUS)


def test_no_answer_is_no_evidence():
    assert answered(silent_connections=100, answer_s=0.2) == []


def test_nobody_at_the_address_is_no_evidence():
    assert asyncio.run(ras_report(free_ras_address(), 1.0)) == []


def test_another_job_that_is_well_is_no_answer():
    assert answered(2, well=5) == telling_lines(STATUS)
    assert answered(2, 0.5, well=100) == []
