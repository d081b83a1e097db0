"""The record of a node: bounded, dated, and kept when a probe fails."""

from dataclasses import replace
from datetime import timedelta

import pytest

from agent.core.health import Assessment, Track
from agent.core.inventory import inventory_of
from agent.core.record import (
    CONDITION_TYPES,
    MAX_DEVICES,
    MAX_PARTITIONS,
    NodeIdentity,
    record_after_failure,
    record_for,
)
from agent.core.recorded import accelerator_of, facts_of, state_of
from probes.facts import Driver, Fabric, FieldProblem, Health, Host, Link, Mig, PciFunction
from tests.hardware import (
    GIB,
    START,
    could_not_ask,
    facts,
    failed,
    fake_facts,
    h100,
    inventory,
    mig,
    on_the_bus,
    pci,
    readable_nodes,
    t4,
    unread,
)

NODE = NodeIdentity(name="gpu-1", uid="u-1")


def record(*accelerators, previous=None, now=START, **fields):
    return record_for(
        inventory(*accelerators, **fields), NODE, now=now, agent_version="0.1.0", previous=previous
    )


def conditions(record_):
    return {entry["type"]: entry for entry in record_["status"]["conditions"]}


def test_the_record_of_one_gpu():
    full = h100(
        cores=16896,
        memory_bus_bits=5120,
        memory_clock_max_mhz=2619,
        sm_clock_max_mhz=1980,
        boost_clock_mhz=1980,
        virtualization="none",
        health=Health(ecc_enabled=True),
        link=Link(pcie_generation=1, pcie_generation_max=5, pcie_width=16, nvlink_active=18, nvlink_total=18),
        fabric=Fabric(state="completed", status=0),
        pci=pci("2330", subsystem_vendor_id="10de", subsystem_id="16c1", numa_node=0),
    )
    host = Host(machine="DGX H100", kernel="6.8.0", memory_bytes=2164195123200, cpus=224)
    found = record(full, host=host)
    assert found == {
        "apiVersion": "accelerators.ome.io/v1alpha1",
        "kind": "AcceleratorNode",
        "metadata": {
            "name": "gpu-1",
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "gpu-1", "uid": "u-1"}],
        },
        "spec": {
            "agentVersion": "0.1.0",
            "observedAt": "2026-11-30T20:00:00Z",
            "driver": {"name": "nvidia", "version": "580.95.05", "cudaVersion": "13.0"},
            "host": {"machine": "DGX H100", "kernel": "6.8.0", "memoryBytes": 2164195123200, "cpus": 224},
            "devices": [
                {
                    "id": "GPU-h100-0",
                    "index": 0,
                    "vendor": "nvidia",
                    "product": "NVIDIA H100 80GB HBM3",
                    "class": "nvidia-h100-80gb",
                    "family": "hopper",
                    "pci": {
                        "address": "0000:10:00.0",
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
                    "clocks": {"memoryMHz": 2619, "smMHz": 1980, "boostMHz": 1980},
                    "unifiedMemory": False,
                    "virtual": False,
                    "virtualization": "none",
                    "ecc": True,
                    "state": "ok",
                    "link": {"pcieGeneration": 5, "pcieWidth": 16, "nvlinkActive": 18, "nvlinkTotal": 18},
                    "fabric": {"state": "completed", "status": 0},
                }
            ],
            "classes": [{"name": "nvidia-h100-80gb", "resource": "nvidia.com/gpu", "total": 1, "usable": 1}],
        },
        "status": {
            "summary": {"classes": "nvidia-h100-80gb", "count": 1, "healthy": "1/1"},
            "conditions": found["status"]["conditions"],
        },
    }
    assert [entry["type"] for entry in found["status"]["conditions"]] == list(CONDITION_TYPES)
    assert {entry["status"] for entry in found["status"]["conditions"]} == {"True"}


def test_an_empty_node_has_no_lists_at_all():
    found = record()
    assert found["spec"].keys() == {"agentVersion", "observedAt", "driver"}
    assert found["status"]["summary"] == {"classes": "none", "count": 0, "healthy": "0/0"}


def test_a_printed_record_has_no_owner():
    found = record_for(inventory(h100()), NodeIdentity(name="x"), now=START, agent_version="0.1.0")
    assert found["metadata"] == {"name": "x"}


