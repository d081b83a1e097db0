"""What may be concluded from which evidence: every verdict, with the words that tell a person what to do."""

from dataclasses import replace
from typing import Any

import pytest

from probes.evidence import Evidence, node_facts
from probes.facts import (
    Accelerator,
    DeviceFault,
    DeviceFiles,
    Driver,
    FieldProblem,
    Mig,
    PciFunction,
    PciIdentity,
)
from probes.findings import Attempt, Identity, Opened, Refused, Surroundings

FILES = DeviceFiles(present=("/dev/nvidia0", "/dev/nvidia1", "/dev/nvidiactl"))
CODES = (1, 2, 4, 9, 12, 17, 18, 20, 27, 28, 999)


def gpu(bus: str = "1b", driver: str | None = "nvidia", vendor: str = "10de") -> PciFunction:
    identity = PciIdentity(address=f"0000:{bus}:00.0", vendor_id=vendor, device_id="2330", numa_node=1)
    return PciFunction(identity=identity, class_code="030200", driver=driver)


def device(index: int, bus: str | None = None, **fields: Any) -> Accelerator:
    pci = PciIdentity(address=f"0000:{bus}:00.0", vendor_id="10de", device_id="2330") if bus else None
    return Accelerator(index=index, vendor="nvidia", pci=pci, **fields)


def seen(*functions: PciFunction, **fields: Any) -> Surroundings:
    return Surroundings(pci=functions, **fields)


def refused(code: int, surroundings: Surroundings, **fields: Any):
    return node_facts(Evidence(surroundings=surroundings, refused=Refused(code=code, **fields)))


def opened(count: int | None, surroundings: Surroundings, *devices: Accelerator, **fields: Any):
    evidence = Evidence(
        surroundings=surroundings, opened=Opened(driver=Driver(name="nvidia"), count=count, **fields)
    )
    for found in devices:
        evidence.take(found)
    return node_facts(evidence)


@pytest.mark.parametrize(
    ("code", "surroundings", "verdict", "reason", "words"),
    [
        pytest.param(12, seen(), "none", "NoAccelerators", "no NVIDIA GPU", id="FR-005 no gpu, no library"),
        pytest.param(
            12,
            seen(gpu(vendor="1002")),
            "none",
            "NoAccelerators",
            "no NVIDIA GPU",
            id="another vendor's only",
        ),
        pytest.param(
            12,
            seen(gpu(driver="vfio-pci")),
            "none",
            "PassedThrough",
            "passed through to a VM (driver vfio-pci)",
            id="passed through, no library",
        ),
        pytest.param(
            9,
            seen(gpu(driver="vfio-pci")),
            "none",
            "PassedThrough",
            "passed through",
            id="passed through, library",
        ),
        pytest.param(
            12,
            seen(gpu()),
            "not-in-container",
            "LibraryNotVisible",
            "runtimeClassName",
            id="FR-006 no runtime",
        ),
        pytest.param(
            12,
            seen(integrated_gpu=True),
            "not-in-container",
            "LibraryNotVisible",
            "system on chip",
            id="no runtime on a system on chip",
        ),
        pytest.param(
            12,
            seen(device_files=FILES),
            "not-in-container",
            "LibraryNotVisible",
            "libnvidia-ml.so.1",
            id="device files without the library",
        ),
        pytest.param(
            12, seen(gpu(driver=None)), "no-driver", "DriverNotBound", "bound to no driver", id="unbound"
        ),
        pytest.param(
            12, seen(gpu(driver="nouveau")), "no-driver", "DriverNotBound", "bound to nouveau", id="nouveau"
        ),
        pytest.param(
            12,
            seen(gpu(driver="vfio-pci"), gpu("43", driver="nouveau")),
            "no-driver",
            "DriverNotBound",
            "1 NVIDIA GPU(s) (0000:43:00.0) bound to nouveau",
            id="one passed through, one without driver",
        ),
        pytest.param(
            12,
            Surroundings(pci=None),
            "no-answer",
            "BusNotReadable",
            "must let it read /sys",
            id="neither library nor sysfs",
        ),
        pytest.param(
            9, seen(gpu(driver=None)), "no-driver", "DriverNotLoaded", "load it", id="FR-002 not loaded"
        ),
        pytest.param(
            9, seen(), "none", "NoAccelerators", "no NVIDIA GPU", id="library on a machine without gpu"
        ),
        pytest.param(
            9,
            seen(integrated_gpu=True),
            "no-driver",
            "DriverNotLoaded",
            "not loaded",
            id="system on chip, not loaded",
        ),
        pytest.param(
            9,
            seen(gpu(), kernel_module_version="580.95.05"),
            "not-in-container",
            "DeviceFilesMissing",
            "580.95.05 is loaded",
            id="loaded, no device files",
        ),
        pytest.param(
            9,
            seen(gpu(), device_files=replace(FILES, denied=("/dev/nvidiactl",))),
            "not-in-container",
            "DeviceFilesDenied",
            "may not open /dev/nvidiactl (EACCES or EPERM",
            id="FR-132 denied, answered 9",
        ),
        pytest.param(
            4,
            seen(gpu(), device_files=replace(FILES, denied=("/dev/nvidiactl",))),
            "not-in-container",
            "DeviceFilesDenied",
            "NVML answered 4 (no-permission)",
            id="FR-132 denied, answered 4",
        ),
        pytest.param(
            18,
            seen(gpu(), kernel_module_version="570.172.08"),
            "version-mismatch",
            "DriverLibraryMismatch",
            "kernel module is 570.172.08",
            id="FR-003",
        ),
        pytest.param(999, seen(gpu()), "no-answer", "InitFailed", "999 (unknown)", id="FR-001"),
        pytest.param(
            999,
            seen(gpu(), device_files=replace(FILES, denied=("/dev/nvidiactl",))),
            "no-answer",
            "DevicesRevoked",
            "only a new pod",
            id="FR-001 with the device cgroup's no",
        ),
        pytest.param(
            28, seen(), "none", "NoAccelerators", "no NVIDIA GPU", id="gpu not found and none there"
        ),
        pytest.param(28, seen(gpu()), "no-answer", "InitFailed", "28", id="gpu not found but there"),
        pytest.param(
            999, seen(), "no-answer", "InitFailed", "no NVIDIA GPU", id="unknown without a gpu in sight"
        ),
    ],
)
def test_a_library_that_does_not_open(code, surroundings, verdict, reason, words):
    facts = refused(code, surroundings)
    assert (facts.verdict, facts.reason) == (verdict, reason)
    assert words in facts.message


