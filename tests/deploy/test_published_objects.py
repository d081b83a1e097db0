"""What `record` and `classes` print for every fake machine is what the server keeps: nothing refused, nothing pruned."""

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from agent.app import probe_command
from agent.cluster import ACCELERATOR_CLASSES, ACCELERATOR_NODES, Resource
from agent.commands.show import render
from agent.settings import Settings
from fakes.nodes import names
from probes.facts import NodeFacts
from probes.host_process import probe_once
from tests.cluster.client import APPLY, Answer, path_of
from tests.cluster.control_plane import ControlPlane

MACHINES = names()
SETTINGS = Settings()


@pytest.fixture(scope="module")
def probed() -> dict[str, NodeFacts]:
    """Machine → its facts; all at once, since most of the time is the start of processes."""

    def probe(name: str) -> NodeFacts:
        return probe_once(probe_command(SETTINGS, name), timeout_seconds=2.0, simulated=True)

    with ThreadPoolExecutor(3) as pool:
        return dict(zip(MACHINES, pool.map(probe, MACHINES), strict=True))


def printed(what: str, facts: NodeFacts) -> list[dict[str, Any]]:
    """Return the objects that a command prints."""
    body = json.loads(render(what, facts, SETTINGS, output="json", width=80))
    found: list[dict[str, Any]] = body["items"] if body["kind"] == "List" else [body]
    return found


def applied(plane: ControlPlane, resource: Resource, body: dict[str, Any]) -> Answer:
    """Return the answer to a dry run of an apply."""
    query = {"fieldManager": "accelerator-agent", "force": True, "dryRun": "All"}
    path = path_of(resource, body["metadata"]["name"])
    return plane.admin.request("PATCH", path, body, content_type=APPLY, query=query)


@pytest.mark.parametrize("machine", MACHINES)
def test_the_record_is_kept_whole(
    control_plane: ControlPlane, probed: dict[str, NodeFacts], machine: str
) -> None:
    (body,) = printed("record", probed[machine])
    answer = applied(control_plane, ACCELERATOR_NODES, body)
    assert answer.status in {200, 201}, answer.message
    assert {part: answer.body[part] for part in ("spec", "status")} == {
        part: body[part] for part in ("spec", "status")
    }


@pytest.mark.parametrize("machine", MACHINES)
def test_the_classes_are_kept_whole(
    control_plane: ControlPlane, probed: dict[str, NodeFacts], machine: str
) -> None:
    for body in printed("classes", probed[machine]):
        answer = applied(control_plane, ACCELERATOR_CLASSES, body)
        assert answer.status in {200, 201}, answer.message
        assert answer.body["spec"] == body["spec"]


def test_every_machine_that_could_be_asked_and_has_accelerators_has_classes(
    probed: dict[str, NodeFacts],
) -> None:
    with_devices = {name for name, facts in probed.items() if facts.asked and facts.accelerators}
    assert len(with_devices) > 25
    assert [name for name in with_devices if not printed("classes", probed[name])] == []