def test_fr_137_made_up_hardware_is_marked_also_after_a_failure():
    assert record(h100(), simulated=True)["spec"]["simulated"] is True
    assert "simulated" not in record(h100())["spec"]
    first = record_after_failure(
        could_not_ask(simulated=True), NODE, now=START, agent_version="0.1.0", previous={}
    )
    assert first["spec"] == {"agentVersion": "0.1.0", "simulated": True}


def test_lists_and_texts_are_bounded():
    many = [
        h100(n, id=f"GPU-{n:03}", product="x" * 5000, mig=mig(*["1g.10gb"] * 20), pci=pci(slot=n))
        for n in range(100)
    ]
    many[0] = replace(
        many[0], problems=tuple(FieldProblem(field=f"f{n}", error="unknown") for n in range(500))
    )
    bus = tuple(
        PciFunction(identity=pci("ffff", slot=n), class_code="030200", driver="x") for n in range(200, 400)
    )
    found = record(
        *many,
        pci=bus,
        host=Host(machine="m" * 5000, kernel="k" * 5000),
        drivers=(Driver(name="nvidia", version="v" * 5000),),
    )
    devices = found["spec"]["devices"]
    assert len(devices) == MAX_DEVICES
    assert sum(len(device["mig"].get("instances", [])) for device in devices) == MAX_PARTITIONS
    assert len(found["spec"]["pci"]) <= 256
    assert max(len(device["product"]) for device in devices) <= 256
    assert len(devices[0]["problems"]) == 64
    assert len(found["spec"]["host"]["machine"]) <= 256
    assert len(found["spec"]["driver"]["version"]) <= 63


def test_a_message_is_cut_at_one_kibibyte():
    found = record(*(failed(h100(n)) for n in range(64)), message="ä" * 5000)
    messages = [entry["message"].encode() for entry in found["status"]["conditions"]]
    assert max(len(message) for message in messages) <= 1024
    assert conditions(found)["ProbeSucceeded"]["message"].endswith("…")


def test_a_lost_device_keeps_its_identity_and_names_its_fault():
    found = record(h100(0), failed(h100(1)))
    device = found["spec"]["devices"][1]
    assert (device["id"], device["product"], device["state"], device["reasons"], device["fault"]) == (
        "GPU-h100-1",
        "NVIDIA H100 80GB HBM3",
        "lost",
        ["gpu-lost"],
        {"kind": "lost"},
    )
    assert found["spec"]["partial"] is True
    assert found["status"]["summary"] == {"classes": "nvidia-h100-80gb", "count": 2, "healthy": "1/2"}
    unhealthy = conditions(found)["AllDevicesHealthy"]
    assert (unhealthy["status"], unhealthy["reason"]) == ("False", "UnhealthyDevices")
    assert unhealthy["message"] == "GPU-h100-1 (index 1) is lost: gpu-lost"
    assert conditions(found)["InventoryComplete"]["status"] == "False"


def test_fr_073_partitions_that_may_not_be_read_are_told_with_the_mend():
    found = record(h100(mig=Mig(enabled=True, pending_enabled=True, partitions=None)))
    assert found["spec"]["devices"][0]["mig"] == {
        "mode": "enabled",
        "pending": "enabled",
        "notReadable": True,
    }
    told = conditions(found)["InventoryComplete"]
    assert (told["status"], told["reason"]) == ("False", "MigNotReadable")
    assert "CAP_SYS_ADMIN" in told["message"]
    assert "GPU-h100-0" in told["message"]


def test_what_only_the_bus_shows_is_listed_apart():
    stray = on_the_bus(t4(5), driver="vfio-pci")
    found = record(h100(), pci=(*on_the_bus(h100()), *stray))
    assert found["spec"]["pci"] == [
        {
            "address": "0000:15:00.0",
            "vendorID": "10de",
            "deviceID": "1eb8",
            "driver": "vfio-pci",
            "classCode": "030200",
        }
    ]


# --- time

LATER = START + timedelta(hours=1)


def test_a_condition_that_does_not_change_keeps_its_time():
    before = record(h100())
    after = record(failed(h100()), previous=before, now=LATER)
    times = {name: entry["lastTransitionTime"] for name, entry in conditions(after).items()}
    assert times == {
        "ProbeSucceeded": "2026-11-30T20:00:00Z",
        "DriverReady": "2026-11-30T20:00:00Z",
        "AllDevicesHealthy": "2026-11-30T21:00:00Z",
        "InventoryComplete": "2026-11-30T21:00:00Z",
    }


