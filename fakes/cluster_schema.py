"""What the API server knows of an object's shape: pruning, defaults and validation by an OpenAPI schema.

Works on the schema of a CustomResourceDefinition as it is written; built-in kinds have a short one here, exact in the
metadata and open (`x-kubernetes-preserve-unknown-fields`) elsewhere.
"""

import re
from collections.abc import Iterator
from typing import Any

Schema = dict[str, Any]

PRESERVE = "x-kubernetes-preserve-unknown-fields"
INT_OR_STRING = "x-kubernetes-int-or-string"
LIST_TYPE = "x-kubernetes-list-type"
LIST_KEYS = "x-kubernetes-list-map-keys"
MAP_TYPE = "x-kubernetes-map-type"

OPEN: Schema = {"type": "object", PRESERVE: True}
_STRING: Schema = {"type": "string"}
_STRINGS: Schema = {"type": "object", "additionalProperties": _STRING}


def _list_by(*keys: str) -> Schema:
    return {"type": "array", LIST_TYPE: "map", LIST_KEYS: list(keys), "items": OPEN}


METADATA: Schema = {
    "type": "object",
    "properties": {
        **dict.fromkeys(("name", "generateName", "namespace", "selfLink", "uid", "resourceVersion"), _STRING),
        **dict.fromkeys(("creationTimestamp", "deletionTimestamp"), _STRING),
        "generation": {"type": "integer"},
        "deletionGracePeriodSeconds": {"type": "integer"},
        "labels": _STRINGS,
        "annotations": _STRINGS,
        "finalizers": {"type": "array", LIST_TYPE: "set", "items": _STRING},
        "ownerReferences": {
            "type": "array",
            LIST_TYPE: "map",
            LIST_KEYS: ["uid"],
            "items": {
                "type": "object",
                MAP_TYPE: "atomic",
                "required": ["apiVersion", "kind", "name", "uid"],
                "properties": {
                    **dict.fromkeys(("apiVersion", "kind", "name", "uid"), _STRING),
                    "controller": {"type": "boolean"},
                    "blockOwnerDeletion": {"type": "boolean"},
                },
            },
        },
        "managedFields": {"type": "array", LIST_TYPE: "atomic", "items": OPEN},
    },
}


def _builtin(**fields: Schema) -> Schema:
    head = {"apiVersion": _STRING, "kind": _STRING, "metadata": METADATA}
    return {"type": "object", "properties": {**head, **fields}}


_CONDITIONS: Schema = {**OPEN, "properties": {"conditions": _list_by("type"), "addresses": _list_by("type")}}

BUILTIN: dict[str, Schema] = {
    "Node": _builtin(spec=OPEN, status=_CONDITIONS),
    "Pod": _builtin(
        spec={
            **OPEN,
            "properties": {"containers": _list_by("name"), "initContainers": _list_by("name")},
        },
        status=_CONDITIONS,
    ),
    "Namespace": _builtin(spec=OPEN, status=OPEN),
    "Lease": _builtin(spec=OPEN),
    "CustomResourceDefinition": _builtin(spec=OPEN, status=_CONDITIONS),
    "Event": {**OPEN, "properties": {"metadata": METADATA}},
}


def schema_of(crd_version: dict[str, Any]) -> Schema:
    """Return the schema of a CRD's version with the metadata that every object has."""
    schema = dict(crd_version["schema"]["openAPIV3Schema"])
    head = {"apiVersion": _STRING, "kind": _STRING, "metadata": METADATA}
    schema["properties"] = {**schema.get("properties", {}), **head}
    return schema


def field_schema(schema: Schema, name: str) -> Schema | None:
    """Return the schema of a field of an object or map, `None` when it declares none of that name."""
    declared = schema.get("properties", {}).get(name)
    if declared is not None:
        return dict(declared)
    more = schema.get("additionalProperties")
    if isinstance(more, dict):
        return more
    return {PRESERVE: True} if schema.get(PRESERVE) or more is True else None


def item_schema(schema: Schema) -> Schema:
    """Return the schema of a list's items."""
    items = schema.get("items")
    return dict(items) if isinstance(items, dict) else {PRESERVE: True}


