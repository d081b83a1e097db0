"""What the page on security says of rights and mounts is what the manifests hold, no more and no less."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.objects import DAEMONSET_FOLDER, NAMESPACE
from tests.cluster.program import Program
from tests.docs.test_tables import rows_of

Right = tuple[str, str, str, str, str]
"""Account, group, resource, verb, where."""

USER_ROLES = {"accelerators-view", "accelerators-edit"}


def words(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def group_of(cell: str) -> str:
    return "" if cell == "core" else cell.strip("`")


@pytest.fixture(scope="module")
def render(cluster_program: Program) -> Any:
    def objects_of(folder: Path) -> list[dict[str, Any]]:
        done = subprocess.run(
            [*cluster_program.argv("kubectl"), "kustomize", str(folder)],
            capture_output=True,
            text=True,
            check=True,
        )
        return list(yaml.load_all(done.stdout, Loader=yaml.CSafeLoader))

    return objects_of


def test_every_right_has_its_row_and_every_row_its_right(render: Any) -> None:
    objects = render(DAEMONSET_FOLDER)
    roles = {
        (body["kind"], body["metadata"].get("namespace"), body["metadata"]["name"]): body["rules"]
        for body in objects
        if body["kind"] in {"Role", "ClusterRole"}
    }
    granted: set[Right] = set()
    for body in objects:
        if not body["kind"].endswith("RoleBinding"):
            continue
        (subject,) = body["subjects"]
        namespace = body["metadata"].get("namespace")
        for rule in roles[body["roleRef"]["kind"], namespace, body["roleRef"]["name"]]:
            assert set(rule) <= {"apiGroups", "resources", "verbs", "resourceNames"}
            names = rule.get("resourceNames", [None])
            for name in names:
                where = " in ".join(part for part in (name, namespace) if part) or "cluster"
                granted |= {
                    (subject["name"], group, resource, verb, where)
                    for group in rule["apiGroups"]
                    for resource in rule["resources"]
                    for verb in rule["verbs"]
                }
    documented = {
        (words(account)[0], group_of(group), resource, verb, where.replace("`", ""))
        for account, group, resources, verbs, where, _ in rows_of("security.md", "account")
        for resource in words(resources)
        for verb in words(verbs)
    }
    assert documented == granted


def test_every_right_has_a_reason() -> None:
    assert [row for row in rows_of("security.md", "account") if len(row[5]) < 20] == []
    assert [row for row in rows_of("security.md", "overlay") if len(row[-1]) < 20] == []


def test_the_rights_of_people_are_those_that_are_aggregated(render: Any) -> None:
    prefix = "rbac.authorization.k8s.io/aggregate-to-"
    granted = {
        (key.removeprefix(prefix), group, resource, verb)
        for body in render(DAEMONSET_FOLDER)
        if body["metadata"]["name"] in USER_ROLES
        for key in body["metadata"]["labels"]
        if key.startswith(prefix)
        for rule in body["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    documented = {
        (role, group_of(group), resource, verb)
        for roles, group, resources, verbs in rows_of("security.md", "into")
        for role in words(roles)
        for resource in words(resources)
        for verb in words(verbs)
    }
    assert documented == granted


def test_every_host_path_has_its_row_and_is_read_only(render: Any) -> None:
    mounted = set()
    for overlay in sorted((DAEMONSET_FOLDER / "overlays").iterdir()):
        for body in render(overlay):
            pod = body.get("spec", {}).get("template", {}).get("spec", {})
            paths = {volume["name"]: volume["hostPath"]["path"] for volume in pod.get("volumes", ())}
            for container in pod.get("containers", ()):
                for mount in container.get("volumeMounts", ()):
                    assert mount["readOnly"] is True
                    mounted.add((overlay.name, paths[mount["name"]], mount["mountPath"]))
    documented = {
        (row[0].strip("`"), row[1].strip("`"), row[2].strip("`"))
        for row in rows_of("security.md", "overlay | path")
    }
    assert documented == mounted


def test_the_overlay_single_adds_the_controllers_rights_to_the_agents_and_no_other(render: Any) -> None:
    def rules(objects: list[dict[str, Any]]) -> list[Any]:
        return [body["rules"] for body in objects if body["kind"] in {"Role", "ClusterRole"}]

    base, single = render(DAEMONSET_FOLDER), render(DAEMONSET_FOLDER / "overlays" / "single")
    assert rules(single) == rules(base)
    subjects = [body["subjects"] for body in single if body["kind"].endswith("RoleBinding")]
    agent = {"kind": "ServiceAccount", "name": "accelerator-agent", "namespace": NAMESPACE}
    assert subjects == [[agent]] * 4


def test_the_controller_and_the_agents_see_the_accelerators_that_the_page_says(render: Any) -> None:
    told = {
        (pod["containers"][0]["name"], entry["name"], entry["value"])
        for body in render(DAEMONSET_FOLDER)
        if (pod := body.get("spec", {}).get("template", {}).get("spec"))
        for entry in pod["containers"][0]["env"]
        if entry["name"].startswith("NVIDIA_")
    }
    assert told == {
        ("agent", "NVIDIA_VISIBLE_DEVICES", "all"),
        ("agent", "NVIDIA_DRIVER_CAPABILITIES", "utility"),
        ("inventory", "NVIDIA_VISIBLE_DEVICES", "void"),
    }
