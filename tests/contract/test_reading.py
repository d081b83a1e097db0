"""Gets and lists, on the fake and on the real API server alike."""

import pytest

from agent.cluster import LEASES, NODES, NotFound, Resource
from tests.contract.definitions import WIDGETS, lease, node, widget

UNKNOWN = Resource("nowhere.example.com", "v1", "things", "Thing")


def test_an_object_that_does_not_exist_is_none(cluster):
    assert cluster.get(NODES, "absent") is None
    assert cluster.get(WIDGETS, "absent") is None
    assert cluster.get(LEASES, "absent", namespace="default") is None
    assert cluster.get(LEASES, "absent", namespace="no-such-namespace") is None


def test_a_resource_type_that_is_not_installed_is_refused_whatever_is_asked(cluster):
    body = {"apiVersion": UNKNOWN.api_version, "kind": "Thing", "metadata": {"name": "x"}}
    asking = [
        lambda: cluster.get(UNKNOWN, "x"),
        lambda: cluster.list_all(UNKNOWN),
        lambda: cluster.delete(UNKNOWN, "x"),
        lambda: cluster.apply(UNKNOWN, body, manager="m"),
        lambda: next(iter(cluster.watch(UNKNOWN, resource_version="0", timeout_seconds=1))),
    ]
    for ask in asking:
        with pytest.raises(NotFound) as refused:
            ask()
        assert str(refused.value) == (
            "the API server knows no things of nowhere.example.com/v1: their definition is not installed, or does not "
            "serve that version"
        )


def test_an_object_is_read_as_it_was_written(cluster):
    written = cluster.create(NODES, node(labels={"a": "b"}), manager="m")
    assert cluster.get(NODES, "n1") == written
    assert cluster.get(NODES, "n1", cached=True)["metadata"]["uid"] == written["metadata"]["uid"]
    assert (written["kind"], written["apiVersion"]) == ("Node", "v1")


def test_a_list_holds_every_object_and_a_version(cluster):
    for name in ("n2", "n1", "n3"):
        cluster.create(NODES, node(name), manager="m")
    items, version = cluster.list_all(NODES)
    assert [item["metadata"]["name"] for item in items] == ["n1", "n2", "n3"]
    assert int(version) >= max(int(item["metadata"]["resourceVersion"]) for item in items)


def test_an_empty_list_is_a_list(cluster):
    assert cluster.list_all(WIDGETS)[0] == []


def test_items_of_a_built_in_kind_come_without_their_kind(cluster):
    cluster.create(NODES, node(), manager="m")
    cluster.create(WIDGETS, widget(), manager="m")
    assert "kind" not in cluster.list_all(NODES)[0][0]
    assert cluster.list_all(WIDGETS)[0][0]["kind"] == "Widget"


def test_a_projection_is_made_of_each_item(cluster):
    for name in ("n1", "n2"):
        cluster.create(NODES, node(name), manager="m")
    items, _ = cluster.list_all(NODES, project=lambda item: {"name": item["metadata"]["name"]})
    assert items == [{"name": "n1"}, {"name": "n2"}]


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        pytest.param("tier=gold", ["n1"], id="equal"),
        pytest.param("tier!=gold", ["n2", "n3"], id="not equal, absent too"),
        pytest.param("tier", ["n1", "n2"], id="present"),
        pytest.param("!tier", ["n3"], id="absent"),
        pytest.param("tier,zone=a", ["n2"], id="both"),
    ],
)
def test_a_label_selector_picks(cluster, selector, expected):
    for name, labels in (
        ("n1", {"tier": "gold"}),
        ("n2", {"tier": "tin", "zone": "a"}),
        ("n3", {"zone": "a"}),
    ):
        cluster.create(NODES, node(name, labels), manager="m")
    assert [n["metadata"]["name"] for n in cluster.list_all(NODES, label_selector=selector)[0]] == expected


def test_a_namespaced_list_is_of_its_namespace_or_of_all(cluster):
    cluster.create(LEASES, lease("l1"), manager="m")
    names = [item["metadata"]["name"] for item in cluster.list_all(LEASES, namespace="default")[0]]
    assert names == ["l1"]
    assert cluster.list_all(LEASES, namespace="kube-public")[0] == []
    assert "l1" in [item["metadata"]["name"] for item in cluster.list_all(LEASES)[0]]
