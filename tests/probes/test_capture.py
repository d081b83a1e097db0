"""A capture plays back what was captured: facts to a scenario, and through the binding to the same facts."""

import json
from dataclasses import replace

import pytest

from fakes import nodes
from fakes.scenario import Scenario
from probes.capture import scenario_of
from probes.facts import Accelerator, NodeFacts
from tests.probes.probing import facts, h100, machine
from tests.probes.test_nodes import VERDICTS


def unnamed(device: Accelerator) -> Accelerator:
    """Return the device without what a capture masks or cannot know."""
    parts = device.mig.partitions if device.mig else None
    mig = device.mig and replace(
        device.mig, partitions=parts and tuple(replace(part, id=None) for part in parts)
    )
    fabric = device.fabric and replace(device.fabric, cluster_uuid=device.fabric.cluster_uuid and "masked")
    return replace(device, id=device.id and "masked", mig=mig, fabric=fabric)


def comparable(found: NodeFacts) -> NodeFacts:
    return replace(found, accelerators=tuple(map(unnamed, found.accelerators)), message="")


def played_back(found: NodeFacts, tmp_path) -> NodeFacts:
    text = json.dumps(scenario_of(found))
    return facts(Scenario.from_yaml(text), tmp_path / "again")


@pytest.mark.parametrize("name", sorted(VERDICTS))
def test_a_capture_of_each_machine_plays_back_the_same_facts(name, tmp_path):
    found = facts(nodes.node(name), tmp_path / "first")
    again = played_back(found, tmp_path)
    assert (again.verdict, again.reason) == (found.verdict, found.reason)
    assert comparable(again) == comparable(found)


def test_a_capture_names_no_machine(tmp_path):
    found = facts(nodes.node("a100-80-mig"), tmp_path)
    text = json.dumps(scenario_of(found))
    uuids = [device.id for device in found.accelerators]
    uuids += [part.id for device in found.accelerators if device.mig for part in device.mig.partitions or ()]
    assert uuids
    assert [uuid for uuid in uuids if uuid and uuid in text] == []


@pytest.mark.parametrize("code", [4, 10, 19, 999])
@pytest.mark.parametrize(
    "function",
    [
        "nvmlDeviceGetUUID",
        "nvmlDeviceGetMemoryInfo*",
        "nvmlDeviceGetNvLinkState",
        "nvmlDeviceGetPersistenceMode",
    ],
)
def test_a_reading_that_failed_fails_again(function, code, tmp_path):
    failures = [{"function": function, "device": 1, "code": code}]
    found = facts(machine(h100(), h100(), failures=failures), tmp_path / "first")
    assert comparable(played_back(found, tmp_path)) == comparable(found)
