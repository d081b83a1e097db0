"""What the definitions accept and refuse, by the real server."""

from typing import Any

import pytest

from agent.cluster import ACCELERATOR_CLASSES, ACCELERATOR_NODES
from tests.cluster.client import Answer, path_of
from tests.cluster.control_plane import ControlPlane
from tests.deploy.conftest import accelerator_class

DEVICE: dict[str, Any] = {
    "id": "GPU-5c1b0d0e-0000-4000-8000-000000000001",
    "uuidWeak": False,
    "index": 0,
    "vendor": "nvidia",
    "product": "NVIDIA H100 80GB HBM3",
    "class": "nvidia-h100-80gb",
    "family": "hopper",
    "displayOnly": False,
    "virtual": False,
    "virtualization": "none",
    "pci": {
        "address": "0000:1b:00.0",
        "vendorID": "10de",
        "deviceID": "2330",
        "subsystemVendorID": "10de",
        "subsystemID": "16c1",
        "numaNode": 0,
    },
    "computeCapability": "9.0",
    "cores": 16896,
    "memoryBytes": 85520809984,
    "memoryBusBits": 5120,
    "unifiedMemory": False,
    "ecc": True,
    "clocks": {"memoryMHz": 2619, "smMHz": 1980, "boostMHz": 1980},
    "state": "degraded",
    "reasons": ["row-remap-pending"],
    "since": "2026-11-30T20:00:00Z",
    "fault": {"kind": "no-answer", "call": "nvmlDeviceGetMemoryInfo_v2", "error": "no-answer"},
    "problems": [{"field": "memory", "error": "timeout"}],
    "link": {
        "pcieGeneration": 5,
        "pcieGenerationMax": 5,
        "pcieWidth": 16,
        "pcieWidthMax": 16,
        "nvlinkActive": 18,
        "nvlinkTotal": 18,
        "nvlinkVersion": 4,
        "c2c": False,
    },
    "fabric": {
        "clusterUUID": "d0a6…",
        "clique": 1,
        "state": "completed",
        "status": 0,
        "healthMask": 4294967295,
    },
    "mig": {
        "mode": "enabled",
        "pending": "enabled",
        "notReadable": False,
        "instances": [
            {
                "id": "MIG-5c1b0d0e-0000-5000-8000-000000000001",
                "profile": "1c.3g.40gb",
                "class": "nvidia-h100-80gb-mig-1c.3g.40gb",
                "memoryBytes": 42278584320,
                "gpuInstance": 1,
                "computeInstance": 0,
                "multiprocessors": 16,
                "gpuSlices": 3,
                "computeSlices": 1,
            }
        ],
    },
}

WHOLE_SPEC: dict[str, Any] = {
    "agentVersion": "0.1.0",
    "simulated": True,
    "partial": True,
    "observedAt": "2026-11-30T20:00:00Z",
    "driver": {"name": "nvidia", "version": "580.95.05", "cudaVersion": "13.0"},
    "host": {"machine": "DGX H100", "kernel": "6.8.0", "memoryBytes": 2164195123200, "cpus": 224},
    "pci": [
        {
            "address": "0000:1b:00.0",
            "vendorID": "10de",
            "deviceID": "2330",
            "classCode": "030200",
            "driver": "vfio-pci",
        }
    ],
    "devices": [DEVICE],
    "classes": [{"name": "nvidia-h100-80gb", "resource": "nvidia.com/gpu", "total": 8, "usable": 7}],
}
CONDITION = {
    "type": "ProbeSucceeded",
    "status": "True",
    "reason": "AllDevicesRead",
    "message": "",
    "lastTransitionTime": "2026-11-30T20:00:00Z",
}
WHOLE_STATUS: dict[str, Any] = {
    "summary": {"classes": "nvidia-h100-80gb", "count": 8, "healthy": "7/8"},
    "conditions": [CONDITION],
}


def record_of(spec: dict[str, Any], status: dict[str, Any] | None = None) -> dict[str, Any]:
    body = {
        "apiVersion": ACCELERATOR_NODES.api_version,
        "kind": ACCELERATOR_NODES.kind,
        "metadata": {"name": "gpu-1"},
        "spec": spec,
    }
    return body | ({"status": status} if status is not None else {})


def device(**changes: Any) -> dict[str, Any]:
    return WHOLE_SPEC | {"devices": [{"id": "GPU-1", "vendor": "nvidia", "state": "ok"} | changes]}


def condition(**changes: Any) -> dict[str, Any]:
    return {"conditions": [CONDITION | changes]}


