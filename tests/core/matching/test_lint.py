"""Lint: every defect of OME that touches a user's objects, and the slips of their authors."""

import pytest

from agent.core.catalogue import GIB
from agent.core.matching.lint import lint_reports
from agent.core.matching.nodes import NodeView
from agent.core.matching.placement import Labels
from tests.core.matching.kit import a_runtime, a_service, bare_class, class_of

H100, A100, B200 = (class_of(name) for name in ("nvidia-h100-80gb", "nvidia-a100-80gb", "nvidia-b200-180gb"))
NAMES = ["nvidia-h100-80gb", "nvidia-a100-80gb"]
TWO = a_runtime(acceleratorClasses=NAMES)
SMALL_HOST = NodeView(name="n1", labels=Labels({"gpu": "yes"}), memory_bytes=32 * GIB)


def found(obj, *, classes=(H100, A100, B200), runtime=TWO, nodes=()):
    """Return the findings about an object, infos included."""
    reports = lint_reports([obj], classes=classes, runtimes=[runtime], nodes=nodes)
    return {(one.id, one.path) for one in reports[0].findings}


def a_class(**fields):
    selector = fields.pop("selector", {"gpu": "yes"})
    return bare_class("mine", vendor="nvidia", selector=selector, **fields)


def selecting(policy=None, **constraints):
    selector = {"policy": policy} if policy else {}
    return a_service(selector=selector | ({"constraints": constraints} if constraints else {}), engine={})


def configured(**config):
    return [{"acceleratorConfig": {NAMES[0]: config}}]


def with_args(*args, gpus=None, **config):
    return a_runtime(acceleratorClasses=NAMES, args=list(args), gpus=gpus, formats=configured(**config))


AFFINITY = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}}
SIZES = {"tensorParallelSize": 4}
FORMAT = "spec.supportedModelFormats[0].acceleratorConfig.nvidia-h100-80gb"
RUNNER = "spec.engineConfig.runner"
SELECTOR = "spec.acceleratorSelector"
REQUIREMENTS = "spec.acceleratorRequirements"
GPU_SHAPE = [{"name": "nvidia.com/gpu", "quantity": "4"}]


def changed(obj, **spec):
    return obj | {"spec": obj["spec"] | spec}