@pytest.mark.parametrize("code", CODES)
def test_gpus_on_the_bus_are_never_none_whatever_init_answers(code):
    """FR-004."""
    assert refused(code, seen(gpu())).verdict != "none"


@pytest.mark.parametrize("code", [9, 999])
def test_versions_that_differ_are_a_mismatch_even_under_another_code(code):
    surroundings = seen(gpu(), kernel_module_version="570.172.08")
    assert refused(code, surroundings, library_version="580.95.05").verdict == "version-mismatch"
    assert refused(code, surroundings, library_version="570.172.08").verdict != "version-mismatch"


def test_a_control_device_that_does_not_open_counts_as_denied():
    facts = refused(9, seen(gpu(), device_files=FILES), control_device_opens=False)
    assert facts.device_files.denied == ("/dev/nvidiactl",)
    assert facts.reason == "DeviceFilesDenied"


@pytest.mark.parametrize(
    ("count", "surroundings", "verdict", "reason"),
    [
        pytest.param(0, seen(), "none", "NoAccelerators", id="none anywhere"),
        pytest.param(0, seen(gpu(driver="vfio-pci")), "none", "PassedThrough", id="all passed through"),
        pytest.param(0, seen(gpu()), "not-in-container", "DeviceFilesMissing", id="no file of a gpu"),
        pytest.param(
            0, seen(gpu(), device_files=FILES), "no-answer", "EveryDeviceMissing", id="files but no device"
        ),
        pytest.param(0, seen(gpu(driver=None)), "no-driver", "DriverNotBound", id="unbound"),
        pytest.param(None, seen(gpu()), "no-answer", "CountFailed", id="FR-004 no count"),
    ],
)
def test_an_open_library_that_shows_no_device(count, surroundings, verdict, reason):
    facts = opened(count, surroundings)
    assert (facts.verdict, facts.reason) == (verdict, reason)


def test_all_devices_read_is_complete():
    facts = opened(2, seen(gpu("1b"), gpu("43")), device(0, "1b"), device(1, "43"))
    assert (facts.verdict, facts.reason, facts.message) == ("complete", "AllDevicesRead", "all 2 GPUs read")
    assert [found.numa_node for found in facts.accelerators] == [1, 1]


def test_one_device_alone_is_told_in_the_singular():
    assert opened(1, seen(gpu("1b")), device(0, "1b")).message == "the one GPU was read"


def test_gpus_given_to_a_guest_are_not_missed():
    facts = opened(1, seen(gpu("1b"), gpu("43", driver="vfio-pci")), device(0, "1b"))
    assert facts.verdict == "complete"


