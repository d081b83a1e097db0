"""What this process knows of the container that it runs in: its user, its rights, its environment."""

import os
from pathlib import Path

from agent.core.doctor.machine import Surroundings

_SYS_ADMIN = 21
"""`CAP_SYS_ADMIN`, which reading MIG partitions needs."""


def own_surroundings() -> Surroundings:
    """Return what this process knows of the container that it runs in."""
    marks = (Path("/.dockerenv"), Path("/run/.containerenv"))
    return Surroundings(
        in_container="KUBERNETES_SERVICE_HOST" in os.environ or any(mark.exists() for mark in marks),
        user=os.geteuid(),
        visible_devices=os.environ.get("NVIDIA_VISIBLE_DEVICES"),
        driver_capabilities=os.environ.get("NVIDIA_DRIVER_CAPABILITIES"),
        system_administrator=_has_capability(_SYS_ADMIN),
    )


def _has_capability(number: int) -> bool:
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return False
    effective = next((line.split()[1] for line in status.splitlines() if line.startswith("CapEff:")), "0")
    return bool(int(effective, 16) >> number & 1)
