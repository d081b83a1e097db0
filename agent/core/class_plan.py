"""What to send of a class, and what to leave to others: the `spec` that is never forced.

Pure. The validated definition is written by server-side apply without the leaves that any other manager owns; the
minimal one, whose `spec` is one value, by a merge patch that fills what is absent and changes only what we wrote last.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from agent.core.class_spec import API_VERSION, KIND, ClassOptions
from agent.core.keys import INVENTORY_MANAGER
from agent.core.ownership import Object, Path, other_owners, owned_paths
from agent.core.quantity import InvalidQuantityError, parse_quantity

NODE_SELECTOR: Path = ("spec", "discovery", "nodeSelector")

_REQUIRED: tuple[Path, ...] = (("spec", "capabilities"), ("spec", "discovery"))
_METADATA: frozenset[Path] = frozenset({("metadata", "labels"), ("metadata", "annotations")})
_QUANTITIES = frozenset({"memoryGB", "memoryBandwidthGBps", "perHour", "spotPerHour", "perMillionTokens"})
_ABSENT = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """A field of which another manager decides, with another value than ours."""

    field: str
    manager: str
    """Empty on the minimal definition, where nobody's ownership can be told."""
    ours: str
    theirs: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecPlan:
    """What to send, and what was left to others."""

    body: Object | None
    """An apply or a merge patch; `None` when the live object is as it should be."""
    overridden: tuple[Override, ...] = ()


def plan_apply(
    live: Object | None, desired: Object, *, adopted: bool = False, refused: Mapping[str, str] | None = None
) -> SpecPlan:
    """Return the apply that brings the live class to the desired one without touching what others own.

    `live` is the object as just read: the apply is bound to its uid and version. An adopted class keeps every value
    that is there and that we do not own. `refused` are fields, as a conflict named them, with their managers: owners
    that managed fields did not show.
    """
    if live is None:
        return SpecPlan(body=desired)
    mine = owned_paths(live, INVENTORY_MANAGER)
    body = _frame(live)
    overridden = []
    for path, value in _leaves(desired):
        others = other_owners(live, path, INVENTORY_MANAGER) or _refusing(path, refused or {})
        current = _at(live, path)
        given = adopted and current is not _ABSENT and not _owns(mine, path)
        if (others or given) and not (path == NODE_SELECTOR and not current):
            manager = others[0] if others else ""
            overridden += _override(path, value, current, manager)
        else:
            _put(body, path, value)
    needed = _is_needed(live, body, mine)
    return SpecPlan(body=body if needed else None, overridden=tuple(overridden))


def plan_merge(live: Object | None, desired: Object, options: ClassOptions) -> SpecPlan:
    """Return the merge patch for the minimal definition; the whole desired object when there is no live one."""
    note = options.written_annotation
    leaves = [(path, value) for path, value in _leaves(desired) if path[0] == "spec"]
    if live is None:
        return SpecPlan(body=_noted(desired, note, leaves))
    written = _written(live, note)
    patch: Object = {}
    kept: list[tuple[Path, Any]] = []
    overridden = []
    for path, value in leaves:
        current, last = _at(live, path), written.get(".".join(path), _ABSENT)
        if current is _ABSENT or (path == NODE_SELECTOR and not current) or current == last:
            kept.append((path, value))
            if current != value:
                _put(patch, path, _replacement(current, value))
        else:
            overridden += _override(path, value, current, "")
    wanted = {path for path, _ in leaves}
    for dotted, last in written.items():
        path = tuple(dotted.split("."))
        if path not in wanted and _at(live, path) == last:
            _put(patch, path, None)
    for path in _REQUIRED:
        if not isinstance(_at(live, path), dict) and not isinstance(_at(patch, path), dict):
            _put(patch, path, {})
    _patch_metadata(patch, live, _noted(desired, note, kept))
    if patch:
        version = live["metadata"]["resourceVersion"]
        patch.setdefault("metadata", {})["resourceVersion"] = version
    return SpecPlan(body=patch or None, overridden=tuple(overridden))


