"""Writes what an agent knows to its own Node and its own record, and nothing else: read, compare, apply on difference."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from agent.cluster import (
    ACCELERATOR_NODES,
    NODES,
    Cluster,
    ClusterError,
    Conflict,
    Forbidden,
    Invalid,
    Object,
    ServerFault,
)
from agent.core.keys import AGENT_MANAGER
from agent.core.label_plan import NOBODY, LabelPlan, former_keys_kept, plan_labels
from agent.core.outcomes import Published, PublishTarget
from agent.core.undeclared import undeclared_fields, without_fields

# Fields of a record that change without anything having changed.
_UNREMARKABLE = ("observedAt",)

_NOT_DECLARED = "the installed definition of AcceleratorNode does not know it; apply the newer one"


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelResult:
    """What applying labels came to, and the Node as the server then holds it."""

    published: Published
    node: Object


def apply_labels(
    cluster: Cluster, node: Object, desired: Mapping[str, str], *, domains: Sequence[str]
) -> LabelResult:
    """Make the Node's labels `desired`, as far as other managers and admission allow; no `ClusterError` leaves."""
    plan = plan_labels(node, desired, domains=domains)
    try:
        node = _without_orphans(cluster, node, plan.orphans)
        if not plan.needed:
            return _label_result(plan, node, written=bool(plan.orphans))
        return _send_labels(cluster, node, plan, domains)
    except ClusterError as error:
        return LabelResult(published=_refused("labels", error, plan.rivals), node=node)


def with_left_out(published: Published, left_out: Mapping[str, str]) -> Published:
    """Return the outcome with the keys that the server would not take; a failure of all keys says more."""
    left_out = {**left_out, **published.left_out}
    if not left_out or (published.failed and not published.left_out):
        return published
    told = "; ".join(f"{key}: {why}" for key, why in sorted(left_out.items()))
    return replace(
        published,
        reason="PartlyRefused",
        message=f"the API server refused some keys: {told}",
        left_out=left_out,
    )


def apply_record(
    cluster: Cluster,
    live: Object | None,
    desired: Object,
    *,
    heartbeat_due: bool,
    undeclared: Collection[str] = (),
) -> Published:
    """Write the record when it says something new, or when its heartbeat is due; no `ClusterError` leaves.

    `undeclared` are the fields that an older definition was found not to know; a heartbeat tries them again. Those that it
    does not know now are left out, and named by the outcome.
    """
    if live is not None and _owner_uid(live) not in {None, _owner_uid(desired)}:
        message = (
            "the record belongs to a Node of this name that was deleted; waiting for the garbage collector"
        )
        return Published(target="record", reason="OwnerIsGone", message=message)
    left_out = frozenset() if heartbeat_due else frozenset(undeclared)
    if (
        live is not None
        and not heartbeat_due
        and _content(live) == _content(without_fields(desired, left_out))
    ):
        return Published(target="record", left_out=dict.fromkeys(left_out, _NOT_DECLARED))
    return _send_record(cluster, desired, left_out)


def _send_record(cluster: Cluster, desired: Object, left_out: frozenset[str]) -> Published:
    """Apply the record, each time without what the installed definition was found not to know."""
    while True:
        try:
            body = without_fields(desired, left_out)
            cluster.apply(ACCELERATOR_NODES, body, manager=AGENT_MANAGER, force=True)
        except ServerFault as error:
            named = undeclared_fields(error.message) - left_out if error.permanent else frozenset()
            if not named:
                return _refused("record", error, {})
            left_out |= named
        except ClusterError as error:
            return _refused("record", error, {})
        else:
            told = dict.fromkeys(sorted(left_out), _NOT_DECLARED)
            return Published(target="record", written=True, reason="Written", left_out=told)


