"""The list of nodes in words: order, table, ages."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from collbench.report.node_list import ListedNode, age_s, age_text, bad_first, nodes_text

NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)


def node(name, verdict="pass", **changes):
    fields = {
        "node": name,
        "cluster": "lab",
        "verdict": verdict,
        "confirmed": False,
        "code": None,
        "effect_pct": None,
        "why": None,
        "run_id": "20261130-0400-aa30",
        "at": "2026-11-30T04:00:00+00:00",
        "age_s": 7200.0,
        "mark": None,
    }
    return ListedNode(**(fields | changes))


def test_the_table_is_plain_and_counts_verdicts():
    nodes = [
        node("n2", code=None),
        node("n10", "not_tested", why="absent"),
        node("n1", "fail", code="node_slow", effect_pct=-20.53, age_s=11000.0),
    ]

    assert nodes_text(nodes) == (
        "node verdict    code      age run\n"
        "n1   fail       node_slow 3 h 20261130-0400-aa30 -20.5 %\n"
        "n10  not_tested -         2 h 20261130-0400-aa30 absent\n"
        "n2   pass       -         2 h 20261130-0400-aa30\n"
        "\n"
        "3 nodes: 1 fail, 1 not_tested, 1 pass"
    )


def test_bad_nodes_come_first_then_names_by_their_numbers():
    words = ("pass", "not_tested", "inconclusive", "suspect", "fail")
    nodes = [node(f"rack{k}", word) for word in words for k in (10, 2)]

    assert [(one.verdict, one.node) for one in bad_first(nodes)] == [
        (word, name) for word in reversed(words) for name in ("rack2", "rack10")
    ]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 s"),
        (59.9, "59 s"),
        (60.0, "1 min"),
        (3599.0, "59 min"),
        (3600.0 * 3.9, "3 h"),
        (3600.0 * 47.9, "47 h"),
        (3600.0 * 48, "2 d"),
        (86400.0 * 400, "400 d"),
        (None, "-"),
    ],
)
def test_an_age_has_one_whole_unit(seconds, text):
    assert age_text(seconds) == text


@pytest.mark.parametrize(
    ("moment", "seconds"),
    [
        ("2026-12-01T09:00:00.000+00:00", 10800.0),
        ("2026-12-01T09:00:00", 10800.0),
        ("2026-12-01T13:00:00+02:00", 3600.0),
        ("2026-12-01T12:00:05+00:00", 0.0),
        ("yesterday", None),
    ],
)
def test_an_age_is_counted_from_a_stored_moment(moment, seconds):
    assert age_s(moment, NOW) == seconds
