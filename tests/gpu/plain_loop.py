"""One rank of the comparison: a plain event loop against the product, same calls, same walk.

Usage: plain_loop.py RANK WORLD_SIZE STORE_FILE RESULT_FILE
"""

import json
import statistics
import sys
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist

from collbench.collectives import COLLECTIVES
from collbench.measure.fake import NoProgress
from collbench.measure.loop import measure_case
from collbench.measure.torch_backend import (
    TorchBackend,
    TorchControl,
    form_control,
    form_measured,
)
from collbench.measure.walk import plan_walk
from collbench.model import Case, Mode, Policy

SIZES = [2**20, 2**22, 2**24, 2**26, 2**28, 2**30]
COLLECTIVES_COMPARED = ["all_reduce", "all_gather", "reduce_scatter"]
ROUNDS = 5
REPLAYS = 20


def make_case(name: str, size: int, n: int) -> Case:
    row = COLLECTIVES[name]
    count = row.count(size, "float32", n)
    return Case(
        collective=name,
        backend="nccl",
        dtype="float32",
        redop="sum" if row.has_redop else None,
        size_bytes=row.size_bytes(count, "float32", n),
        requested_bytes=size,
        count=count,
        world_size=n,
        in_place=row.natural_in_place,
        mode=Mode.GRAPH,
    )


class PlainLoop:
    """Captures the same calls over the same walk; one pair of events around all replays."""

    def __init__(self, case: Case, cache_bytes: int, group: dist.ProcessGroup, n: int):
        self.slots = plan_walk(case, cache_bytes).slots
        walk = plan_walk(case, cache_bytes)
        block = torch.zeros(walk.total_bytes, dtype=torch.uint8, device="cuda")
        outputs_start = self.slots * walk.input_stride_bytes
        calls = []
        for slot in range(self.slots):
            start = slot * walk.input_stride_bytes
            given = block[start : start + walk.input_bytes].view(torch.float32)
            start = outputs_start + slot * walk.output_stride_bytes
            taken = block[start : start + walk.output_bytes].view(torch.float32)
            calls.append(self.call(case.collective, given, taken, group))
        self.block = block
        for call in calls:
            call()
        torch.cuda.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        self.stream = torch.cuda.Stream()
        with torch.cuda.stream(self.stream):
            self.graph.capture_begin(capture_error_mode="thread_local")
            for call in calls:
                call()
            self.graph.capture_end()

    @staticmethod
    def call(name, given, taken, group):
        if name == "all_reduce":
            return lambda: dist.all_reduce(given, group=group)
        if name == "all_gather":
            return lambda: dist.all_gather_into_tensor(taken, given, group=group)
        return lambda: dist.reduce_scatter_tensor(taken, given, group=group)

    def time_us(self, control: TorchControl) -> float:
        start = torch.cuda.Event(enable_timing=True)
        stop = torch.cuda.Event(enable_timing=True)
        control.barrier()
        with torch.cuda.stream(self.stream):
            self.graph.replay()
            start.record()
            for _ in range(REPLAYS):
                self.graph.replay()
            stop.record()
        torch.cuda.synchronize()
        mine = start.elapsed_time(stop) * 1e3 / REPLAYS / self.slots
        return float(control.max(np.array([mine]))[0])

    def close(self) -> None:
        self.graph.reset()
        self.block = None
        torch.cuda.empty_cache()


def main() -> None:
    rank, n, store_file, result_file = sys.argv[1:]
    rank, n = int(rank), int(n)
    torch.cuda.set_device(rank)
    control = form_control(dist.FileStore(store_file, n), rank, n)
    group = form_measured("nccl", torch.device("cuda", rank))
    backend = TorchBackend(
        name="nccl",
        rank=rank,
        group=group,
        control=control,
        progress=NoProgress(),
        device=torch.device("cuda", rank),
        ranks_on_device=1,
        host_free_bytes=lambda: 0,
        host_cache_bytes=0,
        plant=None,
    )
    policy = Policy(samples=20, warmup=3, check=False)
    rows = []
    for name in COLLECTIVES_COMPARED:
        for size in SIZES:
            case = make_case(name, size, n)
            plain, product = [], []
            for _ in range(ROUNDS):
                loop = PlainLoop(case, backend.cache_bytes(), group, n)
                plain.append(loop.time_us(control))
                loop.close()
                result = measure_case(case, policy, backend, control, NoProgress())
                mine = np.frombuffer(result.times_us, "<f4").astype(np.float64)
                product.append(float(np.median(control.max(mine))))
            rows.append((name, size, statistics.median(plain), statistics.median(product)))
    if rank == 0:
        Path(result_file).write_text(json.dumps(rows))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
