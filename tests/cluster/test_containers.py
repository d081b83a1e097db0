"""How the stand-in for the kubelet reads a container's specification."""

from typing import Any

import pytest

from tests.cluster.containers import ContainerConfigError, command_of, environment_of

POD: dict[str, Any] = {
    "metadata": {"name": "agent-x", "namespace": "ns", "uid": "u-1", "labels": {"app/name": "agent"}},
    "spec": {"nodeName": "gpu-1", "serviceAccountName": "accelerator-agent"},
}


def field(path: str) -> dict[str, Any]:
    return {"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": path}}}]}


VALUES = {
    "a literal": ({"env": [{"name": "A", "value": "b"}]}, {"A": "b"}),
    "nothing": ({"env": [{"name": "A"}]}, {"A": ""}),
    "an earlier variable": (
        {"env": [{"name": "A", "value": "b"}, {"name": "C", "value": "$(A)/$(NONE)"}]},
        {"A": "b", "C": "b/$(NONE)"},
    ),
    "the node": (field("spec.nodeName"), {"A": "gpu-1"}),
    "the name": (field("metadata.name"), {"A": "agent-x"}),
    "the namespace": (field("metadata.namespace"), {"A": "ns"}),
    "the account": (field("spec.serviceAccountName"), {"A": "accelerator-agent"}),
    "the address": (field("status.podIP"), {"A": "127.0.1.2"}),
    "a label": (field("metadata.labels['app/name']"), {"A": "agent"}),
    "an annotation that is absent": (field("metadata.annotations['a']"), {"A": ""}),
}


@pytest.mark.parametrize(("container", "expected"), VALUES.values(), ids=VALUES)
def test_a_variable_is_resolved(container: dict[str, Any], expected: dict[str, str]) -> None:
    assert environment_of(POD, container, ip="127.0.1.2") == expected


UNKNOWN = {
    "a field": field("status.startTime"),
    "a secret": {"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]},
    "a whole config map": {"envFrom": [{"configMapRef": {"name": "c"}}]},
}


@pytest.mark.parametrize("container", UNKNOWN.values(), ids=UNKNOWN)
def test_what_is_not_stood_in_for_is_refused_and_not_left_empty(container: dict[str, Any]) -> None:
    with pytest.raises(ContainerConfigError, match="is not stood in for"):
        environment_of(POD, container, ip="127.0.1.2")


def test_the_command_is_the_containers_own_with_its_arguments() -> None:
    container = {"command": ["accelerator-agent", "node"], "args": ["--node-name", "$(A)"]}
    assert command_of(container, {"A": "gpu-1"}) == ["accelerator-agent", "node", "--node-name", "gpu-1"]


def test_a_container_without_a_command_is_refused() -> None:
    with pytest.raises(ContainerConfigError, match="must name its command"):
        command_of({"image": "a"}, {})