DEFECTS = {
    "D1 class": (
        a_class(computeCapability="10.0"),
        "capability-compared-as-text",
        "spec.capabilities.computeCapability",
    ),
    "D1 class without minor": (
        a_class(computeCapability="9"),
        "capability-compared-as-text",
        "spec.capabilities.computeCapability",
    ),
    "D1 service": (
        selecting("BestFit", minArchitectureVersion="10.0"),
        "capability-compared-as-text",
        f"{SELECTOR}.constraints.minArchitectureVersion",
    ),
    "D2": (selecting("BestFit"), "bestfit-without-constraints", f"{SELECTOR}.policy"),
    "D3 no unit": (a_class(memoryGB="80"), "value-not-usable", "spec.capabilities.memoryGB"),
    "D3 decimal": (a_class(memoryGB="80G"), "memory-decimal-unit", "spec.capabilities.memoryGB"),
    "D4": (a_class(memoryGB="81559Mi"), "memory-below-nominal", "spec.capabilities.memoryGB"),
    "D5": (a_class(memoryGB="80Gi"), "memory-above-host-ram", "spec.capabilities.memoryGB"),
    "D6 selector": (a_class(selector={}), "empty-node-selector", "spec.discovery.nodeSelector"),
    "D6 affinity": (a_class(affinity=AFFINITY), "affinity-not-in-status", "spec.discovery.affinity"),
    "D7": (a_class(status={"availableNodes": 2}), "totals-never-filled", "status.totalAccelerators"),
    "D8": (selecting("FirstAvailable"), "first-available-ignores-availability", f"{SELECTOR}.policy"),
    "D9 missing class": (
        a_runtime(acceleratorClasses=["gone"]),
        "listed-class-missing",
        f"{REQUIREMENTS}.acceleratorClasses[0]",
    ),
    "D9 no cost": (selecting("Cheapest"), "cheapest-without-cost", f"{SELECTOR}.policy"),
    "D9 no candidate": (
        selecting("MostCapable", minMemory=500),
        "no-candidate-left",
        f"{SELECTOR}.constraints",
    ),
    "D10 memory": (
        a_runtime(acceleratorClasses=NAMES, minMemory=80),
        "requirement-never-read",
        f"{REQUIREMENTS}.minMemory",
    ),
    "D10 component": (
        a_service(engine={"acceleratorOverride": {"constraints": {"minMemory": 80}}}),
        "component-constraints-never-read",
        "spec.engine.acceleratorOverride.constraints",
    ),
    "D10 billion": (
        with_args(minMemoryPerBillionParams=2),
        "memory-per-billion-never-read",
        f"{FORMAT}.minMemoryPerBillionParams",
    ),
    "D10 data": (
        with_args(tensorParallelismOverride={"dataParallelSize": 2}),
        "data-parallel-never-read",
        f"{FORMAT}.tensorParallelismOverride.dataParallelSize",
    ),
    "D11 class": (a_class(resources=GPU_SHAPE), "resources-override-gpu-count", "spec.resources"),
    "D13 class": (a_class(affinity=AFFINITY), "affinity-replaces-pods", "spec.discovery.affinity"),
    "D14": (
        with_args("--tp-size", "$(PARALLELISM_SIZE)"),
        "parallelism-size-dropped",
        f"{RUNNER}.args",
    ),
    "D15 user": (
        with_args(environmentOverride={"A": "1"}),
        "environment-override-wins",
        f"{FORMAT}.environmentOverride",
    ),
    "D15 order": (
        with_args(environmentOverride={"A": "1", "B": "2"}),
        "environment-order-changes",
        f"{FORMAT}.environmentOverride",
    ),
    "D16 repeated": (
        with_args("--lora", "a", "--lora", "b", runtimeArgsOverride=["--x", "1"]),
        "repeated-flag-collapses",
        f"{RUNNER}.args",
    ),
    "D16 negative": (
        with_args(runtimeArgsOverride=["--seed", "-1"]),
        "negative-value-splits",
        f"{FORMAT}.runtimeArgsOverride[1]",
    ),
    "D16 alias": (
        with_args("--tp-size", "2", runtimeArgsOverride=["--tp", "4"]),
        "alias-added-twice",
        f"{FORMAT}.runtimeArgsOverride",
    ),
    "D16 script": (
        with_args("run \\\n --tp-size 2", runtimeArgsOverride=["--x", "1"]),
        "script-is-glued",
        f"{FORMAT}.runtimeArgsOverride",
    ),
    "D17 absent": (
        with_args("--port", "80", tensorParallelismOverride=SIZES),
        "parallel-size-override-lost",
        f"{FORMAT}.tensorParallelismOverride.tensorParallelSize",
    ),
    "D17 one line": (
        with_args("server --tp-size 2 --port 80", tensorParallelismOverride=SIZES),
        "parallel-size-override-lost",
        f"{FORMAT}.tensorParallelismOverride.tensorParallelSize",
    ),
    "D17 variable in a script": (
        with_args("server \\\n --tp-size $(N)", tensorParallelismOverride=SIZES),
        "parallel-size-override-lost",
        f"{FORMAT}.tensorParallelismOverride.tensorParallelSize",
    ),
    "D18 fp8": (
        selecting("BestFit", preferredPrecisions=["fp8"]),
        "precision-scored-otherwise",
        f"{SELECTOR}.constraints.preferredPrecisions[0]",
    ),
    "D18 bf16": (
        selecting("BestFit", preferredPrecisions=["fp16", "bf16"]),
        "precision-scored-otherwise",
        f"{SELECTOR}.constraints.preferredPrecisions[1]",
    ),
    "D19 zero": (a_class(cost={"spotPerHour": "0"}), "price-of-zero", "spec.cost.spotPerHour"),
    "D19 tier": (a_class(cost={"tier": "free"}), "tier-not-known", "spec.cost.tier"),
    "D20": (
        a_runtime(acceleratorClasses=["gone"]),
        "runtime-cannot-be-edited",
        f"{REQUIREMENTS}.acceleratorClasses[0]",
    ),
    "D21": (selecting("FirstAvailable"), "class-change-not-noticed", SELECTOR),
    "D22": (a_class(), "console-shows-unknown", "spec"),
    "D23": (
        a_runtime(gpus=1, resource="nvidia.com/mig-1g.10gb"),
        "model-init-needs-nvidia-gpu",
        f"{RUNNER}.resources.limits[nvidia.com/mig-1g.10gb]",
    ),
    "D24": (
        a_service(annotations={"ome.io/accelerator-class": NAMES[0]}),
        "annotation-selects-nothing",
        "metadata.annotations[ome.io/accelerator-class]",
    ),
    "D25 default policy": (a_service(), "no-policy-no-class", SELECTOR),
    "D25 field of the proposal": (
        a_class(rocmVersion="6"),
        "field-not-in-schema",
        "spec.capabilities.rocmVersion",
    ),
}


