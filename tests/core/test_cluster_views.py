"""What counts of a Node, a Pod and a record."""

import pytest

from agent.core.cluster_views import NodeView, PodView, node_view, pod_requests, pod_view, record_view

GPU = "nvidia.com/gpu"


def container(count=None, *, limit=None, **fields):
    resources = {}
    if count is not None:
        resources["requests"] = {GPU: str(count), "cpu": "1"}
    if limit is not None:
        resources["limits"] = {GPU: str(limit)}
    return {"name": "c", "resources": resources, **fields}


SIDECAR = {"restartPolicy": "Always"}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param({"containers": [container(1), container(2)]}, {GPU: 3}, id="containers add up"),
        pytest.param({"containers": [container(limit=2)]}, {GPU: 2}, id="a limit is a request"),
        pytest.param({"containers": [container()]}, {}, id="nothing is asked for"),
        pytest.param({"containers": [container(0)]}, {}, id="zero is nothing"),
        pytest.param(
            {"containers": [container(1)], "initContainers": [container(4), container(2)]},
            {GPU: 4},
            id="the largest init container, one after the other",
        ),
        pytest.param(
            {"containers": [container(3)], "initContainers": [container(2)]},
            {GPU: 3},
            id="an init container that needs less",
        ),
        pytest.param(
            {"containers": [container(1)], "initContainers": [container(2, **SIDECAR), container(1)]},
            {GPU: 3},
            id="a sidecar stays beside what comes after it",
        ),
        pytest.param(
            {"containers": [container(1)], "initContainers": [container(4), container(2, **SIDECAR)]},
            {GPU: 4},
            id="an init container before the sidecar",
        ),
        pytest.param(
            {"containers": [container(1)], "initContainers": [container(2, **SIDECAR), container(4)]},
            {GPU: 6},
            id="an init container after the sidecar",
        ),
        pytest.param(
            {"containers": [container(1)], "overhead": {GPU: "1", "cpu": "1"}}, {GPU: 2}, id="overhead"
        ),
        pytest.param(
            {"containers": [{"resources": {"requests": {GPU: "1", "nvidia.com/mig-1g.10gb": "2"}}}]},
            {GPU: 1, "nvidia.com/mig-1g.10gb": 2},
            id="two resources",
        ),
    ],
)
def test_a_pod_takes_what_the_scheduler_counts(spec, expected):
    assert pod_requests(spec) == expected


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        pytest.param({"spec": {"nodeName": "n1"}}, PodView(node="n1", requests={GPU: 1}), id="running"),
        pytest.param({"spec": {}}, None, id="not placed yet"),
        pytest.param({"spec": {"nodeName": "n1"}, "status": {"phase": "Succeeded"}}, None, id="succeeded"),
        pytest.param({"spec": {"nodeName": "n1"}, "status": {"phase": "Failed"}}, None, id="failed"),
        pytest.param(
            {"metadata": {"deletionTimestamp": "x"}, "spec": {"nodeName": "n1"}},
            PodView(node="n1", requests={GPU: 1}),
            id="being deleted but not gone",
        ),
    ],
)
def test_a_pod_counts_while_it_is_on_a_node_and_not_over(pod, expected):
    pod["spec"]["containers"] = [container(1)]
    assert pod_view(pod) == expected


def test_a_pod_without_extended_resources_is_of_no_interest():
    assert (
        pod_view({"spec": {"nodeName": "n1", "containers": [{"resources": {"requests": {"cpu": "1"}}}]}})
        is None
    )


def test_a_node_keeps_only_what_decides_availability():
    node = {
        "metadata": {"name": "n1", "uid": "u", "labels": {"a": "b"}},
        "spec": {"unschedulable": True},
        "status": {
            "images": [{"names": ["x"]}],
            "allocatable": {"cpu": "64", GPU: "8", "hugepages-2Mi": "0"},
            "conditions": [
                {"type": "Ready", "status": "Unknown"},
                {"type": "DiskPressure", "status": "True"},
            ],
        },
    }
    assert node_view(node) == NodeView(
        name="n1", uid="u", ready=False, schedulable=False, allocatable={GPU: 8}
    )


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"devices": ["x"]}, id="a device that is a text"),
        pytest.param({"classes": [{"name": "a"}]}, id="a class without counts"),
        pytest.param({"observedAt": "yesterday"}, id="a time that is none"),
        pytest.param({"classes": [{"name": "a", "total": "many", "usable": 1}]}, id="a count that is a word"),
    ],
)
def test_a_record_that_cannot_be_understood_counts_nothing_and_says_why(spec):
    view = record_view({"metadata": {"name": "n1"}, "spec": spec}, domain="accelerators.ome.io")
    assert view.problem is not None
    assert (view.name, view.classes) == ("n1", ())
