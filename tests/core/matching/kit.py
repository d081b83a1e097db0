"""Builders of the objects that matching reads: classes as the catalogue describes them, nodes, records, runtimes."""

from agent.core.catalogue import GIB, MIB, catalogue
from agent.core.classes import content_of
from agent.core.matching.answer import answer_for
from agent.core.matching.hardware import class_facts
from agent.core.matching.nodes import node_views
from agent.core.matching.question import Hardware, Options
from agent.core.matching.subject import runtime_subject, service_subjects
from probes.facts import Accelerator, PciIdentity

DOMAIN = "accelerators.ome.io"


def product(class_name):
    """Return the catalogue's product of a class, one whose PCI id tells it."""
    return next(one for one in catalogue().products if one.class_name == class_name and one.device_ids)


def class_of(class_name, **changes):
    """Return the AcceleratorClass object that the controller publishes for a product; `changes` replace capabilities."""
    found = product(class_name)
    accelerator = Accelerator(
        index=0,
        vendor="nvidia",
        product=min(found.driver_names, default=None),
        pci=PciIdentity(address="0000:1b:00.0", vendor_id="10de", device_id=min(found.device_ids)),
        compute_capability=found.compute_capability,
        memory_bytes=None if found.unified_memory else int((found.memory_gib or 0) * GIB * 0.98),
        unified_memory=found.unified_memory,
    )
    content = content_of(accelerator)
    spec = content.spec
    spec["capabilities"] = {
        key: value for key, value in (spec["capabilities"] | changes).items() if value is not None
    }
    return an_object("AcceleratorClass", content.name, spec, annotations=content.annotations)


def bare_class(
    name, *, selector=None, resources=None, affinity=None, cost=None, annotations=None, status=None, **fields
):
    """Return a class as a person might write it: `vendor`, `family`, `model` and capabilities as given."""
    identity = {key: fields.pop(key) for key in ("vendor", "family", "model") if key in fields}
    discovery = {"nodeSelector": selector} if selector is not None else {}
    if affinity is not None:
        discovery["affinity"] = affinity
    discovery |= {key: fields.pop(key) for key in ("deviceIDs", "pciVendorID") if key in fields}
    spec = {**identity, "discovery": discovery, "capabilities": fields}
    spec |= {} if resources is None else {"resources": resources}
    spec |= {} if cost is None else {"cost": cost}
    return an_object("AcceleratorClass", name, spec, annotations=annotations or {}, status=status)


def an_object(kind, name, spec, *, annotations=None, status=None, namespace=None, labels=None):
    versions = {"Node": "v1", "AcceleratorNode": "accelerators.ome.io/v1alpha1"}
    metadata = {"name": name}
    metadata |= {"namespace": namespace} if namespace else {}
    metadata |= {"annotations": annotations} if annotations else {}
    metadata |= {"labels": labels} if labels else {}
    obj = {
        "apiVersion": versions.get(kind, "ome.io/v1beta1"),
        "kind": kind,
        "metadata": metadata,
        "spec": spec,
    }
    return obj | ({"status": status} if status is not None else {})


def a_device(class_name, index=0, **changes):
    found = product(class_name)
    major, minor = found.compute_capability
    return {
        "id": f"GPU-{index}",
        "index": index,
        "vendor": "nvidia",
        "product": min(found.driver_names),
        "class": class_name,
        "family": found.family,
        "pci": {"address": f"0000:{index:02x}:00.0", "vendorID": "10de", "deviceID": min(found.device_ids)},
        "computeCapability": f"{major}.{minor}",
        "memoryBytes": (found.memory_gib or 0) * 1000 * MIB,
        "state": "ok",
    } | changes


def a_record(name, devices, *, classes=None, driver="580.95.05", **spec):
    """Return an AcceleratorNode; its classes are counted from the devices unless they are given."""
    if classes is None:
        classes = []
        for class_name in dict.fromkeys(device["class"] for device in devices):
            own = [device for device in devices if device["class"] == class_name and "mig" not in device]
            usable = sum(device["state"] in {"ok", "degraded"} for device in own)
            classes.append(
                {"name": class_name, "resource": "nvidia.com/gpu", "total": len(own), "usable": usable}
            )
    return an_object(
        "AcceleratorNode",
        name,
        {
            "agentVersion": "0.1.0",
            "driver": {"name": "nvidia", "version": driver, "cudaVersion": "13.0"},
            "devices": devices,
            "classes": classes,
            **spec,
        },
    )


