"""What `doctor` names as the cause on every fake machine and in every state of the field reports."""

import json
import sys
from dataclasses import replace

import pytest

from agent.core.doctor.causes import CAUSES
from agent.core.doctor.check import Check, findings
from agent.core.doctor.devices import device_checks
from agent.core.doctor.machine import Surroundings, machine_checks
from agent.core.inventory import inventory_of
from fakes import nodes
from probes.facts import NodeFacts
from probes.host_process import probe_once
from tests.probes.probing import facts, h100
from tests.probes.test_nodes import VERDICTS


def checks(found: NodeFacts, surroundings: Surroundings | None = None) -> tuple[Check, ...]:
    return (*machine_checks(found, surroundings), *device_checks(inventory_of(found)))


def named(found: NodeFacts, surroundings: Surroundings | None = None) -> list[str]:
    """Return the ids of what was found."""
    return [check.id for check in findings(checks(found, surroundings))]


def check(found: NodeFacts, id_: str, surroundings: Surroundings | None = None) -> Check:
    [wanted] = [each for each in checks(found, surroundings) if each.id == id_]
    return wanted


WELL: list[str] = []

FOUND = {
    "h100x8": WELL,
    "h200x8": WELL,
    "a100-40x8": WELL,
    "a100-80-mig": WELL,
    "b200x8": WELL,
    "gb200": WELL,
    "gb10": WELL,
    "gb10-host-memory": WELL,
    "thor": WELL,
    "orin": WELL,
    "l4x4": WELL,
    "l40s": WELL,
    "t4": WELL,
    "v100-mixed": WELL,
    "rtx-pro-6000-mig": WELL,
    "vgpu": WELL,
    "gh200": WELL,
    "mixed-3080-3090-4090": WELL,
    "dgx-station": WELL,
    "no-gpu": WELL,
    "driver-no-gpu": WELL,
    "mig-empty": ["mig"],
    "mig-pending": ["mig"],
    "mig-no-permission": ["mig"],
    "no-driver": ["kernel-module"],
    "no-runtime": ["library"],
    "version-mismatch": ["driver-versions"],
    "no-answer": ["nvml"],
    "crash": ["nvml"],
    "device-hangs": ["devices"],
    "h100x8-one-lost": ["devices"],
    "h100x8-lost-after-handle": ["devices"],
    "h100x8-all-lost": ["nvml"],
    "h100x8-needs-reset": ["devices"],
    "h100x8-container-lost": WELL,
    "h100x8-count-shrinks": WELL,
    "h100x8-sick": ["fabric", "health"],
}
"""At the first probe."""

LATER = {
    ("h100x8-container-lost", 4): ["nvml"],
    ("h100x8-count-shrinks", 2): ["census"],
}


def test_every_fake_machine_has_its_cause_in_the_table():
    assert sorted(FOUND) == sorted(nodes.names())


@pytest.mark.parametrize("name", sorted(nodes.names()))
def test_the_cause_on_each_machine_is_named_and_no_other(name, tmp_path):
    if name in VERDICTS:
        found = facts(nodes.node(name), tmp_path)
    else:
        command = (sys.executable, "-m", "fakes.child", name)
        found = probe_once(command, timeout_seconds=1.0, simulated=True)
    assert named(found) == FOUND[name]


@pytest.mark.parametrize(("name", "cycle"), sorted(LATER))
def test_the_cause_of_what_comes_later_is_named(name, cycle, tmp_path):
    """FR-001, FR-017."""
    assert named(facts(nodes.node(name), tmp_path, cycle)) == LATER[name, cycle]


VFIO = {"address": "0000:1b:00.0", "device_id": "2330", "driver": "vfio-pci"}
NOUVEAU = {"address": "0000:1b:00.0", "device_id": "2330", "driver": "nouveau"}
CONTROL = ["/dev/nvidia0", "/dev/nvidiactl"]

REPORTED = [
    pytest.param({"driver": {"loaded": False}}, ["kernel-module"], id="FR-002 the driver is not up yet"),
    pytest.param(
        {"driver": {"kernel_module_version": "570.172.08"}},
        ["driver-versions"],
        id="FR-003 upgraded, not rebooted",
    ),
    pytest.param(
        {"failures": [{"function": "nvmlInitWithFlags", "code": 999}]},
        ["nvml"],
        id="FR-004 the library will not open",
    ),
    pytest.param(
        {"failures": [{"function": "nvmlDeviceGetCount_v2", "code": 999}]},
        ["nvml"],
        id="FR-004 no number of GPUs",
    ),
    pytest.param({"driver": {"library": False}}, ["library"], id="FR-006 no runtime class"),
    pytest.param(
        {"failures": [{"function": "nvmlInitWithFlags", "code": 9}], "device_files": {"present": []}},
        ["device-files"],
        id="no device files in the container",
    ),
    pytest.param(
        {
            "failures": [{"function": "nvmlInitWithFlags", "code": 4}],
            "device_files": {"present": CONTROL, "denied": CONTROL},
        },
        ["device-files"],
        id="FR-132 device files that may not be opened, told as no permission",
    ),
    pytest.param(
        {
            "failures": [{"function": "nvmlInitWithFlags", "code": 9}],
            "device_files": {"present": CONTROL, "denied": CONTROL},
        },
        ["device-files"],
        id="FR-132 device files that may not be opened, told as not loaded",
    ),
    pytest.param(
        {
            "failures": [{"function": "nvmlInitWithFlags", "code": 999}],
            "device_files": {"present": CONTROL, "denied": CONTROL},
        },
        ["device-files"],
        id="FR-001 devices taken from a running container",
    ),
    pytest.param(
        {"failures": [{"function": "nvmlDeviceGetHandleByIndex_v2", "code": 999}]},
        ["nvml"],
        id="every device fails",
    ),
    pytest.param(
        {"failures": [{"function": "nvmlDeviceGetCount_v2", "value": 0}]},
        ["census"],
        id="no device of a driver that has",
    ),
    pytest.param(
        {"failures": [{"function": "nvmlDeviceGetMemoryInfo*", "code": 4}]},
        ["readings"],
        id="a reading not permitted",
    ),
    pytest.param(
        {"devices": [], "driver": {"loaded": False, "library": False}, "other_pci": [VFIO]},
        ["pass-through"],
        id="passed through to a guest",
    ),
    pytest.param(
        {"devices": [], "driver": {"loaded": False, "library": False}, "other_pci": [NOUVEAU]},
        ["kernel-module"],
        id="another driver has the GPU",
    ),
    pytest.param(
        {"devices": [], "driver": {"loaded": False, "library": False}},
        [],
        id="FR-005 a machine without GPUs is well",
    ),
]