def _judged(since, state="ok"):
    history = {"GPU-h100-0": Track(assessment=Assessment(state=state, since=since))}
    return inventory_of(facts(h100()), history=history)


def test_a_restart_of_the_agent_is_no_change_of_state():
    first = record_for(_judged(START), NODE, now=START, agent_version="1")
    same = record_for(_judged(LATER), NODE, now=LATER, agent_version="1", previous=first)
    worse = record_for(_judged(LATER, "degraded"), NODE, now=LATER, agent_version="1", previous=first)
    assert [one["spec"]["devices"][0]["since"] for one in (first, same, worse)] == [
        "2026-11-30T20:00:00Z",
        "2026-11-30T20:00:00Z",
        "2026-11-30T21:00:00Z",
    ]


# --- failure


def test_fr_004_a_probe_that_could_not_ask_keeps_the_devices_and_says_so():
    before = record(h100(0), h100(1))
    after = record_after_failure(could_not_ask(), NODE, now=LATER, agent_version="0.2.0", previous=before)
    assert after["spec"] == {**before["spec"], "agentVersion": "0.2.0"}
    assert after["status"]["summary"] == before["status"]["summary"]
    told = conditions(after)
    assert {
        name: (entry["status"], entry["reason"], entry["lastTransitionTime"]) for name, entry in told.items()
    } == {
        "ProbeSucceeded": ("False", "NoAnswer", "2026-11-30T21:00:00Z"),
        "DriverReady": ("Unknown", "NoAnswer", "2026-11-30T21:00:00Z"),
        "AllDevicesHealthy": ("True", "AllHealthy", "2026-11-30T20:00:00Z"),
        "InventoryComplete": ("True", "AllDevicesRead", "2026-11-30T20:00:00Z"),
    }


def test_fr_004_a_missing_driver_is_told_as_such():
    after = record_after_failure(
        could_not_ask("no-driver", "DriverNotLoaded"), NODE, now=START, agent_version="1", previous={}
    )
    assert {name: entry["status"] for name, entry in conditions(after).items()} == {
        "ProbeSucceeded": "False",
        "DriverReady": "False",
    }
    assert "devices" not in after["spec"]


def test_two_failures_in_a_row_say_the_same():
    first = record_after_failure(could_not_ask(), NODE, now=START, agent_version="1", previous=record(h100()))
    again = record_after_failure(could_not_ask(), NODE, now=LATER, agent_version="1", previous=first)
    assert again == first


# --- read back


@pytest.mark.parametrize("name", readable_nodes())
def test_a_record_read_back_describes_the_same_devices(name):
    inventory_ = inventory_of(fake_facts(name))
    written = record_for(inventory_, NODE, now=START, agent_version="1")
    again = record_for(inventory_of(facts_of(written)), NODE, now=START, agent_version="1")
    assert [_identity(device) for device in again["spec"].get("devices", ())] == [
        _identity(device) for device in written["spec"].get("devices", ())
    ]


def _identity(device):
    """What a record says of a device but for the readings that it does not carry."""
    return {key: value for key, value in device.items() if key not in {"state", "reasons", "problems"}}


def test_a_record_without_a_spec_has_no_devices():
    assert facts_of({}).accelerators == facts_of({"spec": None}).accelerators == ()


def test_a_device_without_a_full_place_has_none():
    assert accelerator_of({"id": "x", "vendor": "nvidia", "state": "ok", "pci": {"address": "0"}}).pci is None


@pytest.mark.parametrize(
    ("word", "state"), [("ok", "ok"), ("needs-reset", "needs-reset"), ("?", "unreadable")]
)
def test_a_state_that_is_not_known_is_not_usable(word, state):
    assert state_of({"state": word}) == state


def test_a_device_that_told_nothing_has_an_entry_of_its_own():
    [entry] = record(unread(4))["spec"]["devices"]
    assert (entry["id"], entry["uuidWeak"], entry["state"]) == ("index-4", True, "lost")
    assert "class" not in entry


def test_memory_is_in_bytes():
    assert record(h100(memory_bytes=80 * GIB))["spec"]["devices"][0]["memoryBytes"] == 80 * GIB
