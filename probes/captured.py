"""Everything that one probe heard → a scenario that the fakes play, with what names the machine masked; pure.

What went wrong is in it: a call that was refused is refused again, one that did not return hangs again.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from probes.captured_answers import C_NAMES
from probes.captured_device import captured_device, captured_function, masked_uuid
from probes.captured_fields import Values
from probes.captured_partitions import masked_part_uuid
from probes.evidence import Evidence
from probes.facts import Driver, NodeFacts
from probes.findings import HOST, Answer, Attempt
from probes.questions import (
    DRIVER_NOT_LOADED,
    LIB_RM_VERSION_MISMATCH,
    LIBRARY_NOT_FOUND,
    UNKNOWN_TO_DRIVER,
)

_VERSION = re.compile(r"[0-9]+(\.[0-9]+)*(-[a-z]+)?")
_CUDA = re.compile(r"[0-9]+\.[0-9]+")
_MASKED_FABRIC = "{:08x}-0000-0000-0000-0000000000fa"
_NO_FABRIC = "00000000-0000-0000-0000-000000000000"
_SHORTEST_UUID = 12
_SAID_BY_DRIVER = {DRIVER_NOT_LOADED, LIBRARY_NOT_FOUND, LIB_RM_VERSION_MISMATCH}


def scenario_of(facts: NodeFacts, evidence: Evidence, *, name: str = "capture") -> Values:
    """Return a scenario in which a probe finds these facts again.

    `evidence` is that of a probe of everything. UUIDs and fabric domains are replaced, the same one always by the same;
    serial numbers, the host's name and addresses are not in it.
    """
    told = set(_told_addresses(evidence.answers))
    census = {function.identity.address: function for function in facts.pci or ()}
    devices: list[Values] = []
    failures: list[Values] = []
    for device in facts.accelerators:
        answers = [answer for answer in evidence.answers if answer.device == device.index]
        attempts = [attempt for attempt in evidence.attempts if attempt.device == device.index]
        fields, failing = captured_device(device, answers, attempts, census)
        devices.append(fields)
        failures += failing
    host = facts.host
    model = "device_tree_model" if evidence.surroundings.integrated_gpu else "machine"
    scenario = {
        "name": name,
        "driver": _driver(facts, evidence),
        "host": _known(
            {model: host.machine, "kernel": host.kernel, "memory_bytes": host.memory_bytes, "cpus": host.cpus}
        ),
        "device_files": {
            "present": list(facts.device_files.present),
            "denied": list(facts.device_files.denied),
        },
        **_confidential_computing(evidence.answers),
        "devices": devices,
        "other_pci": [
            captured_function(function) for address, function in census.items() if address not in told
        ],
        "failures": [
            *_twins(evidence.answers),
            *_failures_of_the_library(evidence),
            *_shared(failures, len(devices)),
        ],
    }
    return _masked(scenario, evidence.answers)


def _known(values: Mapping[str, object]) -> Values:
    return {key: value for key, value in values.items() if value is not None}


def _told_addresses(answers: Iterable[Answer]) -> Iterable[str]:
    for answer in answers:
        if answer.call == "nvmlDeviceGetPciInfo_v3" and not answer.code:
            domain, bus, slot, *_ = answer.value
            yield f"{domain:04x}:{bus:02x}:{slot:02x}.0"


def _driver(facts: NodeFacts, evidence: Evidence) -> Values:
    """Return the driver; its state says why NVML did not open, where it can."""
    known = next((driver for driver in facts.drivers if driver.name == "nvidia"), Driver(name="nvidia"))
    module = evidence.surroundings.kernel_module_version
    refused = evidence.refused
    version = known.version or (refused.library_version if refused else None) or module
    if refused is not None and refused.code == LIB_RM_VERSION_MISMATCH and version == module:
        # Any version other than the module's makes NVML refuse as it did.
        version = f"{module}.1"
    nvml = _answer(evidence.answers, "nvmlSystemGetNVMLVersion")
    return _known(
        {
            "version": version if version and _VERSION.fullmatch(version) else None,
            "cuda_version": known.cuda_version
            if known.cuda_version and _CUDA.fullmatch(known.cuda_version)
            else None,
            "nvml_version": nvml,
            "kernel_module_version": module if module and _VERSION.fullmatch(module) else None,
            "loaded": module is not None or evidence.opened is not None,
            "library": refused is None or refused.code != LIBRARY_NOT_FOUND,
        }
    )


def _answer(answers: Iterable[Answer], call: str) -> object:
    return next((answer.value for answer in answers if answer.call == call and not answer.code), None)


def _confidential_computing(answers: Iterable[Answer]) -> Values:
    state = _answer(answers, "nvmlSystemGetConfComputeState")
    if not isinstance(state, Mapping):
        return {}
    known = {
        "environment": state.get("environment"),
        "feature": state.get("ccFeature"),
        "dev_tools_mode": state.get("devToolsMode"),
    }
    return {"confidential_computing": _known(known)}


def _failures_of_the_library(evidence: Evidence) -> list[Values]:
    found = [_ending(attempt) for attempt in evidence.attempts if _played(attempt)]
    module = evidence.surroundings.kernel_module_version
    for answer in evidence.answers:
        if answer.device is not None:
            continue
        function = C_NAMES.get(answer.call, answer.call)
        of_driver = function == "nvmlInitWithFlags" and answer.code in _SAID_BY_DRIVER
        if of_driver and not (answer.code == DRIVER_NOT_LOADED and module is not None):
            continue
        if answer.code not in {0, *UNKNOWN_TO_DRIVER}:
            found.append(
                {"function": function, "code": answer.code} if answer.code > 0 else _garbled(function)
            )
        if (
            answer.call == "nvmlDeviceGetCount"
            and not answer.code
            and evidence.opened
            and evidence.opened.count is None
        ):
            found.append({"function": function, "value": answer.value})
        if (
            answer.call == "nvmlSystemGetDriverVersion"
            and not answer.code
            and not _VERSION.fullmatch(answer.value)
        ):
            found.append({"function": function, "value": answer.value})
    return [failure for number, failure in enumerate(found) if failure not in found[:number]]


def _twins(answers: Iterable[Answer]) -> list[Values]:
    """Return the failures by which a device tells the UUID of another, as it did."""
    first: dict[str, int] = {}
    found: list[Values] = []
    for answer in answers:
        if (
            answer.call == "nvmlDeviceGetUUID"
            and answer.value
            and answer.part is None
            and answer.device is not None
        ):
            owner = first.setdefault(answer.value, answer.device)
            if owner != answer.device:
                mask = masked_uuid(owner)
                found.append({"function": answer.call, "device": answer.device, "call": 1, "value": mask})
    return found


def _garbled(function: str) -> Values:
    return {"function": function, "bytes": "f8ff"}


def _played(attempt: Attempt) -> bool:
    """Tell whether a probe ended in a call of the library, which the fakes can play, and not in files or the host."""
    of_the_library = attempt.device is None and attempt.call not in {None, HOST, "files"}
    return of_the_library and attempt.ended in {"deadline", "crash"}


def _ending(attempt: Attempt) -> Values:
    function = C_NAMES.get(attempt.call or "", attempt.call)
    return {"function": function, **({"abort": True} if attempt.ended == "crash" else {"hang": True})}


def _shared(failures: Sequence[Values], devices: int) -> list[Values]:
    """Return the failures, one that every device has in the same way once."""
    counts: dict[str, int] = {}
    for failure in failures:
        counts[_without_device(failure)] = counts.get(_without_device(failure), 0) + 1
    found: list[Values] = []
    for failure in failures:
        everywhere = devices > 1 and counts[_without_device(failure)] == devices and "call" not in failure
        kept = {key: value for key, value in failure.items() if not (everywhere and key == "device")}
        if kept not in found:
            found.append(kept)
    return found


def _without_device(failure: Values) -> str:
    return json.dumps({key: value for key, value in failure.items() if key != "device"}, sort_keys=True)


def _masked(scenario: Values, answers: Sequence[Answer]) -> Values:
    """Return the scenario with every UUID that the machine told replaced, wherever it stands."""
    masks: dict[str, str] = {}
    for answer in answers:
        if answer.call == "nvmlDeviceGetUUID" and answer.value and answer.device is not None:
            part = answer.part
            mask = masked_uuid(answer.device) if part is None else masked_part_uuid(answer.device, part)
            masks.setdefault(answer.value, mask)
    fabrics = [device["fabric"] for device in scenario["devices"] if device.get("fabric")]
    for fabric in fabrics:
        if fabric["cluster_uuid"] != _NO_FABRIC:
            masks.setdefault(fabric["cluster_uuid"], _MASKED_FABRIC.format(len(masks)))
    masked: Values = _replaced(scenario, masks)
    return masked


def _replaced(value: Any, masks: Mapping[str, str]) -> Any:  # noqa: ANN401 - plain values of any kind
    match value:
        case str():
            for real, mask in masks.items():
                # A text so short that it names nothing would be found in half of all others.
                value = value.replace(real, mask) if len(real) >= _SHORTEST_UUID else value
            return value
        case Mapping():
            return {key: _replaced(item, masks) for key, item in value.items()}
        case list():
            return [_replaced(item, masks) for item in value]
        case _:
            return value
