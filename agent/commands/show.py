"""What `probe`, `labels`, `record` and `classes` print, without a cluster."""

from typing import Any

from agent.commands.dumping import dump
from agent.commands.machine_record import record_object
from agent.commands.probed import facts_text
from agent.core.compat import gfd_labels
from agent.core.inventory import Inventory, inventory_of
from agent.core.labels import labels_for
from agent.core.tables import classes_table, facts_table, labels_table
from agent.naming import naming_options
from agent.settings import Settings
from probes.facts import NodeFacts


def render(what: str, facts: NodeFacts, settings: Settings, *, output: str, width: int) -> str:
    """Return what a command prints; `what` is the command's name, `output` one of table, json and yaml."""
    inventory = inventory_of(facts, options=naming_options(settings))
    if what == "labels":
        labels = labels_of(inventory, settings) if facts.asked else {}
        return labels_table(labels, facts, width=width) if output == "table" else dump(labels, output)
    if what == "record":
        record = record_object(inventory, settings)
        return dump(record, "yaml" if output == "table" else output)
    if what == "classes":
        from agent.commands.machine_classes import class_objects  # noqa: PLC0415 - labels is quicker without

        classes = class_objects(inventory, settings)
        if output == "table":
            return classes_table(classes, width=width)
        return dump(classes[0] if len(classes) == 1 else _list_of(classes), output)
    return facts_table(inventory, width=width) if output == "table" else facts_text(facts, output)


def labels_of(inventory: Inventory, settings: Settings) -> dict[str, str]:
    """Return the labels that the node's agent would write."""
    labels = labels_for(inventory, domain=settings.label_domain)
    return labels | gfd_labels(inventory) if "gfd" in settings.compat_labels else labels


def _list_of(objects: list[dict[str, Any]]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "List", "items": objects}
