"""What unit tests of several commands share."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from collbench.cli.main import cli


@pytest.fixture
def called(tmp_path):
    """Calls a command with the results folder of the test."""

    def call(*arguments):
        words = [*map(str, arguments), "--results", str(tmp_path / "runs")]
        return CliRunner().invoke(cli, words, standalone_mode=False)

    return call