def _leaves(desired: Object) -> Iterator[tuple[Path, Any]]:
    for part in ("labels", "annotations"):
        for key, value in desired["metadata"].get(part, {}).items():
            yield ("metadata", part, key), value
    yield from _inside(desired["spec"], ("spec",))


def _inside(value: Object, path: Path) -> Iterator[tuple[Path, Any]]:
    for name, inner in value.items():
        at = (*path, name)
        # The selector is one leaf: keys of two owners would be merged into a condition that nobody meant.
        if isinstance(inner, dict) and at != NODE_SELECTOR:
            yield from _inside(inner, at)
        else:
            yield at, inner


def _frame(live: Object) -> Object:
    metadata = {key: live["metadata"][key] for key in ("name", "uid", "resourceVersion")}
    # An object that we alone own would be emptied, and refused, if it were not sent.
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": metadata,
        "spec": {"capabilities": {}, "discovery": {}},
    }


def _is_needed(live: Object, body: Object, mine: frozenset[Path]) -> bool:
    sent = dict(_sent(body["spec"], ("spec",)))
    for part in ("labels", "annotations"):
        sent |= {("metadata", part, key): value for key, value in body["metadata"].get(part, {}).items()}
    held = {path for path in mine if path[0] == "spec" or path[:2] in _METADATA}
    return held != sent.keys() or any(_at(live, path) != value for path, value in sent.items())


def _sent(value: Any, path: Path) -> Iterator[tuple[Path, Any]]:  # noqa: ANN401 - any JSON value
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            yield from _sent(inner, (*path, name))
    else:
        yield path, value


def _refusing(path: Path, refused: Mapping[str, str]) -> tuple[str, ...]:
    text = "." + ".".join(path)
    return tuple(
        manager for named, manager in refused.items() if named == text or named.startswith(f"{text}.")
    )


def _owns(mine: frozenset[Path], path: Path) -> bool:
    return any(held[: len(path)] == path for held in mine)


def _override(path: Path, ours: object, theirs: object, manager: str) -> list[Override]:
    if path[0] != "spec" or _equal(path, ours, theirs):
        return []
    shown = "absent" if theirs is _ABSENT else _text(theirs)
    return [Override(field=".".join(path[1:]), manager=manager, ours=_text(ours), theirs=shown)]


def _equal(path: Path, one: object, other: object) -> bool:
    if path[-1] in _QUANTITIES:
        try:
            return parse_quantity(one) == parse_quantity(other)
        except InvalidQuantityError:
            return False
    return one == other


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def _written(live: Object, note: str) -> dict[str, Any]:
    try:
        stored = json.loads((live["metadata"].get("annotations") or {}).get(note, "{}"))
    except ValueError:  # somebody edited it; then nothing is known to be ours
        return {}
    return stored if isinstance(stored, dict) else {}


def _noted(desired: Object, note: str, leaves: Iterable[tuple[Path, Any]]) -> Object:
    text = json.dumps({".".join(path): value for path, value in leaves}, sort_keys=True)
    metadata = desired["metadata"]
    return {**desired, "metadata": {**metadata, "annotations": {**metadata["annotations"], note: text}}}


def _patch_metadata(patch: Object, live: Object, desired: Object) -> None:
    for part in ("labels", "annotations"):
        for key, value in desired["metadata"].get(part, {}).items():
            others = other_owners(live, ("metadata", part, key), INVENTORY_MANAGER)
            if not others and _at(live, ("metadata", part, key)) != value:
                _put(patch, ("metadata", part, key), value)


def _replacement(current: object, value: object) -> object:
    """Return what makes a merge patch replace a map: its former keys set to null."""
    if isinstance(current, dict) and isinstance(value, dict):
        return {**dict.fromkeys(current), **value}
    return value


def _at(obj: Object, path: Path) -> Any:  # noqa: ANN401 - any JSON value
    value: Any = obj
    for name in path:
        if not isinstance(value, dict) or name not in value:
            return _ABSENT
        value = value[name]
    return value


def _put(obj: Object, path: Path, value: object) -> None:
    for name in path[:-1]:
        obj = obj.setdefault(name, {})
    obj[path[-1]] = value
