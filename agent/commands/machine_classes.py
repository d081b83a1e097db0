"""The AcceleratorClass objects that a machine by itself would come to: what the controller would write for it alone."""

from typing import Any

from agent.class_settings import class_options
from agent.core.class_spec import desired_class
from agent.core.classes import ClassContent, content_from, merge_contents
from agent.core.fold import ClassState
from agent.core.inventory import Inventory
from agent.settings import Settings


def class_objects(inventory: Inventory, settings: Settings) -> list[dict[str, Any]]:
    """Return the classes of one machine, by name. Raises `SettingsError` for what no class could hold."""
    contents: dict[str, list[ClassContent]] = {}
    for device in inventory.devices:
        described = (
            [description for _, description in device.partitions] if device.cut else [device.description]
        )
        for description in described:
            if description is not None:
                content = content_from(description, device.facts.product, domain=settings.label_domain)
                contents.setdefault(content.name, []).append(content)
    options = class_options(settings)
    drivers = tuple(driver.version for driver in inventory.facts.drivers[:1] if driver.version)
    simulated = inventory.facts.simulated
    return [
        _unmarked(
            desired_class(
                ClassState(name=name, content=None, drivers=drivers, simulated=simulated),
                merge_contents(contents[name]),
                options,
            )
        )
        for name in sorted(contents)
    ]


def _unmarked(made: dict[str, Any]) -> dict[str, Any]:
    """Leave out the controller's mark: who applies this by hand keeps it."""
    metadata = {key: value for key, value in made["metadata"].items() if key != "labels"}
    return {**made, "metadata": metadata}
