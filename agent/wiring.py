"""Settings → the options that each part takes."""

from datetime import timedelta

from agent.core.inventory import Options
from agent.node_pass import NodePassOptions
from agent.settings import Settings, SettingsError
from agent.version import agent_version


def inventory_options(settings: Settings) -> Options:
    """Return what decides names and resources."""
    return Options(
        class_names=tuple(sorted(settings.class_names.items())),
        mig_shared_resource=settings.mig_strategy == "single",
    )


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
        inventory=inventory_options(settings),
    )
