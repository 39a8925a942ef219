"""How the time of a trial differs from what the rates say.

``size`` is of a trial, drawn once for each group and round, since a real fabric's repeats differ
by more than the samples of one repeat do; ``jitter`` is of each call within its trial.

normal   time x (1 + size x standard normal)
skewed   time x (1 + size x exponential of mean 1): never faster, now and then much slower
bimodal  a ``share`` of trials at a rate lower by ``size``, the others exact
drift    time x (1 + size x sin(2 pi round / 50)): all trials of a round alike
"""

from __future__ import annotations

import math

import numpy as np

from collbench.engine.fabric_file import Noise

_DRIFT_ROUNDS = 50
_LEAST = 0.05
"""No draw makes a call quicker than this share of its time."""


def trial_factor(noise: Noise, random: np.random.Generator, round_number: int) -> float:
    """Returns by what the time of one trial is multiplied.

    Args:
        noise: of the fabric.
        random: of the trial.
        round_number: of the engine, from 0.
    """
    if noise.size == 0:
        return 1.0
    if noise.kind == "normal":
        return max(_LEAST, 1 + noise.size * float(random.standard_normal()))
    if noise.kind == "skewed":
        return 1 + noise.size * float(random.standard_exponential())
    if noise.kind == "bimodal":
        return 1 / (1 - noise.size) if random.random() < noise.share else 1.0
    return 1 + noise.size * math.sin(2 * math.pi * round_number / _DRIFT_ROUNDS)


def call_factor(noise: Noise, random: np.random.Generator) -> float:
    """Returns by what the time of one call is multiplied besides."""
    if noise.jitter == 0:
        return 1.0
    return max(_LEAST, 1 + noise.jitter * float(random.standard_normal()))
