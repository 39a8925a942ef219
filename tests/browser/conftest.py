"""The machine's own Chromium, without a network."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from lab.packages import require
from playwright.sync_api import Browser, sync_playwright

CHROMIUM = {"chromium": "chromium"}


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """Needs Debian's package chromium; without it the tests are skipped, in CI they fail.

    It ends with its module: playwright's event loop runs in this thread until then, and tests with
    one of their own would fail.
    """
    require(CHROMIUM)
    with sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        yield browser
        browser.close()
