"""One captured GPU → a fake device that answers as it did: identity, slot, links and partitions; pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from probes.captured_answers import C_NAMES, Playback, as_scripted, refused, refused_always, take_reading
from probes.captured_fields import Values
from probes.captured_partitions import take_mig, take_part
from probes.facts import Accelerator, PciFunction
from probes.findings import Answer, Attempt
from probes.questions import GPU_IS_LOST, NOT_FOUND, RESET_REQUIRED, UNKNOWN_TO_DRIVER

_HANDLE = "nvmlDeviceGetHandleByIndex"
_NVLINK_VERSIONS = {1: "1.0", 2: "2.0", 3: "2.2", 4: "3.0", 5: "3.1", 6: "4.0", 7: "5.0", 8: "6.0"}
_ABSENT: Values = {"minor_number": None, "virtualization": None, "compute_mode": None}
"""Fields that a scenario fills in where they are not named."""


def masked_uuid(index: int) -> str:
    """Return the UUID under which a capture shows a GPU."""
    return f"GPU-00000000-0000-0000-0000-{index:012x}"


def captured_device(
    device: Accelerator,
    answers: Sequence[Answer],
    attempts: Sequence[Attempt],
    census: Mapping[str, PciFunction],
) -> tuple[Values, list[Values]]:
    """Return the fields of a device and the failures of its script.

    `answers` are of this device, `attempts` those that ended while it was asked, `census` the functions by address that
    no other device stands for.
    """
    playback = Playback(device.index, {"name": "", "uuid": masked_uuid(device.index), **_ABSENT})
    parts = (device.mig.partitions if device.mig else None) or ()
    take_mig(playback, answers, parts, device.index)
    for answer in answers:
        if answer.part is None:
            _take_answer(playback, answer, census)
    _take_nvlink(playback, answers)
    for answer in answers:
        if answer.part is not None:
            take_part(playback, answer)
    return playback.fields, [*_endings(device, answers, attempts), *_script(playback, answers)]


def _take_answer(playback: Playback, answer: Answer, census: Mapping[str, PciFunction]) -> None:
    match answer.call:
        case "nvmlDeviceGetUUID":
            scripted = {"value": ""} if answer.value == "" else None
            playback.play(answer, refused_always(answer) if answer.code else scripted)
        case "nvmlDeviceGetName":
            playback.fields["name"] = answer.value or ""
            playback.play(answer, refused_always(answer) if answer.code else None)
        case "nvmlDeviceGetPciInfo_v3":
            _take_slot(playback, answer, census)
        case "nvmlDeviceGetHandleByIndex" | "nvmlDeviceGetMigDeviceHandleByIndex" | "nvmlGpuInstanceGetInfo":
            playback.play(answer, {"code": answer.code} if answer.code not in {0, NOT_FOUND} else None)
        case "nvmlDeviceGetMigMode":
            told = not answer.code and max(answer.value) > 1
            playback.play(
                answer, {"value": answer.value} if told else refused(answer) if answer.code else None
            )
        case "nvmlDeviceGetMaxMigDeviceCount":
            playback.play(
                answer, {"code": answer.code} if answer.code else _count_unless_said(playback, answer)
            )
        case _:
            take_reading(playback, answer)


def _count_unless_said(playback: Playback, answer: Answer) -> Values | None:
    mig = playback.fields.get("mig")
    said = mig["max_devices"] if mig and mig["enabled"] else 0
    return None if answer.value == said else {"value": answer.value}


def _take_slot(playback: Playback, answer: Answer, census: Mapping[str, PciFunction]) -> None:
    if answer.code:
        # A GPU without a slot says what the absent field says.
        playback.play(answer, refused(answer))
        return
    domain, bus, slot, device_and_vendor, subsystem = answer.value
    address = f"{domain:04x}:{bus:02x}:{slot:02x}.0"
    vendor = device_and_vendor & 0xFFFF
    if domain >= 0xFFFFFFFF or bus > 0xFF or slot > 0x1F or vendor in {0, 0xFFFF}:
        playback.play(answer, {"value": as_scripted(answer)})
        return
    told = {
        "address": address,
        "vendor_id": f"{vendor:04x}",
        "device_id": f"{device_and_vendor >> 16:04x}",
        "subsystem_vendor_id": f"{subsystem & 0xFFFF:04x}",
        "subsystem_id": f"{subsystem >> 16:04x}",
    }
    found = census.get(address)
    seen: Values = {"on_bus": False} if found is None else captured_function(found)
    playback.fields["pci"] = {**seen, **{name: value for name, value in told.items() if name not in seen}}
    differs = any(playback.fields["pci"][name] != value for name, value in told.items())
    playback.play(answer, {"value": as_scripted(answer)} if differs else None)


def captured_function(function: PciFunction) -> Values:
    """Return a function of the PCI census in the scenario format."""
    identity = function.identity
    values = {
        "address": identity.address,
        "vendor_id": identity.vendor_id,
        "device_id": identity.device_id,
        "subsystem_vendor_id": identity.subsystem_vendor_id,
        "subsystem_id": identity.subsystem_id,
        "numa_node": identity.numa_node,
        "class_code": function.class_code,
    }
    known = {name: value for name, value in values.items() if value is not None}
    return {**known, "driver": function.driver}


def _take_nvlink(playback: Playback, answers: Sequence[Answer]) -> None:
    """Take the states of the links: those that would not tell, or told nonsense, are scripted one by one."""
    states = [answer for answer in answers if answer.call == "nvmlDeviceGetNvLinkState"]
    told = [answer.arguments[0] for answer in states if not answer.code]
    if told:
        down = [answer.arguments[0] for answer in states if not answer.code and answer.value == 0]
        playback.fields["nvlink"] = {"links": max(told) + 1, "version": "1.0", "inactive": down}
    for answer in states:
        beyond = not told or answer.arguments[0] > max(told)
        if answer.code:
            # What stands behind the last link, or on a GPU without links, ends the count whichever way it is said.
            end = beyond and (answer.code in UNKNOWN_TO_DRIVER or (bool(told) and answer.code == 2))
            playback.play(answer, None if end else {"code": answer.code})
        else:
            playback.play(answer, None if answer.value in {0, 1} else {"value": answer.value})
    for answer in answers:
        if answer.call == "nvmlDeviceGetNvLinkVersion":
            _take_nvlink_version(playback, answer)


def _take_nvlink_version(playback: Playback, answer: Answer) -> None:
    if answer.code:
        playback.play(answer, {"code": answer.code})
        return
    version = _NVLINK_VERSIONS.get(answer.value)
    if version is not None and "nvlink" in playback.fields:
        playback.fields["nvlink"]["version"] = version
    playback.play(answer, None if version is not None else {"value": answer.value})


def _endings(device: Accelerator, answers: Sequence[Answer], attempts: Sequence[Attempt]) -> list[Values]:
    """Return the failures by which a call on the device hangs or ends the process, as it did."""
    found: list[Values] = []
    for attempt in attempts:
        if attempt.ended not in {"deadline", "crash"} or attempt.call is None:
            continue
        function = C_NAMES.get(attempt.call, attempt.call)
        before = sum(C_NAMES.get(answer.call, answer.call) == function for answer in answers)
        span = {"call": f"{before + 1}-"} if before else {}
        end = {"abort": True} if attempt.ended == "crash" else {"hang": True}
        found.append({"function": function, "device": device.index, **span, **end})
    if not found and not answers:
        # Its turn never came: the time was gone with others.
        found.append({"function": C_NAMES[_HANDLE], "device": device.index, "hang": True})
    return found


def _script(playback: Playback, answers: Sequence[Answer]) -> list[Values]:
    """Return the failures of the device's calls; one that is gone as a whole is so for every function."""
    codes = {answer.code for answer in answers if answer.call != _HANDLE}
    if len(codes) == 1 and codes <= {GPU_IS_LOST, RESET_REQUIRED}:
        every: dict[str, Any] = {"function": "nvmlDevice*", "but_not": "nvmlDeviceGetHandleBy*"}
        return [{**every, "device": playback.index, "code": codes.pop()}]
    return playback.script()
