"""The AcceleratorNode record of a machine that has none yet: what its agent would write first."""

from datetime import UTC, datetime
from typing import Any

from agent.core.inventory import Inventory
from agent.core.record import NodeIdentity, record_after_failure, record_for
from agent.settings import Settings
from agent.version import agent_version


def record_object(inventory: Inventory, settings: Settings) -> dict[str, Any]:
    """Return the record, or what would be told where the hardware could not be asked."""
    node, now = NodeIdentity(name=settings.node_name or "this-node"), datetime.now(UTC)
    if inventory.facts.asked:
        return record_for(inventory, node, now=now, agent_version=agent_version())
    return record_after_failure(inventory.facts, node, now=now, agent_version=agent_version(), previous={})
