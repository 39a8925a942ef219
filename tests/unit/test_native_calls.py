"""What is called in NCCL for each collective, by its version and setting."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from collbench.collectives import COLLECTIVES, ITEM_BYTES
from collbench.measure.native_calls import DATA_TYPES, Communicator, bind_call
from collbench.model import Case

GIVEN, TAKEN = 1000, 2000
COMM, STREAM = object(), 77


class Recorder:
    """Stands for the bindings: every function writes down how it is called."""

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []
        self.configs: list[SimpleNamespace] = []

    def CollConfig(self) -> SimpleNamespace:  # noqa: N802
        self.configs.append(SimpleNamespace(ptr=5000 + len(self.configs)))
        return self.configs[-1]

    def __getattr__(self, name):
        return lambda *arguments: self.calls.append((name, *arguments))


def a_case(collective: str, world_size: int = 4, **more) -> Case:
    row = COLLECTIVES[collective]
    fields = {
        "collective": collective,
        "backend": "nccl",
        "dtype": "bfloat16",
        "redop": "max" if row.has_redop else None,
        "root": 2 if row.has_root else None,
        "size_bytes": row.size_bytes(10, "bfloat16", world_size),
        "requested_bytes": row.size_bytes(10, "bfloat16", world_size),
        "count": 10,
        "world_size": world_size,
        "in_place": False,
    }
    return Case(**(fields | more))


def made(case: Case, numbers=(2, 28, 9), rank: int = 1) -> Recorder:
    """Binds a case, calls it twice and returns what the second call did."""
    recorder = Recorder()
    communicator = Communicator(bindings=recorder, numbers=numbers, handle=COMM, stream=STREAM)
    call = bind_call(case, rank, GIVEN, TAKEN, communicator)
    assert recorder.calls == []
    call()
    first = list(recorder.calls)
    recorder.calls.clear()
    call()
    assert recorder.calls == first
    return recorder


NATIVE = [
    ("all_reduce", ("all_reduce", GIVEN, TAKEN, 10, 9, 2)),
    ("all_gather", ("all_gather", GIVEN, TAKEN, 10, 9)),
    ("reduce_scatter", ("reduce_scatter", GIVEN, TAKEN, 10, 9, 2)),
    ("broadcast", ("broadcast", GIVEN, TAKEN, 10, 9, 2)),
    ("reduce", ("reduce", GIVEN, TAKEN, 10, 9, 2, 2)),
    ("all_to_all", ("allto_all", GIVEN, TAKEN, 10, 9)),
    ("gather", ("gather", GIVEN, TAKEN, 10, 9, 2)),
    ("scatter", ("scatter", GIVEN, TAKEN, 10, 9, 2)),
]


@pytest.mark.parametrize(("collective", "expected"), NATIVE)
def test_each_collective_is_one_call(collective, expected):
    assert made(a_case(collective)).calls == [(*expected, COMM, STREAM)]


@pytest.mark.parametrize(("collective", "expected"), NATIVE)
def test_a_selection_goes_with_each_call(collective, expected):
    case = a_case(collective, setting={"alg_selection": "tree,ring"})
    recorder = made(case, (2, 32, 3))
    name, *arguments = expected
    assert recorder.calls == [(f"{name}_config", *arguments, COMM, STREAM, 5000)]
    assert [config.alg_selection for config in recorder.configs] == ["tree,ring"]


@pytest.mark.parametrize(
    ("redop", "number"), [("sum", 0), ("prod", 1), ("max", 2), ("min", 3), ("avg", 4)]
)
def test_operators_have_nccls_numbers(redop, number):
    ((_, *arguments),) = made(a_case("all_reduce", redop=redop)).calls
    assert arguments[4] == number


def test_every_type_has_a_number_of_its_own():
    assert DATA_TYPES.keys() == ITEM_BYTES.keys()
    assert sorted(DATA_TYPES.values()) == [0, 1, 2, 4, 6, 7, 8, 9, 10, 11]


@pytest.mark.parametrize(("rank", "before", "after"), [(0, 3, 1), (1, 0, 2), (3, 2, 0)])
def test_send_recv_is_a_ring_shift_in_a_group(rank, before, after):
    assert made(a_case("send_recv"), rank=rank).calls == [
        ("group_start",),
        ("recv", TAKEN, 10, 9, before, COMM, STREAM),
        ("send", GIVEN, 10, 9, after, COMM, STREAM),
        ("group_end",),
    ]


def test_a_group_ends_even_if_a_step_is_refused():
    recorder = Recorder()

    def refuse(*arguments):
        raise RuntimeError("refused")

    recorder.send = refuse
    communicator = Communicator(bindings=recorder, numbers=(2, 28, 9), handle=COMM, stream=STREAM)
    with pytest.raises(RuntimeError, match="refused"):
        bind_call(a_case("send_recv"), 0, GIVEN, TAKEN, communicator)()
    assert [name for name, *_ in recorder.calls] == ["group_start", "recv", "group_end"]


def delivered(case: Case) -> list[dict[int, tuple[int, int]]]:
    """Returns, for each rank, which share of which rank's input ends at which output share."""
    n, share = case.world_size, 10 * 2
    sends: dict[tuple[int, int], int] = {}
    receives: dict[tuple[int, int], int] = {}
    for rank in range(n):
        for name, *arguments in made(case, (2, 27, 7), rank).calls[1:-1]:
            address, count, data_type, peer, comm, stream = arguments
            assert (count, data_type, comm, stream) == (10, 9, COMM, STREAM)
            if name == "send":
                sends[rank, peer] = (address - GIVEN) // share
            else:
                receives[peer, rank] = (address - TAKEN) // share
    assert sends.keys() == receives.keys()
    outputs: list[dict[int, tuple[int, int]]] = [{} for _ in range(n)]
    for (source, target), place in receives.items():
        outputs[target][place] = (source, sends[source, target])
    return outputs


@pytest.mark.parametrize("n", [1, 3, 4])
def test_before_2_28_all_to_all_is_made_of_sends_and_receives(n):
    outputs = delivered(a_case("all_to_all", n))
    assert outputs == [{s: (s, rank) for s in range(n)} for rank in range(n)]


def test_before_2_28_gather_is_made_of_sends_and_receives():
    assert delivered(a_case("gather")) == [{}, {}, {s: (s, 0) for s in range(4)}, {}]


def test_before_2_28_scatter_is_made_of_sends_and_receives():
    assert delivered(a_case("scatter")) == [{0: (2, rank)} for rank in range(4)]


def test_addresses_are_plain_numbers():
    ((_, *arguments),) = made(a_case("all_gather")).calls
    assert not any(isinstance(value, np.generic) for value in arguments)
