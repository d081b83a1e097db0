"""Settings → the options that each part takes."""

from datetime import timedelta

from agent.core.pools.engines import EngineTable, EngineTableError, engine_table
from agent.inventory_pass import InventoryTimes
from agent.naming import naming_options
from agent.node_pass import NodePassOptions
from agent.settings import Settings, SettingsError
from agent.version import agent_version


def node_pass_options(settings: Settings) -> NodePassOptions:
    """Return what decides an agent's passes; without a node name there is nothing to publish to."""
    if not settings.node_name:
        raise SettingsError(
            "node_name is not set: give ACCELERATOR_NODE_NAME from the downward API (fieldPath spec.nodeName); "
            "it is never guessed from the host name"
        )
    return NodePassOptions(
        node_name=settings.node_name,
        agent_version=agent_version(),
        domain=settings.label_domain,
        former_domains=settings.former_domains,
        compat_labels=settings.compat_labels,
        heartbeat=timedelta(seconds=settings.heartbeat),
        allow_simulated=settings.allow_simulated,
        inventory=naming_options(settings),
    )


def engines_of(settings: Settings) -> EngineTable:
    """Return the model servers that are known, with the operator's own."""
    for word in settings.pools.keys() - {"engines"}:
        raise SettingsError(f"pools: {word!r} is not known; engines is")
    try:
        return engine_table(settings.pools.get("engines"))
    except EngineTableError as error:
        raise SettingsError(str(error)) from error


def inventory_times(settings: Settings) -> InventoryTimes:
    """Return the controller's times."""
    return InventoryTimes(stale_after=settings.record_stale_after)
