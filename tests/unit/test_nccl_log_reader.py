"""Reading a log while NCCL writes it."""

from pathlib import Path

from collbench.probe.nccl_log import LogReader, parse

LOGS = Path(__file__).parents[1] / "data" / "nccl_logs"
INFO = "node0:100:100 [0] NCCL INFO "


def test_a_log_that_is_not_there_yet_says_nothing(tmp_path):
    reader = LogReader(tmp_path / "nccl.log")
    reader.read()

    assert reader.facts == parse([])
    assert reader.take_calls() == []


def test_reading_goes_on_where_it_stopped_and_a_torn_line_waits(tmp_path):
    path = tmp_path / "nccl.log"
    path.write_text(f"{INFO}Using network IB\n{INFO}Channel 00/0 : 0[0] -> 1[1] via P2P/")
    reader = LogReader(path)
    reader.read()
    assert reader.facts.network == "IB"
    assert list(reader.facts.transports) == []

    with path.open("a") as file:
        file.write("CUMEM\n")
    reader.read()
    reader.read()

    assert list(reader.facts.transports) == ["P2P/CUMEM"]


def test_a_call_is_taken_once(tmp_path):
    path = tmp_path / "nccl.log"
    line = "AllReduce: {} Bytes -> Algo RING proto LL channel{{Lo..Hi}}={{0..1}}\n"
    path.write_text(INFO + line.format(8))
    reader = LogReader(path)
    reader.read()
    first = reader.take_calls()
    with path.open("a") as file:
        file.write(INFO + line.format(64))
    reader.read()

    assert [one.size_bytes for one in first] == [8]
    assert [one.size_bytes for one in reader.take_calls()] == [64]
    assert reader.take_calls() == []


def test_a_new_communicator_forgets_the_last_one_and_keeps_the_process(tmp_path):
    path = tmp_path / "nccl.log"
    path.write_text((LOGS / "written_2.24.3.log").read_text())
    reader = LogReader(path)
    reader.read()
    with path.open("a") as file:
        file.write(f"{INFO}NCCL_IB_TIMEOUT set by environment to 22.\n")
        file.write(f"{INFO}Channel 00/0 : 0[0] -> 1[1] via SHM/direct/direct\n")
    reader.new_communicator()
    with path.open("a") as file:
        file.write(f"{INFO}Channel 00/0 : 0[0] -> 1[1] [send] via NET/IB/2\n")
    reader.read()

    facts = reader.facts
    assert facts.version == (2, 24, 3)
    assert facts.devices["IB"][2] == "mlx5_0+mlx5_1"
    assert facts.variables == {"NCCL_IB_TIMEOUT": "22"}
    assert list(facts.transports) == ["NET/IB/2"]
    assert (facts.network, facts.ranks, facts.enabled) == (None, None, {})
    assert reader.take_calls() == []