@pytest.mark.parametrize(("obj", "id_", "path"), DEFECTS.values(), ids=DEFECTS)
def test_a_defect_of_ome_is_told_where_it_touches_an_object(obj, id_, path):
    assert (id_, path) in found(obj, nodes=(SMALL_HOST,))


def test_every_one_of_the_25_defects_has_a_case_here_or_below():
    beside = {"D11", "D12", "D13", "D19"}
    assert {name.split()[0] for name in DEFECTS} | beside == {f"D{number}" for number in range(1, 26)}


def test_d11_a_class_with_resources_overrides_what_a_runtime_asks_for():
    shape = bare_class("shape", selector={"a": "b"}, resources=GPU_SHAPE)
    other = bare_class("other", selector={"a": "b"}, resources=[{"name": "nvidia.com/mig-1g.10gb"}])
    runtime = a_runtime(acceleratorClasses=["shape", "other"], gpus=8)
    reports = lint_reports([runtime], classes=[shape, other])
    path = f"{RUNNER}.resources.limits[nvidia.com/gpu]"
    assert [(f.path, f.message) for f in reports[0].findings if f.id == "resources-override-gpu-count"] == [
        (path, "class shape sets nvidia.com/gpu to 4 over the 8 asked for here"),
        (path, "class other adds nvidia.com/mig-1g.10gb: 1 beside nvidia.com/gpu: the pod asks for both"),
    ]


def test_d12_and_d13_what_a_class_brings_is_skipped_or_replaces():
    bringing = bare_class("mine", selector={"a": "b"}, resources=GPU_SHAPE, affinity=AFFINITY)
    runtime = a_runtime(acceleratorClasses=["mine"], engine={"affinity": AFFINITY})
    service = a_service(selector={"policy": "FirstAvailable"})
    skipped = ("resources-skipped-without-engine", "spec.engine")
    assert skipped in found(service, classes=[bringing], runtime=runtime)
    assert skipped not in found(changed(service, engine={}), classes=[bringing], runtime=runtime)
    assert ("affinity-replaced", "spec.engineConfig.affinity") in found(runtime, classes=[bringing])


def test_d19_prices_of_several_kinds_are_not_compared():
    one = bare_class("one", selector={"a": "b"}, cost={"perHour": "3"})
    two = bare_class("two", selector={"a": "b"}, cost={"perMillionTokens": "1"})
    runtime = a_runtime(acceleratorClasses=["one", "two"])
    ids = found(selecting("Cheapest"), classes=[one, two], runtime=runtime)
    assert ("prices-of-several-kinds", f"{SELECTOR}.policy") in ids
    assert ("cheapest-without-cost", f"{SELECTOR}.policy") not in ids


