"""Prints how long `match` takes for one runtime against 5,000 nodes of eight devices, after the read.

Budget: 1 s. The classes are ten of the catalogue's and two that a person wrote, for which every node is compared by
what its devices are.
"""

import time
from typing import Any

from agent.core.catalogue import MIB
from agent.core.matching.answer import answer_for
from agent.core.matching.hardware import class_facts
from agent.core.matching.nodes import node_views
from agent.core.matching.question import Hardware, Options
from agent.core.matching.subject import runtime_subject

BUDGET_SECONDS = 1.0
NODES = 5000
DOMAIN = "accelerators.ome.io"
Object = dict[str, Any]
Kind = tuple[str, str, str, str, int]

KINDS: tuple[Kind, ...] = (
    ("h100-80gb", "2330", "9.0", "hopper", 80),
    ("a100-80gb", "20b2", "8.0", "ampere", 80),
    ("l40s-48gb", "26b9", "8.9", "ada", 48),
    ("l4-24gb", "27b8", "8.9", "ada", 24),
    ("b200-180gb", "2901", "10.0", "blackwell", 180),
)


def a_class(name: str, device_id: str, capability: str, family: str, gib: int) -> Object:
    return {
        "metadata": {"name": name},
        "spec": {
            "vendor": "nvidia",
            "family": family,
            "model": name.split("-")[-2],
            "discovery": {
                "nodeSelector": {f"class.{DOMAIN}/{name}": "true"} if name.startswith("nvidia") else {},
                "deviceIDs": [device_id],
            },
            "capabilities": {
                "memoryGB": f"{gib}Gi",
                "computeCapability": capability,
                "features": ["fp16", "nvlink"],
            },
        },
    }


def a_node(number: int, kind: Kind) -> Object:
    name = f"nvidia-{kind[0]}"
    labels = {f"class.{DOMAIN}/{name}": "true", f"{DOMAIN}/driver-major": "580", "zone": f"z{number % 3}"}
    return {
        "metadata": {"name": f"node-{number:05}", "labels": labels},
        "spec": {},
        "status": {
            "allocatable": {"nvidia.com/gpu": "8"},
            "capacity": {"memory": "2Ti"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def a_record(number: int, kind: Kind) -> Object:
    short, device_id, capability, family, gib = kind
    name = f"nvidia-{short}"
    devices = [
        {
            "id": f"GPU-{number:05}-{index}",
            "index": index,
            "vendor": "nvidia",
            "product": f"NVIDIA {short.split('-')[0].upper()}",
            "class": name,
            "family": family,
            "pci": {"address": f"0000:{index:02x}:00.0", "vendorID": "10de", "deviceID": device_id},
            "computeCapability": capability,
            "memoryBytes": int(gib * 1024 * 0.99) * MIB,
            "state": "lost" if number % 100 == 0 and index == 7 else "ok",
        }
        for index in range(8)
    ]
    usable = sum(device["state"] == "ok" for device in devices)
    classes = [{"name": name, "resource": "nvidia.com/gpu", "total": 8, "usable": usable}]
    return {
        "metadata": {"name": f"node-{number:05}"},
        "spec": {"observedAt": "2026-11-30T20:00:00Z", "devices": devices, "classes": classes},
    }


def main() -> None:
    nodes = [a_node(number, KINDS[number % len(KINDS)]) for number in range(NODES)]
    records = [a_record(number, KINDS[number % len(KINDS)]) for number in range(NODES)]
    requested = {node["metadata"]["name"]: {"nvidia.com/gpu": index % 9} for index, node in enumerate(nodes)}
    classes = [a_class(f"nvidia-{kind[0]}", *kind[1:]) for kind in KINDS]
    classes += [a_class(f"nvidia-old-{kind[0]}", *kind[1:]) for kind in KINDS]
    classes += [a_class(f"mine-{kind[0]}", *kind[1:]) for kind in KINDS[:2]]
    runtime = {
        "kind": "ClusterServingRuntime",
        "metadata": {"name": "llama"},
        "spec": {
            "acceleratorRequirements": {"minMemory": 80, "requiredFeatures": ["nvlink"]},
            "engineConfig": {"runner": {"resources": {"limits": {"nvidia.com/gpu": 8}}}},
        },
    }
    started, cpu = time.perf_counter(), time.process_time()
    views, problems = node_views(nodes, records, requested=requested)
    hardware = Hardware(classes=tuple(class_facts(one) for one in classes), nodes=views, source="the bench")
    answer = answer_for(runtime_subject(runtime), hardware, Options())
    seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
    fitting = sum(one.nodes_now or 0 for one in answer.classes)
    print(
        f"match: {NODES} nodes, {len(classes)} classes: {seconds:.2f} s, of that {cpu:.2f} s CPU "
        f"(budget {BUDGET_SECONDS:.0f} s); {fitting} fit now"
    )
    if problems or answer.verdict != "fits" or seconds > BUDGET_SECONDS:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
