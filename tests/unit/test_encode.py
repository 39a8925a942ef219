"""Elements of every type as bytes: exact values, refusals, rounding, and what the bytes mean."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collbench.collectives import COLLECTIVES, ITEM_BYTES, REDOPS
from collbench.measure.encode import decode, encode, encode_nearest
from collbench.measure.pattern import expected_segments, input_segment
from collbench.model import Case

BYTES_OF_VALUES = [
    ("float64", 1.5, "000000000000f83f"),
    ("float32", 1.5, "0000c03f"),
    ("float32", -2.0, "000000c0"),
    ("float16", 1.5, "003e"),
    ("float16", 65504.0, "ff7b"),
    ("bfloat16", 1.5, "c03f"),
    ("bfloat16", -256.0, "80c3"),
    ("float8_e4m3fn", 1.0, "38"),
    ("float8_e4m3fn", 448.0, "7e"),
    ("float8_e4m3fn", -16.0, "d8"),
    ("float8_e4m3fn", 2.0**-9, "01"),
    ("float8_e5m2", 1.0, "3c"),
    ("float8_e5m2", 57344.0, "7b"),
    ("float8_e5m2", 2.0**-16, "01"),
    ("int8", -127.0, "81"),
    ("uint8", 254.0, "fe"),
    ("int32", 2.0**30, "00000040"),
    ("int32", -1.0, "ffffffff"),
    ("int64", 2.0**40, "0000000000010000"),
]


@pytest.mark.parametrize(("dtype", "value", "expected"), BYTES_OF_VALUES)
def test_the_bytes_of_a_value(dtype, value, expected):
    assert encode(np.array([value]), dtype).hex() == expected
    assert decode(bytes.fromhex(expected), dtype).tolist() == [value]


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("float32", 2.0**24 + 1),
        ("float32", 0.1),
        ("float32", 1e300),
        ("float16", 2049.0),
        ("float16", 65536.0),
        ("bfloat16", 257.0),
        ("bfloat16", 1e39),
        ("float8_e4m3fn", 17.0),
        ("float8_e4m3fn", 512.0),
        ("float8_e5m2", 9.0),
        ("float8_e5m2", 65536.0),
        ("int8", 128.0),
        ("int8", 0.5),
        ("uint8", -1.0),
        ("uint8", 256.0),
        ("int32", 2.0**31),
        ("int64", 2.0**63),
        ("float64", float("nan")),
        ("int32", float("nan")),
    ],
)
def test_a_value_that_is_not_exact_is_refused_and_named(dtype, value):
    with pytest.raises(ValueError, match=f"{value!r} is not exact in {dtype};".replace("+", r"\+")):
        encode(np.array([1.0, value, 2.0]), dtype)


def case_of(collective: str, dtype: str, redop: str | None) -> Case:
    row = COLLECTIVES[collective]
    size_bytes = row.size_bytes(2000, dtype, 4)
    return Case(
        collective=collective,
        backend="nccl",
        dtype=dtype,
        redop=redop,
        root=1 if row.has_root else None,
        size_bytes=size_bytes,
        requested_bytes=size_bytes,
        count=2000,
        world_size=4,
        in_place=False,
    )


KNOWN_DATA = [
    (name, dtype, redop)
    for name, row in COLLECTIVES.items()
    for dtype in ITEM_BYTES
    for redop in (REDOPS if row.has_redop else [None])
]


@pytest.mark.parametrize(("collective", "dtype", "redop"), KNOWN_DATA)
def test_the_known_data_are_exact_in_every_type(collective, dtype, redop):
    case = case_of(collective, dtype, redop)
    tables = [input_segment(case, 1, 2000).table]
    if redop != "avg":
        tables += [segment.table for segment in expected_segments(case, 1)]
    for table in tables:
        encoded = encode(table, dtype)
        assert len(encoded) == table.size * ITEM_BYTES[dtype]
        assert decode(encoded, dtype).tolist() == table.tolist()


@pytest.mark.parametrize(
    ("dtype", "value", "nearest"),
    [
        ("float32", 1 / 3, 0.3333333432674408),
        ("float16", 2049.0, 2048.0),
        ("float16", 2051.0, 2052.0),
        ("bfloat16", 1 + 2.0**-8, 1.0),
        ("bfloat16", 1 + 3 * 2.0**-8, 1 + 2.0**-6),
        ("bfloat16", 1 / 3, 0.333984375),
        ("float8_e4m3fn", 1.3, 1.25),
        ("float8_e4m3fn", -1.2, -1.25),
        ("float8_e5m2", 1.3, 1.25),
        ("float8_e5m2", 2.3, 2.5),
        ("int8", 2.6, 3.0),
    ],
)
def test_an_average_becomes_the_nearest_element(dtype, value, nearest):
    assert decode(encode_nearest(np.array([value]), dtype), dtype).tolist() == [nearest]


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
def test_every_finite_float8_comes_back_as_its_own_byte(dtype):
    codes = bytes(range(256))
    values = decode(codes, dtype)
    finite = np.isfinite(values)

    assert encode(values[finite], dtype) == bytes(np.frombuffer(codes, np.uint8)[finite])
    unlike = {"float8_e4m3fn": [0x7F, 0xFF], "float8_e5m2": [*range(0x7C, 0x80), *range(0xFC, 256)]}
    assert np.flatnonzero(~finite).tolist() == unlike[dtype]


def test_float8_e5m2_is_the_upper_half_of_float16():
    codes = np.arange(256, dtype=np.uint16)
    expected = (codes << 8).view(np.float16).astype(np.float64)
    np.testing.assert_array_equal(decode(codes.astype(np.uint8), "float8_e5m2"), expected)


@pytest.mark.parametrize(
    "dtype", [name for name in ITEM_BYTES if name.startswith(("float", "bfloat"))]
)
def test_what_nobody_wrote_is_nan_in_floating_types(dtype):
    assert np.isnan(decode(b"\xff" * 8, dtype)).all()


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_any_float32_comes_back(value):
    assert decode(encode(np.array([value]), "float32"), "float32").tolist() == [value]


@given(st.integers(0, 2**16 - 1))
def test_any_bfloat16_comes_back_as_its_own_bits(bits):
    data = bits.to_bytes(2, "little")
    value = decode(data, "bfloat16")
    if np.isfinite(value).all():
        assert encode(value, "bfloat16") == data
