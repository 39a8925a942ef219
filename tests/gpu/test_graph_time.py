"""The graph mode's time is the device's: it agrees with the plainest loop that one could write."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

WORKER = Path(__file__).with_name("plain_loop.py")


@pytest.mark.timeout(300)
def test_graph_time_is_within_3_percent_of_a_plain_event_loop(tmp_path):
    result = tmp_path / "result.json"
    ranks = [
        subprocess.Popen(
            [sys.executable, str(WORKER), str(rank), "2", str(tmp_path / "store"), str(result)]
        )
        for rank in range(2)
    ]
    assert [rank.wait(timeout=240) for rank in ranks] == [0, 0]
    rows = json.loads(result.read_text())
    for name, size, plain_us, product_us in rows:
        print(f"{name:15} {size:11} plain {plain_us:9.2f} us  collbench {product_us:9.2f} us")
    far = [row for row in rows if abs(row[3] / row[2] - 1) > 0.03]
    assert not far
    assert len(rows) == 18
