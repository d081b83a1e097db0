"""The keys of pools: which are read, which are written, and by whom."""

from dataclasses import dataclass

POOLS_MANAGER = "accelerator-pools"
"""Field manager of the labels on pods, apart from that of classes."""

ENGINE_LABEL = "llm-d.ai/engine-type"
ENGINE_LABELS = (ENGINE_LABEL, "inference.networking.k8s.io/engine-type")
"""Where endpoint pickers look for a pod's engine; the second is the older name."""

VARIANT_LABEL = "llm-d.ai/accelerator-variant"
VENDOR_LABEL = "llm-d.ai/accelerator-vendor"

ACTIVE_PORTS = ("inference.networking.k8s.io/active-ports", "llm-d.ai/active-ports")

ROLE = "accelerator-pools-writer"
"""The ClusterRole that a RoleBinding grants in each namespace that opted in."""

UNKNOWN = "unknown"
"""Stands in metrics and tables for a class or an engine that is not known."""


@dataclass(frozen=True, slots=True)
class PoolKeys:
    """Our own keys under the label domain."""

    domain: str

    @property
    def opt_in(self) -> str:
        """On a Namespace: `true`, `observe` (ask, write nothing) or `labels` (write classes, ask nobody)."""
        return f"{self.domain}/pools"

    @property
    def class_(self) -> str:
        """On a Pod: the class that it runs on."""
        return f"{self.domain}/class"

    @property
    def lora(self) -> str:
        """On a Pod, as an annotation: the state of LoRA."""
        return f"{self.domain}/lora"
