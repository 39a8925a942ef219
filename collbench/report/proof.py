"""What ran, in words."""

from __future__ import annotations

from collections.abc import Sequence

from collbench.model import Proof, Trial


def ran_text(proof: Proof | None) -> str:
    """Returns ``Ring/LL 24 ch``; empty where NCCL chose nothing or nothing was proved."""
    if proof is None or proof.algorithm is None:
        return ""
    words = "/".join(word for word in (proof.algorithm, proof.protocol) if word)
    return f"{words} {proof.channels} ch" if proof.channels else words


def path_text(proof: Proof) -> str:
    """Returns ``P2P/CUMEM over NVL``, or ``NET/IB, GPU Direct, on mlx5_0, mlx5_1``."""
    words = [", ".join(proof.transports) or "no connection seen"]
    if proof.intra_path and any(name.startswith("P2P") for name in proof.transports):
        words[0] += f" over {proof.intra_path}"
    if any(name.startswith("NET/") for name in proof.transports):
        words.append("GPU Direct" if proof.gpu_direct else "no GPU Direct")
        words += [f"on {', '.join(proof.devices)}"] if proof.devices else []
    words += ["NVLS"] if proof.nvls else []
    words += ["SHARP"] if proof.sharp else []
    return ", ".join(words)


def proof_lines(trials: Sequence[Trial]) -> list[str]:
    """Returns what the logs show of trials: the paths, how many ranks' logs, who differs."""
    proofs = [trial.proof for trial in trials if trial.proof is not None]
    if not proofs:
        return []
    paths = dict.fromkeys(path_text(proof) for proof in proofs if proof.transports)
    ranks = max(proof.ranks for proof in proofs)
    where = "; eager in processes of their own" if any(proof.twin for proof in proofs) else ""
    missing = sum(t.summary is not None and (t.proof is None or not t.proof.ranks) for t in trials)
    whose = f"NCCL's log of {ranks} rank{'s' * (ranks > 1)}{where}"
    lines = [f"  path: {' | '.join(paths) or 'not seen'}  ({whose})"]
    lines += [f"  not proved: {missing} of {len(trials)} cases"] if missing else []
    lines += [f"  differs: {line}" for line in dict.fromkeys(o for p in proofs for o in p.odd)]
    return lines
