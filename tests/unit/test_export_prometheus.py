"""``collbench export prometheus``: what a scraper reads, and which runs it is of."""

from __future__ import annotations

import json
import os
import stat
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import msgspec
import pytest
import yaml
from click.testing import CliRunner
from prometheus_client.parser import text_string_to_metric_families
from records import make_trial
from stored_runs import put, stored_run

from collbench.cli.export_prometheus import reading
from collbench.cli.main import cli
from collbench.model import NodeState, Proof
from collbench.report.pair_component import Component
from collbench.report.verdict_fields import NodeDocument
from collbench.store import read_run

ROOT = Path(__file__).parents[2]
PAIRWISE = ROOT / "results/2xh200/20261130-1319-63a8"
"""Eight nodes, node5 fails; its nodes are fake hosts."""
ALERTS = ROOT / "examples/prometheus/alerts.yaml"
RATE = "collbench_bus_bandwidth_bytes_per_second"
ENDED = "2026-11-30T05:00:00+00:00"


def called(*arguments):
    return CliRunner().invoke(
        cli, ["export", "prometheus", *map(str, arguments)], standalone_mode=False
    )


def samples_in(text):
    """Returns every value by metric and labels, as a scraper reads them."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def of_metric(text, name):
    return {labels: value for (metric, labels), value in samples_in(text).items() if metric == name}


def rates_in(text):
    return {
        tuple(
            dict(labels)[name] for name in ("collective", "size_bytes", "algorithm", "protocol")
        ): (value)
        for labels, value in of_metric(text, RATE).items()
    }


def ran(trial, algorithm, protocol):
    return msgspec.structs.replace(trial, proof=Proof(algorithm=algorithm, protocol=protocol))


def seconds(moment):
    return datetime.fromisoformat(moment).timestamp()


def pairwise_run(root, run_id="20261130-0300-bb22", **changes):
    """Writes the reference run of pairs as one of real nodes."""
    stored = read_run(PAIRWISE)
    fields = {"run_id": run_id, "emulated": False, "started_at": "2026-11-30T03:00:00+00:00"}
    run = msgspec.structs.replace(stored.run, **(fields | changes))
    return put(replace(stored, run=run), root / "lab")


def sweep_run(root, trials, run_id="20261130-0412-aa11", **changes):
    return put(stored_run(trials, run_id, **({"ended_at": ENDED} | changes)), root / "lab")


@pytest.fixture
def both(tmp_path):
    """A sweep and a run of pairs, ended."""
    root = tmp_path / "results"
    sweep_run(root, [ran(make_trial(1000, 2.0), "Ring", "LL")])
    pairwise_run(root, ended_at="2026-11-30T03:04:00+00:00")
    return root


def test_a_scraper_reads_verdicts_rates_states_and_moments(both):
    text = called("--results", both).stdout

    verdicts = of_metric(text, "collbench_node_verdict")
    assert len(verdicts) == 8 * 5
    assert {tuple(dict(labels).values()) for labels, value in verdicts.items() if value == 1} == {
        *((f"node{k}", "pass") for k in (0, 1, 2, 3, 4, 6, 7)),
        ("node5", "fail"),
    }
    assert set(verdicts.values()) == {0.0, 1.0}
    node5 = next(
        node
        for node in json.loads(CliRunner().invoke(cli, ["show", str(PAIRWISE), "--json"]).stdout)[
            "nodes"
        ]
        if node["node"] == "node5"
    )
    assert of_metric(text, "collbench_component_ratio") == {
        (("component", "node"), ("node", "node5")): node5["measured"] / node5["expected"]
    }
    # 1000 B in 2 us are 5e8 B/s; all_reduce of 2 ranks has the factor 1.
    assert rates_in(text) == {("all_reduce", "1000", "Ring", "LL"): 5e8}
    assert of_metric(text, "collbench_nodes") == {
        (("state", str(state)),): 8.0 if state is NodeState.PRESENT else 0.0 for state in NodeState
    }
    assert of_metric(text, "collbench_last_run_timestamp_seconds") == {(): seconds(ENDED)}
    assert of_metric(text, "collbench_last_success_timestamp_seconds") == {(): seconds(ENDED)}


def node_document(**changes):
    fields = {"node": "n1", "verdict": "fail", "evidence": [], "action": "drain", "reason": "slow"}
    return NodeDocument(**(fields | changes))


@pytest.mark.parametrize(
    ("changes", "component", "ratio"),
    [
        ({"measured": 30.0, "expected": 40.0, "unit": "GB/s"}, "mlx5_5", 0.75),
        ({"measured": 30.0, "expected": None, "unit": "GB/s"}, "mlx5_5", None),
        ({"measured": 0.1, "expected": 0.2, "unit": "of messages lost"}, "mlx5_5", None),
        ({"measured": 0.0, "expected": 40.0, "unit": "GB/s", "component": None}, "node", 0.0),
    ],
)
def test_a_ratio_is_of_rates_and_names_the_part(changes, component, ratio):
    rail = {"component": Component(kind="rail", name="mlx5_5")}

    found = reading(node_document(**(rail | changes)))

    assert (found.component, found.ratio) == (component, ratio)


def test_no_label_starts_a_new_series_with_every_run(both):
    text = called("--results", both).stdout

    labels = {name for _, pairs in samples_in(text) for name, _ in pairs}
    assert labels == {
        "node",
        "verdict",
        "component",
        "collective",
        "size_bytes",
        "algorithm",
        "protocol",
        "state",
    }


def test_without_a_run_the_newest_of_each_command_that_ended_is_taken(tmp_path):
    sweep_run(tmp_path, [make_trial(1000, 1.0)], "20261128-0000-aaaa", started_at="2026-11-28")
    sweep_run(tmp_path, [make_trial(1000, 2.0)], "20261129-0000-bbbb", started_at="2026-11-29")
    sweep_run(
        tmp_path,
        [make_trial(1000, 8.0)],
        "20261130-0000-cccc",
        started_at="2026-11-30T00:00:00+00:00",
        ended_at=None,
        exit_code=None,
    )

    result = called("--results", tmp_path)

    assert rates_in(result.stdout) == {("all_reduce", "1000", "unknown", "unknown"): 5e8}
    assert result.stdout.startswith("# Written by collbench ")
    assert result.stdout.partition("\n")[0].endswith(": runs 20261129-0000-bbbb")


def test_a_run_that_is_named_may_go_on_and_is_said_to_be_partial(tmp_path):
    folder = sweep_run(tmp_path, [make_trial(8, 1.0)], ended_at=None, exit_code=None)

    result = called(folder)

    assert "is partial, 1 of 1 trials" in result.stderr
    moments = of_metric(result.stdout, "collbench_last_run_timestamp_seconds")
    assert moments == {(): seconds("2026-11-30T04:12:00+00:00")}
    assert of_metric(result.stdout, "collbench_last_success_timestamp_seconds") == {(): 0.0}


@pytest.mark.parametrize(
    ("exit_code", "success"), [(0, True), (1, True), (3, False), (4, False), (130, False)]
)
def test_a_success_is_a_run_that_came_to_an_answer(tmp_path, exit_code, success):
    sweep_run(tmp_path, [make_trial(8, 1.0)], exit_code=exit_code)

    text = called("--results", tmp_path).stdout

    expected = seconds(ENDED) if success else 0.0
    assert of_metric(text, "collbench_last_success_timestamp_seconds") == {(): expected}
    assert of_metric(text, "collbench_last_run_timestamp_seconds") == {(): seconds(ENDED)}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"simulated": True}, "SIMULATED: a model answered"),
        ({"emulated": True}, "EMULATED: the nodes are fake hosts"),
        ({"planted": "slow"}, "PLANTED FAULT (slow)"),
    ],
)
def test_runs_without_hardware_are_refused_unless_forced_and_said(tmp_path, changes, words):
    folder = sweep_run(tmp_path, [make_trial(8, 1.0)], **changes)

    refused, none, forced = called(folder), called("--results", tmp_path), called(folder, "--force")

    assert words in str(refused.exception)
    assert str(refused.exception).endswith("; name another, or --force")
    assert refused.exception.exit_code == none.exception.exit_code == 2
    assert str(none.exception).startswith(f"no run in '{tmp_path}' that has ended and measured")
    assert words in forced.stderr
    assert words in forced.stdout.splitlines()[1]


def test_gpus_inside_a_node_are_no_nodes(tmp_path):
    inside = pairwise_run(tmp_path, "20261130-0400-cc33", suite={"inside": True})
    sweep_run(tmp_path, [make_trial(8, 1.0)])

    text = called("--results", tmp_path).stdout

    assert of_metric(text, "collbench_node_verdict") == {}
    assert "is of GPUs inside nodes (--inside)" in str(called(inside).exception)


def test_an_earlier_export_is_replaced_and_another_file_is_not(both, tmp_path):
    file, other = tmp_path / "collbench.prom", tmp_path / "other.prom"
    other.write_text("# HELP other metrics\n")

    assert called("--results", both, "-o", file).return_value is None
    first = file.stat().st_ino
    assert called("--results", both, "-o", file).return_value is None
    refused = called("--results", both, "-o", other)

    assert file.stat().st_ino != first  # by a rename: a reader has the old or the new one, whole
    assert str(refused.exception) == f"'{other}' exists; give another name with -o, or --force"
    assert sorted(path.name for path in tmp_path.iterdir()) == [file.name, other.name, "results"]


def test_another_user_may_read_the_file(both, tmp_path):
    file = tmp_path / "collbench.prom"
    before = os.umask(0o022)
    try:
        called("--results", both, "-o", file)
    finally:
        os.umask(before)

    assert stat.S_IMODE(file.stat().st_mode) == 0o644


def test_the_alerts_are_on_metrics_that_are_exported(both):
    names = {name for name, _ in samples_in(called("--results", both).stdout)}
    rules = [
        rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]
    ]

    assert [rule["alert"] for rule in rules] == ["CollbenchNodeFails", "CollbenchNoSuccessfulRun"]
    for rule in rules:
        found = {
            word
            for word in rule["expr"].replace("(", " ").replace("{", " ").replace(")", " ").split()
            if word.startswith("collbench_")
        }
        assert found
        assert found <= names
    assert rules[0]["expr"] == 'collbench_node_verdict{verdict="fail"} == 1'
    assert "> 24 * 3600" in rules[1]["expr"]
