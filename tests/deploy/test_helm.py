"""The chart: the same objects as kustomize, values that are checked, and an install that a real API server takes."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent.cluster import NAMESPACES, NODES
from tests.cluster.client import APPLY
from tests.cluster.control_plane import ControlPlane
from tests.cluster.objects import AT_ONCE, DAEMONSET_FOLDER, NAMESPACE, eventually, node_token, ready_node
from tests.cluster.program import Program
from tests.deploy import tools

CHART = DAEMONSET_FOLDER.parent / "helm"
PRESETS = {path.stem: path for path in sorted((CHART / "presets").glob("*.yaml"))}
DOMAIN = "gpu.example.com"

Objects = dict[tuple[str, str, str], dict[str, Any]]
RunHelm = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def run_helm(tmp_path_factory: pytest.TempPathFactory) -> RunHelm:
    """`run_helm("template", …)` runs Helm with a home of its own."""
    program, home = tools.helm(), tmp_path_factory.mktemp("helm")

    def run(*arguments: str, kubeconfig: Path | None = None) -> subprocess.CompletedProcess[str]:
        environment = {"HOME": str(home), "PATH": "/usr/bin:/bin"}
        if kubeconfig is not None:
            environment["KUBECONFIG"] = str(kubeconfig)
        return subprocess.run(
            [program, *arguments], env=environment, capture_output=True, text=True, check=False, timeout=120
        )

    return run


@pytest.fixture(scope="session")
def rendered(run_helm: RunHelm) -> Callable[..., Objects]:
    """`rendered(*arguments)` returns what the chart makes, as `objects_of` does."""

    def render(*arguments: str) -> Objects:
        done = run_helm("template", "accelerators", str(CHART), "--namespace", NAMESPACE, *arguments)
        assert (done.returncode, done.stderr) == (0, "")
        return objects_of(done.stdout)

    return render


def objects_of(text: str) -> Objects:
    """Return the objects of a YAML stream by kind, namespace and name; the order of variables does not matter."""
    found = {}
    for body in yaml.load_all(text, Loader=yaml.CSafeLoader):
        if body is None:
            continue
        metadata = body["metadata"]
        pod = body.get("spec", {}).get("template", {}).get("spec", {})
        for container in pod.get("containers", ()):
            container["env"].sort(key=lambda entry: entry["name"])
        if body["apiVersion"].startswith("admissionregistration"):
            body["spec"].pop("matchPolicy", None)
        found[body["kind"], metadata.get("namespace", ""), metadata["name"]] = body
    return found


def kustomized(program: Program, folder: Path) -> Objects:
    done = subprocess.run(
        [*program.argv("kubectl"), "kustomize", str(folder)], capture_output=True, text=True, check=True
    )
    return objects_of(done.stdout)


def test_the_default_values_render_what_kustomize_does(
    rendered: Callable[..., Objects], cluster_program: Program
) -> None:
    expected = kustomized(cluster_program, DAEMONSET_FOLDER)
    found = rendered()
    assert sorted(found) == sorted(expected)
    for key, body in expected.items():
        assert found[key] == body, key


@pytest.mark.parametrize("preset", PRESETS)
def test_each_preset_renders_what_its_overlay_does(
    rendered: Callable[..., Objects], cluster_program: Program, preset: str
) -> None:
    expected = kustomized(cluster_program, DAEMONSET_FOLDER / "overlays" / preset)
    found = rendered("--values", str(PRESETS[preset]))
    assert sorted(found) == sorted(expected)
    for key, body in expected.items():
        assert found[key] == body, key


def test_every_overlay_has_a_preset() -> None:
    overlays = {path.name for path in (DAEMONSET_FOLDER / "overlays").iterdir()}
    # OME's definition is not the chart's to install, since an uninstall would take it along.
    assert set(PRESETS) == overlays - {"ome-crd"}


def test_the_components_are_there_for_who_asks(
    rendered: Callable[..., Objects],
) -> None:
    found = rendered(
        "--set",
        "podMonitors.enabled=true,prometheusRules.enabled=true,securityContextConstraints.create=true,pools.enabled=true",
    )
    files = (
        "pod-monitors/pod-monitors.yaml",
        "prometheus-rules/prometheus-rule.yaml",
        "openshift-scc/scc.yaml",
        "pools/cluster-role.yaml",
        "pools/network-policy.yaml",
    )
    text = "---\n".join((DAEMONSET_FOLDER / "components" / file).read_text() for file in files)
    for key, body in objects_of(text).items():
        assert found[key] == body


def test_every_value_is_explained_and_checked() -> None:
    lines = (CHART / "values.yaml").read_text().splitlines()
    values = yaml.safe_load("\n".join(lines))
    schema = yaml.safe_load((CHART / "values.schema.json").read_text())
    assert set(values) | {"global"} == set(schema["properties"])
    for name, value in values.items():
        if isinstance(value, dict) and name != "settings":
            assert set(value) == set(schema["properties"][name]["properties"]), name


REFUSED = {
    "a misspelt name": ("imgae.tag=1", "imgae"),
    "a mode that is none": ("inventory.mode=both", "/inventory/mode"),
    "a domain of Kubernetes": ("labelDomain=gpu.kubernetes.io", "/labelDomain"),
    "a domain in upper case": ("labelDomain=GPU.example.com", "/labelDomain"),
    "a label family that is none": ("compatLabels={nfd}", "/compatLabels"),
    "a setting that the policy must know": ("settings.label_domain=a.b", "'label_domain'"),
    "a runtime class without a name": ("runtimeClass.create=true", "/runtimeClass/name"),
}


@pytest.mark.parametrize(("setting", "where"), REFUSED.values(), ids=REFUSED)
def test_a_value_is_refused(run_helm: RunHelm, setting: str, where: str) -> None:
    done = run_helm("template", "accelerators", str(CHART), "--set", setting)
    assert done.returncode != 0
    assert where in done.stderr


def test_settings_reach_both_workloads_and_a_change_replaces_the_pods(
    rendered: Callable[..., Objects],
) -> None:
    def pods(interval: str) -> list[dict[str, Any]]:
        found = rendered("--set", f"settings.probe_interval={interval},labelDomain={DOMAIN}")
        text = found["ConfigMap", NAMESPACE, "accelerator-settings"]["data"]["settings.yaml"]
        assert yaml.safe_load(text) == {"probe_interval": interval, "label_domain": DOMAIN}
        return [
            found[kind, NAMESPACE, name]["spec"]["template"]
            for kind, name in (("DaemonSet", "accelerator-agent"), ("Deployment", "accelerator-inventory"))
        ]

    for pod, other in zip(pods("30s"), pods("45s"), strict=True):
        (container,) = pod["spec"]["containers"]
        told = {entry["name"]: entry.get("value") for entry in container["env"]}
        assert told["ACCELERATOR_CONFIG"] == "/etc/accelerator-agent/settings.yaml"
        assert container["volumeMounts"] == [
            {"name": "settings", "mountPath": "/etc/accelerator-agent", "readOnly": True}
        ]
        assert pod["spec"]["volumes"] == [{"name": "settings", "configMap": {"name": "accelerator-settings"}}]
        assert pod["metadata"]["annotations"] != other["metadata"]["annotations"]


@pytest.fixture(scope="module")
def plane(new_control_plane: Callable[..., ControlPlane]) -> Iterator[ControlPlane]:
    plane = new_control_plane()
    yield plane
    plane.stop()


def test_an_install_an_upgrade_and_an_uninstall_leave_nothing(run_helm: RunHelm, plane: ControlPlane) -> None:
    def release(*arguments: str) -> None:
        done = run_helm(*arguments, "--namespace", NAMESPACE, kubeconfig=plane.admin_kubeconfig)
        assert done.returncode == 0, done.stderr

    def level() -> str:
        labels: dict[str, str] = plane.admin.get(NAMESPACES, NAMESPACE)["metadata"]["labels"]
        return labels["pod-security.kubernetes.io/enforce"]

    before = installed(plane)
    release("install", "accelerators", str(CHART), "--create-namespace")
    assert level() == "restricted"
    release("upgrade", "accelerators", str(CHART), "--values", str(PRESETS["mig"]))
    assert level() == "privileged"
    release("uninstall", "accelerators")
    # No controller runs here that would end a namespace.
    assert installed(plane) == before


def installed(plane: ControlPlane) -> set[str]:
    kinds = (
        "clusterroles,clusterrolebindings,customresourcedefinitions,priorityclasses,runtimeclasses,"
        "validatingadmissionpolicies,validatingadmissionpolicybindings"
    )
    return set(plane.kubectl("get", kinds, "-o", "name").stdout.split())


def test_the_policy_is_rendered_for_another_domain_the_former_one_and_gfd(
    run_helm: RunHelm, new_control_plane: Callable[..., ControlPlane]
) -> None:
    plane = new_control_plane()
    done = run_helm(
        "install",
        "accelerators",
        str(CHART),
        "--namespace",
        NAMESPACE,
        "--create-namespace",
        "--set",
        f"labelDomain={DOMAIN},formerDomains={{accelerators.ome.io}},compatLabels={{gfd}}",
        kubeconfig=plane.admin_kubeconfig,
    )
    assert done.returncode == 0, done.stderr
    ready_node(plane.admin, "gpu-1", labels={"accelerators.ome.io/present": "true"})
    agent = plane.client(node_token(plane.admin, "gpu-1"))

    def status(labels: dict[str, str]) -> int:
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "gpu-1", "labels": labels}}
        query = {"fieldManager": "accelerator-agent", "dryRun": "All"}
        return agent.request("PATCH", "/api/v1/nodes/gpu-1", body, content_type=APPLY, query=query).status

    # A policy works some time after it was made.
    eventually(lambda: status({"role": "gpu"}) == 403, what="the policy")
    allowed = (
        f"{DOMAIN}/present",
        f"precision.{DOMAIN}/fp8",
        "accelerators.ome.io/family",
        "nvidia.com/gpu.product",
        "nvidia.com/cuda.driver.major",
        "nvidia.com/mig-1g.10gb.count",
        "nvidia.com/mig-1g.10gb.me.count",
    )
    refused = (
        "nvidia.com/mig.config",
        "nvidia.com/gpu.deploy.driver",
        "nvidia.com/gpu.present",
        "nvidia.com/mig-1g.10gb.product",
        "nvidia.com/gpu-driver-upgrade-state",
        "example.com/present",
        "xgpu.example.com/present",
    )
    assert {key: status({key: "1"}) for key in allowed} == dict.fromkeys(allowed, 200)
    assert {key: status({key: "1"}) for key in refused} == dict.fromkeys(refused, 403)
    plane.stop()


def test_a_namespace_that_somebody_made_is_left_as_it_is(run_helm: RunHelm, plane: ControlPlane) -> None:
    plane.admin.delete(f"/api/v1/namespaces/{NAMESPACE}/pods", options=AT_ONCE)
    own = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "theirs"}}
    made = plane.admin.create(NAMESPACES, own)
    done = run_helm(
        "install", "accelerators", str(CHART), "--namespace", "theirs", kubeconfig=plane.admin_kubeconfig
    )
    assert done.returncode == 0, done.stderr
    assert plane.admin.get(NAMESPACES, "theirs")["metadata"]["labels"] == made["metadata"]["labels"]
    done = run_helm("uninstall", "accelerators", "--namespace", "theirs", kubeconfig=plane.admin_kubeconfig)
    assert done.returncode == 0, done.stderr
    assert plane.admin.get(NAMESPACES, "theirs")["metadata"]["uid"] == made["metadata"]["uid"]
    assert plane.admin.items(NODES) == []
