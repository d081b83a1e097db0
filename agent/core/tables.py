"""What the commands print for people: tables of facts, labels, a record and classes."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from agent.core.catalogue import MIB, PRECISIONS, names_on_the_bus
from agent.core.devices import capability_text
from agent.core.inventory import Device, Inventory
from agent.core.text_table import fitting_table, text_table
from probes.facts import NodeFacts

_SPARE = ("capability", "class", "pci", "mode", "memory")
"""Columns of devices that a narrow terminal does without: what the product tells too goes first."""


def facts_table(inventory: Inventory, *, width: int) -> str:
    """Return the devices of this machine, its partitions and what could not be read."""
    facts = inventory.facts
    parts = [_headline(facts, width)]
    if inventory.devices:
        headers = ("index", "product", "class", "memory", "capability", "mode", "pci", "state", "reasons")
        rows = [_device_row(device) for device in _by_index(inventory)]
        parts.append(fitting_table(headers, rows, width=width, spare=_SPARE))
    partitions = [
        (
            str(device.facts.index),
            partition.profile or "not known",
            _mib(partition.memory_bytes),
            partition.id or "",
        )
        for device in _by_index(inventory)
        for partition, _ in device.partitions
    ]
    if partitions:
        parts.append(text_table(("gpu", "partition", "memory", "uuid"), partitions, width=width))
    problems = [
        (str(accelerator.index), problem.field, problem.error)
        for accelerator in facts.accelerators
        for problem in accelerator.problems
    ]
    if problems:
        parts.append(text_table(("gpu", "could not read", "error"), problems, width=width))
    return "\n\n".join([*parts, *_unasked(facts, width)])


def labels_table(labels: Mapping[str, str], facts: NodeFacts, *, width: int) -> str:
    """Return the labels as `kubectl` writes them, one a line."""
    if not facts.asked:
        return f"{_headline(facts, width)}\n\nNo label would be changed."
    if not labels:
        return f"{_headline(facts, width)}\n\nNo label would be on the Node."
    return "\n".join(f"{key}={value}" for key, value in labels.items())


def classes_table(classes: Sequence[Mapping[str, Any]], *, width: int) -> str:
    """Return AcceleratorClass objects, one a row."""
    if not classes:
        return "No class."
    headers = ("class", "memory", "capability", "bandwidth", "fp16", "int8", "precisions", "features")
    return text_table(headers, [_class_row(object_) for object_ in classes], width=width)


def _by_index(inventory: Inventory) -> list[Device]:
    """Return the devices in the order in which `nvidia-smi` lists them."""
    return sorted(inventory.devices, key=lambda device: device.facts.index)


def _headline(facts: NodeFacts, width: int) -> str:
    driver = next(iter(facts.drivers), None)
    version = f"driver {driver.version}" if driver and driver.version else "no driver version"
    cuda = f", CUDA {driver.cuda_version}" if driver and driver.cuda_version else ""
    simulated = " (simulated)" if facts.simulated else ""
    machine = facts.host.machine or "this machine"
    verdict = textwrap.fill(f"{facts.verdict}: {facts.message}", width, break_on_hyphens=False)
    return f"{machine}{simulated}: {version}{cuda}\n{verdict}"


def _device_row(device: Device) -> tuple[str, ...]:
    facts, description = device.facts, device.description
    capability = description.compute_capability if description else None
    return (
        str(facts.index),
        facts.product or "not known",
        description.class_name if description else "not known",
        "unified" if facts.unified_memory else _mib(facts.memory_bytes),
        capability_text(capability) if capability else "-",
        _mode(device),
        facts.pci.address if facts.pci else "-",
        device.assessment.state,
        ", ".join(device.assessment.reasons) or "-",
    )


def _mode(device: Device) -> str:
    """Return how the device is handed out: whole, in partitions, as a share, or about to change."""
    mig = device.facts.mig
    if mig is not None and mig.enabled != mig.pending_enabled:
        return "mig pending" if mig.pending_enabled else "whole pending"
    if mig is not None and mig.enabled:
        return f"mig ({'?' if mig.partitions is None else len(mig.partitions)})"
    return "vgpu" if device.facts.virtualization == "vgpu" else "whole"


def _class_row(object_: Mapping[str, Any]) -> tuple[str, ...]:
    capabilities = object_["spec"].get("capabilities", {})
    features = capabilities.get("features", [])
    performance = capabilities.get("performance", {})
    bandwidth = capabilities.get("memoryBandwidthGBps")
    return (
        object_["metadata"]["name"],
        capabilities.get("memoryGB", "-"),
        capabilities.get("computeCapability", "-"),
        f"{bandwidth} GB/s" if bandwidth else "-",
        str(performance.get("fp16Tflops", "-")),
        str(performance.get("int8Tops", "-")),
        " ".join(precision for precision in PRECISIONS if precision in features) or "-",
        " ".join(feature for feature in features if feature not in PRECISIONS) or "-",
    )


def _unasked(facts: NodeFacts, width: int) -> list[str]:
    """Return the functions on the bus that no device of the library stands for, and whose they are."""
    answered = {accelerator.pci.address for accelerator in facts.accelerators if accelerator.pci}
    rows = [
        (
            function.identity.address,
            f"{function.identity.vendor_id}:{function.identity.device_id}",
            names_on_the_bus().get((function.identity.vendor_id, function.identity.device_id), "-"),
            function.driver or "none",
        )
        for function in facts.pci or ()
        if function.identity.address not in answered
    ]
    return [text_table(("on the bus only", "id", "product", "driver"), rows, width=width)] if rows else []


def _mib(count: int | None) -> str:
    return "not known" if count is None else f"{count // MIB} MiB"
