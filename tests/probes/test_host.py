"""Facts of the machine from fixture trees of /sys, /proc and /dev."""

import os
from pathlib import Path

import psutil
import pytest

from probes.facts import DeviceFiles, Host
from probes.host import (
    has_integrated_gpu,
    opens_control_device,
    read_device_files,
    read_host,
    read_kernel_module_version,
)


def write(root: Path, path: str, content: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(content)


def test_a_server_tells_its_name_kernel_memory_and_processors(tmp_path):
    write(tmp_path, "sys/class/dmi/id/product_name", "DGXH100\n")
    write(tmp_path, "proc/sys/kernel/osrelease", "6.8.0-60-generic\n")
    write(tmp_path, "proc/meminfo", "MemTotal:       2113471800 kB\nMemFree: 1 kB\n")
    write(
        tmp_path,
        "proc/cpuinfo",
        "processor\t: 0\nflags\t: fpu\n\nprocessor\t: 1\n" + "x" * 200_000 + "\nprocessor : 2\n",
    )
    assert read_host(tmp_path) == Host(
        machine="DGXH100", kernel="6.8.0-60-generic", memory_bytes=2113471800 * 1024, cpus=3
    )


def test_a_board_without_dmi_is_named_by_its_device_tree(tmp_path):
    write(tmp_path, "proc/device-tree/model", "NVIDIA Jetson AGX Thor Developer Kit\0")
    write(tmp_path, "proc/device-tree/compatible", "nvidia,p3834\0nvidia,tegra264\0")
    assert read_host(tmp_path) == Host(machine="NVIDIA Jetson AGX Thor Developer Kit")
    assert has_integrated_gpu(tmp_path)


def test_a_tree_without_these_files_tells_nothing(tmp_path):
    assert read_host(tmp_path) == Host()
    assert read_kernel_module_version(tmp_path) is None
    assert read_device_files(tmp_path) == DeviceFiles()
    assert not has_integrated_gpu(tmp_path)


def test_this_machine_is_asked_through_psutil():
    host = read_host(Path("/"))
    assert host.memory_bytes == psutil.virtual_memory().total
    assert host.kernel == os.uname().release


@pytest.mark.parametrize(
    ("text", "version"),
    [
        pytest.param(
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 19:39:15 UTC 2024\n",
            "535.183.01",
            id="proprietary",
        ),
        pytest.param(
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (dvs@U22)\n",
            "580.95.05",
            id="open",
        ),
        pytest.param(
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  378.09  Thu\n", "378.09", id="two parts"
        ),
        pytest.param("", None, id="empty"),
    ],
)
def test_the_kernel_module_version_is_kept_as_it_is_printed(tmp_path, text, version):
    write(tmp_path, "proc/driver/nvidia/version", text)
    assert read_kernel_module_version(tmp_path) == version


def test_the_module_tells_its_version_where_proc_does_not(tmp_path):
    write(tmp_path, "sys/module/nvidia/version", "580.95.05\n")
    assert read_kernel_module_version(tmp_path) == "580.95.05"


def test_device_files_of_the_driver_are_listed_and_others_are_not(tmp_path):
    for name in ("nvidia0", "nvidiactl", "nvidia-uvm", "null", "sda"):
        write(tmp_path, f"dev/{name}", "")
    (tmp_path / "dev/nvidia-caps").mkdir()
    (tmp_path / "dev/nvidia1").symlink_to("nowhere")
    assert read_device_files(tmp_path) == DeviceFiles(
        present=("/dev/nvidia-uvm", "/dev/nvidia0", "/dev/nvidia1", "/dev/nvidiactl"),
        denied=("/dev/nvidia1",),
    )


def test_fr_132_a_control_device_that_the_kernel_refuses_to_open_is_told_from_a_missing_one(tmp_path):
    assert opens_control_device(tmp_path)
    write(tmp_path, "dev/nvidiactl", "")
    assert opens_control_device(tmp_path)
    (tmp_path / "dev/nvidiactl").unlink()
    # Even root may not open this one for writing.
    (tmp_path / "dev/nvidiactl").symlink_to("/sys/kernel/uevent_seqnum")
    assert not opens_control_device(tmp_path)
