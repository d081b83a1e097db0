"""A Node whose `managedFields` were wiped: the agent's labels become its own again, and nobody else's are touched."""

from agent.cluster import NODES
from agent.core.ownership import LABELS, owners
from agent.node_publish import apply_labels
from tests.contract.definitions import node

DOMAIN = "accelerators.ome.io"
CLASS, COUNT, OLD = f"{DOMAIN}/class", f"{DOMAIN}/count", f"{DOMAIN}/old"


def publish(cluster, desired):
    """Bring the Node's labels up to date as a pass does; return what it came to and the labels that are then there."""
    result = apply_labels(cluster, cluster.get(NODES, "n1"), desired, domains=(DOMAIN,))
    return result.published, cluster.get(NODES, "n1")["metadata"]["labels"]


def test_labels_of_a_node_whose_owners_were_wiped_are_taken_back(cluster):
    cluster.create(NODES, node(labels={"team": "a"}), manager="kubectl")
    publish(cluster, {CLASS: "a", COUNT: "8", OLD: "x"})
    wiped = cluster.get(NODES, "n1")
    wiped["metadata"]["managedFields"] = [{}]
    cluster.replace(NODES, wiped, manager="somebody")

    published, labels = publish(cluster, {CLASS: "a", COUNT: "7"})
    assert (published.written, published.reason, published.rivals) == (True, "Written", {})
    assert labels.items() >= {"team": "a", CLASS: "a", COUNT: "7"}.items()
    assert OLD not in labels
    # Beside the owner that the server invents an agent could never change them: it may not touch another's entry.
    for key in (CLASS, COUNT):
        assert owners(cluster.get(NODES, "n1"), (*LABELS, key)) == ("accelerator-agent",)

    published, labels = publish(cluster, {CLASS: "a", COUNT: "7"})
    assert published.written is False
    published, labels = publish(cluster, {CLASS: "b", COUNT: "7"})
    assert published.reason == "Written"
    assert labels.items() >= {"team": "a", CLASS: "b", COUNT: "7"}.items()
    published, labels = publish(cluster, {})
    assert published.reason == "Written"
    assert labels["team"] == "a"
    assert labels.keys().isdisjoint({CLASS, COUNT, OLD})
