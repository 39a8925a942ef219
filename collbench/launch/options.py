"""What the user says about the nodes of a run; every value may be left to the launcher."""

from __future__ import annotations

from pathlib import Path

from collbench.errors import UsageError
from collbench.model import Record

DEFAULT_WAIT_S = 120.0
_FILE_PREFIX = "file:"


class LaunchOptions(Record, frozen=True, kw_only=True):
    """The options that are about nodes; None is "as the launcher says"."""

    nodes: int | None = None
    node_rank: int | None = None
    node_name: str | None = None
    rendezvous: str | None = None
    """``HOST:PORT`` or ``file:PATH``, as given."""
    interface: str | None = None
    wait_s: float = DEFAULT_WAIT_S
    """So long nodes may be missing at the start."""
    min_nodes: int | None = None
    exclude: tuple[str, ...] = ()
    """Names of nodes that take no part, already expanded."""
    strict: bool = False
    """Refuse nodes that differ instead of leaving them out."""
    secret_file: str | None = None


def parse_rendezvous(text: str) -> tuple[str, int] | Path:
    """Returns the host and port of ``HOST:PORT`` or ``[IPV6]:PORT``, or the path of ``file:PATH``.

    Raises:
        UsageError: anything else.
    """
    if text.startswith(_FILE_PREFIX):
        path = text.removeprefix(_FILE_PREFIX)
        if path:
            return Path(path).absolute()
    host, colon, port = text.rpartition(":")
    bare_host = host.removeprefix("[").removesuffix("]")
    bracketed = host.startswith("[") and host.endswith("]")
    if colon and bare_host and port.isdecimal() and 1 <= int(port) <= 65535:
        if ":" not in bare_host or bracketed:
            return bare_host, int(port)
        raise UsageError(f"'{text}' does not say where the address ends; write [{host}]:{port}")
    raise UsageError(
        f"'{text}' is no place to meet; write HOST:PORT with a port from 1 to 65535,"
        " for instance node0:29400, or file:PATH on a folder that all nodes share"
    )
