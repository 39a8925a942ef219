"""The file of NCCL's example tuner plug-in (plugins/tuner/example), written and read.

Reading does what the plug-in of NCCL 2.30.7 does, its surprises included: a name it does not know
is all_reduce, Ring or Simple without a word; what matches no line runs on one channel, and so does
a line with -1 channels; a line longer than its buffer becomes several.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

ANY = -1
"""Of nodes, ranks, pipelined operations and registration: every value matches."""

NO_LINE_CHANNELS = 1
"""What a call runs on that matches no line."""

TOP_BYTES = 2**64 - 1
"""The largest size that the plug-in can read (size_t)."""

COLLECTIVES = {
    "broadcast": "broadcast",
    "reduce": "reduce",
    "all_gather": "allgather",
    "reduce_scatter": "reducescatter",
    "all_reduce": "allreduce",
}
"""torch.distributed's word -> the plug-in's: a tuner is asked for no other."""

ALGORITHMS = {
    "Tree": "tree",
    "Ring": "ring",
    "CollNetDirect": "collnet_direct",
    "CollNetChain": "collnet_chain",
    "NVLS": "nvls",
    "NVLSTree": "nvls_tree",
    "PAT": "pat",
}
"""As NCCL_ALGO spells it -> the plug-in's word."""

PROTOCOLS = {"LL": "ll", "LL128": "ll128", "Simple": "simple"}