def test_a_whole_record_is_kept_as_it_is_in_one_write(fresh_cluster: ControlPlane) -> None:
    kept = fresh_cluster.admin.apply(
        ACCELERATOR_NODES, record_of(WHOLE_SPEC, WHOLE_STATUS), manager="accelerator-agent"
    )
    assert kept["spec"] == WHOLE_SPEC
    assert kept["status"] == WHOLE_STATUS


def test_the_columns_of_a_record_tell_what_a_person_asks_first(fresh_cluster: ControlPlane) -> None:
    fresh_cluster.admin.apply(ACCELERATOR_NODES, record_of(WHOLE_SPEC, WHOLE_STATUS))
    table = fresh_cluster.kubectl("get", "accnode").stdout.splitlines()
    assert table[0].split() == ["NAME", "CLASSES", "COUNT", "HEALTHY", "DRIVER", "OBSERVED"]
    assert table[1].split()[:5] == ["gpu-1", "nvidia-h100-80gb", "8", "7/8", "580.95.05"]


def test_kubectl_can_wait_for_a_condition_of_a_record(fresh_cluster: ControlPlane) -> None:
    fresh_cluster.admin.apply(ACCELERATOR_NODES, record_of(WHOLE_SPEC, WHOLE_STATUS))
    done = fresh_cluster.kubectl("wait", "--for=condition=ProbeSucceeded", "--timeout=5s", "accnode/gpu-1")
    assert done.stdout == "acceleratornode.accelerators.ome.io/gpu-1 condition met\n"


def refused_fields(answer: Answer) -> list[str]:
    """Return the fields that a refusal names; `<nil>` only says that rules were left unchecked."""
    return [cause["field"] for cause in answer.causes if cause["field"] != "<nil>"]


ACCEPTED_RECORDS = {
    "a node without accelerators": record_of({"agentVersion": "1"}),
    "64 devices": record_of(
        WHOLE_SPEC | {"devices": [device(id=f"GPU-{n}")["devices"][0] for n in range(64)]}
    ),
    "a state for each word": record_of(
        WHOLE_SPEC
        | {
            "devices": [
                device(id=word, state=word)["devices"][0]
                for word in ("ok", "degraded", "needs-reset", "failed", "lost", "unreadable")
            ]
        }
    ),
    "several conditions": record_of(
        WHOLE_SPEC, {"conditions": [CONDITION, CONDITION | {"type": "DriverReady", "status": "Unknown"}]}
    ),
    "a condition of a domain": record_of(WHOLE_SPEC, condition(type="example.com/Checked")),
}

REFUSED_RECORDS = {
    "no spec": (
        {
            "apiVersion": ACCELERATOR_NODES.api_version,
            "kind": ACCELERATOR_NODES.kind,
            "metadata": {"name": "a"},
        },
        "spec",
    ),
    "65 devices": (
        record_of(WHOLE_SPEC | {"devices": [device(id=f"GPU-{n}")["devices"][0] for n in range(65)]}),
        "spec.devices",
    ),
    "a device without an id": (record_of(device(id="")), "spec.devices[0].id"),
    "a state that is none": (record_of(device(state="fine")), "spec.devices[0].state"),
    "a vendor that is none": (record_of(device(vendor="acme")), "spec.devices[0].vendor"),
    "a capability without a minor": (
        record_of(device(computeCapability="9")),
        "spec.devices[0].computeCapability",
    ),
    "memory below nothing": (record_of(device(memoryBytes=-1)), "spec.devices[0].memoryBytes"),
    "memory in words": (record_of(device(memoryBytes="80Gi")), "spec.devices[0].memoryBytes"),
    "a PCI id in upper case": (record_of(device(pci={"vendorID": "10DE"})), "spec.devices[0].pci.vendorID"),
    "a mode that is none": (record_of(device(mig={"mode": "on"})), "spec.devices[0].mig.mode"),
    "a class without a count of the usable": (
        record_of(WHOLE_SPEC | {"classes": [{"name": "a", "total": 1}]}),
        "spec.classes[0].usable",
    ),
    "a time that is none": (record_of(WHOLE_SPEC | {"observedAt": "today"}), "spec.observedAt"),
    "a message of over 1 KiB": (
        record_of(WHOLE_SPEC, condition(message="m" * 1025)),
        "status.conditions[0].message",
    ),
    "a reason of two words": (
        record_of(WHOLE_SPEC, condition(reason="two words")),
        "status.conditions[0].reason",
    ),
    "a condition twice": (
        record_of(WHOLE_SPEC, {"conditions": [CONDITION, CONDITION]}),
        "status.conditions[1]",
    ),
}

