"""MIG devices of a board: the compute instances of a layout, with the ids, sizes and names that the driver gives them."""

import uuid
from dataclasses import dataclass

from fakes.hardware import ComputeInstance, Device, GpuInstance, Memory, Mig, Profile

_FIRST_ID = {8: 0, 7: 0, 6: 0, 4: 1, 3: 1, 2: 3, 1: 7}
"""Where the ids of GPU instances start, by slices, as seen on A100 and H200."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuPart:
    """A GPU instance with everything that a layout may leave open."""

    id: int
    profile: Profile
    memory: Memory
    start: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MigDevice:
    """One MIG device."""

    index: int
    uuid: str
    compute_id: int
    slices: int
    multiprocessors: int
    part: GpuPart

    @property
    def profile_name(self) -> str:
        """Return NVIDIA's name: `1c.3g.71gb` where the compute instance is less than its GPU instance."""
        whole = self.slices == self.part.profile.slices
        return self.part.profile.name if whole else f"{self.slices}c.{self.part.profile.name}"


def profile(mig: Mig, name: str) -> Profile:
    """Return the profile of that name."""
    return next(profile for profile in mig.profiles if profile.name == name)


def gpu_parts(device: Device) -> tuple[GpuPart, ...]:
    """Return the GPU instances; none while MIG is off or was never there."""
    if device.mig is None or not device.mig.enabled:
        return ()
    parts: list[GpuPart] = []
    start = 0
    for instance in device.mig.instances:
        kind = profile(device.mig, instance.profile)
        identifier = instance.id if instance.id is not None else _free_id(parts, kind, device.mig)
        memory = instance.memory or Memory(total_bytes=kind.memory_mib << 20)
        parts.append(GpuPart(id=identifier, profile=kind, memory=memory, start=start))
        start += kind.slices
    return tuple(parts)


def mig_devices(device: Device) -> tuple[MigDevice, ...]:
    """Return the MIG devices in the order in which the driver numbers them."""
    found: list[MigDevice] = []
    layout = device.mig.instances if device.mig else ()
    for part, instance in zip(gpu_parts(device), layout, strict=False):
        found += _compute_devices(device, part, instance, len(found))
    return tuple(found)


def _compute_devices(device: Device, part: GpuPart, instance: GpuInstance, first: int) -> list[MigDevice]:
    return [
        MigDevice(
            index=first + position,
            uuid=compute.uuid or _uuid(device, part, position),
            compute_id=position if compute.id is None else compute.id,
            slices=compute.slices or part.profile.slices,
            multiprocessors=_multiprocessors(part.profile, compute),
            part=part,
        )
        for position, compute in enumerate(instance.compute_instances)
    ]


def _multiprocessors(kind: Profile, compute: ComputeInstance) -> int:
    if compute.multiprocessors is not None:
        return compute.multiprocessors
    return kind.multiprocessors * (compute.slices or kind.slices) // kind.slices


def _uuid(device: Device, part: GpuPart, position: int) -> str:
    return f"MIG-{uuid.uuid5(uuid.NAMESPACE_OID, f'{device.uuid}/{part.id}/{position}')}"


def _free_id(parts: list[GpuPart], kind: Profile, mig: Mig) -> int:
    taken = {part.id for part in parts} | {i.id for i in mig.instances if i.id is not None}
    identifier = _FIRST_ID.get(kind.slices, 0)
    while identifier in taken:
        identifier += 1
    return identifier
