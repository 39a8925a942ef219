"""Colours of rates against what is usual: red is slower, blue is faster, white is usual."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from collbench.stats import FloatArray

GREY = "#555555"
UNTRIED = "#EDEDED"
_COLOURS = "RdBu"
"""ColorBrewer: told apart by the colour-blind."""
_NARROWEST, _WIDEST = math.log(1.10), math.log(4)
"""Of the scale, either side: noise alone stays pale, and one dead node does not hide the others."""
_DARK = 0.62
_TICKS = (-75, -60, -50, -40, -30, -20, -10, -5, 0, 5, 10, 20, 50, 100)
"""Percent."""
_APART = 0.05
"""Of the bar's length, between ticks."""


@dataclass(frozen=True, kw_only=True)
class Shades:
    """One scale for all panels of a picture."""

    limit: float
    """The log at which colours end, either side."""
    highest: float
    """The highest log that is there."""
    clipped: bool
    """Whether there are lower ones than the scale has."""
    colours: Any
    norm: Any

    def is_dark(self, share: float) -> bool:
        """Returns whether a share's colour is so dark that text on it is to be white."""
        return abs(math.log(share)) > _DARK * self.limit

    def bar(self, figure: Any, image: Any, axes: Any) -> None:
        """Draws the scale with its ends where values end."""
        extend = "min" if self.clipped else "neither"
        bar = figure.colorbar(image, ax=axes, shrink=0.7, pad=0.02, extend=extend)
        low, high = -self.limit, min(self.limit, max(self.highest, 0.2 * self.limit))
        bar.ax.set_ylim(math.exp(low), math.exp(high))
        ticks: list[int] = []
        for tick in sorted(_TICKS, key=abs):
            log = math.log1p(tick / 100)
            near = any(
                abs(log - math.log1p(other / 100)) < _APART * (high - low) for other in ticks
            )
            if low <= log <= high and not near:
                ticks.append(tick)
        bar.set_ticks(
            [1 + tick / 100 for tick in ticks],
            labels=[f"{tick:+d} %" if tick else "usual" for tick in ticks],
        )
        bar.ax.minorticks_off()
        bar.outline.set_visible(False)


def shades_of(shares: FloatArray) -> Shades:
    """Returns the scale for some shares of what is usual; NaN counts for nothing."""
    from matplotlib import colormaps
    from matplotlib.colors import LogNorm

    known = np.log(shares[~np.isnan(shares)])
    deepest = float(-known.min()) if known.size else 0.0
    limit = min(max(deepest, _NARROWEST), _WIDEST)
    colours = colormaps[_COLOURS].with_extremes(bad=UNTRIED)
    return Shades(
        limit=limit,
        highest=float(known.max()) if known.size else 0.0,
        clipped=deepest > limit,
        colours=colours,
        norm=LogNorm(math.exp(-limit), math.exp(limit), clip=True),
    )
