"""Tables of repeats in which nothing changed, with noise of many kinds, recorded and made."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np

from collbench.analyze.keys import CaseKey, case_key
from collbench.model import Mode, Status
from collbench.store import read_run

CASES = 84
REFERENCE = Path(__file__).parents[2] / "results" / "2xh200" / "20261130-0635-3947"
KEYS = [
    CaseKey(question=("made", k), mode=mode, size_bytes=8 << k)
    for mode in (Mode.EAGER, Mode.GRAPH)
    for k in range(CASES // 2)
]
# From 7 us up, as sizes rise.
_LEVELS = np.tile(np.linspace(2, 8, CASES // 2), 2)


@cache
def reference() -> tuple[list[CaseKey], np.ndarray]:
    """The cases of the recorded run, and its log medians [repeat, case]."""
    found: dict[CaseKey, dict[int, float]] = {}
    for trial in read_run(REFERENCE).trials:
        if trial.status is Status.OK and trial.summary is not None:
            found.setdefault(case_key(trial.case), {})[trial.repeat] = trial.summary.median_us
    repeats = sorted({repeat for one in found.values() for repeat in one})
    logs = np.log([[one[repeat] for one in found.values()] for repeat in repeats])
    return list(found), logs


def recorded(random, repeats):
    """84 of the recorded cases, in repeats drawn without replacement, each as a whole."""
    keys, logs = reference()
    chosen = np.sort(random.permutation(len(keys))[:CASES])
    rows = random.permutation(len(logs))[:repeats]
    return [keys[k] for k in chosen], logs[np.ix_(rows, chosen)]


def noise_of(kind: str, random, repeats: int) -> np.ndarray:
    shape = (repeats, CASES)
    normal = random.standard_normal(shape)
    deviations = np.exp(random.normal(np.log(0.01), 0.7, CASES))
    match kind:
        case "one per cent":
            return normal * 0.01
        case "log-normal":
            return normal * deviations
        case "skewed":
            return random.standard_exponential(shape) ** 1.5 * deviations
        case "bimodal, half":
            levels = random.random(shape) < 0.5
            return normal * 0.01 + levels * random.uniform(0.05, 0.4, CASES)
        case "bimodal, rare":
            return normal * 0.005 + (random.random(shape) < 0.1) * 0.2
        case "bimodal, some cases":
            levels = (random.random(shape) < 0.3) & (random.random(CASES) < 0.5)
            return normal * 0.01 + levels * random.uniform(0.05, 0.4, CASES)
        case "bimodal, whole repeats":
            levels = random.random((repeats, 1)) < 0.5
            return normal * 0.01 + levels * random.uniform(0.05, 0.4, CASES)
        case "drift":
            return normal * deviations + random.standard_normal((repeats, 1)) * 0.03
        case "drift of one mode":
            share = np.repeat([0.1, 0.0], CASES // 2)
            return normal * 0.01 + random.standard_normal((repeats, 1)) * share
    raise AssertionError(kind)


KINDS = (
    "recorded",
    "log-normal",
    "skewed",
    "bimodal, half",
    "bimodal, rare",
    "bimodal, some cases",
    "drift",
    "drift of one mode",
)
"""Those for which the bar holds at any number of repeats."""


def table(kind: str, random, repeats: int):
    """Keys and log times [repeat, case] of a table in which nothing changed."""
    if kind == "recorded":
        return recorded(random, repeats)
    return KEYS, noise_of(kind, random, repeats) + _LEVELS


def as_side(keys, logs: np.ndarray) -> dict[CaseKey, list[float]]:
    return {key: list(np.exp(logs[:, k])) for k, key in enumerate(keys)}


def changed(random, repeats: int, slowdown: float, *, everywhere: bool, kind: str):
    """Two sides of ``repeats`` each; the case that is slower and has 1 % noise stands first."""
    keys, logs = table(kind, random, 2 * repeats)
    places = [k for k, key in enumerate(keys) if key.mode is Mode.GRAPH]
    place = places[random.integers(len(places))]
    logs[:, place] = logs[:, place].mean() + random.standard_normal(2 * repeats) * 0.01
    shift = np.zeros(CASES)
    shift[slice(None) if everywhere else place] = np.log1p(slowdown)
    base = as_side(keys, logs[:repeats])
    return keys[place], base, as_side(keys, logs[repeats:] + shift)


def equal_settings(kind: str, random, repeats: int, rows: int = 45, settings: int = 15):
    """Rows of equal settings; ``recorded``: every setting redraws the row's recorded repeats."""
    found = {}
    if kind == "recorded":
        keys, logs = reference()
        chosen = random.permutation(len(keys))[:rows]
        for k in chosen:
            draws = [random.permutation(len(logs))[:repeats] for _ in range(settings)]
            found[keys[k]] = {str(s): list(np.exp(logs[draw, k])) for s, draw in enumerate(draws)}
        return found
    noise = [noise_of(kind, random, repeats)[:, :rows] for _ in range(settings)]
    for k in range(rows):
        found[KEYS[k]] = {
            str(s): list(np.exp(one[:, k] + _LEVELS[k])) for s, one in enumerate(noise)
        }
    return found