def _send_labels(cluster: Cluster, node: Object, plan: LabelPlan, domains: Sequence[str]) -> LabelResult:
    """Apply once, and once more without the keys that the server named: one bad key must not cost the others."""
    try:
        return _label_result(plan, _apply(cluster, node, plan.apply), written=True)
    except (Conflict, Forbidden, Invalid) as error:
        named = _named_keys(error, plan.apply)
        # What nobody owns may be taken; the plan has left out what anybody else does.
        force = isinstance(error, Conflict) and any(c.manager == NOBODY for c in error.conflicts)
        if not named and not force:
            raise
    kept = {key: value for key, value in plan.apply.items() if key not in named}
    kept |= former_keys_kept(node, named, domains)
    written = _apply(cluster, node, kept, force=force)
    if not named:
        return _label_result(plan, written, written=True)
    published = with_left_out(
        Published(target="labels", written=True, reason="Written", rivals=plan.rivals), named
    )
    return LabelResult(published=published, node=written)


def _apply(cluster: Cluster, node: Object, labels: Mapping[str, str], *, force: bool = False) -> Object:
    metadata = node["metadata"]
    body = {
        "apiVersion": "v1",
        "kind": "Node",
        # The uid keeps an apply from making a Node that is gone, and from labelling its successor unread.
        "metadata": {"name": metadata["name"], "uid": metadata["uid"], "labels": dict(labels)},
    }
    return cluster.apply(NODES, body, manager=AGENT_MANAGER, force=force)


def _without_orphans(cluster: Cluster, node: Object, orphans: Sequence[str]) -> Object:
    if not orphans:
        return node
    patch = {"metadata": {"labels": dict.fromkeys(orphans)}}
    return cluster.merge_patch(NODES, node["metadata"]["name"], patch, manager=AGENT_MANAGER)


def _label_result(plan: LabelPlan, node: Object, *, written: bool) -> LabelResult:
    held = node["metadata"].get("labels") or {}
    lost = sorted(key for key, value in plan.apply.items() if held.get(key) != value)
    if lost:
        # The answer is believed, not the status code: a patch of the wrong shape is answered with 200 as well.
        message = f"the API server accepted the labels but does not hold {', '.join(lost)}"
        published = Published(target="labels", written=written, reason="NotHeld", message=message)
    else:
        reason = "Written" if written else "Unchanged"
        published = Published(target="labels", written=written, reason=reason, rivals=plan.rivals)
    return LabelResult(published=published, node=node)


def _named_keys(error: Conflict | Forbidden | Invalid, sent: Mapping[str, str]) -> dict[str, str]:
    """Return the keys that a refusal is about; keys hold dots, so they are looked up among those that were sent."""
    if isinstance(error, Invalid):
        # The server names a bad key or a bad value, and says of which field it is.
        about_labels = any(field.startswith("metadata.labels") for field in error.fields)
        named = {
            key for key, value in sent.items() if _mentions(str(error), key) or f'"{value}"' in str(error)
        }
        return dict.fromkeys(sorted(named), str(error)) if about_labels else {}
    if isinstance(error, Conflict):
        fields = {c.field: c.manager for c in error.conflicts if c.manager != NOBODY}
        owners = {key: fields.get(f".metadata.labels.{key}") for key in sent}
        return {key: f"owned by {manager}" for key, manager in owners.items() if manager is not None}
    return {key: str(error) for key in sent if error.denied and _mentions(str(error), key)}


def _mentions(message: str, key: str) -> bool:
    """Tell whether the key stands in the message as a word of its own, not as the beginning of a longer one."""
    rest = message.split(key)[1:]
    return any(not tail[:1] or tail[0] not in "abcdefghijklmnopqrstuvwxyz0123456789-_./" for tail in rest)


def _refused(target: PublishTarget, error: ClusterError, rivals: Mapping[str, str]) -> Published:
    reason = "NodeWasRecreated" if _names_uid(error) else type(error).__name__
    return Published(target=target, reason=reason, message=str(error), rivals=rivals)


def _names_uid(error: ClusterError) -> bool:
    return isinstance(error, Invalid) and "metadata.uid" in error.fields


def _owner_uid(record: Mapping[str, Any]) -> str | None:
    owners: list[dict[str, str]] = record.get("metadata", {}).get("ownerReferences") or [{}]
    return owners[0].get("uid")


def _content(record: Mapping[str, Any]) -> tuple[dict[str, Any], Any]:
    spec = {key: value for key, value in (record.get("spec") or {}).items() if key not in _UNREMARKABLE}
    return spec, record.get("status")
