"""`FakeCluster`: the `Cluster` protocol in memory, as strict as the API server where this product can tell.

It keeps owners per field, refuses what a real server refuses, and never promises more than one: `tests/contract` runs
the same cases against both. There is no HTTP, no authorization and no latency in it.
"""

import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from agent.cluster import (
    ACCESS_REVIEWS,
    CRDS,
    EVENTS,
    LEASES,
    NAMESPACES,
    NODES,
    PODS,
    SELF_ACCESS_REVIEWS,
    SELF_REVIEWS,
    ClusterError,
    Conflict,
    FieldConflict,
    Invalid,
    NotFound,
    Object,
    Projection,
    Resource,
    ServerFault,
    WatchEvent,
    not_installed,
)
from fakes.cluster_fields import (
    Fields,
    Owner,
    described,
    difference,
    field_set,
    give,
    managed_fields,
    merged,
    owners_of,
    without,
)
from fakes.cluster_rules import check_names, check_preconditions, merge_patched, selects
from fakes.cluster_schema import BUILTIN, Schema, pruned, schema_of, untypable, violations
from fakes.cluster_store import ChangeType, Key, Store, copy_of, key_of

Verb = Literal["get", "apply", "patch", "create", "update", "delete", "list", "watch"]

_BUILTIN_RESOURCES = {(r.group, r.plural): r for r in (NODES, PODS, EVENTS, NAMESPACES, LEASES, CRDS)}
_WITH_STATUS = frozenset({"nodes", "pods", "namespaces", "customresourcedefinitions"})
_CONDITIONAL_ONLY = frozenset({"leases", "customresourcedefinitions"})
_SYSTEM = ("uid", "creationTimestamp", "generation", "deletionTimestamp", "deletionGracePeriodSeconds")


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request that the fake was sent."""

    verb: Verb
    resource: str
    name: str = ""
    namespace: str = ""
    subresource: str = ""
    manager: str = ""


@dataclass(frozen=True, slots=True)
class _Type:
    """How the fake serves one resource."""

    resource: Resource
    schema: Schema
    has_status: bool
    is_custom: bool


class FakeCluster:
    """An API server in memory. Safe to share between threads."""

    def __init__(self, *, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        """Start with the namespaces that every cluster has; custom resources come with their CRDs."""
        self.calls: list[Call] = []
        """Every request, in order."""
        self.fault: Callable[[Call], ClusterError | None] = lambda _call: None
        """Asked before each request: what it returns is raised in place of an answer."""
        self.user = "kubernetes-admin"
        """Whom it takes the caller for."""
        self.allows: Callable[[str, Object], bool] = lambda _user, _attributes: True
        """Answers access reviews; requests themselves are all allowed."""
        self._now = now
        self._store = Store()
        maker = Owner(manager="kube-apiserver", operation="Update", api_version="v1")
        with self._store.lock:
            for name in ("default", "kube-system", "kube-public", "kube-node-lease"):
                body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
                self._insert(self._type(NAMESPACES), body, maker)

    def get(
        self, resource: Resource, name: str, *, namespace: str | None = None, cached: bool = False
    ) -> Object | None:
        """Return the object, `None` when it does not exist; `cached` changes nothing here."""
        del cached
        with self._store.lock:
            self._record(Call(verb="get", resource=resource.plural, name=name, namespace=namespace or ""))
            self._type(resource)
            found = self._store.get(key_of(resource, namespace, name))
            return None if found is None else copy_of(found)

    def apply(
        self,
        resource: Resource,
        body: Object,
        *,
        manager: str,
        force: bool = False,
        subresource: str | None = None,
    ) -> Object:
        """Server-side apply `body` and return what is then held."""
        with self._store.lock:
            kind, body, key = self._admit("apply", resource, body, manager, subresource)
            if body["metadata"].get("managedFields"):
                raise Invalid("metadata.managedFields must be nil", fields=("metadata.managedFields",))
            reason = untypable(body, kind.schema)
            if reason:
                raise ServerFault(f"failed to create typed patch object ({key[3]}): {reason}", permanent=True)
            live = self._store.get(key)
            if live is None:
                return self._apply_new(kind, body, manager, subresource)
            owner = Owner(
                manager=manager,
                operation="Apply",
                api_version=resource.api_version,
                subresource=subresource or "",
            )
            return self._apply_to(kind, live, body, owner, force=force)

    def merge_patch(
        self,
        resource: Resource,
        name: str,
        patch: Object,
        *,
        manager: str,
        namespace: str | None = None,
        subresource: str | None = None,
    ) -> Object:
        """Apply a JSON merge patch and return what is then held."""
        with self._store.lock:
            kind = self._served("patch", resource, name, namespace, manager=manager, sub=subresource)
            key = key_of(resource, namespace, name)
            live = self._existing(key)
            return self._update(kind, live, merge_patched(live, copy_of(patch)), manager, subresource or "")

    def create(self, resource: Resource, body: Object, *, manager: str) -> Object:
        """Create an object; `Conflict` when it exists. A review is answered and kept nowhere."""
        if resource in {SELF_REVIEWS, SELF_ACCESS_REVIEWS, ACCESS_REVIEWS}:
            return self._reviewed(resource, copy_of(body), manager)
        with self._store.lock:
            kind, body, key = self._admit("create", resource, body, manager, None)
            if self._store.get(key) is not None:
                raise Conflict(f'{resource.plural} "{key[3]}" already exists')
            if body["metadata"].get("resourceVersion"):
                raise ServerFault("resourceVersion should not be set on objects to be created")
            owner = Owner(manager=manager, operation="Update", api_version=resource.api_version)
            return self._insert(kind, body, owner)

    def _reviewed(self, resource: Resource, body: Object, manager: str) -> Object:
        self._record(Call(verb="create", resource=resource.plural, manager=manager))
        if resource == SELF_REVIEWS:
            return {**body, "status": {"userInfo": {"username": self.user}}}
        user = body["spec"].get("user", self.user)
        return {**body, "status": {"allowed": self.allows(user, body["spec"]["resourceAttributes"])}}

    def replace(self, resource: Resource, body: Object, *, manager: str) -> Object:
        """Replace an object; a `resourceVersion` in the body makes it conditional."""
        with self._store.lock:
            kind, body, key = self._admit("update", resource, body, manager, None)
            live = self._existing(key)
            if not body["metadata"].get("resourceVersion") and (
                kind.is_custom or resource.plural in _CONDITIONAL_ONLY
            ):
                raise Invalid(
                    "metadata.resourceVersion: must be specified for an update",
                    fields=("metadata.resourceVersion",),
                )
            return self._update(kind, live, body, manager, "")

    def delete(self, resource: Resource, name: str, *, namespace: str | None = None) -> None:
        """Delete an object, or mark it where finalizers or a kubelet have a last word."""
        with self._store.lock:
            self._served("delete", resource, name, namespace)
            live = self._store.get(key_of(resource, namespace, name))
            if live is None:
                return
            bound = resource.plural == "pods" and live.get("spec", {}).get("nodeName")
            if not live["metadata"].get("finalizers") and not bound:
                self.remove(resource, name, namespace=namespace)
            elif "deletionTimestamp" not in live["metadata"]:
                marked = copy_of(live)
                marked["metadata"]["deletionTimestamp"] = self._stamp()
                marked["metadata"]["deletionGracePeriodSeconds"] = 30 if bound else 0
                self._store.keep(key_of(resource, namespace, name), marked, "MODIFIED")

    def list_all(
        self,
        resource: Resource,
        *,
        project: Projection | None = None,
        namespace: str | None = None,
        label_selector: str | None = None,
    ) -> tuple[list[Object], str]:
        """Return every object and the present resource version."""
        with self._store.lock:
            self._record(Call(verb="list", resource=resource.plural, namespace=namespace or ""))
            kind = self._type(resource)
            found = [
                _as_listed(kind, obj)
                for obj in self._store.listed(resource, namespace)
                if selects(label_selector, obj["metadata"].get("labels", {}))
            ]
            version = str(self._store.version)
        return (found if project is None else [project(obj) for obj in found]), version

    def watch(
        self,
        resource: Resource,
        *,
        resource_version: str | None,
        project: Projection | None = None,
        namespace: str | None = None,
        initial_events: bool = False,
        timeout_seconds: float = 300.0,
    ) -> Iterator[WatchEvent]:
        """Yield changes until `timeout_seconds` have passed; the only bookmark is that of a watch-list."""
        with self._store.lock:
            self._record(Call(verb="watch", resource=resource.plural, namespace=namespace or ""))
            self._type(resource)
            version = self._store.version
            from_now = resource_version in (None, "", "0")
            present = [copy_of(obj) for obj in self._store.listed(resource, namespace)] if from_now else []
            if not from_now:
                version = int(resource_version or 0)
        for obj in present:
            yield _event("ADDED", obj, project)
        if initial_events:
            yield WatchEvent("BOOKMARK", {}, str(version), initial_end=True)
        deadline = time.monotonic() + timeout_seconds
        while (changes := self._store.await_changes(resource, namespace, version, deadline)) is not None:
            for change in changes:
                version = change.version
                yield _event(change.type, copy_of(change.object), project)

    def remove(self, resource: Resource, name: str, *, namespace: str | None = None) -> None:
        """Take an object away at once, as a kubelet does with a pod that has ended, and what it owned with it."""
        with self._store.lock:
            gone = self._store.take(key_of(resource, namespace, name))
            if resource == CRDS:
                self._store.take_all(gone["spec"]["group"], gone["spec"]["names"]["plural"])

    def compact(self) -> None:
        """Forget old changes: watches from before now are refused with `Gone`."""
        with self._store.lock:
            self._store.compact()

    def _admit(
        self,
        verb: Verb,
        resource: Resource,
        body: Object,
        manager: str,
        subresource: str | None,
    ) -> tuple[_Type, Object, Key]:
        body = copy_of(body)
        metadata = body.setdefault("metadata", {})
        name, namespace = metadata.get("name", ""), metadata.get("namespace")
        kind = self._served(verb, resource, name, namespace, manager=manager, sub=subresource)
        if (body.get("apiVersion"), body.get("kind")) != (resource.api_version, resource.kind):
            raise Invalid(f"the body is no {resource.kind} of {resource.api_version}")
        if resource.namespaced and self._store.get(key_of(NAMESPACES, None, namespace or "")) is None:
            raise NotFound(f'namespaces "{namespace}" not found')
        return kind, body, key_of(resource, namespace, name)

    def _served(
        self,
        verb: Verb,
        resource: Resource,
        name: str,
        namespace: str | None,
        *,
        manager: str = "",
        sub: str | None = None,
    ) -> _Type:
        self._record(
            Call(
                verb=verb,
                resource=resource.plural,
                name=name,
                namespace=namespace or "",
                subresource=sub or "",
                manager=manager,
            )
        )
        kind = self._type(resource)
        if sub is not None and not (sub == "status" and kind.has_status):
            raise NotFound(f'{resource.plural}.{resource.group} "{name}" not found')
        return kind

    def _record(self, call: Call) -> None:
        self.calls.append(call)
        error = self.fault(call)
        if error is not None:
            raise error

    def _type(self, resource: Resource) -> _Type:
        if (resource.group, resource.plural) in _BUILTIN_RESOURCES:
            has_status = resource.plural in _WITH_STATUS
            return _Type(resource, BUILTIN[resource.kind], has_status=has_status, is_custom=False)
        crd = self._store.get(key_of(CRDS, None, f"{resource.plural}.{resource.group}"))
        for version in crd["spec"]["versions"] if crd else ():
            if version["name"] == resource.version and version["served"]:
                has_status = "status" in version.get("subresources", {})
                return _Type(resource, schema_of(version), has_status=has_status, is_custom=True)
        raise not_installed(resource)

    def _existing(self, key: Key) -> Object:
        live = self._store.get(key)
        if live is None:
            raise NotFound(f'{key[1]} "{key[3]}" not found')
        return live

    def _apply_new(self, kind: _Type, body: Object, manager: str, subresource: str | None) -> Object:
        name = body["metadata"]["name"]
        if subresource:
            raise NotFound(f'{kind.resource.plural} "{name}" not found')
        if body["metadata"].get("uid"):
            raise Conflict(
                f"uid mismatch: the provided object specified uid {body['metadata']['uid']}, "
                "and no existing object was found"
            )
        if body["metadata"].get("resourceVersion"):
            raise ServerFault("resourceVersion should not be set on objects to be created")
        owner = Owner(manager=manager, operation="Apply", api_version=kind.resource.api_version)
        return self._insert(kind, body, owner)

    def _insert(self, kind: _Type, body: Object, owner: Owner) -> Object:
        check_names(body)
        if kind.has_status and kind.is_custom:
            body.pop("status", None)
        body = pruned(body, kind.schema) if kind.is_custom else body
        metadata = body["metadata"]
        metadata.pop("managedFields", None)
        metadata.update(uid=str(uuid.uuid4()), creationTimestamp=self._stamp())
        if kind.is_custom or kind.resource == CRDS:
            metadata["generation"] = 1
        _check_schema(kind, body)
        owned = (
            field_set(body, kind.schema)
            if owner.operation == "Apply"
            else difference({}, body, kind.schema).added
        )
        metadata["managedFields"] = managed_fields([give(owner, owned, time=self._stamp())])
        if kind.resource == CRDS:
            accepted = [("NamesAccepted", "NoConflicts"), ("Established", "InitialNamesAccepted")]
            body["status"] = {
                "conditions": [
                    {"type": word, "status": "True", "reason": reason} for word, reason in accepted
                ]
            }
        key = key_of(kind.resource, metadata.get("namespace"), metadata["name"])
        kept = self._store.keep(key, body, "ADDED")
        if self._store.is_orphan(kept):
            self.remove(kind.resource, metadata["name"], namespace=metadata.get("namespace"))
        return copy_of(kept)

    def _apply_to(self, kind: _Type, live: Object, body: Object, applier: Owner, *, force: bool) -> Object:
        check_preconditions(live, body)
        roots = _writable_roots(kind, applier.subresource)
        config = _only(body, roots)
        owners = owners_of(live) or [_before_first_apply(kind, live)]
        before = next((o for o in owners if o.identity == applier.identity), applier)
        others = [o for o in owners if o.identity != applier.identity]
        asked = field_set(config, kind.schema)
        result = merged(_without_managed(live), _without_identity(config), kind.schema)
        given_up = before.fields - asked - frozenset(path for o in others for path in o.fields)
        result = _with_containers(without(result, given_up, kind.schema) or {}, config)
        changed = difference(live, result, kind.schema)
        taken = changed.added | changed.modified
        conflicts = [(o.manager, path) for o in others for path in sorted(o.fields & taken)]
        if conflicts and not force:
            raise _apply_conflict(conflicts)
        now = self._stamp()
        lost = taken | changed.removed
        kept = [give(o, o.fields - lost, time=o.time) for o in others]
        return self._commit(kind, live, result, [*kept, give(before, asked, time=now)])

    def _update(self, kind: _Type, live: Object, new: Object, manager: str, subresource: str) -> Object:
        check_preconditions(live, new)
        roots = _writable_roots(kind, subresource)
        result = {**_without_managed(live), **_only(new, roots)}
        for root in roots - new.keys():
            result.pop(root, None)
        result["metadata"] = _settled_metadata(live, new, roots)
        result = pruned(result, kind.schema) if kind.is_custom else result
        changed = difference(live, result, kind.schema)
        taken, lost = changed.added | changed.modified, changed.removed
        writer = Owner(
            manager=manager,
            operation="Update",
            api_version=kind.resource.api_version,
            subresource=subresource,
        )
        sent = new["metadata"].get("managedFields", ...)
        owners = owners_of(live)
        if sent in ([], [{}]) or not owners:
            # The documented way to forget all owners; after it nobody's updates are noted until the next apply.
            return self._commit(kind, live, result, [])
        before = next((o for o in owners if o.identity == writer.identity), writer)
        kept = [
            give(o, o.fields - taken - lost, time=o.time) for o in owners if o.identity != writer.identity
        ]
        fields: Fields = (before.fields - lost) | taken
        return self._commit(kind, live, result, [*kept, give(before, fields, time=self._stamp())])

    def _commit(self, kind: _Type, live: Object, result: Object, owners: list[Owner]) -> Object:
        if kind.is_custom:
            result = pruned(result, kind.schema)
        check_names(result)
        _check_schema(kind, result)
        metadata = {
            **result["metadata"],
            **{k: live["metadata"][k] for k in _SYSTEM if k in live["metadata"]},
        }
        metadata["managedFields"] = managed_fields(owners)
        result = {**result, "metadata": metadata}
        metadata["resourceVersion"] = live["metadata"]["resourceVersion"]
        if _timeless(result) == _timeless(live):
            return copy_of(live)
        if kind.is_custom and _generation_part(kind, result) != _generation_part(kind, live):
            metadata["generation"] = live["metadata"].get("generation", 1) + 1
        key = key_of(kind.resource, metadata.get("namespace"), metadata["name"])
        kept = self._store.keep(key, result, "MODIFIED")
        if (
            "deletionTimestamp" in metadata
            and not metadata.get("finalizers")
            and kind.resource.plural != "pods"
        ):
            self.remove(kind.resource, metadata["name"], namespace=metadata.get("namespace"))
        return copy_of(kept)

    def _stamp(self) -> str:
        return self._now().strftime("%Y-%m-%dT%H:%M:%SZ")


def _event(kind: ChangeType, obj: Object, project: Projection | None) -> WatchEvent:
    version = obj["metadata"]["resourceVersion"]
    return WatchEvent(kind, obj if project is None else project(obj), version)


def _as_listed(kind: _Type, obj: Object) -> Object:
    # Items of a list of a built-in kind come without their kind, as the server writes them.
    listed = copy_of(obj)
    return listed if kind.is_custom else {k: v for k, v in listed.items() if k not in {"apiVersion", "kind"}}


def _writable_roots(kind: _Type, subresource: str) -> frozenset[str]:
    if subresource == "status":
        return frozenset({"status"})
    declared = set(kind.schema.get("properties", {})) | {"metadata"}
    if kind.resource == EVENTS:
        declared |= {
            "involvedObject",
            "reason",
            "message",
            "type",
            "count",
            "firstTimestamp",
            "lastTimestamp",
        }
        declared |= {"source", "reportingComponent", "reportingInstance", "eventTime", "action", "series"}
    return frozenset(declared - {"apiVersion", "kind"} - ({"status"} if kind.has_status else set()))


def _only(obj: Object, roots: frozenset[str]) -> Object:
    return {name: value for name, value in obj.items() if name in roots}


def _without_managed(obj: Object) -> Object:
    metadata = {name: value for name, value in obj["metadata"].items() if name != "managedFields"}
    return {**obj, "metadata": metadata}


def _without_identity(config: Object) -> Object:
    if "metadata" not in config:
        return config
    dropped = {"uid", "resourceVersion", "managedFields", "creationTimestamp", "generation"}
    return {**config, "metadata": {k: v for k, v in config["metadata"].items() if k not in dropped}}


def _before_first_apply(kind: _Type, live: Object) -> Owner:
    fields = field_set(_without_managed(live), kind.schema)
    api_version = kind.resource.api_version
    return Owner(manager="before-first-apply", operation="Update", api_version=api_version, fields=fields)


def _with_containers(result: Object, config: Object) -> Object:
    """Give back objects that were emptied by what was left out, but still hold something in what was applied."""
    kept = dict(result)
    for name, value in config.items():
        if isinstance(value, dict) and value and isinstance(kept.get(name, {}), dict):
            kept[name] = _with_containers(kept.get(name, {}), value)
    return kept


def _settled_metadata(live: Object, new: Object, roots: frozenset[str]) -> Object:
    source = new["metadata"] if "metadata" in roots else live["metadata"]
    fixed = {k: live["metadata"][k] for k in (*_SYSTEM, "resourceVersion") if k in live["metadata"]}
    return {**{k: v for k, v in source.items() if k != "managedFields" and v is not None}, **fixed}


def _generation_part(kind: _Type, obj: Object) -> Object:
    left_out = {"metadata"} | ({"status"} if kind.has_status else set())
    return {name: value for name, value in obj.items() if name not in left_out}


def _timeless(obj: Object) -> Object:
    entries = [{k: v for k, v in e.items() if k != "time"} for e in obj["metadata"].get("managedFields", ())]
    ordered = sorted(entries, key=lambda e: (e["manager"], e["operation"], e.get("subresource", "")))
    return {**obj, "metadata": {**obj["metadata"], "managedFields": ordered}}


def _check_schema(kind: _Type, obj: Object) -> None:
    found = [(path, message) for path, message in violations(obj, kind.schema) if path != "metadata"]
    if found:
        told = ", ".join(f"{path}: {message}" for path, message in found)
        fields = tuple(dict.fromkeys(path for path, _ in found))
        raise Invalid(f'{kind.resource.kind} "{obj["metadata"]["name"]}" is invalid: {told}', fields=fields)


def _apply_conflict(conflicts: list[tuple[str, tuple[str, ...]]]) -> Conflict:
    told = "; ".join(f'conflict with "{manager}": {described(path)}' for manager, path in conflicts)
    return Conflict(
        f"Apply failed with {len(conflicts)} conflicts: {told}",
        conflicts=tuple(FieldConflict(described(path), manager) for manager, path in conflicts),
    )
