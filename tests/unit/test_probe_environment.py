import platform
from importlib import metadata

from collbench.probe.environment import driver_version, read_environment, recorded_variables
from collbench.version import __version__


def put(root, path, text):
    target = root / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text)


def test_only_variables_of_the_allow_list_are_recorded_and_no_secret():
    environ = {
        "NCCL_ALGO": "Ring",
        "OMP_NUM_THREADS": "1",
        "TORCH_NCCL_BLOCKING_WAIT": "1",
        "CUDA_VISIBLE_DEVICES": "0",
        "GLOO_SOCKET_IFNAME": "eth0",
        "UCX_TLS": "rc",
        "FI_PROVIDER": "efa",
        "NCCL_API_KEY": "k",
        "NCCL_SECRET": "s",
        "FI_TOKEN_FILE": "t",
        "UCX_password": "p",
        "NCCL_KEYS": "kept: no whole word",
        "HOME": "/root",
        "AWS_SECRET_ACCESS_KEY": "s",
        "MY_NCCL_ALGO": "Tree",
    }
    assert recorded_variables(environ) == {
        "CUDA_VISIBLE_DEVICES": "0",
        "FI_PROVIDER": "efa",
        "GLOO_SOCKET_IFNAME": "eth0",
        "NCCL_ALGO": "Ring",
        "NCCL_KEYS": "kept: no whole word",
        "OMP_NUM_THREADS": "1",
        "TORCH_NCCL_BLOCKING_WAIT": "1",
        "UCX_TLS": "rc",
    }


def test_the_environment_says_versions_and_leaves_to_workers_what_only_they_know(tmp_path):
    put(tmp_path, "etc/os-release", 'NAME="Ubuntu"\nPRETTY_NAME="Ubuntu 24.04.2 LTS"\n')
    put(tmp_path, "sys/module/nvidia/version", "580.95.05\n")

    found = read_environment({"NCCL_PROTO": "LL"}, tmp_path)

    assert found.collbench == __version__
    assert found.python == platform.python_version()
    assert found.kernel == platform.release()
    assert found.torch == metadata.version("torch")
    assert found.os == "Ubuntu 24.04.2 LTS"
    assert found.driver == "580.95.05"
    assert found.variables == {"NCCL_PROTO": "LL"}
    assert found.config_files == {}
    assert (found.cuda, found.nccl) == (None, None)


def test_the_driver_is_read_from_the_kernel_modules_own_line(tmp_path):
    put(
        tmp_path,
        "proc/driver/nvidia/version",
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build\n"
        "GCC version:  gcc version 13.3.0 (Ubuntu 13.3.0-6ubuntu2)\n",
    )
    assert driver_version(tmp_path) == "580.159.04"


def test_no_driver_is_none(tmp_path):
    assert driver_version(tmp_path) is None


def test_nccl_conf_is_recorded_by_the_same_allow_list(tmp_path):
    put(tmp_path, "etc/nccl.conf", "# site\nNCCL_IB_HCA=mlx5\nNCCL_TOKEN=abc\nLD_PRELOAD=x.so\n")
    put(tmp_path, "home/.nccl.conf", "NCCL_DEBUG=WARN\nNCCL_ALGO=Ring\n")

    found = read_environment({"HOME": str(tmp_path / "home")}, tmp_path).config_files

    assert found == {
        str(tmp_path / "etc/nccl.conf"): "NCCL_IB_HCA=mlx5",
        str(tmp_path / "home/.nccl.conf"): "NCCL_ALGO=Ring\nNCCL_DEBUG=WARN",
    }


def test_nccl_conf_file_takes_the_place_of_the_one_in_the_home_folder(tmp_path):
    put(tmp_path, "home/.nccl.conf", "NCCL_ALGO=Ring\n")
    put(tmp_path, "mine.conf", "NCCL_ALGO=Tree\n")
    environ = {"HOME": str(tmp_path / "home"), "NCCL_CONF_FILE": str(tmp_path / "mine.conf")}

    found = read_environment(environ, tmp_path).config_files

    assert found == {str(tmp_path / "mine.conf"): "NCCL_ALGO=Tree"}
