"""Multi-instance mode of a GPU and the partitions it is cut into, under NVIDIA's own names for them."""

from probes.facts import Mig, Partition
from probes.questions import NOT_FOUND, UNKNOWN_TO_DRIVER, Handle, Questions, Refusal

MEBIBYTE = 1 << 20
MAX_PARTITIONS = 64
PROFILE_SLOTS = 0x12
"""`NVML_GPU_INSTANCE_PROFILE_COUNT`."""
_HANDLE = "nvmlDeviceGetMigDeviceHandleByIndex"
_INSTANCE_LIMIT = 1 << 16


def read_mig(handle: Handle, ask: Questions) -> Mig | None:
    """Read the mode and the partitions; `None` for a GPU that cannot be cut or would not say."""
    modes = ask.ask("mig", "nvmlDeviceGetMigMode", handle)
    if modes is None:
        return None
    current, pending = modes
    if max(current, pending) > 1:
        ask.doubt("mig")
        return None
    partitions = _read_partitions(handle, ask) if current else ()
    return Mig(enabled=bool(current), pending_enabled=bool(pending), partitions=partitions)


def _read_partitions(handle: Handle, ask: Questions) -> tuple[Partition, ...] | None:
    """Read those that exist; `None` when not one could be read and some may exist."""
    count = ask.ask("mig.partitions", "nvmlDeviceGetMaxMigDeviceCount", handle)
    if count is None or count > MAX_PARTITIONS:
        ask.doubt("mig.partitions")
        return None
    found: list[Partition] = []
    refused = False
    for index in range(count):
        part = ask.try_to_ask(_HANDLE, handle, index)
        if not isinstance(part, Refusal):
            found.append(_read_partition(handle, part, ask))
        elif part.code != NOT_FOUND:
            ask.note("mig.partitions", _HANDLE, part)
            # "Not supported" for a handle of a GPU whose mode is on tells nothing about what exists.
            if part.code in UNKNOWN_TO_DRIVER:
                ask.doubt("mig.partitions")
            refused = True
    return None if refused and not found else tuple(found)


def _read_partition(handle: Handle, part: Handle, ask: Questions) -> Partition:
    def number(field: str, call: str) -> int | None:
        return ask.number(field, call, part, below=_INSTANCE_LIMIT)

    instance = number("mig.gpu_instance_id", "nvmlDeviceGetGpuInstanceId")
    multiprocessors, slices, compute_slices, memory = _read_attributes(part, ask)
    return Partition(
        id=ask.text("mig.id", "nvmlDeviceGetUUID", part),
        profile=_read_profile(handle, part, instance, (slices, compute_slices), ask),
        gpu_instance_id=instance,
        compute_instance_id=number("mig.compute_instance_id", "nvmlDeviceGetComputeInstanceId"),
        memory_bytes=_read_memory(part, ask) or memory,
        multiprocessors=multiprocessors,
        gpu_instance_slices=slices,
        compute_instance_slices=compute_slices,
    )


def _read_attributes(part: Handle, ask: Questions) -> tuple[int | None, int | None, int | None, int | None]:
    """Return multiprocessors, slices of the GPU instance, slices of the compute instance, bytes of memory."""
    answer = ask.ask("mig.attributes", "nvmlDeviceGetAttributes_v2", part)
    if answer is None:
        return None, None, None, None
    multiprocessors, slices, compute_slices, mebibytes = answer
    field = "mig.attributes"
    memory = ask.plausible(field, mebibytes, below=1 << 28)
    return (
        ask.plausible(field, multiprocessors, below=_INSTANCE_LIMIT) or None,
        ask.plausible(field, slices, below=64) or None,
        ask.plausible(field, compute_slices, below=64) or None,
        memory * MEBIBYTE if memory else None,
    )


def _read_memory(part: Handle, ask: Questions) -> int | None:
    reading = ask.ask("mig.memory", "nvmlDeviceGetMemoryInfo", part)
    if reading is None:
        return None
    if not reading.possible:
        ask.doubt("mig.memory")
        return None
    return int(reading.total)


def _read_profile(
    handle: Handle, part: Handle, instance: int | None, slices: tuple[int | None, int | None], ask: Questions
) -> str | None:
    """Name the profile as NVIDIA does: from the device's own name, else from the profile of its GPU instance.

    Never from memory sizes: a rounded share of the total names the neighbouring profile on some boards.
    """
    name = ask.text("mig.profile", "nvmlDeviceGetName", part)
    profile = profile_in(name)
    if profile is not None or instance is None or None in slices:
        return profile
    of_instance = _read_instance_profile(handle, instance, ask)
    gpu_slices, compute_slices = slices
    if of_instance is None or compute_slices == gpu_slices:
        return of_instance
    return f"{compute_slices}c.{of_instance}"


def profile_in(name: str | None) -> str | None:
    """Return the profile in a MIG device's name, `1c.3g.71gb` of `NVIDIA H200 MIG 1c.3g.71gb`."""
    _, found, profile = (name or "").rpartition("MIG ")
    return profile.strip() or None if found else None


def _read_instance_profile(handle: Handle, instance: int, ask: Questions) -> str | None:
    wanted = ask.ask("mig.profile", "nvmlGpuInstanceGetInfo", handle, instance)
    if wanted is None:
        return None
    for slot in range(PROFILE_SLOTS):
        answer = ask.try_to_ask("nvmlDeviceGetGpuInstanceProfileInfoV", handle, slot)
        if not isinstance(answer, Refusal) and answer[0] == wanted:
            name: str = answer[1]
            return profile_in(name) or name.strip() or None
    return None