ACCEPTED_CLASSES = {
    "empty capabilities and discovery": accelerator_class("a"),
    "without a spec": {"apiVersion": "ome.io/v1beta1", "kind": "AcceleratorClass", "metadata": {"name": "a"}},
    "memory as a whole number": accelerator_class("a", capabilities={"memoryGB": 80}),
    "memory in milli-units": accelerator_class("a", capabilities={"memoryGB": "85469849190400m"}),
    "a price": accelerator_class("a", cost={"perHour": "2210m", "tier": "high"}),
}

REFUSED_CLASSES = {
    "a spec without discovery": (accelerator_class("a", discovery=None), "spec.discovery"),
    "memory with a space": (
        accelerator_class("a", capabilities={"memoryGB": "80 Gi"}),
        "spec.capabilities.memoryGB",
    ),
    "a fraction of a TFLOPS": (
        accelerator_class("a", capabilities={"performance": {"fp16Tflops": 989.4}}),
        "spec.capabilities.performance.fp16Tflops",
    ),
    "a resource without a name": (
        accelerator_class("a", resources=[{"quantity": "1"}]),
        "spec.resources[0].name",
    ),
    "a selector of another type": (
        accelerator_class("a", discovery={"nodeSelector": {"a": True}}),
        "spec.discovery.nodeSelector.a",
    ),
}


@pytest.mark.parametrize("body", ACCEPTED_RECORDS.values(), ids=ACCEPTED_RECORDS)
def test_a_record_is_accepted(control_plane: ControlPlane, body: dict[str, Any]) -> None:
    answer = control_plane.admin.request("POST", path_of(ACCELERATOR_NODES), body, query={"dryRun": "All"})
    assert (answer.status, answer.message) == (201, "")


@pytest.mark.parametrize(("body", "field"), REFUSED_RECORDS.values(), ids=REFUSED_RECORDS)
def test_a_record_is_refused_for_the_field_that_is_wrong(
    control_plane: ControlPlane, body: dict[str, Any], field: str
) -> None:
    answer = control_plane.admin.request("POST", path_of(ACCELERATOR_NODES), body, query={"dryRun": "All"})
    assert (answer.status, refused_fields(answer)) == (422, [field])


@pytest.mark.parametrize("body", ACCEPTED_CLASSES.values(), ids=ACCEPTED_CLASSES)
def test_a_class_is_accepted(control_plane: ControlPlane, body: dict[str, Any]) -> None:
    answer = control_plane.admin.request("POST", path_of(ACCELERATOR_CLASSES), body, query={"dryRun": "All"})
    assert (answer.status, answer.message) == (201, "")


@pytest.mark.parametrize(("body", "field"), REFUSED_CLASSES.values(), ids=REFUSED_CLASSES)
def test_a_class_is_refused_for_the_field_that_is_wrong(
    control_plane: ControlPlane, body: dict[str, Any], field: str
) -> None:
    answer = control_plane.admin.request("POST", path_of(ACCELERATOR_CLASSES), body, query={"dryRun": "All"})
    assert (answer.status, refused_fields(answer)) == (422, [field])


def test_a_class_is_pruned_and_defaulted_as_ome_does(fresh_cluster: ControlPlane) -> None:
    body = accelerator_class(
        "nvidia-h100-80gb",
        capabilities={"memoryGB": "80Gi", "performance": {"fp16Tflops": 989, "fp8TFLOPS": 1979}},
        resources=[{"name": "nvidia.com/gpu"}],
    )
    kept = fresh_cluster.admin.create(ACCELERATOR_CLASSES, body)
    assert kept["spec"] == {
        "capabilities": {"memoryGB": "80Gi", "performance": {"fp16Tflops": 989}},
        "discovery": {},
        "resources": [{"name": "nvidia.com/gpu", "quantity": "1"}],
    }


def test_the_status_of_a_class_is_written_apart_from_its_spec(fresh_cluster: ControlPlane) -> None:
    admin = fresh_cluster.admin
    admin.create(ACCELERATOR_CLASSES, accelerator_class("a") | {"status": {"totalAccelerators": 1}})
    assert "status" not in admin.get(ACCELERATOR_CLASSES, "a")
    admin.patch(ACCELERATOR_CLASSES, "a", {"status": {"totalAccelerators": 8}}, subresource="status")
    assert admin.get(ACCELERATOR_CLASSES, "a")["status"] == {"totalAccelerators": 8}
