"""The overlays and components: a server takes them, and what each needs beyond the level restricted is documented."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent.cluster import NAMESPACES, PODS
from tests.cluster.client import path_of
from tests.cluster.control_plane import ControlPlane
from tests.cluster.objects import DAEMONSET_FOLDER, NAMESPACE, eventually, make_account
from tests.deploy.foreign import install_foreign_definitions
from tests.docs.test_tables import rows_of

OVERLAYS = {path.name: path for path in sorted((DAEMONSET_FOLDER / "overlays").iterdir())}
COMPONENTS = sorted(path.name for path in (DAEMONSET_FOLDER / "components").iterdir())
STRICT = "strict"

Object = dict[str, Any]


@pytest.fixture(scope="module")
def plane(new_control_plane: Callable[..., ControlPlane]) -> Iterator[ControlPlane]:
    """A cluster that knows the kinds of others, and a namespace of the level restricted."""
    plane = new_control_plane()
    install_foreign_definitions(plane.admin)
    enforced = {"pod-security.kubernetes.io/enforce": "restricted"}
    metadata = {"name": STRICT, "labels": enforced}
    plane.admin.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    for account in ("accelerator-agent", "accelerator-inventory"):
        make_account(plane.admin, account, namespace=STRICT)
    plane.kubectl("apply", "-f", str(DAEMONSET_FOLDER / "base" / "priority.yaml"))
    for name in ("nvidia", "accelerator-agent-nvidia"):
        body = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": name}}
        plane.admin.create("/apis/node.k8s.io/v1/runtimeclasses", body | {"handler": "nvidia"})
    yield plane
    plane.stop()


def render(plane: ControlPlane, folder: Path) -> list[Object]:
    """Return the objects of a kustomization."""
    return list(yaml.load_all(plane.kubectl("kustomize", str(folder)).stdout, Loader=yaml.CSafeLoader))


def with_component(tmp_path: Path, component: str, overlay: str = "") -> Path:
    """Write the kustomization of who adds a component to the base, or to an overlay."""
    base = OVERLAYS[overlay] if overlay else DAEMONSET_FOLDER
    up = Path(*[".."] * len(tmp_path.resolve().parts[1:]))

    def reached(folder: Path) -> str:
        return str(up / folder.relative_to("/"))

    body = {
        "resources": [reached(base)],
        "components": [reached(DAEMONSET_FOLDER / "components" / component)],
    }
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(body))
    return tmp_path


def accepted(plane: ControlPlane, objects: list[Object]) -> None:
    """Apply for real, since a dry run into a namespace that is not there is refused."""
    text = yaml.safe_dump_all(objects)
    done = plane.kubectl("apply", "--server-side", "--validate=strict", "-f", "-", stdin=text)
    assert done.stderr == ""
    assert len(done.stdout.splitlines()) == len(objects)


@pytest.mark.parametrize("component", COMPONENTS)
def test_the_server_takes_the_base_with_a_component(
    plane: ControlPlane, tmp_path: Path, component: str
) -> None:
    accepted(plane, render(plane, with_component(tmp_path, component)))


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_server_takes_the_overlay(plane: ControlPlane, overlay: str) -> None:
    accepted(plane, render(plane, OVERLAYS[overlay]))


def test_openshift_allows_the_pods_exactly_what_they_ask_for(plane: ControlPlane) -> None:
    objects = render(plane, OVERLAYS["openshift"])
    (allowed,) = (body for body in objects if body["kind"] == "SecurityContextConstraints")
    pods = {f"system:serviceaccount:{NAMESPACE}:{pod['serviceAccountName']}": pod for pod in pods_of(objects)}
    assert set(allowed["users"]) == set(pods)
    for pod in pods.values():
        (container,) = pod["containers"]
        assert pod["securityContext"]["runAsUser"] == allowed["runAsUser"]["uid"]
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": allowed["allowPrivilegeEscalation"],
            "readOnlyRootFilesystem": allowed["readOnlyRootFilesystem"],
            "capabilities": {"drop": allowed["requiredDropCapabilities"]},
        }
        assert pod.get("volumes", []) == []


def pods_of(objects: list[Object]) -> list[Object]:
    return [
        body["spec"]["template"]["spec"] for body in objects if body["kind"] in {"DaemonSet", "Deployment"}
    ]


def violations(plane: ControlPlane, pod: Object) -> set[str]:
    """Return what the server says that a Pod is beyond the level restricted, each by its first words."""
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "tried"}, "spec": pod}
    answer = plane.admin.request("POST", path_of(PODS, namespace=STRICT), body, query={"dryRun": "All"})
    if answer.status == 201:
        return set()
    _, found, told = answer.message.partition('violates PodSecurity "restricted:latest": ')
    assert found, answer.message
    return set(re.findall(r"(?:^|\), )([A-Za-z ]+?)(?: != \w+)? \(", told))


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_pods_are_restricted_but_for_what_is_documented(plane: ControlPlane, overlay: str) -> None:
    documented = {
        word.strip("` ")
        for row in rows_of("security.md", "overlay")
        if row[0].strip("`") == overlay
        for word in row[1].split(",")
    }
    found = {word for pod in pods_of(render(plane, OVERLAYS[overlay])) for word in violations(plane, pod)}
    assert found == documented


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_namespace_is_as_strict_as_the_pods_let_it(plane: ControlPlane, overlay: str) -> None:
    objects = render(plane, OVERLAYS[overlay])
    (namespace,) = (body for body in objects if body["kind"] == "Namespace")
    beyond = any(violations(plane, pod) for pod in pods_of(objects))
    level = "privileged" if beyond else "restricted"
    found = namespace["metadata"]["labels"]
    assert found["pod-security.kubernetes.io/enforce"] == level
    assert found["pod-security.kubernetes.io/warn"] == level


def test_aggregation_gives_viewers_and_editors_their_rights(
    new_control_plane: Callable[..., ControlPlane],
) -> None:
    plane = new_control_plane()
    plane.kubectl("apply", "-k", str(OVERLAYS["ome-crd"]))
    plane.start_controllers()
    for role, user in (("view", "viewer"), ("edit", "editor")):
        plane.kubectl("create", "clusterrolebinding", user, f"--clusterrole={role}", f"--user={user}")

    def may(who: str, verb: str, what: str) -> bool:
        done = plane.kubectl("auth", "can-i", verb, what, "--as", who, check=False)
        return done.stdout.strip() == "yes"

    records, classes = "acceleratornodes.accelerators.ome.io", "acceleratorclasses.ome.io"
    eventually(
        lambda: may("viewer", "list", records) and may("editor", "patch", classes),
        seconds=30,
        what="the aggregation",
    )
    assert {
        (who, verb, what): may(who, verb, what)
        for who in ("viewer", "editor")
        for verb in ("get", "patch", "delete")
        for what in (records, classes)
    } == {
        ("viewer", "get", records): True,
        ("viewer", "patch", records): False,
        ("viewer", "delete", records): False,
        ("viewer", "get", classes): True,
        ("viewer", "patch", classes): False,
        ("viewer", "delete", classes): False,
        ("editor", "get", records): True,
        ("editor", "patch", records): False,
        ("editor", "delete", records): False,
        ("editor", "get", classes): True,
        ("editor", "patch", classes): True,
        ("editor", "delete", classes): True,
    }
    plane.stop()


def test_the_network_policy_picks_every_pod_of_ours(plane: ControlPlane) -> None:
    objects = render(plane, DAEMONSET_FOLDER)
    (policy,) = (body for body in objects if body["kind"] == "NetworkPolicy")
    wanted = policy["spec"]["podSelector"]["matchLabels"].items()
    workloads = [body for body in objects if body["kind"] in {"DaemonSet", "Deployment"}]
    assert [body["spec"]["template"]["metadata"]["labels"].items() >= wanted for body in workloads] == [
        True,
        True,
    ]
    (ingress,) = policy["spec"]["ingress"]
    ports = {port["name"] for pod in pods_of(objects) for port in pod["containers"][0]["ports"]}
    assert {port["port"] for port in ingress["ports"]} == ports
