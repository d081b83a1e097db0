"""A capture plays back what was captured: every answer to a scenario, and through the binding to the same facts."""

import sys
from dataclasses import replace

import msgspec
import pytest

from agent.commands.dumping import dump
from agent.core.classes import content_from
from agent.core.inventory import inventory_of
from agent.core.labels import labels_for
from fakes import filesystem, nodes, nvml
from fakes.scenario import Scenario
from probes import nvml as real
from probes.capture import OF_A_DEVICE, OF_THE_LIBRARY, Capture
from probes.captured import scenario_of
from probes.evidence import Evidence, node_facts
from probes.facts import Accelerator, NodeFacts
from probes.findings import Answer, Refused
from probes.forked import read_surroundings
from probes.host_process import probe_everything_once
from tests.probes.probing import facts, h100, h100_mig, installed, machine, unheard
from tests.probes.test_nodes import VERDICTS


def everything(scenario: Scenario, root) -> tuple[NodeFacts, Evidence]:
    """Return what a probe of everything finds, without a host process."""
    filesystem.render(scenario, root)
    evidence = Evidence(surroundings=read_surroundings(root))
    capture = Capture(
        lambda answer: evidence.take(msgspec.json.decode(msgspec.json.encode(answer), type=Answer))
    )
    with installed(scenario):
        for finding in real.probe_nvml(on_call=unheard, listener=capture):
            opens = "/dev/nvidiactl" not in scenario.device_files.denied
            evidence.take(
                replace(finding, control_device_opens=opens) if isinstance(finding, Refused) else finding
            )
    return node_facts(evidence, simulated=True), evidence


def written(scenario: Scenario, root) -> str:
    """Return the file that a capture of a machine is."""
    return dump(scenario_of(*everything(scenario, root)), "yaml")


def again(scenario: Scenario, tmp_path) -> Scenario:
    """Return the machine that a capture of another describes."""
    return Scenario.from_yaml(written(scenario, tmp_path / "first"))


def unnamed(device: Accelerator) -> Accelerator:
    """Return the device without the names that a capture masks."""
    parts = device.mig.partitions if device.mig else None
    mig = device.mig and replace(
        device.mig, partitions=parts and tuple(replace(part, id=part.id and "masked") for part in parts)
    )
    fabric = device.fabric and replace(device.fabric, cluster_uuid=device.fabric.cluster_uuid and "masked")
    return replace(device, id=device.id and "masked", mig=mig, fabric=fabric)


def comparable(found: NodeFacts) -> NodeFacts:
    return replace(
        found, accelerators=tuple(map(unnamed, found.accelerators)), message="", duration_seconds=None
    )


def assert_plays_back(scenario: Scenario, tmp_path) -> None:
    found = facts(scenario, tmp_path / "before")
    assert comparable(facts(again(scenario, tmp_path), tmp_path / "after")) == comparable(found)


@pytest.mark.parametrize("name", sorted(VERDICTS))
def test_a_capture_of_each_machine_plays_back_the_same_facts(name, tmp_path):
    assert_plays_back(nodes.node(name), tmp_path)


@pytest.mark.parametrize("name", sorted(VERDICTS))
def test_labels_and_classes_of_a_capture_are_those_of_the_machine(name, tmp_path):
    scenario = nodes.node(name)
    found = [
        inventory_of(facts(each, tmp_path / str(number)))
        for number, each in enumerate((scenario, again(scenario, tmp_path)))
    ]
    fabric = {"accelerators.ome.io/fabric"}
    labels = [{key: value for key, value in labels_for(each).items() if key not in fabric} for each in found]
    assert labels[0] == labels[1]
    contents = [
        {
            repr(content_from(device.description, device.facts.product))
            for device in each.devices
            if device.description
        }
        for each in found
    ]
    assert contents[0] == contents[1]


@pytest.mark.parametrize("name", sorted(VERDICTS))
def test_a_capture_of_a_capture_is_the_same_capture(name, tmp_path):
    """Nothing that was answered is lost: not even what no fact needs."""
    first = written(nodes.node(name), tmp_path / "first")
    assert written(Scenario.from_yaml(first), tmp_path / "second") == first


def identities(scenario: Scenario) -> set[str]:
    """Return what names a machine: UUIDs, serial numbers and its fabric's name."""
    found = set()
    for device in scenario.devices:
        found |= {device.uuid, device.serial, device.fabric.cluster_uuid if device.fabric else None}
    return {text for text in found if text and text.strip("0-")}


@pytest.mark.parametrize("name", sorted(VERDICTS))
def test_a_capture_names_no_machine(name, tmp_path):
    scenario = nodes.node(name)
    _, evidence = everything(scenario, tmp_path)
    text = written(scenario, tmp_path)
    told = {
        answer.value for answer in evidence.answers if answer.call == "nvmlDeviceGetUUID" and answer.value
    }
    assert [identity for identity in identities(scenario) | told if identity in text] == []


