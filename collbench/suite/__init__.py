"""Suites: what to ask, in TOML. Every key has a default, so a file says only what differs.

``load_suite`` reads one, ``override`` lays options over it, ``resolve`` fills what depends on the
machine (``"auto"``). Values are checked where they come from, so that the text of an error names
the file and the key, or the option.
"""

from __future__ import annotations

from collbench.suite.files import find_suite, load_suite, shipped_suites, suite_folder
from collbench.suite.resolve import ResolvedSuite, resolve, settings_of, suite_as_dict
from collbench.suite.schema import (
    ALL_ROOTS,
    AUTO,
    BACKENDS,
    IN_PLACE,
    SUITE_SCHEMA,
    VIAS,
    Ladder,
    Measure,
    Place,
    Questions,
    Suite,
    override,
)
from collbench.suite.values import (
    check_sizes,
    check_suite,
    check_value,
    read_libraries,
    read_plugins,
)

__all__ = [
    "ALL_ROOTS",
    "AUTO",
    "BACKENDS",
    "IN_PLACE",
    "SUITE_SCHEMA",
    "VIAS",
    "Ladder",
    "Measure",
    "Place",
    "Questions",
    "ResolvedSuite",
    "Suite",
    "check_sizes",
    "check_suite",
    "check_value",
    "find_suite",
    "load_suite",
    "override",
    "read_libraries",
    "read_plugins",
    "resolve",
    "settings_of",
    "shipped_suites",
    "suite_as_dict",
    "suite_folder",
]
