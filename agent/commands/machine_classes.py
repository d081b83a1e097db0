"""The AcceleratorClass objects that a machine by itself would come to: what the controller would write for it alone."""

from typing import Any

from agent.class_settings import class_options
from agent.commands.machine_record import record_object
from agent.core.class_spec import desired_class
from agent.core.cluster_views import NodeView, record_view
from agent.core.fold import fold
from agent.core.inventory import Inventory
from agent.settings import Settings


def class_objects(inventory: Inventory, settings: Settings) -> list[dict[str, Any]]:
    """Return the classes of one machine, by name. Raises `SettingsError` for what no class could hold."""
    options = class_options(settings)
    record = record_view(record_object(inventory, settings), domain=settings.label_domain)
    node = NodeView(name=record.name, uid=record.owner_uid or "", ready=True, schedulable=True)
    states = fold({record.name: record}, {record.name: node}, None, stale_before=0.0)
    return [
        _unmarked(desired_class(state, state.content, options))
        for state in states.values()
        if state.content is not None
    ]


def _unmarked(made: dict[str, Any]) -> dict[str, Any]:
    """Leave out the controller's mark: who applies this by hand keeps it."""
    metadata = {key: value for key, value in made["metadata"].items() if key != "labels"}
    return {**made, "metadata": metadata}
