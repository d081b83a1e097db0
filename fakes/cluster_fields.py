"""Field ownership as the API server keeps it: sets of paths, and merges that know granular from atomic values.

A path's elements are spelled as in `fieldsV1`: `f:<field>`, `k:{…}` for an item of a list with keys, `v:…` for one of
a set. Pure.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from fakes.cluster_schema import LIST_KEYS, LIST_TYPE, MAP_TYPE, Schema, field_schema, item_schema

Path = tuple[str, ...]
Fields = frozenset[Path]

_CONTAINER = object()
_UNOWNED = frozenset(
    ("f:metadata", f"f:{name}")
    for name in (
        "name",
        "namespace",
        "selfLink",
        "uid",
        "resourceVersion",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
        "managedFields",
    )
) | {("f:apiVersion",), ("f:kind",), ("f:metadata",)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """One entry of `managedFields`."""

    manager: str
    operation: str
    api_version: str
    subresource: str = ""
    time: str = ""
    fields: Fields = field(default_factory=frozenset)

    @property
    def identity(self) -> tuple[str, str, str]:
        """Return what tells this owner from others."""
        return self.manager, self.operation, self.subresource


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """What a write changed, as paths."""

    added: Fields
    modified: Fields
    removed: Fields


def owners_of(obj: dict[str, Any]) -> list[Owner]:
    """Return the owners that an object's metadata lists."""
    return [
        Owner(
            manager=entry.get("manager", ""),
            operation=entry.get("operation", ""),
            api_version=entry.get("apiVersion", ""),
            subresource=entry.get("subresource", ""),
            time=entry.get("time", ""),
            fields=frozenset(_decoded(entry.get("fieldsV1") or {})),
        )
        for entry in obj["metadata"].get("managedFields") or ()
    ]


def managed_fields(owners: Iterable[Owner]) -> list[dict[str, Any]]:
    """Return `metadata.managedFields` for these owners; one that owns nothing is left out."""
    entries = []
    for owner in owners:
        if not owner.fields:
            continue
        entry = {
            "manager": owner.manager,
            "operation": owner.operation,
            "apiVersion": owner.api_version,
            "time": owner.time,
            "fieldsType": "FieldsV1",
            "fieldsV1": _encoded(owner.fields),
        }
        entries.append({**entry, "subresource": owner.subresource} if owner.subresource else entry)
    return entries


def field_set(value: dict[str, Any], schema: Schema) -> Fields:
    """Return the leaves of what was applied; items of keyed lists count themselves."""
    found = {
        path
        for path, content in _flat(value, schema, ())
        if content is not _CONTAINER or path[-1][:2] in {"k:", "v:"}
    }
    return frozenset(found) - _UNOWNED


def difference(old: dict[str, Any], new: dict[str, Any], schema: Schema) -> Difference:
    """Return what differs between two states of an object."""
    before = dict(_flat(old, schema, ()))
    after = dict(_flat(new, schema, ()))
    modified = {path for path in before.keys() & after.keys() if not _alike(before[path], after[path])}
    return Difference(
        added=frozenset(after.keys() - before.keys()) - _UNOWNED,
        modified=frozenset(modified) - _UNOWNED,
        removed=frozenset(before.keys() - after.keys()) - _UNOWNED,
    )


def merged(live: Any, applied: Any, schema: Schema) -> Any:  # noqa: ANN401 - any JSON value
    """Return the live value with the applied one merged into it."""
    if isinstance(live, dict) and isinstance(applied, dict) and not _is_atomic_map(schema):
        result = dict(live)
        for name, value in applied.items():
            inner = field_schema(schema, name) or {}
            result[name] = merged(live[name], value, inner) if name in live else value
        return result
    if isinstance(live, list) and isinstance(applied, list) and schema.get(LIST_TYPE) in {"map", "set"}:
        items = {_item_key(item, schema): item for item in live}
        for item in applied:
            key = _item_key(item, schema)
            items[key] = merged(items[key], item, item_schema(schema)) if key in items else item
        return list(items.values())
    return applied


