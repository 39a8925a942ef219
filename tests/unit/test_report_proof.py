"""What ran, in words."""

from __future__ import annotations

import msgspec
import pytest
from setting_trials import RAN_RING, ended, under

from collbench.model import Proof, ReasonCode, Status
from collbench.report.proof import path_text, proof_lines, ran_text

MIB = 2**20
OVER_NET = Proof(ranks=16, nodes=2, transports=["P2P/CUMEM", "NET/IB"], intra_path="NVL")


def changed(proof, **fields):
    return msgspec.structs.replace(proof, **fields)


@pytest.mark.parametrize(
    ("proof", "text"),
    [
        (None, ""),
        (Proof(ranks=2, transports=["P2P/CUMEM"]), ""),
        (Proof(problem="no log"), ""),
        (RAN_RING, "Ring/LL 24 ch"),
        (changed(RAN_RING, channels=None), "Ring/LL"),
        (changed(RAN_RING, algorithm="CopyEngine", protocol=None, channels=None), "CopyEngine"),
        (
            changed(RAN_RING, algorithm="Symmetric/AllReduce_AGxLL_R", protocol=None, channels=4),
            "Symmetric/AllReduce_AGxLL_R 4 ch",
        ),
    ],
    ids=str,
)
def test_what_ran_in_two_words(proof, text):
    assert ran_text(proof) == text


@pytest.mark.parametrize(
    ("proof", "text"),
    [
        (Proof(), "no connection seen"),
        (RAN_RING, "P2P/CUMEM over NVL"),
        (changed(RAN_RING, intra_path=None), "P2P/CUMEM"),
        (Proof(transports=["SHM/direct"], intra_path="SYS"), "SHM/direct"),
        (OVER_NET, "P2P/CUMEM, NET/IB over NVL, no GPU Direct"),
        (
            changed(OVER_NET, transports=["NET/IB"], gpu_direct=True, devices=["mlx5_0", "mlx5_1"]),
            "NET/IB, GPU Direct, on mlx5_0, mlx5_1",
        ),
        (
            Proof(transports=["NET/Socket"], devices=["eth0"], gpu_direct=False),
            "NET/Socket, no GPU Direct, on eth0",
        ),
        (changed(RAN_RING, devices=["eth0"]), "P2P/CUMEM over NVL"),
        (changed(RAN_RING, nvls=True), "P2P/CUMEM over NVL, NVLS"),
        (
            changed(OVER_NET, transports=["NET/IB"], gpu_direct=True, nvls=True, sharp=True),
            "NET/IB, GPU Direct, NVLS, SHARP",
        ),
    ],
    ids=str,
)
def test_the_path_in_words(proof, text):
    assert path_text(proof) == text


def proved(*proofs):
    return [under({}, 8 << k, 10.0, proof=proof) for k, proof in enumerate(proofs)]


@pytest.mark.parametrize(
    ("proofs", "lines"),
    [
        ([], []),
        ([None, None], []),
        ([RAN_RING, RAN_RING], ["  path: P2P/CUMEM over NVL  (NCCL's log of 2 ranks)"]),
        (
            [changed(RAN_RING, ranks=1)],
            ["  path: P2P/CUMEM over NVL  (NCCL's log of 1 rank)"],
        ),
        (
            [RAN_RING, changed(RAN_RING, twin=True)],
            [
                (
                    "  path: P2P/CUMEM over NVL  (NCCL's log of 2 ranks; eager in processes of"
                    " their own)"
                )
            ],
        ),
        (
            [RAN_RING, OVER_NET],
            [
                (
                    "  path: P2P/CUMEM over NVL | P2P/CUMEM, NET/IB over NVL, no GPU Direct"
                    "  (NCCL's log of 16 ranks)"
                )
            ],
        ),
        (
            [changed(RAN_RING, transports=[])],
            ["  path: not seen  (NCCL's log of 2 ranks)"],
        ),
        (
            [RAN_RING, None, Proof(twin=True, problem="rank 1 was killed")],
            [
                (
                    "  path: P2P/CUMEM over NVL  (NCCL's log of 2 ranks; eager in processes of"
                    " their own)"
                ),
                "  not proved: 2 of 3 cases",
            ],
        ),
        (
            [
                changed(RAN_RING, odd=["rank 1: 1 channel; the other has 2"]),
                changed(RAN_RING, odd=["rank 1: 1 channel; the other has 2", "rank 0: no NVLS"]),
            ],
            [
                "  path: P2P/CUMEM over NVL  (NCCL's log of 2 ranks)",
                "  differs: rank 1: 1 channel; the other has 2",
                "  differs: rank 0: no NVLS",
            ],
        ),
    ],
    ids=range(9),
)
def test_the_lines_below_a_table(proofs, lines):
    assert proof_lines(proved(*proofs)) == lines


def test_what_was_not_measured_is_not_missing_a_proof():
    refused = ended(under({}, MIB, 1.0), Status.UNSUPPORTED, ReasonCode.REFUSED, "no")

    assert proof_lines([*proved(RAN_RING), refused]) == [
        "  path: P2P/CUMEM over NVL  (NCCL's log of 2 ranks)"
    ]