_BUFFER_BYTES = 256
"""fgets fills so many less one, the newline included."""
_COMMENT_COLUMNS = 120
_FIELDS_AT_LEAST = 8
_FIELDS_AT_MOST = 10
_NUMBER = re.compile(r"\s*([+-]?\d+)")
_OPTIMIZER_HEADER = (
    "collective,size_bytes,algorithm,protocol,channels,nodes,ranks,pipeOps,regBuff,cost_metric,"
    "bandwidth_gbps,latency_us"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class TunerRow:
    """A line: what to run for a collective, range of sizes and shape of communicator."""

    collective: str
    """torch.distributed's word."""
    min_bytes: int
    max_bytes: int
    """Of the whole message, both inclusive."""
    algorithm: str
    """As NCCL_ALGO spells it."""
    protocol: str
    channels: int
    """0 leaves the number to NCCL; -1 is one channel."""
    nodes: int = ANY
    ranks: int = ANY
    pipe_ops: int = ANY
    registered: int = ANY
    """1: buffers are registered, as all are that a CUDA graph captures; 0: they are not."""
    line: int = 0
    """In the file, from 1; 0 where it was not read from one."""
    misread: tuple[str, ...] = ()
    """Words that the plug-in takes for something else."""
    notes: tuple[str, ...] = ()
    """Comments that stand above it when it is written."""

    def matches(
        self, collective: str, size_bytes: int, nodes: int, ranks: int, registered: int
    ) -> bool:
        """Whether the plug-in takes this line for a single call (one pipelined operation)."""
        return (
            self.collective == collective
            and self.min_bytes <= size_bytes <= self.max_bytes
            and self.nodes in (ANY, nodes)
            and self.ranks in (ANY, ranks)
            and self.pipe_ops in (ANY, 1)
            and self.registered in (ANY, registered)
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class OptimizerRow:
    """A line for the plug-in's helper optimize_config.py: a choice with what it reached."""

    collective: str
    size_bytes: int
    algorithm: str
    protocol: str
    channels: int
    nodes: int
    ranks: int
    registered: int
    algbw_gb_per_s: float
    time_us: float


def read_tuner(text: str) -> tuple[TunerRow, ...]:
    """Returns the lines of a file as the plug-in reads them, in order."""
    rows = []
    for number, line in enumerate(text.split("\n"), start=1):
        for piece in _pieces(line):
            if not piece.startswith("#"):
                row = _read_line(piece, number)
                rows += [] if row is None else [row]
    return tuple(rows)


def choice(
    rows: Iterable[TunerRow],
    collective: str,
    size_bytes: int,
    nodes: int,
    ranks: int,
    *,
    registered: int = 0,
) -> TunerRow | None:
    """Returns the first line that matches a call; None: NCCL's own choice, on one channel.

    Args:
        rows: of a file.
        collective: torch.distributed's word.
        size_bytes: the whole message.
        nodes: of the communicator, as NCCL counts them.
        ranks: of the communicator.
        registered: 1 for buffers that are registered with NCCL.
    """
    return next(
        (row for row in rows if row.matches(collective, size_bytes, nodes, ranks, registered)), None
    )


def plugin_text(rows: Iterable[TunerRow], about: Sequence[str]) -> str:
    """Returns the file for the plug-in; without a header line, which it would take for an entry.

    Args:
        rows: the first that matches wins.
        about: paragraphs for comments at its top.
    """
    lines = [line for paragraph in about for line in _comment(paragraph)]
    for row in rows:
        words = [
            COLLECTIVES[row.collective],
            row.min_bytes,
            row.max_bytes,
            ALGORITHMS[row.algorithm],
            PROTOCOLS[row.protocol],
            row.channels,
            row.nodes,
            row.ranks,
            row.pipe_ops,
            row.registered,
        ]
        lines += [line for note in row.notes for line in _comment(note)]
        lines.append(",".join(str(word) for word in words))
    return "\n".join([*lines, ""])


def optimizer_text(rows: Iterable[OptimizerRow]) -> str:
    """Returns the CSV for optimize_config.py; it has no comments, which that would not survive."""
    lines = [_OPTIMIZER_HEADER]
    for row in rows:
        words = [
            COLLECTIVES[row.collective],
            row.size_bytes,
            ALGORITHMS[row.algorithm],
            PROTOCOLS[row.protocol],
            row.channels,
            row.nodes,
            row.ranks,
            ANY,
            row.registered,
            f"{row.time_us:.3f}",
            f"{row.algbw_gb_per_s:.6g}",
            f"{row.time_us:.3f}",
        ]
        lines.append(",".join(str(word) for word in words))
    return "\n".join([*lines, ""])


def _comment(paragraph: str) -> list[str]:
    plain = paragraph.encode("ascii", "replace").decode()
    return [f"# {line}" for line in textwrap.wrap(plain, _COMMENT_COLUMNS)]


def _pieces(line: str) -> list[str]:
    """Returns what fgets makes of a line."""
    raw, most = line.encode(), _BUFFER_BYTES - 1
    cut = [raw[start : start + most] for start in range(0, len(raw), most)]
    return [piece.decode(errors="replace") for piece in cut]


def _read_line(line: str, number: int) -> TunerRow | None:
    """Returns an entry; None for what has too few fields, which the plug-in leaves out."""
    # strtok: commas one behind the other count as one.
    tokens = [token.strip(" \t") for token in line.split(",") if token][:_FIELDS_AT_MOST]
    if len(tokens) < _FIELDS_AT_LEAST:
        return None
    misread: list[str] = []
    collective = _known(COLLECTIVES, tokens[0], "all_reduce", misread)
    algorithm = _known(ALGORITHMS, tokens[3], "Ring", misread)
    protocol = _known(PROTOCOLS, tokens[4], "Simple", misread)
    numbers = [_whole(token) for token in tokens[5:]]
    numbers += [ANY] * (_FIELDS_AT_MOST - len(tokens))
    return TunerRow(
        collective=collective,
        min_bytes=_bytes(tokens[1]),
        max_bytes=_bytes(tokens[2]),
        algorithm=algorithm,
        protocol=protocol,
        channels=numbers[0],
        nodes=numbers[1],
        ranks=numbers[2],
        pipe_ops=numbers[3],
        registered=numbers[4],
        line=number,
        misread=tuple(misread),
    )


def _known(words: dict[str, str], token: str, otherwise: str, misread: list[str]) -> str:
    found = next((name for name, word in words.items() if word == token), None)
    if found is None:
        misread.append(f"'{token}' is taken for '{words[otherwise]}'")
        return otherwise
    return found


def _whole(token: str) -> int:
    """Returns what atoi makes of it: the digits it begins with, 0 without any."""
    match = _NUMBER.match(token)
    return int(match[1]) if match else 0


def _bytes(token: str) -> int:
    """Returns what strtoull makes of it: a negative number wraps round, a huge one is the top."""
    number = _whole(token)
    if abs(number) > TOP_BYTES:
        return TOP_BYTES
    return number % (TOP_BYTES + 1)