def probed(fields, tmp_path) -> NodeFacts:
    """Return the facts of a described machine, through a real host: it alone tries to open the device files."""
    file = tmp_path / "machine.json"
    file.write_text(json.dumps({"name": "reported", "devices": [h100()], **fields}), encoding="utf-8")
    command = (sys.executable, "-m", "fakes.child", str(file))
    return probe_once(command, timeout_seconds=5.0, simulated=True)


@pytest.mark.parametrize(("fields", "expected"), REPORTED)
def test_the_cause_in_each_report_is_named_and_no_other(fields, expected, tmp_path):
    assert named(probed(fields, tmp_path)) == expected


def in_a_pod(**fields) -> Surroundings:
    return Surroundings(in_container=True, user=65532, system_administrator=False, **fields)


CONTAINERS = [
    pytest.param("no-runtime", {"visible_devices": None}, ["container", "library"], id="nothing asked for"),
    pytest.param("no-runtime", {"visible_devices": "void"}, ["container", "library"], id="void asked for"),
    pytest.param("no-runtime", {"visible_devices": "all"}, ["library"], id="all asked for, plain runc"),
    pytest.param(
        "no-runtime",
        {"visible_devices": "all", "driver_capabilities": "compute"},
        ["container", "library"],
        id="without the utility libraries",
    ),
    pytest.param("h100x8", {"visible_devices": "0,1"}, ["container"], id="some of the GPUs"),
    pytest.param("h100x8", {"visible_devices": "all"}, [], id="all of them"),
    pytest.param("h100x8", {"visible_devices": None}, [], id="devices mounted by hand"),
    pytest.param("no-gpu", {"visible_devices": "void"}, [], id="FR-005 no GPU to ask for"),
]


@pytest.mark.parametrize(("name", "asked", "expected"), CONTAINERS)
def test_what_a_container_was_asked_for_is_judged_by_what_the_machine_has(name, asked, expected, tmp_path):
    """FR-006."""
    assert named(facts(nodes.node(name), tmp_path), in_a_pod(**asked)) == expected


def test_a_finding_says_what_was_seen_what_it_means_and_who_mends_it_how(tmp_path):
    """FR-003."""
    assert check(facts(nodes.node("version-mismatch"), tmp_path), "driver-versions") == Check(
        id="driver-versions",
        status="finding",
        evidence="the kernel module is 570.172.08 and the library is 580.95.05: the driver was upgraded without a "
        "reboot",
        meaning="the driver was upgraded without a reboot: no new process can open NVML until that is done",
        mend="drain the node and reboot it, or unload and load the kernel module while nothing uses the GPUs",
        who="the operator of this node",
    )


def test_the_device_that_is_lost_is_named_by_index_and_slot(tmp_path):
    """FR-015."""
    found = check(facts(nodes.node("h100x8-one-lost"), tmp_path), "devices")
    assert found.evidence == "GPU 3 at 0000:61:00.0 is lost (off the bus) [nvmlDeviceGetHandleByIndex]"


def test_the_slot_without_an_answer_is_named(tmp_path):
    """FR-017."""
    found = check(facts(nodes.node("h100x8-count-shrinks"), tmp_path, 2), "census")
    assert found.evidence.endswith("without an answer: 0000:df:00.0")


def test_checks_that_need_answers_are_skipped_and_say_where_the_cause_is(tmp_path):
    found = checks(facts(nodes.node("no-runtime"), tmp_path))
    assert {each.evidence for each in found if each.id in {"devices", "mig", "fabric", "health"}} == {
        "the hardware could not be asked; see library"
    }


def test_a_slow_probe_without_persistence_mode_says_so(tmp_path):
    """FR-012."""
    slow = replace(facts(nodes.node("l40s"), tmp_path), duration_seconds=31.0)
    assert named(slow) == ["persistence"]
    assert check(slow, "persistence").evidence == "off on GPU 0, 1, and this probe took 31 s"


def test_every_reason_of_a_probe_that_could_not_ask_has_a_cause(tmp_path):
    told = {
        facts(nodes.node(name), tmp_path).reason
        for name in VERDICTS
        if VERDICTS[name][0] not in {"complete", "partial"}
    }
    assert told - CAUSES.keys() == {"NoAccelerators"}


def test_every_finding_says_all_there_is_to_say(tmp_path):
    for name in sorted(VERDICTS):
        for each in findings(checks(facts(nodes.node(name), tmp_path))):
            assert all((each.evidence, each.meaning, each.mend, each.who)), (name, each)
