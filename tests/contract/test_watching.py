"""Watches, on the fake and on the real API server alike."""

import pytest

from agent.cluster import NODES, Gone
from fakes.cluster import FakeCluster
from tests.contract.definitions import WIDGETS, node, widget


def seen(events):
    return [
        (event.type, event.object.get("metadata", {}).get("name"))
        for event in events
        if event.type != "BOOKMARK"
    ]


def test_a_watch_from_a_list_tells_what_came_after_in_order(cluster):
    cluster.create(NODES, node("n1"), manager="m")
    _, version = cluster.list_all(NODES)
    cluster.create(NODES, node("n2"), manager="m")
    cluster.merge_patch(NODES, "n1", {"metadata": {"labels": {"a": "b"}}}, manager="m")
    cluster.delete(NODES, "n2")
    events = list(cluster.watch(NODES, resource_version=version, timeout_seconds=1))
    assert seen(events) == [("ADDED", "n2"), ("MODIFIED", "n1"), ("DELETED", "n2")]
    versions = [int(event.resource_version) for event in events]
    assert versions == sorted(versions)


def test_a_watch_ends_by_itself_when_its_time_is_over(cluster):
    cluster.create(NODES, node("n1"), manager="m")
    _, version = cluster.list_all(NODES)
    assert seen(cluster.watch(NODES, resource_version=version, timeout_seconds=1)) == []


def test_a_watch_list_tells_everything_then_that_it_is_complete(cluster):
    for name in ("n1", "n2"):
        cluster.create(NODES, node(name), manager="m")
    found = []
    for event in cluster.watch(NODES, resource_version=None, initial_events=True, timeout_seconds=5):
        found.append(event)
        if event.initial_end:
            break
    assert sorted(seen(found)) == [("ADDED", "n1"), ("ADDED", "n2")]
    assert found[-1].type == "BOOKMARK"
    assert found[-1].resource_version


def test_each_object_is_projected(cluster):
    _, version = cluster.list_all(WIDGETS)
    cluster.create(WIDGETS, widget(color="red"), manager="m")
    events = cluster.watch(
        WIDGETS,
        resource_version=version,
        project=lambda obj: {"color": obj["spec"]["color"]},
        timeout_seconds=2,
    )
    assert next(iter(events)).object == {"color": "red"}


def test_a_version_that_is_too_old_is_gone(cluster):
    if isinstance(cluster, FakeCluster):
        cluster.compact()  # the real server knows nothing of this kind from before its definition
    with pytest.raises(Gone):
        list(cluster.watch(WIDGETS, resource_version="1", timeout_seconds=2))


def test_the_last_state_of_a_deleted_object_comes_with_its_event(cluster):
    cluster.create(WIDGETS, widget(color="red"), manager="m")
    _, version = cluster.list_all(WIDGETS)
    cluster.delete(WIDGETS, "w")
    (event,) = (
        event
        for event in cluster.watch(WIDGETS, resource_version=version, timeout_seconds=1)
        if event.type == "DELETED"
    )
    assert event.object["spec"]["color"] == "red"
    assert int(event.resource_version) > int(version)
