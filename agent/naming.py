"""Settings → what decides the names of classes and resources, for the agent and the one-shot commands alike."""

from agent.core.inventory import Options
from agent.settings import Settings


def naming_options(settings: Settings) -> Options:
    """Return what decides names and resources."""
    return Options(
        class_names=tuple(sorted(settings.class_names.items())),
        mig_shared_resource=settings.mig_strategy == "single",
    )
