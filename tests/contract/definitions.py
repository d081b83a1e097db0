"""The custom resource of the contract cases: every kind of merge and every rule of validation once."""

from agent.cluster import CRDS, Resource

WIDGETS = Resource("contract.example.com", "v1", "widgets", "Widget")
PLAIN = Resource("contract.example.com", "v1", "plainwidgets", "PlainWidget")
SEALED = Resource("contract.example.com", "v1", "sealedwidgets", "SealedWidget")

STRINGS = {"type": "array", "x-kubernetes-list-type": "atomic", "items": {"type": "string"}}
CONDITION = {
    "type": "object",
    "required": ["type", "status"],
    "properties": {"type": {"type": "string"}, "status": {"type": "string"}},
}
SPEC = {
    "type": "object",
    "required": ["sizes"],
    "properties": {
        "color": {"type": "string", "enum": ["red", "green", "blue"]},
        "count": {"type": "integer", "format": "int32", "minimum": 0},
        "amount": {
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "pattern": "^[0-9]+(Gi|Mi)?$",
            "x-kubernetes-int-or-string": True,
        },
        "sizes": {
            "type": "object",
            "properties": {"width": {"type": "integer"}, "height": {"type": "integer"}},
        },
        "selector": {"type": "object", "additionalProperties": {"type": "string"}},
        "tags": STRINGS,
        "parts": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            "items": {
                "type": "object",
                "required": ["name"],
                "properties": {
                    "name": {"type": "string"},
                    "quantity": {"type": "string", "default": "1"},
                },
            },
        },
    },
}
STATUS = {
    "type": "object",
    "properties": {
        "total": {"type": "integer", "format": "int32"},
        "free": {"type": "integer", "format": "int32"},
        "nodes": STRINGS,
        "conditions": {"type": "array", "x-kubernetes-list-type": "atomic", "items": CONDITION},
    },
}
ATOMIC = {
    "type": "object",
    "x-kubernetes-map-type": "atomic",
    "x-kubernetes-preserve-unknown-fields": True,
}


def definition(resource, *, spec, status, subresource):
    version = {
        "name": resource.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": status}}},
    }
    if subresource:
        version["subresources"] = {"status": {}}
    return {
        "apiVersion": CRDS.api_version,
        "kind": CRDS.kind,
        "metadata": {"name": f"{resource.plural}.{resource.group}"},
        "spec": {
            "group": resource.group,
            "names": {
                "plural": resource.plural,
                "singular": resource.plural[:-1],
                "kind": resource.kind,
                "listKind": f"{resource.kind}List",
            },
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            "versions": [version],
        },
    }


DEFINITIONS = (
    definition(WIDGETS, spec=SPEC, status=STATUS, subresource=True),
    definition(PLAIN, spec=SPEC, status=STATUS, subresource=False),
    definition(SEALED, spec=ATOMIC, status=ATOMIC, subresource=True),
)


def widget(name="w", *, resource=WIDGETS, status=None, metadata=None, **spec):
    body = {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": name, **(metadata or {})},
        "spec": {"sizes": {}, **spec},
    }
    return {**body, "status": status} if status is not None else body


def widget_status(name="w", *, resource=WIDGETS, metadata=None, **status):
    head = {"apiVersion": resource.api_version, "kind": resource.kind}
    return {**head, "metadata": {"name": name, **(metadata or {})}, "status": status}


def node(name="n1", labels=None, **metadata):
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, **({"labels": labels} if labels is not None else {}), **metadata},
    }


def lease(name="l", *, metadata=None, **spec):
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": "default", **(metadata or {})},
        "spec": spec,
    }
