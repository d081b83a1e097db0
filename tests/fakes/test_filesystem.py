"""Files of a fake machine, as the programs that read them see them."""

from pathlib import Path

import pytest

from fakes import filesystem, nodes
from probes import host, pci
from probes.facts import DeviceFiles, Host
from tests.fakes.bound import h100, machine


def test_the_census_shows_the_devices_and_what_else_is_on_the_bus(tmp_path):
    scenario = machine(
        h100(pci={"numa_node": 1}),
        {"board": "gb10"},
        other_pci=[{"address": "0000:05:00.0", "device_id": "2330", "driver": "vfio-pci"}],
    )
    filesystem.render(scenario, tmp_path)
    functions = pci.read_pci_functions(tmp_path)
    assert [
        (f.identity.address, f.identity.device_id, f.identity.numa_node, f.class_code, f.driver)
        for f in functions
    ] == [
        ("0000:05:00.0", "2330", None, "030200", "vfio-pci"),
        ("0000:1b:00.0", "2330", 1, "030200", "nvidia"),
        ("000f:01:00.0", "2e12", None, "030200", "nvidia"),
    ]


def test_the_machine_tells_its_name_memory_kernel_and_processors(tmp_path):
    filesystem.render(nodes.node("gb10"), tmp_path)
    assert host.read_host(tmp_path) == Host(
        machine="NVIDIA_DGX_Spark", kernel="6.11.0-1016-nvidia", memory_bytes=127600748 * 1024, cpus=20
    )


def test_what_the_scenario_does_not_say_of_the_machine_is_not_known(tmp_path):
    filesystem.render(machine(), tmp_path)
    assert host.read_host(tmp_path) == Host()


def test_a_board_without_dmi_tells_its_model_by_the_device_tree(tmp_path):
    filesystem.render(nodes.node("orin"), tmp_path)
    assert host.read_host(tmp_path).machine == "NVIDIA Jetson AGX Orin Developer Kit"
    assert host.has_integrated_gpu(tmp_path)


@pytest.mark.parametrize(
    ("driver", "version"),
    [
        pytest.param({}, "580.95.05", id="same as the library"),
        pytest.param({"kernel_module_version": "570.172.08"}, "570.172.08", id="older"),
        pytest.param({"open_kernel_module": True}, "580.95.05", id="open module"),
        pytest.param({"loaded": False}, None, id="none"),
        pytest.param({"library": False}, "580.95.05", id="without the library"),
    ],
)
def test_the_kernel_module_tells_its_version(driver, version, tmp_path):
    filesystem.render(machine(h100(), driver=driver), tmp_path)
    assert host.read_kernel_module_version(tmp_path) == version


@pytest.mark.parametrize(
    ("fields", "present"),
    [
        pytest.param(
            {}, ("/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia0", "/dev/nvidiactl"), id="runtime"
        ),
        pytest.param({"driver": {"library": False}}, (), id="no runtime"),
        pytest.param({"device_files": {"present": ["/dev/nvidia7"]}}, ("/dev/nvidia7",), id="as named"),
    ],
)
def test_device_files_are_those_that_the_runtime_makes(fields, present, tmp_path):
    filesystem.render(machine(h100(), **fields), tmp_path)
    assert host.read_device_files(tmp_path) == DeviceFiles(present=present)


def test_a_denied_device_file_does_not_open_even_for_root(tmp_path):
    filesystem.render(machine(h100(), device_files={"denied": ["/dev/nvidiactl"]}), tmp_path)
    assert not host.opens_control_device(tmp_path)
    assert "/dev/nvidiactl" in host.read_device_files(tmp_path).present


def test_rendering_again_leaves_nothing_of_the_former_machine(tmp_path):
    filesystem.render(nodes.node("h100x8"), tmp_path)
    filesystem.render(nodes.node("no-gpu"), tmp_path)
    left = [path for path in tmp_path.rglob("*") if "nvidia" in path.name]
    assert (pci.read_pci_functions(tmp_path), left) == ((), [])


def test_sysfs_shows_the_link_of_a_device(tmp_path):
    filesystem.render(machine({"board": "rtx-4090"}), tmp_path)
    folder: Path = tmp_path / "sys/bus/pci/devices/0000:1b:00.0"
    assert [
        (folder / name).read_text() for name in ("current_link_speed", "max_link_speed", "max_link_width")
    ] == [
        "2.5 GT/s PCIe\n",
        "16.0 GT/s PCIe\n",
        "16\n",
    ]
