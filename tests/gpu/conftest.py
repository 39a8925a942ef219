"""GPU tests run where NVML finds two GPUs and are skipped elsewhere."""

import pytest

from collbench.probe.gpu import survey_gpus


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = [item for item in items if "tests/gpu" in str(item.path)]
    if not here:
        return
    found = len(survey_gpus().gpus)
    for item in here:
        item.add_marker(pytest.mark.gpu)
        if found < 2:
            item.add_marker(pytest.mark.skip(reason=f"needs 2 NVIDIA GPUs, NVML finds {found}"))
