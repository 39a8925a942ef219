"""How a worker tells a refusal from a fault: the libraries' own words, recorded."""

import pytest

from collbench.engine.worker import _REFUSALS


@pytest.mark.parametrize(
    "words",
    [
        "Error : no algorithm/protocol available for function AllGather with datatype ncclInt8.",
        (
            "NCCL error in: ProcessGroupNCCL.cpp:3780, invalid argument, NCCL version 2.28.9"
            " ncclInvalidArgument: Invalid value for an argument."
        ),
        "Cannot use ReduceOp.AVG with Gloo: not supported",
        "Unsupported Float8 type for NCCL reduction",
        "Invalid scalar type",
    ],
)
def test_a_refusal_is_known_by_its_words(words):
    assert _REFUSALS.search(words)


@pytest.mark.parametrize(
    "words",
    [
        "[../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer",
        "CUDA error: an illegal memory access was encountered",
        "ncclSystemError: System call (e.g. socket, malloc) or external library call failed",
        "ncclRemoteError: A call failed possibly due to a network error",
        "CUDA out of memory. Tried to allocate 2.00 GiB",
        "planted at call 20",
    ],
)
def test_a_fault_is_no_refusal(words):
    assert not _REFUSALS.search(words)