@pytest.mark.parametrize(
    ("obj", "id_", "path"),
    [
        pytest.param(
            a_runtime(acceleratorClasses=NAMES, formats=[{"acceleratorConfig": {"nvidia-h100": {}}}]),
            "override-key-without-class",
            "spec.supportedModelFormats[0].acceleratorConfig.nvidia-h100",
            id="override of a class that is not listed",
        ),
        pytest.param(
            a_runtime(acceleratorClasses=NAMES, args=["--tp-size", "4"], gpus=8),
            "tensor-parallel-differs",
            f"{RUNNER}.args",
            id="tensor-parallel size against GPU count",
        ),
        pytest.param(
            a_service(selector={"policy": "BestFit", "acceleratorClass": NAMES[0], "constraints": {}}),
            "policy-never-read",
            f"{SELECTOR}.policy",
            id="policy beside a named class",
        ),
        pytest.param(
            a_service(
                selector={"policy": "BestFit", "constraints": {}},
                engine={"acceleratorOverride": {"policy": "FirstAvailable"}},
            ),
            "policy-never-read",
            f"{SELECTOR}.policy",
            id="policy that the component overrides",
        ),
        pytest.param(
            a_service(selector={"acceleratorClass": NAMES[0], "constraints": {"minMemory": 80}}),
            "constraints-ignored",
            f"{SELECTOR}.constraints",
            id="constraints beside a named class",
        ),
        pytest.param(
            a_service(selector={"acceleratorClass": "nvidia-l4-24gb"}),
            "class-not-in-runtime-list",
            f"{SELECTOR}.acceleratorClass",
            id="a class that the runtime does not list",
        ),
        pytest.param(
            a_runtime(acceleratorClasses=["NVIDIA-H100-80GB"]),
            "class-name-spelling",
            f"{REQUIREMENTS}.acceleratorClasses[0]",
            id="a class in another spelling",
        ),
        pytest.param(
            a_runtime(minComputeCapability="9.0"),
            "old-field-name",
            f"{REQUIREMENTS}.minComputeCapability",
            id="old field name",
        ),
        pytest.param(
            a_service(selector={"constraints": {"minmemory": 80}}),
            "unknown-field",
            f"{SELECTOR}.constraints.minmemory",
            id="unknown field",
        ),
        pytest.param(
            selecting("MostCapable", architectureFamilies=["ada-lovelace"]),
            "family-with-hyphen",
            f"{SELECTOR}.constraints.architectureFamilies[0]",
            id="family with a hyphen",
        ),
        pytest.param(
            selecting("MostCapable", requiredFeatures=["NV-Link"]),
            "feature-spelling",
            f"{SELECTOR}.constraints.requiredFeatures[0]",
            id="feature in another spelling",
        ),
        pytest.param(
            selecting("MostCapable", minComputePerformanceTFLOPS=100),
            "constraint-never-filters",
            f"{SELECTOR}.constraints.minComputePerformanceTFLOPS",
            id="a constraint that only scores",
        ),
        pytest.param(
            a_class(memoryBandwidthGBps="3.35"),
            "bandwidth-rounded-up",
            "spec.capabilities.memoryBandwidthGBps",
            id="bandwidth in TB/s",
        ),
        pytest.param(
            a_runtime(minMemory="80Gi"),
            "value-not-usable",
            f"{REQUIREMENTS}.minMemory",
            id="a unit where none belongs",
        ),
        pytest.param(
            a_runtime(
                formats=[
                    {"quantization": q, "acceleratorConfig": {NAMES[0]: {"runtimeArgsOverride": [q]}}}
                    for q in "ab"
                ]
            ),
            "formats-share-overrides",
            "spec.supportedModelFormats[1]",
            id="formats that differ in quantization",
        ),
        pytest.param(
            a_service(runtime="gone"), "runtime-missing", "spec.runtime.name", id="a runtime that is missing"
        ),
    ],
)
def test_other_slips_are_told(obj, id_, path):
    assert (id_, path) in found(obj)


def test_sound_objects_have_no_finding_but_infos():
    runtime = a_runtime(acceleratorClasses=NAMES, args=["--tp-size", "8"], gpus=8)
    service = a_service(
        selector={"policy": "MostCapable", "constraints": {"minMemory": 80, "minArchitectureVersion": "8.0"}},
        engine={},
    )
    reports = lint_reports([runtime, service, H100], classes=[H100, A100], runtimes=[runtime])
    assert {
        (report.name, one.id) for report in reports for one in report.findings if one.severity != "info"
    } == set()


def test_nothing_is_said_to_be_missing_where_the_classes_are_not_known():
    reports = lint_reports([a_runtime(acceleratorClasses=["anything"])], classes=None)
    assert reports[0].findings == ()


def test_capabilities_are_told_only_where_text_and_numbers_differ():
    place = ("capability-compared-as-text", f"{SELECTOR}.constraints.minArchitectureVersion")
    service = selecting("MostCapable", minArchitectureVersion="9.0")
    assert place not in found(service)
    with_b200 = a_runtime(acceleratorClasses=["nvidia-h100-80gb", "nvidia-b200-180gb"])
    assert place in found(service, runtime=with_b200)
