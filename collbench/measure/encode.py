"""Values of an element type as bytes and back, on the host, without torch.

The known data are float64 on the host; the device holds them in the type of the case. numpy has no
bfloat16 and no float8, so these are made of their bits here. Byte order: little-endian, as GPUs
have it.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from collbench.stats import FloatArray

_NUMPY_NAMES = {
    "float64": "<f8",
    "float32": "<f4",
    "float16": "<f2",
    "int8": "<i1",
    "int32": "<i4",
    "int64": "<i8",
    "uint8": "<u1",
}
_FLOAT8_LAYOUTS = {"float8_e4m3fn": (4, 3), "float8_e5m2": (5, 2)}
"""Bits of exponent and mantissa."""
_SIGN = 0x80


def encode(values: FloatArray, dtype: str) -> bytes:
    """Returns the values as elements of a type, one after the other.

    Args:
        values: float64[k].
        dtype: one of ``collbench.collectives.ITEM_BYTES``.

    Raises:
        ValueError: a value that is not exact in the type.
    """
    encoded = encode_nearest(values, dtype)
    exact = decode(encoded, dtype) == values
    if not exact.all():
        value = float(np.asarray(values)[np.argmin(exact)])
        raise ValueError(f"{value!r} is not exact in {dtype}; give values that {dtype} holds")
    return encoded


def encode_nearest(values: FloatArray, dtype: str) -> bytes:
    """Returns the elements of a type that come nearest to the values; for averages.

    Values beyond the type's range give something else; ``encode`` refuses them.
    """
    if dtype in _NUMPY_NAMES:
        kind = np.dtype(_NUMPY_NAMES[dtype])
        with np.errstate(over="ignore", invalid="ignore"):
            return (values if kind.kind == "f" else np.rint(values)).astype(kind).tobytes()
    if dtype == "bfloat16":
        return _to_bfloat16(values)
    return _to_float8(values, dtype)


def decode(data: bytes | NDArray[np.uint8], dtype: str) -> FloatArray:
    """Returns the elements of a type in ``data`` as float64[k]."""
    # numpy warns of a NaN that is widened; what nobody wrote is one.
    with np.errstate(invalid="ignore"):
        if dtype in _NUMPY_NAMES:
            return np.frombuffer(data, _NUMPY_NAMES[dtype]).astype(np.float64)
        if dtype == "bfloat16":
            bits = np.frombuffer(data, "<u2").astype(np.uint32) << np.uint32(16)
            return bits.view(np.float32).astype(np.float64)
    return _float8_values(dtype)[np.frombuffer(data, np.uint8)]


def _to_bfloat16(values: FloatArray) -> bytes:
    """Rounds the upper half of a float32 to nearest, halfway to even."""
    with np.errstate(over="ignore"):
        bits = values.astype(np.float32).view(np.uint32).astype(np.int64)
    bits += 0x7FFF + (bits >> 16 & 1)
    return (bits >> 16).astype(np.uint16).tobytes()


def _to_float8(values: FloatArray, dtype: str) -> bytes:
    """Looks each value up between the halfway points of the type's finite numbers."""
    positive = _float8_values(dtype)[:_SIGN]
    finite = positive[np.isfinite(positive)]
    halfway = (finite[:-1] + finite[1:]) / 2
    codes = np.searchsorted(halfway, np.abs(values)).astype(np.uint8)
    codes[np.signbit(values)] |= _SIGN
    return codes.tobytes()


@cache
def _float8_values(dtype: str) -> FloatArray:
    """Returns what each of the 256 bytes means.

    e5m2 follows IEEE 754; e4m3fn has no infinities and one NaN, of all ones, instead.
    """
    exponent_bits, mantissa_bits = _FLOAT8_LAYOUTS[dtype]
    bias = 2 ** (exponent_bits - 1) - 1
    codes = np.arange(_SIGN)
    exponent, mantissa = codes >> mantissa_bits, codes & (2**mantissa_bits - 1)
    fraction = mantissa / 2**mantissa_bits
    positive = np.where(
        exponent == 0,
        np.ldexp(fraction, 1 - bias),
        np.ldexp(1 + fraction, exponent - bias),
    )
    if dtype == "float8_e5m2":
        top = exponent == 2**exponent_bits - 1
        positive[top] = np.where(mantissa[top] == 0, np.inf, np.nan)
    else:
        positive[-1] = np.nan
    return np.concatenate([positive, -positive])