def a_node(
    name, class_name=None, count=8, *, allocatable=None, labels=None, taints=None, cordoned=False, ready=True
):
    """Return a Node with the labels that the agent gives a node of one class."""
    ours = {}
    if class_name is not None:
        found = product(class_name)
        major, minor = found.compute_capability
        ours = {
            f"{DOMAIN}/present": "true",
            f"{DOMAIN}/vendor": "nvidia",
            f"{DOMAIN}/class": class_name,
            f"{DOMAIN}/product": min(found.driver_names).replace(" ", "-"),
            f"{DOMAIN}/family": found.family,
            f"{DOMAIN}/count": str(count),
            f"{DOMAIN}/memory-gib": str(found.memory_gib),
            f"{DOMAIN}/compute-capability": f"{major}.{minor}",
            f"{DOMAIN}/driver-major": "580",
            f"class.{DOMAIN}/{class_name}": "true",
            f"count.{DOMAIN}/{class_name}": str(count),
        }
    spec = {}
    spec |= {"taints": taints} if taints else {}
    spec |= {"unschedulable": True} if cordoned else {}
    offered = {"nvidia.com/gpu": str(count)} if allocatable is None else allocatable
    status = {
        "allocatable": {"cpu": "64", "memory": "1000Gi", **offered},
        "capacity": {"memory": "1000Gi"},
        "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
    }
    return an_object("Node", name, spec, labels=ours | (labels or {}), status=status)


def a_runtime(
    name="rt", *, gpus=None, resource="nvidia.com/gpu", args=None, formats=None, engine=None, **requirements
):
    runner = {"name": "ome-container"}
    runner |= {"resources": {"limits": {resource: gpus}}} if gpus is not None else {}
    runner |= {"args": args} if args else {}
    spec = {"acceleratorRequirements": requirements} if requirements else {}
    spec["engineConfig"] = {"runner": runner} | (engine or {})
    spec |= {"supportedModelFormats": formats} if formats else {}
    return an_object("ClusterServingRuntime", name, spec)


def a_service(
    name="svc", *, selector=None, engine=None, decoder=None, runtime="rt", annotations=None, **spec
):
    body = {"runtime": {"name": runtime}} if runtime else {}
    body |= {"acceleratorSelector": selector} if selector is not None else {}
    body |= {"engine": engine} if engine is not None else {}
    body |= {"decoder": decoder} if decoder is not None else {}
    return an_object("InferenceService", name, body | spec, namespace="llm", annotations=annotations)


def a_model(size="70B", **spec):
    return an_object("ClusterBaseModel", "model", {"modelParameterSize": size, **spec})


def the_hardware(classes, nodes=(), records=(), requested=None, **fields):
    views, problems = node_views(nodes, records, requested=requested)
    assert not problems
    return Hardware(classes=tuple(map(class_facts, classes)), nodes=views, source="the test", **fields)


def answered(
    runtime, classes, *, nodes=(), records=(), service=None, model=None, requested=None, live=False, **options
):
    """Return the answer for a runtime, or for the engine of a service over it."""
    if service is None:
        subject = runtime_subject(runtime, model=model)
    else:
        subject = service_subjects(service, runtime=runtime, model=model)[0]
    assert not subject.problems, subject.problems
    hardware = the_hardware(classes, nodes, records, requested, live=live)
    return answer_for(subject, hardware, Options(**options))


def verdicts(answer):
    """Return the verdict of each class by name."""
    return {one.facts.name: one.verdict for one in answer.classes}


def the_rule(answer, class_name, rule):
    """Return the answer of one rule for one class: the one that does not hold where there are several."""
    one = next(found for found in answer.classes if found.facts.name == class_name)
    rules = [found for found in one.rules if found.rule == rule]
    return next((found for found in rules if found.verdict != "fits"), rules[0])