def without(value: Any, paths: Fields, schema: Schema, at: Path = ()) -> Any:  # noqa: ANN401 - any JSON value
    """Return the value without the fields at `paths`, `None` for a container that this leaves empty."""
    if isinstance(value, dict) and not _is_atomic_map(schema):
        kept = {}
        for name, inner in value.items():
            path = (*at, f"f:{name}")
            inner_schema = field_schema(schema, name) or {}
            if path in paths and not (inner and _is_granular(inner, inner_schema)):
                continue
            rest = without(inner, paths, inner_schema, path)
            if rest is not None:
                kept[name] = rest
        return kept if kept or not value else None
    if isinstance(value, list) and schema.get(LIST_TYPE) in {"map", "set"}:
        items = [item for item in value if (*at, _item_key(item, schema)) not in paths]
        return items if items or not value else None
    return value


def described(path: Path) -> str:
    """Return a path as conflicts name it, such as `.metadata.labels.team` or `.items[name="a"].size`."""
    text = ""
    for element in path:
        kind, rest = element[:2], element[2:]
        if kind == "f:":
            text += f".{rest}"
        elif kind == "k:":
            keys = json.loads(rest)
            text += "[" + ",".join(f"{name}={json.dumps(keys[name])}" for name in sorted(keys)) + "]"
        else:
            text += f"[={rest}]"
    return text


def give(owner: Owner, fields: Fields, *, time: str) -> Owner:
    """Return the owner with other fields, changed at `time`."""
    return owner if owner.fields == fields else replace(owner, fields=fields, time=time)


def _flat(value: Any, schema: Schema, path: Path) -> Iterator[tuple[Path, Any]]:  # noqa: ANN401
    if isinstance(value, dict) and not (_is_atomic_map(schema) and path):
        if path:
            yield path, _CONTAINER if value else {}
        for name, inner in value.items():
            if inner is not None:
                yield from _flat(inner, field_schema(schema, name) or {}, (*path, f"f:{name}"))
    elif isinstance(value, list) and schema.get(LIST_TYPE) in {"map", "set"}:
        yield path, _CONTAINER if value else []
        for item in value:
            inner_path = (*path, _item_key(item, schema))
            if schema[LIST_TYPE] == "set" or _is_atomic_map(item_schema(schema)):
                yield inner_path, item
            else:
                yield from _flat(item, item_schema(schema), inner_path)
    else:
        yield path, value


def _alike(before: object, after: object) -> bool:
    if _CONTAINER in (before, after):
        other = after if before is _CONTAINER else before
        return other is _CONTAINER or other in ({}, [])
    return before == after


def _is_granular(value: Any, schema: Schema) -> bool:  # noqa: ANN401 - any JSON value
    if isinstance(value, dict):
        return not _is_atomic_map(schema)
    return isinstance(value, list) and schema.get(LIST_TYPE) in {"map", "set"}


def _is_atomic_map(schema: Schema) -> bool:
    return schema.get(MAP_TYPE) == "atomic"


def _item_key(item: Any, schema: Schema) -> str:  # noqa: ANN401 - any JSON value
    if schema[LIST_TYPE] == "set":
        return "v:" + json.dumps(item)
    return "k:" + json.dumps({key: item.get(key) for key in schema[LIST_KEYS]}, separators=(",", ":"))


def _encoded(fields: Fields) -> dict[str, Any]:
    root: dict[str, Any] = {}
    for path in sorted(fields):
        inner = root
        for element in path:
            inner = inner.setdefault(element, {})
        inner["."] = {}
    return {key: _simplified(value) for key, value in root.items()}


def _simplified(fields: dict[str, Any]) -> dict[str, Any]:
    if set(fields) == {"."}:
        return {}
    return {key: value if key == "." else _simplified(value) for key, value in fields.items()}


def _decoded(fields: dict[str, Any], path: Path = ()) -> Iterator[Path]:
    if path and (not fields or "." in fields):
        yield path
    for element, inner in fields.items():
        if element != ".":
            yield from _decoded(inner, (*path, element))