def test_a_uuid_is_masked_wherever_it_stands(tmp_path):
    uuid = "GPU-1b8ef6b8-53a2-4b40-9d1d-3a8f4e1f2c11"
    scenario = machine(h100(uuid=uuid, name=f"NVIDIA H100 ({uuid})"))
    assert uuid not in written(scenario, tmp_path)
    assert "NVIDIA H100 (GPU-00000000-0000-0000-0000-000000000000)" in written(scenario, tmp_path)


def test_serial_numbers_and_board_identities_are_never_asked_for():
    asked = {call for call, _ in (*OF_THE_LIBRARY, *OF_A_DEVICE)}
    assert [call for call in asked if "Serial" in call or "Board" in call or "InfoRom" in call] == []


NAMES = [
    "NVIDIA H100 80GB HBM3",
    "true",
    "null",
    "~",
    "1e3",
    "0x1b",
    "- a",
    "a: b # c",
    "&anchor *alias",
    "{a: [b}",
    "  blanks  ",
    "tab\tand\nline",
    "bell\x07 and escape\x1b[31m",
    "next line\x85 and separator\u2028",
    "Grün 加速器 😀",
    "'\"\\",
    "%YAML 1.1",
    "---",
    "x" * 95,
]


@pytest.mark.parametrize("name", NAMES)
def test_a_hostile_name_comes_back_as_it_was(name, tmp_path):
    scenario = machine(h100(name=name))
    assert again(scenario, tmp_path).devices[0].name == name
    assert_plays_back(scenario, tmp_path)


FUNCTIONS = [
    "nvmlDeviceGetUUID",
    "nvmlDeviceGetName",
    "nvmlDeviceGetPciInfo_v3",
    "nvmlDeviceGetMemoryInfo*",
    "nvmlDeviceGetMemoryInfo_v2",
    "nvmlDeviceGetMaxClockInfo",
    "nvmlDeviceGetMigMode",
    "nvmlDeviceGetNvLinkState",
    "nvmlDeviceGetNvLinkVersion",
    "nvmlDeviceGetGpuFabricInfo*",
    "nvmlDeviceGetGpuFabricInfoV",
    "nvmlDeviceGetTotalEccErrors",
    "nvmlDeviceGetRemappedRows",
    "nvmlDeviceGetRetiredPages_v2",
    "nvmlDeviceGetCurrentClocksEventReasons",
    "nvmlDeviceGetPersistenceMode",
    "nvmlDeviceGetFieldValues",
    "nvmlDeviceGetHandleByIndex_v2",
    "nvmlDevice*",
]


@pytest.mark.parametrize("code", [3, 4, 10, 13, 15, 16, 19, 25, 999])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_call_that_was_refused_is_refused_again(function, code, tmp_path):
    failures = [{"function": function, "device": 1, "code": code}]
    assert_plays_back(machine(h100(), h100(), failures=failures), tmp_path)


@pytest.mark.parametrize("call", [1, 2, 3])
@pytest.mark.parametrize(
    "function", ["nvmlDeviceGetMaxClockInfo", "nvmlDeviceGetNvLinkState", "nvmlDeviceGetUUID"]
)
def test_one_call_of_several_is_refused_again(function, call, tmp_path):
    failures = [{"function": function, "device": 0, "call": call, "code": 999}]
    assert_plays_back(machine(h100_mig(), failures=failures), tmp_path)


PARTS = [
    "nvmlDeviceGetMigDeviceHandleByIndex",
    "nvmlDeviceGetGpuInstanceId",
    "nvmlDeviceGetAttributes_v2",
    "nvmlDeviceGetMaxMigDeviceCount",
]


@pytest.mark.parametrize("code", [4, 6, 999])
@pytest.mark.parametrize("function", PARTS)
def test_partitions_that_were_refused_are_refused_again(function, code, tmp_path):
    assert_plays_back(machine(h100_mig(), failures=[{"function": function, "code": code}]), tmp_path)


IMPOSSIBLE = [
    pytest.param("nvmlDeviceGetMemoryInfo_v2", {"total": 2**64 - 1}, id="memory sentinel"),
    pytest.param("nvmlDeviceGetMemoryInfo_v2", {"total": 80, "used": 90}, id="more used than there is"),
    pytest.param(
        "nvmlDeviceGetMemoryInfo_v2", {"total": 0, "free": 0, "used": 0, "reserved": 0}, id="no memory"
    ),
    pytest.param("nvmlDeviceGetCudaComputeCapability", [0, 0], id="no capability"),
    pytest.param("nvmlDeviceGetCudaComputeCapability", [255, 255], id="a capability that nothing has"),
    pytest.param("nvmlDeviceGetNumGpuCores", 2**32 - 1, id="cores sentinel"),
    pytest.param("nvmlDeviceGetVirtualizationMode", 17, id="a word from the future"),
    pytest.param("nvmlDeviceGetMigMode", [7, 7], id="a mode from the future"),
    pytest.param("nvmlDeviceGetNvLinkState", 5, id="a link state from the future"),
    pytest.param("nvmlDeviceGetNvLinkVersion", 99, id="a link version from the future"),
    pytest.param("nvmlDeviceGetGpuFabricInfoV", {"state": 9}, id="a fabric state from the future"),
    pytest.param("nvmlDeviceGetRemappedRows", [1, 2, 3, 4], id="rows that are neither failed nor not"),
    pytest.param("nvmlDeviceGetCurrentClocksEventReasons", 1 << 40, id="clock reasons from the future"),
    pytest.param("nvmlDeviceGetPciInfo_v3", {"bus": 0xFFFFFFFF}, id="no bus"),
    pytest.param("nvmlDeviceGetPciInfo_v3", {"pciSubSystemId": 0}, id="no subsystem"),
    pytest.param("nvmlDeviceGetUUID", "", id="an empty UUID"),
    pytest.param("nvmlDeviceGetName", "", id="an empty name"),
    pytest.param("nvmlDeviceGetEccMode", [2, 2], id="an ECC mode from the future"),
    pytest.param("nvmlDeviceGetPersistenceMode", 3, id="a switch that is neither"),
]


