"""Definitions of kinds that others bring, with the fields that our manifests use, for a server that checks strictly."""

from typing import Any

from agent.cluster import CRDS
from tests.cluster.client import ApiClient
from tests.cluster.objects import eventually

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
TRUTH: Schema = {"type": "boolean"}
TEXTS: Schema = {"type": "array", "items": TEXT}


def _of(**fields: Schema) -> Schema:
    return {"type": "object", "properties": fields}


_LABELS: Schema = {"type": "object", "additionalProperties": TEXT}
_RELABELING = _of(sourceLabels=TEXTS, targetLabel=TEXT, replacement=TEXT, action=TEXT)
_ENDPOINT = _of(port=TEXT, path=TEXT, interval=TEXT, relabelings={"type": "array", "items": _RELABELING})
_RULE = _of(alert=TEXT, expr=TEXT, labels=_LABELS, annotations=_LABELS) | {"required": ["alert", "expr"]}
_RULE["properties"]["for"] = TEXT
_GROUP = _of(name=TEXT, interval=TEXT, rules={"type": "array", "items": _RULE})

POD_MONITOR = _of(
    spec=_of(selector=_of(matchLabels=_LABELS), podMetricsEndpoints={"type": "array", "items": _ENDPOINT})
)
PROMETHEUS_RULE = _of(spec=_of(groups={"type": "array", "items": _GROUP}))
CONSTRAINTS = _of(
    **dict.fromkeys(
        (
            "allowHostDirVolumePlugin",
            "allowHostIPC",
            "allowHostNetwork",
            "allowHostPID",
            "allowHostPorts",
            "allowPrivilegeEscalation",
            "allowPrivilegedContainer",
            "readOnlyRootFilesystem",
        ),
        TRUTH,
    ),
    **dict.fromkeys(
        (
            "allowedCapabilities",
            "defaultAddCapabilities",
            "requiredDropCapabilities",
            "seccompProfiles",
            "volumes",
            "users",
        ),
        TEXTS,
    ),
    runAsUser=_of(type=TEXT, uid={"type": "integer"}),
    **dict.fromkeys(("fsGroup", "supplementalGroups", "seLinuxContext"), _of(type=TEXT)),
)

DEFINITIONS = (
    ("monitoring.coreos.com", "v1", "PodMonitor", "Namespaced", POD_MONITOR),
    ("monitoring.coreos.com", "v1", "PrometheusRule", "Namespaced", PROMETHEUS_RULE),
    ("security.openshift.io", "v1", "SecurityContextConstraints", "Cluster", CONSTRAINTS),
)


def install_foreign_definitions(client: ApiClient) -> None:
    """Make the server know the kinds, and wait until it does."""
    for group, version, kind, scope, schema in DEFINITIONS:
        singular = kind.lower()
        plural = singular if singular.endswith("s") else f"{singular}s"
        served = {
            "name": version,
            "served": True,
            "storage": True,
            "schema": {"openAPIV3Schema": schema},
        }
        body = {
            "apiVersion": CRDS.api_version,
            "kind": CRDS.kind,
            "metadata": {"name": f"{plural}.{group}"},
            "spec": {
                "group": group,
                "scope": scope,
                "names": {"kind": kind, "plural": plural, "singular": singular},
                "versions": [served],
            },
        }
        client.create(CRDS, body)
        path = f"/apis/{group}/{version}/{plural}"
        eventually(lambda path=path: client.request("GET", path).status == 200, what=f"the kind {kind}")
