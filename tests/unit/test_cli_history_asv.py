"""The commands that write, publish and serve the history for asv, and the page's scripts."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from http.client import HTTPConnection

import pytest
from asv_runs import MACHINE, small
from click.testing import CliRunner
from stored_runs import put, topology_of

from collbench.cli.history_export import export
from collbench.cli.history_publish import publish
from collbench.cli.history_serve import page_server
from collbench.errors import UsageError
from collbench.interop import asv_page, asv_scripts

# --- commands ----------------------------------------------------------------------------------


@pytest.fixture
def call(tmp_path):
    """Calls a command with the results of the test, and returns what it printed."""

    def call_(command, *arguments):
        words = [*map(str, arguments), "--results", str(tmp_path / "runs")]
        done = CliRunner().invoke(command, words, standalone_mode=False)
        if done.exception is not None:
            raise done.exception
        return done.output.splitlines()

    return call_


def test_export_says_what_it_wrote(call, tmp_path):
    put(small(), tmp_path / "runs/lab")
    lines = call(export, tmp_path / "out")

    assert lines[0] == f"{MACHINE}: NCCL 2.29.7, 2.30.7, 4 cases"
    assert lines[1] == (
        "8 of 8 times have fewer than 7 repeats: asv compares their intervals; its own test needs"
        " up to 4 more"
    )
    assert lines[2].startswith(f"Kept in {tmp_path}/out: 2 result files with 16 values, read back")
    assert lines[3] == f"next: collbench history publish {tmp_path}/out"


def test_mixed_hardware_is_said(call, tmp_path):
    there = replace(small(run_id="20261130-1300-bbbb"), topology=topology_of(model="NVIDIA H100"))
    for run in (small(), there):
        put(run, tmp_path / "runs/lab")

    assert "2 histories: they differ in hardware" in call(export, tmp_path / "out")


def test_simulated_runs_are_exported_on_demand_and_marked(call, tmp_path):
    put(small(run={"simulated": True}), tmp_path / "runs/lab")
    with pytest.raises(UsageError, match="--simulated"):
        call(export, tmp_path / "out")
    call(export, tmp_path / "out", "--simulated")

    configuration = json.loads((tmp_path / "out/asv.conf.json").read_text())
    assert configuration["project"] == "NCCL releases, SIMULATED"


def test_another_axis_is_refused(call, tmp_path):
    with pytest.raises(UsageError, match="--axis 'torch' cannot be exported"):
        call(export, tmp_path / "out", "--axis", "torch")


def test_publish_without_asv_says_how_to_install_it(call, tmp_path, monkeypatch):
    monkeypatch.setattr(asv_page, "has_asv", lambda: False)
    with pytest.raises(UsageError, match=r"pip install 'collbench\[history\]'"):
        call(publish, tmp_path / "out")


def test_a_folder_without_an_export_is_not_published(tmp_path):
    with pytest.raises(UsageError, match="is no folder for asv; 'collbench history export"):
        asv_page.publish_page(tmp_path)


# --- scripts -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("jquery-3.3.1.min.js", "jquery.js"),
        ("jquery.flot.time.min.js", "jquery.flot.time.js"),
        ("jquery.flot.orderBars.js", "jquery.flot.orderbars.js"),
        ("md5.min.js", "md5.js"),
        ("bootstrap.min.css", "bootstrap.css"),
    ],
)
def test_scripts_are_known_by_more_than_one_name(file, name):
    assert asv_scripts.script_name(file) == name


def test_a_folder_that_lacks_scripts_is_refused_with_their_names(tmp_path):
    (tmp_path / "jquery-3.3.1.min.js").write_text("")
    with pytest.raises(UsageError, match=r"lacks jquery\.flot\.js, .*bootstrap\.css; docs/"):
        asv_scripts.find_scripts(tmp_path, tmp_path / "none")


def test_scripts_of_before_are_used_only_if_they_are_the_tested_ones(tmp_path, monkeypatch):
    for name in asv_scripts._SCRIPTS:
        (tmp_path / name).write_text("changed")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match=r"npm is not on the PATH.*--scripts DIR"):
        asv_scripts.find_scripts(None, tmp_path)


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo 'npm error code ENOTFOUND' >&2; exit 1", "npm cannot fetch.*ENOTFOUND"),
        ("exit 3", "npm cannot fetch.*ended with 3"),
    ],
)
def test_npm_that_fails_is_told(tmp_path, monkeypatch, script, words):
    npm = tmp_path / "npm"
    npm.write_text(f"#!/bin/sh\n{script}\n")
    npm.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    with pytest.raises(UsageError, match=words):
        asv_scripts.find_scripts(None, tmp_path / "none")


# --- serve -------------------------------------------------------------------------------------


@pytest.fixture
def served(tmp_path):
    """Serves a made page and returns what reads a path of it."""
    (tmp_path / "html/graphs").mkdir(parents=True)
    (tmp_path / "html/index.json").write_text("{}")
    (tmp_path / "asv.conf.json").write_text("{}")
    server = page_server(tmp_path, port=0, bind="127.0.0.1")
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()

    def get(path):
        connection = HTTPConnection(*server.server_address, timeout=10)
        connection.request("GET", path)
        answer = connection.getresponse()
        found = answer.status, answer.read()
        connection.close()
        return found

    yield server, get
    server.shutdown()
    thread.join()
    server.server_close()


def test_only_the_page_is_served(served):
    _, get = served

    assert get("/index.json") == (200, b"{}")
    for path in ("/../asv.conf.json", "/%2e%2e/asv.conf.json", "/graphs/", "/"):
        assert get(path)[0] == 404


def test_a_taken_port_is_refused(served, tmp_path):
    port = served[0].server_address[1]
    with pytest.raises(UsageError, match=f"127.0.0.1 port {port}.*--port 0"):
        page_server(tmp_path, port=port, bind="127.0.0.1")


def test_nothing_published_is_refused(tmp_path):
    with pytest.raises(UsageError, match="'collbench history publish"):
        page_server(tmp_path, port=0, bind="127.0.0.1")