@pytest.mark.parametrize(("function", "value"), IMPOSSIBLE)
def test_what_no_device_can_be_is_answered_again(function, value, tmp_path):
    failures = [{"function": function, "device": 0, "value": value}]
    assert_plays_back(machine(h100(), h100(), failures=failures), tmp_path)


def test_text_that_is_not_utf8_is_so_again(tmp_path):
    failures = [{"function": "nvmlDeviceGetName", "device": 0, "bytes": "c0ffee"}]
    assert_plays_back(machine(h100(), failures=failures), tmp_path)


def test_two_devices_that_tell_one_uuid_do_so_again(tmp_path):
    twin = machine(h100(), h100()).devices[0].uuid
    scenario = machine(
        h100(), h100(), failures=[{"function": "nvmlDeviceGetUUID", "device": 1, "value": twin}]
    )
    ids = [device.id for device in facts(again(scenario, tmp_path), tmp_path / "after").accelerators]
    assert ids == ["GPU-00000000-0000-0000-0000-000000000000"] * 2


def test_unified_memory_and_the_absent_bus_of_a_system_on_chip_come_back(tmp_path):
    scenario = again(nodes.node("orin"), tmp_path)
    assert scenario.host.device_tree_model == "NVIDIA Jetson AGX Orin Developer Kit"
    assert scenario.devices[0].pci is None


def test_more_than_facts_is_in_a_capture(tmp_path):
    [before], [after] = nodes.node("t4").devices, again(nodes.node("t4"), tmp_path).devices
    told = (
        "brand",
        "architecture",
        "vbios_version",
        "bar1",
        "clocks_mhz",
        "power",
        "temperature_celsius",
        "compute_mode",
    )
    assert {name: getattr(after, name) for name in told} == {name: getattr(before, name) for name in told}
    assert after.serial is None


def host(source: str, *, timeout_seconds: float = 1.0) -> tuple[NodeFacts, Evidence]:
    """Return what a probe of everything finds through a real probe host."""
    command = (sys.executable, "-m", "fakes.child", source)
    return probe_everything_once(command, timeout_seconds=timeout_seconds, simulated=True)


def test_a_device_that_hangs_is_captured_as_hanging_and_the_others_are_kept(tmp_path):
    """FR-008."""
    found, evidence = host("device-hangs")
    assert [device.index for device in found.accelerators if device.fault] == [3]
    scenario = scenario_of(found, evidence)
    assert scenario["failures"] == [{"function": "nvmlDeviceGetMemoryInfo_v2", "device": 3, "hang": True}]
    assert [device["memory"]["total_bytes"] for device in scenario["devices"] if "memory" in device] == [
        85520809984
    ] * 7
    file = tmp_path / "capture.yaml"
    file.write_text(dump(scenario, "yaml"), encoding="utf-8")
    assert comparable(host(str(file))[0]) == comparable(found)


def test_a_call_that_only_a_capture_makes_may_hang_without_costing_a_fact(tmp_path):
    file = tmp_path / "hangs.yaml"
    file.write_text(
        "{name: hangs, devices: [{board: h100-sxm, count: 2}],"
        " failures: [{function: nvmlDeviceGetTemperature, device: 0, hang: true}]}",
        encoding="utf-8",
    )
    found, evidence = host(str(file))
    assert (found.verdict, [device.fault for device in found.accelerators]) == ("complete", [None, None])
    assert scenario_of(found, evidence)["failures"] == [
        {"function": "nvmlDeviceGetTemperature", "device": 0, "hang": True}
    ]


@pytest.mark.parametrize(
    ("name", "failure"),
    [
        ("no-answer", {"function": "nvmlInitWithFlags", "hang": True}),
        ("crash", {"function": "nvmlDeviceGetCount_v2", "abort": True}),
    ],
)
def test_a_library_that_hangs_or_crashes_does_so_again(name, failure):
    found, evidence = host(name, timeout_seconds=0.5)
    assert scenario_of(found, evidence)["failures"] == [failure]


def test_the_fake_is_gone_after_these_tests():
    assert nvml.installed() is None
