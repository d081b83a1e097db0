"""What an uninstall may remove: exactly what is ours, and no class that somebody still names.

Pure.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from agent.core.class_spec import MANAGED_BY, ClassOptions, adopted_class
from agent.core.keys import AGENT_MANAGER, INVENTORY_MANAGER, is_ours
from agent.core.ownership import Object, foreign_label_keys, owned_label_keys

NAMED_BY_ANNOTATION = "ome.io/accelerator-class"


def our_label_keys(node: Object, domains: Iterable[str]) -> tuple[str, ...]:
    """Return the label keys of a Node to remove: those under our domains or of our manager that nobody else owns."""
    labels = node["metadata"].get("labels") or {}
    owned = owned_label_keys(node, AGENT_MANAGER)
    ours = {key for key in labels if key in owned or any(is_ours(key, domain) for domain in domains)}
    return tuple(sorted(ours - foreign_label_keys(node, ours, AGENT_MANAGER).keys()))


def prunable_classes(classes: Iterable[Object], options: ClassOptions) -> tuple[str, ...]:
    """Return the classes that we made; a person's class is never among them, also when it adopts one."""
    return tuple(
        sorted(
            live["metadata"]["name"]
            for live in classes
            if (live["metadata"].get("labels") or {}).get(MANAGED_BY) == INVENTORY_MANAGER
            and adopted_class(live, options) is None
        )
    )


def class_references(
    runtimes: Iterable[Mapping[str, Any]], services: Iterable[Mapping[str, Any]]
) -> dict[str, tuple[str, ...]]:
    """Return for each class that is named somewhere who names it, as `Kind namespace/name`."""
    found: dict[str, set[str]] = {}
    for runtime in runtimes:
        for name in _named_by_runtime(runtime.get("spec") or {}):
            found.setdefault(name, set()).add(_shown(runtime))
    for service in services:
        for name in _named_by_service(service):
            found.setdefault(name, set()).add(_shown(service))
    return {name: tuple(sorted(who)) for name, who in sorted(found.items())}


def _named_by_runtime(spec: Mapping[str, Any]) -> Iterator[str]:
    yield from (spec.get("acceleratorRequirements") or {}).get("acceleratorClasses") or ()
    for model_format in spec.get("supportedModelFormats") or ():
        yield from model_format.get("acceleratorConfig") or {}


def _named_by_service(service: Mapping[str, Any]) -> Iterator[str]:
    spec = service.get("spec") or {}
    named = [
        (service["metadata"].get("annotations") or {}).get(NAMED_BY_ANNOTATION),
        (spec.get("acceleratorSelector") or {}).get("acceleratorClass"),
    ]
    for component in ("engine", "decoder"):
        override = (spec.get(component) or {}).get("acceleratorOverride") or {}
        named.append(override.get("acceleratorClass"))
    yield from (name for name in named if name)


def _shown(obj: Mapping[str, Any]) -> str:
    metadata = obj["metadata"]
    namespace = metadata.get("namespace")
    name = f"{namespace}/{metadata['name']}" if namespace else metadata["name"]
    return f"{obj.get('kind', 'object')} {name}"
