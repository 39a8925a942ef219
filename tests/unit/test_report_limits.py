"""The wire's limit beside tables: one line where one holds for all, else with its sizes."""

import msgspec
import pytest
from records import make_trial
from setting_trials import RAN_RING

from collbench.analyze.limit import Limit
from collbench.report.limits import limit_lines, limits_by_size
from collbench.report.table import render_tables

TREE = msgspec.structs.replace(RAN_RING, algorithm="Tree", protocol="Simple")


def limit_of(_case, proof):
    """Tree may reach twice what Ring may; what is not proved is not known."""
    if proof is None:
        return None
    return Limit(20.0 if proof.algorithm == "Tree" else 10.0, f"wires, {proof.algorithm}")


def ran(size, proof, **changes):
    return make_trial(size, size / 10.0 / 1e3, proof=proof, **changes)


def test_each_size_has_the_limit_of_what_ran_there():
    trials = [ran(64, RAN_RING), ran(1024, TREE), ran(4096, None)]

    assert limits_by_size(trials, limit_of) == {
        64: Limit(10.0, "wires, Ring"),
        1024: Limit(20.0, "wires, Tree"),
    }


def test_repeats_that_ran_differently_are_asked_without_a_proof():
    trials = [ran(64, RAN_RING), ran(64, TREE, repeat=1)]

    assert limits_by_size(trials, limit_of) == {}


@pytest.mark.parametrize(
    ("modes", "lines"),
    [
        ([{}], []),
        ([{4: Limit(1.0, "a"), 8: Limit(1.0, "a")}, {}], ["  limit: busbw as a share of a"]),
        (
            [{4: Limit(1.0, "b"), 8: Limit(1.0, "b"), 16: Limit(2.0, "a"), 64: Limit(1.0, "b")}],
            [
                "  limit: busbw as a share of b  (4 B to 8 B, 64 B)",
                "  limit: busbw as a share of a  (16 B)",
            ],
        ),
    ],
)
def test_the_words_of_several_limits_have_their_sizes(modes, lines):
    assert limit_lines(modes) == lines


def test_a_table_shows_each_rows_share_of_its_own_limit():
    sizes = ((1024, RAN_RING), (65536, TREE), (2**20, None))

    lines = render_tables([ran(size, proof) for size, proof in sizes], limit_of).splitlines()

    assert lines[2:4] == [
        "  limit: busbw as a share of wires, Ring  (1 KiB)",
        "  limit: busbw as a share of wires, Tree  (64 KiB)",
    ]
    assert lines[6:9] == [
        " 1 KiB    256    0.10   - 10.00 10.00  100% 40 precise   0%     - Ring/LL 24 ch",
        "64 KiB  16384    6.55   - 10.00 10.00   50% 40 precise   0%     - Tree/Simple 24 ch",
        " 1 MiB 262144   104.9   - 10.00 10.00     - 40 precise   0%     - -",
    ]