def test_fr_017_a_gpu_that_the_driver_would_not_start_is_bound_to_nothing_and_missed_all_the_same():
    facts = opened(1, seen(gpu("1b"), gpu("43", driver=None)), device(0, "1b"))
    assert (facts.verdict, facts.reason) == ("partial", "DeviceMissing")
    assert "without 1 NVIDIA GPU(s) (0000:43:00.0)" in facts.message


def test_a_gpu_of_another_driver_is_that_drivers():
    assert opened(1, seen(gpu("1b"), gpu("43", driver="nouveau")), device(0, "1b")).verdict == "complete"


def test_fr_017_a_gpu_that_the_driver_does_not_show_is_named():
    facts = opened(1, seen(gpu("1b"), gpu("43")), device(0, "1b"))
    assert (facts.verdict, facts.reason) == ("partial", "DeviceMissing")
    assert (
        "the driver shows 1 of the 2 GPUs on the bus, without 1 NVIDIA GPU(s) (0000:43:00.0)" in facts.message
    )


def test_a_fault_and_a_gap_are_both_told():
    lost = device(0, "1b", fault=DeviceFault(kind="lost", call="nvmlDeviceGetName", error="gpu-lost"))
    facts = opened(2, seen(gpu("1b"), gpu("43"), gpu("52")), lost, device(1, "43"))
    assert (facts.verdict, facts.reason) == ("partial", "DeviceLost")
    assert "GPU 0 at 0000:1b:00.0 is lost" in facts.message
    assert "without 1 NVIDIA GPU(s) (0000:52:00.0)" in facts.message


def test_every_device_failing_is_no_answer():
    """FR-015, fourth case."""
    fault = DeviceFault(kind="unreadable", call="nvmlDeviceGetHandleByIndex", error="unknown")
    facts = opened(2, seen(gpu("1b"), gpu("43")), device(0, fault=fault), device(1, fault=fault))
    assert (facts.verdict, facts.reason, len(facts.accelerators)) == ("no-answer", "EveryDeviceFailed", 2)


def test_two_nameless_devices_are_not_given_slots_by_guess():
    fault = DeviceFault(kind="lost")
    functions = [gpu("1b"), gpu("43"), gpu("52")]
    facts = opened(3, seen(*functions), device(0, "43"), device(1, fault=fault), device(2, fault=fault))
    assert [found.pci.address if found.pci else None for found in facts.accelerators] == [
        "0000:43:00.0",
        None,
        None,
    ]


def test_a_device_whose_turn_never_came_did_not_answer():
    evidence = Evidence(
        surroundings=seen(gpu("1b"), gpu("43")),
        opened=Opened(driver=Driver(name="nvidia"), count=2),
        attempts=(Attempt(ended="deadline", device=0, call="nvmlDeviceGetName"),),
    )
    evidence.take(Identity(device(0, "1b", id="GPU-0")))
    facts = node_facts(evidence)
    assert [found.fault for found in facts.accelerators] == [
        DeviceFault(kind="no-answer", call="nvmlDeviceGetName", error="no-answer"),
        DeviceFault(kind="no-answer"),
    ]
    assert facts.accelerators[0].id == "GPU-0"


@pytest.mark.parametrize(
    ("attempt", "reason", "words"),
    [
        (Attempt(ended="deadline", call="nvmlInit"), "NoAnswer", "nvmlInit did not return in time"),
        (Attempt(ended="crash", call="nvmlInit", signal=11), "ProbeCrashed", "nvmlInit with signal 11"),
        (Attempt(ended="crash", call="probe host", exit_status=2), "ProbeHostDied", "with status 2"),
        (Attempt(ended="not-started"), "ProbesStuck", "cannot even be killed"),
        (Attempt(ended="oversize"), "AnswerTooLarge", "more than 1 MiB"),
        (Attempt(ended="dropped"), "ProbeDropped", "the agent stops"),
    ],
)
def test_silence_says_what_was_waited_for(attempt, reason, words):
    facts = node_facts(Evidence(surroundings=seen(gpu()), attempts=(attempt,)))
    assert (facts.verdict, facts.reason) == ("no-answer", reason)
    assert words in facts.message


@pytest.mark.parametrize(
    ("error", "mender"),
    [
        ("no-permission", "whoever deploys this agent: the mig overlay"),
        ("in-use", "the operator of this node"),
    ],
)
def test_partitions_that_cannot_be_read_are_mended_by_whom_the_error_tells(error: str, mender: str):
    cut = device(
        0,
        bus="1b",
        mig=Mig(enabled=True, pending_enabled=True, partitions=None),
        problems=(FieldProblem(field="mig.partitions", error=error),),
    )
    found = opened(1, seen(gpu()), cut)
    assert found.reason == "MigNotReadable"
    assert f"({error}); {mender}" in found.message
