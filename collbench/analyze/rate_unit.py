"""One unit for all rates of a report: GB/s, MB/s over slow links, KB/s below those."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from collbench.stats import FloatArray


@dataclass(frozen=True, slots=True)
class RateUnit:
    """A unit for values that are stored in GB/s."""

    name: str
    factor: float
    """Of it in a GB/s."""

    def text(self, gb_per_s: float) -> str:
        """Returns a value with three significant digits, without the unit."""
        value = gb_per_s * self.factor
        return f"{value:.{self.digits(gb_per_s)}f}"

    def digits(self, gb_per_s: float) -> int:
        """Returns the digits after the point, of three significant ones."""
        value = abs(gb_per_s) * self.factor
        return 0 if value >= 99.95 else 1 if value >= 9.995 else 2


_UNITS = (RateUnit("GB/s", 1.0), RateUnit("MB/s", 1e3), RateUnit("KB/s", 1e6))


def rate_unit(gb_per_s: FloatArray) -> RateUnit:
    """Returns the unit in which the middle of some values is at least 1; GB/s for none."""
    if not gb_per_s.size:
        return _UNITS[0]
    middle = float(np.median(gb_per_s))
    return next((unit for unit in _UNITS if middle * unit.factor >= 1), _UNITS[-1])
