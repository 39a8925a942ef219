import pytest

from collbench.model import Nic
from collbench.probe.nic import read_nics


def put(root, path, text):
    target = root / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(f"{text}\n")


def link_device(root, folder, address, numa):
    """Makes a device in PCI's tree and the ``device`` link of a class folder to it."""
    device = root / "sys/devices" / address
    device.mkdir(parents=True, exist_ok=True)
    (device / "numa_node").write_text(f"{numa}\n")
    (root / folder).mkdir(parents=True, exist_ok=True)
    (root / folder / "device").symlink_to(device)


def rdma(root, name, *, layer, rate, states=("4: ACTIVE",), address="0000:9a:00.0", numa=1):
    folder = f"sys/class/infiniband/{name}"
    link_device(root, folder, address, numa)
    for port, state in enumerate(states, start=1):
        put(root, f"{folder}/ports/{port}/link_layer", layer)
        put(root, f"{folder}/ports/{port}/rate", rate)
        put(root, f"{folder}/ports/{port}/state", state)


def ethernet(root, name, *, speed, kind="1", address="0000:3b:00.1", numa=-1):
    folder = f"sys/class/net/{name}"
    link_device(root, folder, address, numa)
    put(root, f"{folder}/type", kind)
    put(root, f"{folder}/speed", speed)
    put(root, f"{folder}/operstate", "up")


def test_an_infiniband_adapter_is_read_with_rate_state_and_place(tmp_path):
    rdma(tmp_path, "mlx5_5", layer="InfiniBand", rate="400 Gb/sec (4X NDR)")

    assert read_nics(tmp_path) == (
        Nic(
            name="mlx5_5",
            kind="infiniband",
            rate_gbit_per_s=400.0,
            state="ACTIVE",
            pci_bus_id="0000:9a:00.0",
            numa_node=1,
        ),
    )


@pytest.mark.parametrize(
    ("layer", "kind"), [("Ethernet", "roce"), ("InfiniBand", "infiniband"), ("Unspecified", "rdma")]
)
def test_the_link_layer_says_what_an_rdma_device_is(tmp_path, layer, kind):
    rdma(tmp_path, "dev0", layer=layer, rate="2.5 Gb/sec (1X SDR)")

    (nic,) = read_nics(tmp_path)

    assert (nic.kind, nic.rate_gbit_per_s) == (kind, 2.5)


def test_of_two_ports_the_active_one_speaks_for_the_adapter(tmp_path):
    rdma(tmp_path, "mlx4_0", layer="InfiniBand", rate="56 Gb/sec", states=("1: DOWN", "4: ACTIVE"))

    assert read_nics(tmp_path)[0].state == "ACTIVE"


def test_an_adapter_without_an_active_port_says_the_first_ports_state(tmp_path):
    rdma(tmp_path, "mlx4_0", layer="InfiniBand", rate="56 Gb/sec", states=("1: DOWN", "2: INIT"))

    assert read_nics(tmp_path)[0].state == "DOWN"


def test_a_physical_ethernet_device_is_read_and_an_unknown_numa_node_is_none(tmp_path):
    ethernet(tmp_path, "ens1f1", speed="25000")

    assert read_nics(tmp_path) == (
        Nic(
            name="ens1f1",
            kind="ethernet",
            rate_gbit_per_s=25.0,
            state="up",
            pci_bus_id="0000:3b:00.1",
            numa_node=None,
        ),
    )


def test_the_speed_minus_one_of_a_device_that_is_down_is_not_known(tmp_path):
    ethernet(tmp_path, "ens1f1", speed="-1")

    assert read_nics(tmp_path)[0].rate_gbit_per_s is None


def test_a_virtio_device_is_hardware_without_a_pci_address(tmp_path):
    ethernet(tmp_path, "eth0", speed="-1", address="virtio0")

    assert read_nics(tmp_path)[0].pci_bus_id is None


def test_loopback_veth_and_ip_over_infiniband_are_left_out(tmp_path):
    put(tmp_path, "sys/class/net/lo/type", "772")
    put(tmp_path, "sys/class/net/veth0/type", "1")
    ethernet(tmp_path, "ib0", speed="400000", kind="32")

    assert read_nics(tmp_path) == ()


def test_rdma_devices_come_before_ethernet_each_by_name(tmp_path):
    ethernet(tmp_path, "eno1", speed="1000")
    rdma(tmp_path, "mlx5_1", layer="Ethernet", rate="100 Gb/sec")
    rdma(tmp_path, "mlx5_0", layer="Ethernet", rate="100 Gb/sec", address="0000:18:00.0")

    assert [nic.name for nic in read_nics(tmp_path)] == ["mlx5_0", "mlx5_1", "eno1"]
