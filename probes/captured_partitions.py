"""The partitions of one captured GPU → the layout of a fake one; pure."""

from collections.abc import Sequence

from probes.captured_answers import Playback, as_scripted, refused_always
from probes.captured_fields import Values
from probes.facts import Partition
from probes.findings import Answer
from probes.nvml_mig import MEBIBYTE, profile_in


def take_mig(playback: Playback, answers: Sequence[Answer], parts: Sequence[Partition], index: int) -> None:
    """Take the mode and the layout; a GPU that could not tell its mode is one that cannot be cut."""
    mode = next((a.value for a in answers if a.call == "nvmlDeviceGetMigMode" and not a.code), None)
    if mode is None:
        return
    profiles = {profile["name"]: profile for profile in _profiles(answers)}
    instances: dict[int, Values] = {}
    numbers = sorted({answer.part for answer in answers if answer.part is not None})
    for number, part in zip(numbers, parts, strict=False):
        name = instance_profile(part)
        profiles.setdefault(name, _unlisted(name, 64 + len(profiles), part))
        own = number if part.gpu_instance_id is None else part.gpu_instance_id
        memory = _memory_of(answers, number, part)
        blank = {"profile": name, "id": own, "memory": memory, "compute_instances": []}
        instances.setdefault(own, blank)["compute_instances"].append(_compute_instance(part, number, index))
    most = next((a.value for a in answers if a.call == "nvmlDeviceGetMaxMigDeviceCount" and not a.code), 7)
    playback.fields["mig"] = {
        "enabled": mode[0] == 1,
        "pending": mode[1] == 1,
        "max_devices": most or 7,
        "profiles": list(profiles.values()),
        "instances": list(instances.values()),
    }


def instance_profile(part: Partition) -> str:
    """Return the profile of the GPU instance: `3g.71gb` of the compute instance `1c.3g.71gb`."""
    profile = part.profile or f"{part.gpu_instance_slices or 1}g.unknown"
    first, _, rest = profile.partition(".")
    return rest if first.endswith("c") else profile


def compute_slices_in(profile: str) -> int | None:
    """Return the slices of a compute instance that is less than its GPU instance: 1 of `1c.3g.71gb`."""
    first, _, _ = profile.partition(".")
    return int(first[:-1]) if first.endswith("c") and first[:-1].isdigit() else None


def _profiles(answers: Sequence[Answer]) -> list[Values]:
    """Return the kinds of instance that the GPU can be cut into, as it listed them."""
    return [
        {
            "name": profile_in(answer.value["name"]) or answer.value["name"].strip(),
            "slot": answer.arguments[0],
            "id": answer.value["id"],
            "slices": answer.value["sliceCount"],
            "max_instances": answer.value["instanceCount"],
            "memory_mib": answer.value["memorySizeMB"],
            "multiprocessors": answer.value["multiprocessorCount"],
            "copy_engines": answer.value["copyEngineCount"],
            "decoders": answer.value["decoderCount"],
            "encoders": answer.value["encoderCount"],
            "jpegs": answer.value["jpegCount"],
            "ofas": answer.value["ofaCount"],
        }
        for answer in answers
        if answer.call == "nvmlDeviceGetGpuInstanceProfileInfo" and not answer.code
    ]


def _unlisted(name: str, number: int, part: Partition) -> Values:
    """Return a profile that exists in partitions and was not listed."""
    return {
        "name": name,
        "slot": number,
        "id": number,
        "slices": part.gpu_instance_slices or 1,
        "max_instances": 7,
        "memory_mib": (part.memory_bytes or 0) // MEBIBYTE,
        "multiprocessors": part.multiprocessors or 0,
    }


def _memory_of(answers: Sequence[Answer], number: int, part: Partition) -> Values:
    for answer in answers:
        if answer.part == number and answer.call == "nvmlDeviceGetMemoryInfo" and not answer.code:
            total, free, used, _ = answer.value
            if total < 1 << 63 and free + used == total:
                return {"total_bytes": total, "used_bytes": used}
    return {"total_bytes": part.memory_bytes or 0}


def _compute_instance(part: Partition, number: int, index: int) -> Values:
    values = {
        "slices": part.compute_instance_slices or compute_slices_in(part.profile or ""),
        "id": part.compute_instance_id,
        "multiprocessors": part.multiprocessors,
        "uuid": masked_part_uuid(index, number),
    }
    return {name: value for name, value in values.items() if value is not None}


def masked_part_uuid(index: int, number: int) -> str:
    """Return the UUID under which a capture shows a MIG device."""
    return f"MIG-{number:08x}-0000-0000-0000-{index:012x}"


def take_part(playback: Playback, answer: Answer) -> None:
    """Have a call on a MIG device fail as it did, or answer what the layout cannot say."""
    if answer.code:
        playback.play(answer, refused_always(answer))
        return
    scripted: Values | None = None
    if answer.call == "nvmlDeviceGetName" and profile_in(answer.value) is None:
        scripted = {"value": answer.value}
    if answer.call == "nvmlDeviceGetMemoryInfo" and answer.value[1] + answer.value[2] != answer.value[0]:
        scripted = {"value": as_scripted(answer)}
    if answer.call == "nvmlDeviceGetAttributes_v2":
        scripted = _attributes_unless_said(playback, answer)
    if answer.call == "nvmlDeviceGetUUID" and answer.value == "":
        scripted = {"value": ""}
    playback.play(answer, scripted)


def _attributes_unless_said(playback: Playback, answer: Answer) -> Values | None:
    multiprocessors, slices, compute_slices, mebibytes = answer.value
    told = {
        "multiprocessorCount": multiprocessors,
        "gpuInstanceSliceCount": slices,
        "computeInstanceSliceCount": compute_slices,
        "memorySizeMB": mebibytes,
    }
    mig = playback.fields["mig"]
    slices_of = {profile["name"]: profile["slices"] for profile in mig["profiles"]}
    for instance in mig["instances"]:
        for compute in instance["compute_instances"]:
            if compute["uuid"] != masked_part_uuid(playback.index, answer.part or 0):
                continue
            said = {
                "multiprocessorCount": compute.get("multiprocessors"),
                "gpuInstanceSliceCount": slices_of[instance["profile"]],
                "computeInstanceSliceCount": compute.get("slices", slices_of[instance["profile"]]),
                "memorySizeMB": instance["memory"]["total_bytes"] // MEBIBYTE,
            }
            differing = {name: value for name, value in told.items() if said[name] != value}
            return {"value": differing} if differing else None
    return {"value": told}
