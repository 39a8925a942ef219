"""When NCCL and others read a variable, and which names NCCL does not know."""

from __future__ import annotations

import pytest

from collbench.nccl.variables import SECRET_NAME, ReadAt, read_at, without_effect

KNOWN = frozenset({"NCCL_ALGO", "NCCL_IB_TIMEOUT", "NCCL_BUFFSIZE", "NCCL_NET"})


@pytest.mark.parametrize(
    ("when", "names"),
    [
        (
            ReadAt.COMMUNICATOR,
            (
                "NCCL_ALGO NCCL_PROTO NCCL_NET NCCL_CHECK_MODE NCCL_LAUNCH_MODE NCCL_TOPO_FILE"
                " NCCL_GRAPH_FILE"
            ),
        ),
        (
            ReadAt.WORKER,
            (
                "NCCL_BUFFSIZE NCCL_IB_DISABLE NCCL_COLLNET_ENABLE NCCL_NET_PLUGIN NCCL_ALGORITHM"
                " TORCH_NCCL_BLOCKING_WAIT GLOO_SOCKET_IFNAME CUDA_DEVICE_MAX_CONNECTIONS UCX_TLS"
                " FI_PROVIDER"
            ),
        ),
        (
            ReadAt.ZYGOTE,
            "LD_PRELOAD LD_LIBRARY_PATH PYTHONHASHSEED OMP_NUM_THREADS nccl_algo MY_NCCL_ALGO",
        ),
    ],
)
def test_what_must_be_fresh_for_a_new_value(when, names):
    assert {name: read_at(name) for name in names.split()} == dict.fromkeys(names.split(), when)


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("NCCL_TIMEOUT", "; did you mean 'NCCL_IB_TIMEOUT'?"),
        ("NCCL_BUFSIZE", "; did you mean 'NCCL_BUFFSIZE'?"),
        ("NCCL_TREE_THRESHOLD", ""),
    ],
)
def test_a_name_that_the_library_does_not_know_has_no_effect(name, more):
    assert without_effect([name], KNOWN, "2.28.9") == [
        f"{name} has no effect: NCCL 2.28.9 does not know it{more}"
    ]


@pytest.mark.parametrize(
    "name",
    [
        *sorted(KNOWN),
        "NCCL_BLOCKING_WAIT",
        "NCCL_ASYNC_ERROR_HANDLING",
        "NCCL_DESYNC_DEBUG",
        "NCCL_ENABLE_TIMING",
        "NCCL_AVOID_RECORD_STREAMS",
        "NCCL_TUNER_CONFIG_FILE",
        "NCCL_INSPECTOR_ENABLE",
        "NCCL_TESTS_DEVICE",
        "TORCH_NCCL_BLOCKING_WAIT",
        "LD_PRELOAD",
        "MY_NCCL_THING",
    ],
)
def test_names_that_the_library_or_others_know_are_not_listed(name):
    assert without_effect([name], KNOWN, "2.28.9") == []


def test_names_without_effect_come_in_order_and_once():
    lines = without_effect(["NCCL_ZZZZZZZZ", "NCCL_QQQQQQQQ", "NCCL_ZZZZZZZZ"], (), "2.28.9")

    assert [line.split()[0] for line in lines] == ["NCCL_QQQQQQQQ", "NCCL_ZZZZZZZZ"]


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("HF_TOKEN", True),
        ("AWS_SECRET_ACCESS_KEY", True),
        ("MY_KEY", True),
        ("KEY", True),
        ("password", True),
        ("NCCL_IB_PKEY", False),
        ("KEYBOARD", False),
        ("MONKEY", False),
        ("NCCL_SECRETARY", False),
    ],
)
def test_secrets_are_told_by_a_whole_word_of_their_name(name, secret):
    assert bool(SECRET_NAME.search(name)) is secret
