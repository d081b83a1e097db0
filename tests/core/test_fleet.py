"""Which changes of a cluster make a class worth computing again."""

import pytest

from agent.core.cluster_views import NodeView, record_view
from agent.core.fleet import Fleet

DOMAIN = "accelerators.ome.io"
CLASS = "nvidia-h100-80gb"


def record(observed, *, usable=8, uid="1"):
    return record_view(
        {
            "metadata": {"name": "n", "ownerReferences": [{"kind": "Node", "uid": uid}]},
            "spec": {
                "observedAt": observed,
                "devices": [{"id": "GPU-1", "index": 0, "vendor": "nvidia", "class": CLASS, "state": "ok"}],
                "classes": [{"name": CLASS, "resource": "nvidia.com/gpu", "total": 8, "usable": usable}],
            },
        },
        domain=DOMAIN,
    )


@pytest.fixture
def fleet():
    """A node whose record is of noon, computed at a moment for which records before 11:30 are stale."""
    fleet = Fleet()
    fleet.put_node(
        "n", NodeView(name="n", uid="1", ready=True, schedulable=True, allocatable={"nvidia.com/gpu": 8})
    )
    fleet.put_record("n", record("2026-11-30T12:00:00Z"))
    fleet.state(CLASS, stale_before=record("2026-11-30T11:30:00Z").observed_at)
    fleet.dirty.clear()
    return fleet


def test_a_record_that_is_only_renewed_in_time_costs_no_computing(fleet):
    fleet.put_record("n", record("2026-11-30T12:15:00Z"))
    assert fleet.dirty == set()
    # It counts from its new time all the same.
    late = record("2026-11-30T12:10:00Z").observed_at
    assert fleet.state(CLASS, stale_before=late).stale == ()


def test_a_renewed_record_that_says_more_than_its_time_is_computed(fleet):
    fleet.put_record("n", record("2026-11-30T12:15:00Z", usable=7))
    assert fleet.dirty == {CLASS}


def test_a_stale_record_that_is_renewed_counts_again_at_once(fleet):
    late = record("2026-11-30T12:40:00Z").observed_at
    assert fleet.state(CLASS, stale_before=late).stale == ("n",)
    fleet.put_record("n", record("2026-11-30T12:45:00Z"))
    assert fleet.dirty == {CLASS}


def test_a_record_that_is_renewed_with_an_old_time_is_computed(fleet):
    fleet.put_record("n", record("2026-11-30T11:00:00Z"))
    assert fleet.dirty == {CLASS}


def test_before_anything_was_computed_every_change_counts():
    fleet = Fleet()
    fleet.put_node("n", NodeView(name="n", uid="1", ready=True, schedulable=True, allocatable={}))
    fleet.put_record("n", record("2026-11-30T12:00:00Z"))
    fleet.dirty.clear()
    fleet.put_record("n", record("2026-11-30T12:15:00Z"))
    assert fleet.dirty == {CLASS}
