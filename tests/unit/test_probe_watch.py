"""Error counters of network devices, differenced around a case."""

from collbench.probe.watch import HardwareWatch


def put(root, path, value):
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{value}\n")


def test_errors_that_grew_are_told_and_others_are_not(tmp_path):
    put(tmp_path, "sys/class/infiniband/mlx5_0/ports/1/counters/symbol_error", 7)
    put(tmp_path, "sys/class/infiniband/mlx5_0/ports/1/hw_counters/out_of_sequence", 100)
    put(tmp_path, "sys/class/net/eth0/statistics/rx_errors", 5)
    put(tmp_path, "sys/class/net/eth0/device/vendor", "0x8086")
    put(tmp_path, "sys/class/net/veth1/statistics/rx_errors", 0)
    watch = HardwareWatch(root=tmp_path)
    before = watch.read()

    put(tmp_path, "sys/class/infiniband/mlx5_0/ports/1/hw_counters/out_of_sequence", 112)
    put(tmp_path, "sys/class/net/veth1/statistics/rx_errors", 9)

    assert dict(before.nics) == {
        "mlx5_0 symbol_error": 7,
        "mlx5_0 out_of_sequence": 100,
        "eth0 rx_errors": 5,
    }
    assert watch.since(before).events == ["mlx5_0 out_of_sequence: 12 more"]


def test_a_counter_that_is_reset_or_unreadable_is_no_error(tmp_path):
    put(tmp_path, "sys/class/infiniband/mlx5_0/ports/1/counters/symbol_error", 7)
    put(tmp_path, "sys/class/infiniband/mlx5_0/ports/1/counters/link_downed", 1)
    watch = HardwareWatch(root=tmp_path)
    before = watch.read()

    put(tmp_path, "sys/class/infiniband/mlx5_0/ports/1/counters/symbol_error", 0)
    put(tmp_path, "sys/class/infiniband/mlx5_0/ports/1/counters/link_downed", "N/A")

    assert watch.since(before).events == []


def test_a_machine_without_counters_is_silent(tmp_path):
    watch = HardwareWatch(root=tmp_path)

    assert watch.since(watch.read()).events == []
    watch.sample_clocks()
    watch.close()
    watch.close()


SNMP = "Ip: A B\nIp: 1 2\nTcp: RtoMin RetransSegs InErrs\nTcp: 200 {} 0\nUdp: C\nUdp: 3"


def test_retransmissions_and_rdma_errors_are_counted(tmp_path):
    put(tmp_path, "proc/net/snmp", SNMP.format(40))
    for name, count in (("symbol_error", 7), ("link_downed", 1)):
        put(tmp_path, f"sys/class/infiniband/mlx5_0/ports/1/counters/{name}", count)
    put(tmp_path, "sys/class/net/eth0/statistics/rx_errors", 5)
    put(tmp_path, "sys/class/net/eth0/device/vendor", "0x8086")
    watch = HardwareWatch(root=tmp_path)
    before = watch.read()

    put(tmp_path, "proc/net/snmp", SNMP.format(43))
    put(tmp_path, "sys/class/infiniband/mlx5_0/ports/1/counters/symbol_error", 9)
    put(tmp_path, "sys/class/net/eth0/statistics/rx_errors", 6)

    assert watch.since(before).counters == {
        "tcp RetransSegs": 3,
        "rdma errors": 2,
        "mlx5_0 symbol_error": 2,
    }


def test_counters_that_cannot_be_read_are_not_there(tmp_path):
    put(tmp_path, "proc/net/snmp", "Tcp: RtoMin\nTcp: 200")
    watch = HardwareWatch(root=tmp_path)

    assert watch.since(watch.read()).counters == {}
