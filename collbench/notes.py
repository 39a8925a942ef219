"""What a back end really does where its name promises something else (docs/architecture.md).

A trial carries the codes; tables print the text once. Source of the Gloo notes: bytes counted on
the wire of emulated nodes (n = 4), where reduce_scatter sent 1.5 S a rank, broadcast 2 S from the
root without pipelining, and a pair that posts its send first used its socket one way at a time.
"""

from __future__ import annotations

from collbench.model import Case

IMPORTED = "nccl_tests_"
"""How the codes of notes begin that tell what an imported time is."""

NOTES = {
    "gloo_reduce_scatter_sends_all_reduce": (
        "Gloo's reduce_scatter sends the bytes of an all_reduce: its busbw reads about half of the"
        " wire's rate"
    ),
    "gloo_broadcast_unpipelined": (
        "Gloo's broadcast is an unpipelined tree: its busbw falls with the number of ranks by"
        " algorithm, not by the network"
    ),
    "gloo_all_to_all_half_duplex": (
        "Gloo's all_to_all behaves half-duplex: its busbw reads about half to two thirds of the"
        " wire's rate"
    ),
    "gloo_pair_half_duplex": (
        "a Gloo pair exchanges half-duplex where a send is posted before its receive; here receives"
        " are posted first, but all_gather over 2 ranks still shares one direction"
    ),
    "few_samples": "fewer than 10 samples: the median stands without an interval",
    "queue_not_filled": (
        "the spin kernel ended before all calls were queued: host time is in this figure"
    ),
    "ll128_forced": (
        "LL128 was forced where NCCL itself leaves it off: data may arrive torn; do not train so"
    ),
    "capture_registers_buffers": (
        "a CUDA graph's capture registers its buffers with NCCL, which can make it faster than the"
        " same calls eager"
    ),
    "nccl_tests_mean": (
        "nccl-tests gives one time, the mean over ranks and calls (of a text without its -a, which"
        " a text does not tell): it stands as the median, and the median of one number is that"
        " number"
    ),
    "nccl_tests_rank_0": (
        "nccl-tests gives one time, rank 0's mean over calls (-a 0): it stands as the median, and"
        " the median of one number is that number"
    ),
    "nccl_tests_least": (
        "nccl-tests gives one time, the least over ranks of the mean over calls (-a 2): it stands"
        " as the median, and the median of one number is that number"
    ),
    "nccl_tests_most": (
        "nccl-tests gives one time, the most over ranks of the mean over calls (-a 3): it stands"
        " as the median, and the median of one number is that number"
    ),
    "nccl_tests_calls": (
        "the samples are nccl-tests' times of single calls (-I): of each process its first"
        " thread's slowest GPU; time and rates are those of the mean all the same"
    ),
}
"""Code -> text."""


def notes_for(case: Case) -> list[str]:
    """Returns the codes that hold for a case whatever its figures."""
    if case.backend != "gloo":
        return []
    found = {
        "reduce_scatter": ["gloo_reduce_scatter_sends_all_reduce"],
        "broadcast": ["gloo_broadcast_unpipelined"],
        "all_to_all": ["gloo_all_to_all_half_duplex"],
        "send_recv": ["gloo_pair_half_duplex"],
    }
    if case.collective == "all_gather" and case.world_size == 2:
        return ["gloo_pair_half_duplex"]
    return found.get(case.collective, [])