def pruned(value: Any, schema: Schema) -> Any:  # noqa: ANN401 - any JSON value
    """Return the value without what its schema does not declare, and with the schema's defaults."""
    if isinstance(value, dict):
        kept = {}
        for name, inner in value.items():
            inner_schema = field_schema(schema, name)
            if inner_schema is not None:
                kept[name] = pruned(inner, inner_schema)
        for name, inner_schema in schema.get("properties", {}).items():
            if name not in kept and "default" in inner_schema:
                kept[name] = inner_schema["default"]
        return kept
    if isinstance(value, list):
        return [pruned(item, item_schema(schema)) for item in value]
    return value


def untypable(value: Any, schema: Schema, path: str = "") -> str | None:  # noqa: ANN401 - any JSON value
    """Return why a server-side apply of the value cannot be typed, `None` when it can."""
    if value is None:
        return None
    if _is_wrong_type(value, schema):
        return f"{path or '.'}: expected {schema.get('type')}, got {value!r}"
    if isinstance(value, dict):
        for name, inner in value.items():
            inner_schema = field_schema(schema, name)
            if inner_schema is None:
                return f"{path}.{name}: field not declared in schema"
            reason = untypable(inner, inner_schema, f"{path}.{name}")
            if reason:
                return reason
    if isinstance(value, list):
        return _untypable_list(value, schema, path)
    return None


def violations(value: Any, schema: Schema, path: str = "") -> Iterator[tuple[str, str]]:  # noqa: ANN401
    """Yield (field, message) for each rule of the schema that the value breaks."""
    if value is None:
        return
    if _is_wrong_type(value, schema):
        yield path, f"must be of type {schema.get('type')}"
        return
    if isinstance(value, dict):
        for name in schema.get("required", ()):
            if name not in value:
                yield _join(path, name), "Required value"
        for name, inner in value.items():
            inner_schema = field_schema(schema, name)
            if inner_schema is not None:
                yield from violations(inner, inner_schema, _join(path, name))
    elif isinstance(value, list):
        if len(value) > schema.get("maxItems", len(value)):
            yield path, "Too many"
        for index, item in enumerate(value):
            yield from violations(item, item_schema(schema), f"{path}[{index}]")
    else:
        yield from ((path, message) for message in _scalar_violations(value, schema))


def _untypable_list(value: list[Any], schema: Schema, path: str) -> str | None:
    seen = set()
    keys = schema.get(LIST_KEYS, [])
    for index, item in enumerate(value):
        reason = untypable(item, item_schema(schema), f"{path}[{index}]")
        if reason:
            return reason
        if schema.get(LIST_TYPE) == "map":
            missing = [key for key in keys if key not in item]
            if missing:
                return f"{path}: element {index}: associative list with keys has an element that omits {missing[0]}"
            key = tuple(item[key] for key in keys)
        elif schema.get(LIST_TYPE) == "set":
            key = (item,)
        else:
            continue
        if key in seen:
            return f"{path}: duplicate entries for key {key}"
        seen.add(key)
    return None


def _is_wrong_type(value: Any, schema: Schema) -> bool:  # noqa: ANN401 - any JSON value
    if schema.get(INT_OR_STRING):
        return not isinstance(value, int | str) or isinstance(value, bool)
    match schema.get("type"):
        case "object":
            return not isinstance(value, dict)
        case "array":
            return not isinstance(value, list)
        case "string":
            return not isinstance(value, str)
        case "boolean":
            return not isinstance(value, bool)
        case "integer":
            return not isinstance(value, int) or isinstance(value, bool)
        case "number":
            return not isinstance(value, int | float) or isinstance(value, bool)
        case _:
            return False


def _scalar_violations(value: Any, schema: Schema) -> Iterator[str]:  # noqa: ANN401 - any JSON scalar
    if "enum" in schema and value not in schema["enum"]:
        yield f"Unsupported value: {value!r}"
    if isinstance(value, str):
        if "pattern" in schema and not re.search(schema["pattern"], value):
            yield f"should match {schema['pattern']!r}"
        if len(value) > schema.get("maxLength", len(value)):
            yield "Too long"
        if len(value) < schema.get("minLength", 0):
            yield "too short"
    elif isinstance(value, int | float):
        if value < schema.get("minimum", value):
            yield f"should be greater than or equal to {schema['minimum']}"
        if value > schema.get("maximum", value):
            yield f"should be less than or equal to {schema['maximum']}"
        if schema.get("format") == "int32" and not -(2**31) <= value < 2**31:
            yield "is no int32"


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
