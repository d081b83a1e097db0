"""Tells from a Node whether its driver is about to be changed, so that nothing of ours may hold the device open."""

from collections.abc import Mapping
from typing import Any

UPGRADE_STATE = "nvidia.com/gpu-driver-upgrade-state"
"""Label (and annotation) that the GPU Operator's upgrade controller keeps."""

_NO_UPGRADE = frozenset({"", "upgrade-done", "unknown"})


def driver_release_announced(node: Mapping[str, Any], *, domain: str) -> bool:
    """Tell whether an upgrade is under way, or a person asked by the annotation `<domain>/release: "true"`."""
    metadata = node["metadata"]
    annotations: Mapping[str, str] = metadata.get("annotations") or {}
    labels: Mapping[str, str] = metadata.get("labels") or {}
    states = (labels.get(UPGRADE_STATE, ""), annotations.get(UPGRADE_STATE, ""))
    return annotations.get(f"{domain}/release") == "true" or any(state not in _NO_UPGRADE for state in states)
