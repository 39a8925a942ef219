"""Sizes, times and rates as text: the only place that knows 2**20 and 1e9.

Sizes are binary and in bytes (``64K`` is 65536, as nccl-tests spells it); rates are decimal
(1 GB/s = 1e9 B/s, as nccl-tests prints them); times are microseconds unless a name says seconds.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

from collbench.errors import UsageError

_BINARY = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_SIZE = re.compile(r"(?P<number>\d+)\s*(?P<unit>[KMGT]?)(?P<iec>iB)?(?P<byte>B)?", re.IGNORECASE)
_DURATION_S = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_DURATION = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>[a-z]*)")


def parse_size(text: str) -> int:
    """Returns the bytes that ``8``, ``64K``, ``128M``, ``1G`` or ``64KiB`` stand for.

    Raises:
        UsageError: anything else; ``1MB`` is refused because it means 10**6 to some readers and
            2**20 to others.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"size '{text}' is not a size; write bytes (8), or 64K, 128M, 1G, 64KiB")
    number, unit = int(match["number"]), match["unit"].upper()
    if match["byte"] and not match["iec"] and unit:
        decimal = number * 1000 ** ("KMGT".index(unit) + 1)
        raise UsageError(
            f"size '{text}' has two meanings; write {number}{unit} (or {number}{unit}iB) for"
            f" {number * _BINARY[unit]} bytes, or {decimal} for decimal"
        )
    return number * _BINARY[unit]


def parse_duration(text: str) -> float:
    """Returns the seconds that ``0.5s``, ``200ms``, ``2m`` or a bare number of seconds stand for.

    Raises:
        UsageError: no duration, or one that is not above zero.
    """
    match = _DURATION.fullmatch(text.strip().lower())
    if match is None or match["unit"] not in _DURATION_S:
        raise UsageError(f"duration '{text}' is not a duration; write 0.5s, 200ms, 2m")
    seconds = float(match["number"]) * _DURATION_S[match["unit"]]
    if seconds <= 0:
        raise UsageError(f"duration '{text}' must be above zero; write 0.5s, 200ms, 2m")
    return seconds


def parse_share(text: str) -> float:
    """Returns the fraction that ``2%`` or ``0.02`` stands for, above 0 and below 1.

    Raises:
        UsageError: anything else.
    """
    cleaned = text.strip()
    try:
        value = float(cleaned.rstrip("%").strip()) / (100.0 if cleaned.endswith("%") else 1.0)
    except ValueError:
        raise UsageError(f"share '{text}' is not a share; write 2% or 0.02") from None
    if not 0 < value < 1:
        raise UsageError(f"share '{text}' must be above 0% and below 100%; write 2% or 0.02")
    return value


def format_size(size_bytes: int) -> str:
    """Returns ``64 KiB``, or plain bytes where no binary unit divides the size."""
    if size_bytes <= 0:
        return f"{size_bytes} B"
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        one = _BINARY[unit[0]]
        if size_bytes % one == 0:
            return f"{size_bytes // one} {unit}"
    return f"{size_bytes} B"


def option_size(size_bytes: int) -> str:
    """Returns the size in the spelling of the command line: ``64K``."""
    return format_size(size_bytes).replace(" ", "").removesuffix("iB").removesuffix("B")


def approximate_size(size_bytes: float) -> str:
    """Returns a size that need not be a whole unit: ``11.9 MiB``."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        one = _BINARY[unit[0]]
        if size_bytes >= one:
            return f"{size_bytes / one:.3g} {unit}"
    return f"{size_bytes:.3g} B"


def format_time_us(time_us: float) -> str:
    """Returns microseconds with four significant digits and no exponent."""
    if time_us >= 1000:
        return f"{time_us:.0f}"
    if time_us >= 100:
        return f"{time_us:.1f}"
    return f"{time_us:.2f}"


def format_rate(gb_per_s: float) -> str:
    """Returns GB/s with two digits below 100, one above."""
    return f"{gb_per_s:.1f}" if gb_per_s >= 100 else f"{gb_per_s:.2f}"


def format_duration(seconds: float) -> str:
    """Returns a span for people: ``20 s``, ``3 min 20 s``, ``2 h 05 min``."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes, rest_s = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest_s:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def utc_text(unix_s: float) -> str:
    """Returns a moment as records write it: ISO 8601, UTC, milliseconds."""
    return datetime.fromtimestamp(unix_s, UTC).isoformat(timespec="milliseconds")


def gb_per_s(size_bytes: int, time_us: float) -> float:
    """Returns the decimal rate of so many bytes in so many microseconds; 0 for no time."""
    return size_bytes / time_us / 1e3 if time_us > 0 else 0.0
