"""Puts definitions, rights and policies of the manifests into a cluster, and waits until the server acts by them."""

from pathlib import Path
from typing import Any

from agent.cluster import ACCELERATOR_CLASSES, CRDS
from tests.cluster.client import ApiClient, path_of
from tests.cluster.objects import CLASS_CRD, DAEMONSET_FOLDER, documents, eventually

Object = dict[str, Any]

WORKLOADS = frozenset({"DaemonSet", "Deployment", "PodDisruptionBudget", "NetworkPolicy"})


def install_crd(client: ApiClient, path: Path) -> None:
    """Apply a CustomResourceDefinition and wait until the server serves it."""
    (body,) = documents(path)
    client.apply(CRDS, body, manager="tests", force=True)
    name = body["metadata"]["name"]

    def established() -> bool:
        conditions = client.get(CRDS, name).get("status", {}).get("conditions") or []
        return any(one["type"] == "Established" and one["status"] == "True" for one in conditions)

    eventually(established, what=f"the definition {name}")


def install_base(client: ApiClient, folder: Path = DAEMONSET_FOLDER / "base") -> None:
    """Apply what the base holds, its workloads left out."""
    files = documents(folder / "kustomization.yaml")[0]["resources"]
    for file in files:
        for body in documents(folder / file):
            if body["kind"] == "CustomResourceDefinition":
                install_crd(client, folder / file)
            elif body["kind"] not in WORKLOADS:
                client.apply(collection_of(body), body, manager="tests", force=True)


def remove_class_crd(client: ApiClient) -> None:
    """Remove OME's definition with all classes, and wait until the server knows none."""
    (body,) = documents(CLASS_CRD)
    client.delete(CRDS, body["metadata"]["name"])
    served = path_of(ACCELERATOR_CLASSES)
    eventually(
        lambda: client.request("GET", served).status == 404, what="the end of the definition of classes"
    )


def install_class_crd(client: ApiClient, path: Path) -> None:
    """Put one variant of OME's `AcceleratorClass` (`CLASS_CRD`, `MINIMAL_CLASS_CRD`) in place of what is installed.

    Removes all classes first. Returns when the server prunes, or keeps, unknown fields as the variant wants.
    """
    (body,) = documents(path)
    current = client.find(CRDS, body["metadata"]["name"])
    if current is None:
        install_crd(client, path)
    else:
        client.delete(ACCELERATOR_CLASSES)
        version = current["metadata"]["resourceVersion"]
        client.replace(
            CRDS,
            body["metadata"]["name"],
            body | {"metadata": body["metadata"] | {"resourceVersion": version}},
        )
    schema = body["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    keeps_unknown = bool(schema.get("x-kubernetes-preserve-unknown-fields"))
    probe = {
        "apiVersion": ACCELERATOR_CLASSES.api_version,
        "kind": ACCELERATOR_CLASSES.kind,
        "metadata": {"name": "probe-of-the-schema"},
        "spec": {"capabilities": {}, "discovery": {}, "unknown": True},
    }

    def served() -> bool:
        answer = client.request("POST", path_of(ACCELERATOR_CLASSES), probe, query={"dryRun": "All"})
        return answer.status == 201 and ("unknown" in answer.body["spec"]) == keeps_unknown

    eventually(served, what=f"the schema of {path.name}")


def collection_of(body: Object) -> str:
    """Return the URL path of the collection that an object belongs into."""
    version: str = body["apiVersion"]
    kind: str = body["kind"].lower()
    ending = "ies" if kind.endswith("y") else "es" if kind.endswith("s") else "s"
    plural = kind.removesuffix("y") + ending
    namespace = body["metadata"].get("namespace")
    parts = [
        "apis" if "/" in version else "api",
        version,
        *(["namespaces", namespace] if namespace else []),
        plural,
    ]
    return "/" + "/".join(parts)
