"""NCCL's own view of a hang: its RAS threads know which rank no longer answers (2.24 and newer).

Each process of a job listens on NCCL_RAS_ADDR, several of one node on the same port
(SO_REUSEPORT), and the kernel picks one: it may be the stopped one, which never answers, or one of
another job of the run, whose ranks are all well: the workers that prove what ran are a job of their
own. So a few connections are made at once and the first answer counts that says what is wrong. The
protocol is plain text (src/ras/client_support.cc, NCCL 2.28.9). Evidence only: the culprit is found
without it.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket

_CONNECTIONS = 8
_ANSWER_S = 7.0
"""NCCL gives a leg of its collection 5 s."""
_MOST_BYTES = 1 << 18
_TELLING = re.compile(
    r"INCOMPLETE|Missing communicator data|missing data|considered dead|"
    r"\bmanag(ed|ing) |^\s*Rank \d+ |MISMATCH|unreachable",
    re.IGNORECASE,
)
_MOST_LINES = 12


def free_ras_address(host: str = "127.0.0.1") -> str:
    """Returns an address of this machine that nobody listens at: each run has one of its own."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        return f"{host}:{probe.getsockname()[1]}"


async def ras_report(address: str, answer_s: float = _ANSWER_S) -> list[str]:
    """Returns what RAS says is wrong, a line each; nothing where it does not answer.

    Args:
        address: ``HOST:PORT``, NCCL_RAS_ADDR of the workers.
        answer_s: the longest waiting.
    """
    host, _, port = address.rpartition(":")
    asked = {asyncio.ensure_future(_ask(host, int(port))) for _ in range(_CONNECTIONS)}
    try:
        async with asyncio.timeout(answer_s):
            for done in asyncio.as_completed(asked):
                if lines := telling_lines(await done):
                    return lines
    except TimeoutError:
        pass
    finally:
        for task in asked:
            task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
    return []


def telling_lines(text: str) -> list[str]:
    """Returns the lines of a status that say what is wrong."""
    _, errors, rest = text.partition("\nErrors\n")
    lines = (" ".join(line.split()) for line in (rest if errors else text).splitlines())
    found = [line for line in lines if _TELLING.search(line)]
    return [f"NCCL RAS: {line}" for line in dict.fromkeys(found)][:_MOST_LINES]


async def _ask(host: str, port: int) -> str:
    """Returns RAS's answer; empty where there is none."""
    try:
        reader, writer = await asyncio.open_connection(host, port)
    except OSError:
        return ""
    try:
        writer.write(b"verbose status\n")
        return (await _all(reader)).decode(errors="replace")
    except OSError:
        return ""
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def _all(reader: asyncio.StreamReader) -> bytes:
    found = bytearray()
    while len(found) < _MOST_BYTES and (part := await reader.read(1 << 14)):
        found += part
    return bytes(found)
