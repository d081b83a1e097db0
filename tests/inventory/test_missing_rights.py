"""A controller that may not do one of the things that it does: the rest goes on, nothing is emptied, and it is said."""

import pytest

from agent.cluster import Forbidden
from tests.inventory.hardware import H100, h100
from tests.inventory.scene import Scene

EIGHT = [h100(index) for index in range(8)]
RIGHTS = [
    ("get", "acceleratorclasses"),
    ("apply", "acceleratorclasses"),
    ("apply", "acceleratorclasses/status"),
    ("create", "events"),
    ("get", "customresourcedefinitions"),
]


@pytest.fixture
def calm(fake, clock):
    """A class that is right, before a right is taken away."""
    scene = Scene(fake, clock=clock)
    scene.node("n1", EIGHT)
    scene.settle()
    assert scene.figures(H100) == (8, 8)
    return scene


@pytest.mark.parametrize(("verb", "resource"), RIGHTS, ids=[" ".join(right) for right in RIGHTS])
def test_fr_105_a_right_that_is_missing_costs_its_own_part_and_passes(calm, verb, resource):
    kind, _, subresource = resource.partition("/")
    message = f'{kind} is forbidden: User "x" cannot {verb} resource "{resource}" at the cluster scope'

    def refuse(call):
        asked = (call.verb, call.resource, call.subresource or "")
        return Forbidden(message) if asked == (verb, kind, subresource) else None

    calm.cluster.fault = refuse
    before = calm.live(H100) if verb != "get" or kind != "acceleratorclasses" else None
    calm.node("n2", [h100(9)])
    calm.settle(seconds=400.0, turns=3)
    calm.cluster.fault = lambda _call: None
    during = calm.figures(H100)
    assert during in {(8, 8), (9, 9)}
    if before is not None:
        assert calm.live(H100)["spec"] == before["spec"]
    calm.write_record("n1", EIGHT)
    calm.write_record("n2", [h100(9)])
    calm.settle(seconds=400.0, turns=3)
    assert calm.figures(H100) == (9, 9)


def test_fr_105_a_refused_write_is_counted_with_its_reason_and_tried_ever_later(calm, caplog):
    message = 'acceleratorclasses.ome.io "x" is forbidden: User "x" cannot patch resource "acceleratorclasses/status"'
    calm.cluster.fault = lambda call: Forbidden(message) if call.subresource == "status" else None
    calm.node("n2", [h100(9)])
    calm.cluster.calls.clear()
    for _ in range(60):
        calm.turn(after=10.0)
    writes = [call for call in calm.cluster.calls if call.subresource == "status"]
    assert 4 <= len(writes) <= 12
    report = calm.controller.report()
    assert report.failures[("class", "Forbidden")] == len(writes)
    assert "cannot patch resource" in caplog.text


def test_a_moment_without_the_right_to_read_pods_changes_nothing_and_a_minute_makes_availability_unknown(
    calm,
):
    calm.pod("p1", "n1", 3)
    calm.settle()
    before = calm.versions()
    refusal = Forbidden('pods is forbidden: User "x" cannot list resource "pods"')
    calm.cluster.fault = lambda call: refusal if call.resource == "pods" else None
    calm.settle(seconds=10.0, turns=4)
    assert calm.figures(H100) == (8, 5)
    calm.settle(seconds=30.0, turns=3)
    assert calm.figures(H100) == (8, None)
    calm.cluster.fault = lambda _call: None
    calm.settle(seconds=31.0)
    assert calm.figures(H100) == (8, 5)
    assert calm.versions() != before
