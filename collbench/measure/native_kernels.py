"""The two CUDA kernels of the native back end, compiled when a worker starts.

compare: counts the elements in which an output differs from a table that repeats, and finds the
first. Elements are compared as bytes, so one kernel for each size of an element serves all types.
spin: does nothing for a while, to hold the queue of a stream.

Every argument has 8 bytes: cuda.core passes a Python int as such.
"""

from __future__ import annotations

import struct
from typing import Any

from collbench.measure.native_library import import_extra

SOURCE = r"""
typedef unsigned long long Count;

template <typename Item>
__device__ void compare(const Item* found, const Item* table, Count count, Count period,
                        Count* result) {
  const Count step = (Count)gridDim.x * blockDim.x;
  const Count shift = step % period;
  Count index = (Count)blockIdx.x * blockDim.x + threadIdx.x;
  Count place = index % period;
  Count wrong = 0;
  Count first = ~(Count)0;
  for (; index < count; index += step) {
    if (found[index] != table[place]) {
      if (wrong == 0) first = index;
      ++wrong;
    }
    place += shift;
    if (place >= period) place -= period;
  }
  if (wrong != 0) {
    atomicAdd(&result[0], wrong);
    atomicMin(&result[1], first);
  }
}

#define COMPARE(NAME, ITEM)                                                              \
  extern "C" __global__ void NAME(const ITEM* found, const ITEM* table, Count count,     \
                                  Count period, Count* result) {                         \
    compare<ITEM>(found, table, count, period, result);                                  \
  }

COMPARE(compare_1, unsigned char)
COMPARE(compare_2, unsigned short)
COMPARE(compare_4, unsigned int)
COMPARE(compare_8, unsigned long long)

extern "C" __global__ void spin(long long cycles) {
  const long long start = clock64();
  while (clock64() - start < cycles) {
  }
}
"""

_THREADS = 256
_MOST_BLOCKS = 4096
RESULT = struct.Struct("<QQ")
"""What compare writes: elements that differ, and the index of the first."""
UNTOUCHED = RESULT.pack(0, 2**64 - 1)
"""What it must find there."""


class Kernels:
    """The compiled kernels, on the current device."""

    def __init__(self) -> None:
        self._core = import_extra("cuda.core")
        options = self._core.ProgramOptions(std="c++17")
        code = self._core.Program(SOURCE, code_type="c++", options=options).compile("cubin")
        self._compare = {size: code.get_kernel(f"compare_{size}") for size in (1, 2, 4, 8)}
        self._spin = code.get_kernel("spin")

    def compare(
        self,
        stream: Any,
        *,
        found: int,
        table: int,
        item_bytes: int,
        count: int,
        period: int,
        result: int,
    ) -> None:
        """Queues the comparison of ``count`` elements with a table of ``period`` elements.

        Args:
            stream: the stream of cuda.core.
            found: address of the elements; aligned to their size, as ``table``.
            table: address of the table.
            item_bytes: bytes of an element: 1, 2, 4 or 8.
            count: how many elements; at least 1.
            period: elements of the table; at least 1.
            result: address of ``RESULT``, holding ``UNTOUCHED``.
        """
        blocks = min(-(-count // _THREADS), _MOST_BLOCKS)
        config = self._core.LaunchConfig(grid=blocks, block=_THREADS)
        kernel = self._compare[item_bytes]
        self._core.launch(stream, config, kernel, found, table, count, period, result)

    def spin(self, stream: Any, cycles: int) -> None:
        """Queues a kernel that does nothing for so many clock cycles."""
        config = self._core.LaunchConfig(grid=1, block=1)
        self._core.launch(stream, config, self._spin, cycles)
