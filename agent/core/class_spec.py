"""What we would write into an AcceleratorClass, were it ours alone; whose a class is; which definition is installed.

Pure. What of it is sent, and what is left to others, is `class_plan`'s matter.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from agent.core.classes import ClassContent
from agent.core.fold import ClassState
from agent.core.keys import DEFAULT_DOMAIN, INVENTORY_MANAGER
from agent.core.ownership import Object, Path, owned_paths
from agent.core.quantity import canonical_quantity

API_VERSION = "ome.io/v1beta1"
KIND = "AcceleratorClass"
MANAGED_BY = "app.kubernetes.io/managed-by"

_MAX_DRIVERS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ListEdit:
    """Entries that the operator adds to an atomic list of a class, or takes out of it."""

    add: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassOptions:
    """What the operator decides about classes. Mappings are keyed by class name."""

    domain: str = DEFAULT_DOMAIN
    resources: Literal["none", "per-accelerator"] = "none"
    prices: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """`spec.cost` fields (`perHour`, `spotPerHour`, `tier`) per class."""
    node_selectors: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """A cloud's label in place of ours, for autoscalers that know only that one."""
    features: Mapping[str, ListEdit] = field(default_factory=dict)
    device_ids: Mapping[str, ListEdit] = field(default_factory=dict)
    resource_names: Mapping[str, ListEdit] = field(default_factory=dict)
    kueue_flavors: Mapping[str, str] = field(default_factory=dict)
    volcano_types: Mapping[str, str] = field(default_factory=dict)
    excluded_fields: frozenset[str] = frozenset()
    """Dotted paths below `spec`, such as `capabilities.clockSpeedMHz`, that we never write."""

    @property
    def adopts_annotation(self) -> str:
        """Return the annotation by which a person's class takes the place of a canonical one."""
        return f"{self.domain}/adopts"

    @property
    def written_annotation(self) -> str:
        """Return the annotation that remembers, on the minimal definition, what we wrote last."""
        return f"{self.domain}/last-written"


def desired_class(
    state: ClassState, content: ClassContent, options: ClassOptions, *, adopter: str | None = None
) -> Object:
    """Return the class as we would write it, were it ours alone.

    With `adopter` it is the content for a person's class of that name, which does not get our mark.
    """
    canonical = content.name
    spec: Object = json.loads(json.dumps(content.spec))
    discovery, capabilities = spec["discovery"], spec["capabilities"]
    if options.node_selectors.get(canonical):
        discovery["nodeSelector"] = dict(options.node_selectors[canonical])
    _edit(capabilities, "features", options.features.get(canonical), in_order=True)
    _edit(discovery, "deviceIDs", options.device_ids.get(canonical), in_order=True)
    resources = {"names": [content.resource] if options.resources == "per-accelerator" else []}
    _edit(resources, "names", options.resource_names.get(canonical), in_order=False)
    if resources.get("names"):
        spec["resources"] = [{"name": resource, "quantity": "1"} for resource in resources["names"]]
    if options.prices.get(canonical):
        spec["cost"] = {key: _price(key, text) for key, text in options.prices[canonical].items()}
    integration = {
        "kueueResourceFlavor": options.kueue_flavors.get(canonical),
        "volcanoGPUType": options.volcano_types.get(canonical),
    }
    if any(integration.values()):
        spec["integration"] = {key: text for key, text in integration.items() if text}
    for excluded in options.excluded_fields:
        _remove(spec, tuple(excluded.split(".")))
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {
            "name": adopter or canonical,
            "labels": {} if adopter else {MANAGED_BY: INVENTORY_MANAGER},
            "annotations": _annotations(state, content, options),
        },
        "spec": spec,
    }


def is_ours(live: Object, options: ClassOptions) -> bool:
    """Tell whether a class is one that we made: it carries our label, or fields of our manager."""
    metadata = live["metadata"]
    if (metadata.get("labels") or {}).get(MANAGED_BY) == INVENTORY_MANAGER:
        return True
    if options.written_annotation in (metadata.get("annotations") or {}):
        return True
    return any(path[0] == "spec" for path in owned_paths(live, INVENTORY_MANAGER))


def adopted_class(live: Object, options: ClassOptions) -> str | None:
    """Return the canonical class that a person's class says it adopts."""
    return (live["metadata"].get("annotations") or {}).get(options.adopts_annotation) or None


def is_minimal_definition(definition: Object) -> bool:
    """Tell whether an installed CRD is the variant whose `spec` is one atomic value."""
    for version in definition["spec"]["versions"]:
        schema = version.get("schema", {}).get("openAPIV3Schema", {})
        spec = schema.get("properties", {}).get("spec", {})
        if version.get("storage"):
            return bool(spec.get("x-kubernetes-map-type") == "atomic")
    return False


def shows_minimal_definition(classes: Iterable[Object]) -> bool:
    """Tell the same from managed fields, for a controller that may not read definitions."""
    return any(
        entry.get("fieldsV1", {}).get("f:spec") == {}
        for live in classes
        for entry in live["metadata"].get("managedFields") or ()
    )


def cut_to_definition(desired: Object, definition: Object) -> Object:
    """Return the class without spec fields that an older definition does not declare; apply would fail for good."""
    for version in definition["spec"]["versions"]:
        if version.get("storage"):
            schema = version["schema"]["openAPIV3Schema"]["properties"].get("spec", {})
            return {**desired, "spec": _cut(desired["spec"], schema)}
    return desired


def _cut(value: Any, schema: Mapping[str, Any]) -> Any:  # noqa: ANN401 - any JSON value
    properties = schema.get("properties")
    if not isinstance(value, dict) or properties is None:
        return value
    return {name: _cut(inner, properties[name]) for name, inner in value.items() if name in properties}


def _annotations(state: ClassState, content: ClassContent, options: ClassOptions) -> dict[str, str]:
    facts = dict(content.annotations)
    if state.drivers:
        facts[f"{options.domain}/driver-versions"] = ", ".join(state.drivers[:_MAX_DRIVERS])
    if state.simulated:
        facts[f"{options.domain}/simulated"] = "true"
    return facts


def _edit(holder: Object, name: str, edit: ListEdit | None, *, in_order: bool) -> None:
    if edit is None:
        return
    entries = [entry for entry in (*holder.get(name, ()), *edit.add) if entry not in edit.drop]
    unique = list(dict.fromkeys(entries))
    if unique:
        holder[name] = sorted(unique) if in_order else unique
    else:
        holder.pop(name, None)


def _price(key: str, text: str) -> str:
    return text if key == "tier" else canonical_quantity(text)


def _remove(obj: Object, path: Path) -> None:
    for name in path[:-1]:
        inner = obj.get(name)
        if not isinstance(inner, dict):
            return
        obj = inner
    obj.pop(path[-1], None)
