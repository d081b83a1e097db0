"""The PCI census on fixture trees of sysfs."""

from pathlib import Path

import pytest

from probes.facts import PciFunction, PciIdentity
from probes.pci import read_pci_functions


def put(root: Path, address: str, driver: str | None = None, **attributes: str) -> Path:
    folder = root / "sys/bus/pci/devices" / address
    folder.mkdir(parents=True)
    for name, text in attributes.items():
        (folder / name).write_text(f"{text}\n")
    if driver is not None:
        (folder / "driver").symlink_to(f"../../../bus/pci/drivers/{driver}")
    return folder


def put_h100(
    root: Path, address: str = "0000:1b:00.0", driver: str | None = "nvidia", **changed: str
) -> Path:
    attributes = {
        "class": "0x030200",
        "vendor": "0x10de",
        "device": "0x2330",
        "subsystem_vendor": "0x10de",
        "subsystem_device": "0x16c1",
        "numa_node": "0",
    }
    return put(root, address, driver, **{**attributes, **changed})


H100 = PciFunction(
    identity=PciIdentity(
        address="0000:1b:00.0",
        vendor_id="10de",
        device_id="2330",
        subsystem_vendor_id="10de",
        subsystem_id="16c1",
        numa_node=0,
    ),
    class_code="030200",
    driver="nvidia",
)


def test_a_gpu_is_found_with_its_ids_node_and_driver(tmp_path):
    put_h100(tmp_path)
    assert read_pci_functions(tmp_path) == (H100,)


def test_functions_come_by_address_whatever_the_order_of_the_directory(tmp_path):
    for address in ("0001:00:00.0", "0000:df:00.0", "0000:1b:00.0"):
        put_h100(tmp_path, address)
    found = read_pci_functions(tmp_path)
    assert [function.identity.address for function in found or ()] == [
        "0000:1b:00.0",
        "0000:df:00.0",
        "0001:00:00.0",
    ]


@pytest.mark.parametrize(
    ("vendor", "class_code", "counted"),
    [
        pytest.param("0x10de", "0x030000", True, id="nvidia vga"),
        pytest.param("0x1002", "0x120000", True, id="amd processing accelerator"),
        pytest.param("0x8086", "0x038000", False, id="another display class"),
        pytest.param("0x8086", "0x030000", True, id="intel vga"),
        pytest.param("0x1a03", "0x030000", False, id="vga of a BMC"),
        pytest.param("0x10de", "0x068000", False, id="NVSwitch"),
        pytest.param("0x10de", "0x040300", False, id="audio function of a graphics card"),
        pytest.param("0x1d0f", "0x010802", False, id="amazon disk"),
    ],
)
def test_only_accelerator_classes_of_accelerator_vendors_count(tmp_path, vendor, class_code, counted):
    put_h100(tmp_path, vendor=vendor, **{"class": class_code})
    assert bool(read_pci_functions(tmp_path)) is counted


def test_an_unbound_gpu_without_a_node_or_subsystem_has_none(tmp_path):
    folder = put_h100(tmp_path, driver=None, numa_node="-1")
    (folder / "subsystem_device").unlink()
    [found] = read_pci_functions(tmp_path) or ()
    assert (found.driver, found.identity.numa_node, found.identity.subsystem_id) == (None, None, None)


@pytest.mark.parametrize("content", ["", "what", "0x", "\ud7ff", "0x" + "9" * 5000], ids=repr)
@pytest.mark.parametrize("name", ["vendor", "device", "class", "numa_node", "subsystem_vendor"])
def test_an_odd_file_never_raises(tmp_path, name, content):
    put_h100(tmp_path, **{name: content})
    put_h100(tmp_path, "0000:43:00.0")
    found = read_pci_functions(tmp_path) or ()
    assert "0000:43:00.0" in {function.identity.address for function in found}


def test_a_function_that_vanishes_while_one_looks_is_left_out(tmp_path):
    folder = put_h100(tmp_path)
    (folder / "device").unlink()
    (folder / "device").mkdir()
    assert read_pci_functions(tmp_path) == ()


def test_shares_of_a_function_of_this_machine_are_not_counted_again(tmp_path):
    put_h100(tmp_path)
    share = put_h100(tmp_path, "0000:1b:00.4")
    (share / "physfn").symlink_to("../0000:1b:00.0")
    assert read_pci_functions(tmp_path) == (H100,)


def test_a_machine_without_a_pci_bus_has_none_but_without_sysfs_it_is_not_known(tmp_path):
    assert read_pci_functions(tmp_path) is None
    (tmp_path / "sys/bus").mkdir(parents=True)
    assert read_pci_functions(tmp_path) == ()
