"""Tells from an object's `managedFields` which manager owns which field.

Pure. A manager counts under its name alone: its applies and its updates, on any subresource, are its own.
A person, a deployment tool and another controller are told apart by nothing else.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

Object = dict[str, Any]
"""A Kubernetes object in its JSON form."""

Path = tuple[str, ...]
"""Field names from the object's root, such as `("spec", "capabilities", "memoryGB")`."""

LABELS: Path = ("metadata", "labels")


def owned_label_keys(node: Object, manager: str) -> frozenset[str]:
    """Return the label keys that `manager` owns, alone or beside others."""
    return frozenset(
        key for name, fields in _entries(node) if name == manager for key in _children(_at(fields, LABELS))
    )


def foreign_label_keys(node: Object, keys: Iterable[str], manager: str) -> dict[str, str]:
    """Return those of `keys` that another manager owns, each with that manager's name.

    A key counts even where `manager` owns it too: to apply a new value to it would be refused as a whole.
    """
    found: dict[str, str] = {}
    for key in keys:
        owners = other_owners(node, (*LABELS, key), manager)
        if owners:
            found[key] = owners[0]
    return found


def owners(obj: Object, path: Path) -> tuple[str, ...]:
    """Return the sorted names of all managers that own the field or something inside it.

    An atomic value around the field is not looked at: nothing here tells it from a map that was sent empty.
    """
    return tuple(sorted({name for name, fields in _entries(obj) if _covers(fields, path)}))


def other_owners(obj: Object, path: Path, manager: str) -> tuple[str, ...]:
    """Return the owners of the field but for `manager`."""
    return tuple(name for name in owners(obj, path) if name != manager)


def owned_paths(obj: Object, manager: str) -> frozenset[Path]:
    """Return the leaves that `manager` owns; list items keep the server's spelling (`k:{…}`)."""
    return frozenset(
        path for name, fields in _entries(obj) if name == manager for path in _leaves(fields, prefix=())
    )


def _entries(obj: Object) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for entry in obj.get("metadata", {}).get("managedFields") or ():
        yield entry.get("manager", ""), entry.get("fieldsV1") or {}


def _at(fields: Mapping[str, Any], path: Path) -> Mapping[str, Any]:
    for name in path:
        fields = fields.get(f"f:{name}") or {}
    return fields


def _children(fields: Mapping[str, Any]) -> Iterator[str]:
    return (key.removeprefix("f:") for key in fields if key.startswith("f:"))


def _covers(fields: Mapping[str, Any], path: Path) -> bool:
    for name in path:
        inner = fields.get(f"f:{name}")
        if inner is None:
            return False
        fields = inner
    return True


def _leaves(fields: Mapping[str, Any], *, prefix: Path) -> Iterator[Path]:
    for key, inner in fields.items():
        if key == ".":
            continue
        path = (*prefix, key.removeprefix("f:"))
        if inner and set(inner) != {"."}:
            yield from _leaves(inner, prefix=path)
        else:
            yield path
