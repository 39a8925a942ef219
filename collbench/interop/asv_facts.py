"""What asv calls a machine, its parameters and an environment, from what a series shares.

Every parameter is a choice on asv's page, every combination a line of its graphs. Two series that
had all of them in common would be one line there, and with one environment name one file.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from collbench.analyze.history import WORDS, Loaded, Series

_GPU, _PLACEMENT = "hardware", "placement"
_SHOWN: Mapping[str, str] = {
    _GPU: "gpu",
    WORDS[Loaded.TORCH]: "torch",
    WORDS[Loaded.CUDA]: "cuda",
    WORDS[Loaded.DRIVER]: "driver",
    WORDS[Loaded.PLUGIN]: "plugin",
    "via": "via",
}
"""Facts that always are parameters, and how those are called."""
_LONGEST_NAME = 100
"""Above 127 characters asv hashes an environment's name."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Where a series stands among asv's results."""

    machine: str
    environment: str
    parameters: Mapping[str, str]
    """The machine among them."""
    about: Mapping[str, str]
    """Of the machine."""

    @property
    def machine_document(self) -> dict[str, Any]:
        """The content of ``machine.json``."""
        return {**self.about, "machine": self.machine, "version": 1}


def places_of(series: Sequence[Series]) -> list[Place]:
    """Returns each series' place; no two have the same."""
    values: dict[str, set[str | None]] = {}
    for name in dict.fromkeys(name for one in series for name in one.facts):
        values[name] = {one.facts.get(name) for one in series}
    further = [
        name
        for name, found in values.items()
        if len(found) > 1 and name not in _SHOWN and name != _PLACEMENT
    ]
    return [_place(one, further) for one in series]


def _place(series: Series, further: Iterable[str]) -> Place:
    facts = series.facts
    machine = _slug(f"{facts[_GPU]} {facts[_PLACEMENT]}")
    nodes = sorted({case.nodes for case in series.cases.values()})
    parameters = {"machine": machine, "nodes": " and ".join(map(str, nodes))}
    parameters |= {name: facts[fact] for fact, name in _SHOWN.items() if fact in facts}
    parameters |= {_slug(fact): facts.get(fact, "unknown") for fact in further}
    words = [f"{name}-{value}" for name, value in parameters.items() if name not in _OF_MACHINE]
    digest = hashlib.blake2b(json.dumps(dict(facts), sort_keys=True).encode(), digest_size=4)
    name = _slug(" ".join(words))[:_LONGEST_NAME].rstrip("-")
    return Place(
        machine=machine,
        environment=f"{name}-{digest.hexdigest()}",
        parameters=parameters,
        about={"gpu": facts[_GPU], "placement": facts[_PLACEMENT]},
    )


_OF_MACHINE = ("machine", "gpu")


def _slug(words: str) -> str:
    """Returns words as a name of a file: ``nvidia-h200-1-node-x-2-gpus``."""
    return re.sub(r"[^a-z0-9._]+", "-", words.lower()).strip("-.") or "unknown"
