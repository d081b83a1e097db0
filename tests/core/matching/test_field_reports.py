"""The right answers to what others got wrong, by the number of the report."""

import pytest

from agent.core.catalogue import MIB
from agent.core.matching.hardware import class_facts
from agent.core.matching.spelling import did_you_mean
from tests.core.matching.kit import (
    DOMAIN,
    a_device,
    a_node,
    a_record,
    a_runtime,
    a_service,
    answered,
    bare_class,
    class_of,
    the_rule,
    verdicts,
)

FITS, NOT, UNKNOWN = "fits", "does-not-fit", "cannot-tell"
H100, A100, A100_40 = (
    class_of(name) for name in ("nvidia-h100-80gb", "nvidia-a100-80gb", "nvidia-a100-40gb")
)


def eight(class_name, name="n1", **changes):
    return a_record(name, [a_device(class_name, index, **changes) for index in range(8)])


def test_fr_034_a_card_is_measured_by_the_size_it_is_sold_as_and_both_numbers_are_shown():
    sizes = {
        "H100": ("81559Mi", 80),
        "A100, ECC on": ("81251Mi", 80),
        "A100": ("81920Mi", 80),
        "T4": ("15360Mi", 16),
        "16 GB": ("16376Mi", 16),
        "RTX PRO 6000": ("97887Mi", 96),
        "RTX PRO 6000, later driver": ("97871Mi", 96),
    }
    for measured, nominal in sizes.values():
        one = bare_class("x", memoryGB=measured)
        assert the_rule(answered(a_runtime(minMemory=nominal), [one]), "x", "minMemory").verdict == FITS
        assert the_rule(answered(a_runtime(minMemory=nominal + 1), [one]), "x", "minMemory").verdict == NOT
    measured = bare_class("x", memoryGB="80Gi", annotations={f"{DOMAIN}/memory-bytes": "85520809984"})
    rule = the_rule(answered(a_runtime(minMemory=80), [measured]), "x", "minMemory")
    assert rule.found == "80 GiB (79.65 GiB measured, 85520809984 bytes)"


@pytest.mark.parametrize("listed", ["NVIDIA-H100-80GB", "nvidia_h100_80gb", "nvidia h100 80gb"])
def test_fr_052_case_and_separators_do_not_make_another_gpu(listed):
    assert verdicts(answered(a_runtime(acceleratorClasses=[listed]), [H100])) == {"nvidia-h100-80gb": FITS}


@pytest.mark.parametrize("listed", ["h100", "H100", "nvidia-h100", "H100_NVLINK_80GB", "H100-80GB-HBM3"])
def test_fr_052_an_unknown_name_gets_a_did_you_mean(listed):
    answer = answered(a_runtime(acceleratorClasses=[listed]), [H100, A100])
    messages = [finding.message for finding in answer.findings if finding.id == "listed-class-missing"]
    assert messages == [f"there is no class {listed} in the test; did you mean nvidia-h100-80gb?"]
    assert answer.verdict == NOT


CAPABILITIES = {
    "7.5": 7.5,
    "8.0": 8.0,
    "8.9": 8.9,
    "9.0": 9.0,
    "10.0": 10.0,
    "10.3": 10.3,
    "12.0": 12.0,
    "12.1": 12.1,
}


@pytest.mark.parametrize("required", ["8.0", "8.9", "9.0", "10.0", "9", "9.0a", "sm_90", "90"])
def test_fr_058_capabilities_are_compared_as_numbers(required):
    least = {"9": 9.0, "9.0a": 9.0, "sm_90": 9.0, "90": 9.0}.get(required) or float(required)
    classes = [bare_class(f"cc-{text}", computeCapability=text) for text in CAPABILITIES]
    answer = answered(a_runtime(minArchitectureVersion=required), classes)
    expected = {f"cc-{text}": FITS if number >= least else NOT for text, number in CAPABILITIES.items()}
    assert verdicts(answer) == expected


@pytest.mark.parametrize("required", ["", "nine", "9.0.0.0", "-9", "9,0"])
def test_fr_058_a_malformed_version_is_an_error_that_names_the_field(required):
    from agent.core.matching.subject import runtime_subject

    problems = runtime_subject(a_runtime(minArchitectureVersion=required)).problems
    assert [problem.path for problem in problems] == ["spec.acceleratorRequirements.minArchitectureVersion"]


def test_fr_120_h100_work_is_not_given_the_settings_of_the_a100():
    a100 = bare_class(
        "nvidia-a100-80g-4", vendor="nvidia", model="a100", memoryGB="80Gi", computeCapability="8.0"
    )
    h100 = bare_class(
        "nvidia-h100-1", vendor="nvidia", model="h100", memoryGB="80Gi", computeCapability="9.0"
    )
    runtime = a_runtime(acceleratorClasses=["nvidia-a100-80g-4", "nvidia-h100-1"], minMemory=80)
    service = a_service(selector={"policy": "FirstAvailable"})
    answer = answered(runtime, [a100, h100], records=[eight("nvidia-h100-80gb")], service=service)
    assert answer.choice.class_name == "nvidia-h100-1"
    assert verdicts(answer) == {"nvidia-h100-1": FITS, "nvidia-a100-80g-4": NOT}
    reason = the_rule(answer, "nvidia-a100-80g-4", "count").reason
    assert reason == "no node has it: n1 NVIDIA H100 80GB HBM3 has compute capability 9.0, not 8.0"


@pytest.mark.parametrize(
    ("device", "asked"),
    [
        pytest.param("nvidia-h100-80gb", "nvidia-a100-80gb", id="H100 and A100, both 80"),
        pytest.param("nvidia-h20-96gb", "nvidia-rtx-pro-6000-96gb", id="H20 and RTX PRO 6000, both 96"),
        pytest.param("nvidia-l40s-48gb", "nvidia-rtx-a6000-48gb", id="L40S and A6000, both 48"),
    ],
)
def test_fr_121_hardware_is_not_told_by_its_memory(device, asked):
    classes = [class_of(device), class_of(asked)]
    # Under other names, so that only what the devices are can tell.
    for one in classes:
        one["metadata"]["name"] = f"my-{one['metadata']['name']}"
        one["spec"]["discovery"]["nodeSelector"] = {}
    answer = answered(a_runtime(gpus=8), classes, records=[eight(device)])
    assert verdicts(answer) == {f"my-{device}": FITS, f"my-{asked}": NOT}


@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["40 first", "80 first"])
def test_fr_122_the_80_gb_card_is_asked_for_and_the_40_gb_card_does_not_answer(order):
    records = [eight("nvidia-a100-40gb", "small"), eight("nvidia-a100-80gb", "large")]
    runtime = a_runtime(gpus=1, acceleratorClasses=["a100-80"])
    asked = bare_class("a100-80", vendor="nvidia", model="a100", family="ampere", memoryGB="80Gi")
    answer = answered(runtime, [asked], records=[records[place] for place in order])
    assert [(node.name, node.verdict) for node in answer.nodes] == [("large", UNKNOWN)]
    assert (answer.classes[0].nodes_total, answer.verdict) == (1, FITS)


@pytest.mark.parametrize(
    ("written", "gib"),
    [("80Gi", 80), ("80G", 80), ("85899345920", 80), (85899345920, 80), ("8e10", 80)],
    ids=str,
)
def test_fr_123_a_size_that_means_80_is_80(written, gib):
    facts = class_facts(bare_class("x", memoryGB=written))
    assert (facts.memory.nominal_gib, facts.problems) == (gib, ())


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("80", "'80' is 80 bytes; write 80Gi"),
        ("80GB", "'80GB' is not a quantity: write 80Gi"),
        ("80GiB", "'80GiB' is not a quantity: write 80Gi"),
        ("512m", "'512m' is 0.512 bytes; write the size with its unit, such as 80Gi"),
        ("0", "'0' is 0 bytes; write the size with its unit, such as 80Gi"),
        ("-1", "'-1' is -1 bytes; write the size with its unit, such as 80Gi"),
        ("8e1", "'8e1' is 80 bytes; write the size with its unit, such as 80Gi"),
    ],
    ids=str,
)
def test_fr_123_any_other_size_is_refused_with_the_reason_and_never_becomes_zero(written, message):
    facts = class_facts(bare_class("x", memoryGB=written))
    assert facts.memory is None
    assert [(one.path, one.message) for one in facts.problems] == [("spec.capabilities.memoryGB", message)]


@pytest.mark.parametrize("stated", [{}, {"minMemory": 0}], ids=["absent", "zero"])
def test_fr_123_no_minimum_makes_no_class_fit_by_itself(stated):
    assert answered(a_runtime(**stated), [bare_class("x", memoryGB="80Gi")]).verdict == UNKNOWN


def one_shared_gpu():
    record = a_record("n1", [a_device("nvidia-h100-80gb")])
    return a_node("n1", "nvidia-h100-80gb", 1, allocatable={"nvidia.com/gpu": "2"}), record


def test_fr_124_two_time_slices_are_not_two_gpus():
    node, record = one_shared_gpu()
    answer = answered(a_runtime(gpus=2), [H100], nodes=[node], records=[record])
    assert answer.verdict == NOT
    assert answer.nodes[0].reasons == (
        "needs 2 whole, has 1 usable of 1",
        "2 nvidia.com/gpu are offered for 1 physical: time slices are not devices",
    )


def test_fr_124_sharing_counts_where_it_is_allowed():
    node, record = one_shared_gpu()
    assert (
        answered(a_runtime(gpus=2), [H100], nodes=[node], records=[record], allow_sharing=True).verdict
        == FITS
    )


def partly_cut():
    """Eight GPUs, two of them in MIG mode."""
    devices = [a_device("nvidia-a100-80gb", index) for index in range(6)]
    devices += [a_device("nvidia-a100-80gb", index, mig={"mode": "enabled"}) for index in (6, 7)]
    slices = "nvidia-a100-80gb-mig-2g.20gb"
    classes = [
        {"name": "nvidia-a100-80gb", "resource": "nvidia.com/gpu", "total": 6, "usable": 6},
        {"name": slices, "resource": "nvidia.com/mig-2g.20gb", "total": 6, "usable": 6},
    ]
    node = a_node(
        "n1",
        "nvidia-a100-80gb",
        6,
        allocatable={"nvidia.com/gpu": "6", "nvidia.com/mig-2g.20gb": "6"},
        labels={f"class.{DOMAIN}/{slices}": "true"},
    )
    mig = bare_class(
        slices, vendor="nvidia", memoryGB="19968Mi", selector={f"class.{DOMAIN}/{slices}": "true"}
    )
    return [A100, mig], {"nodes": [node], "records": [a_record("n1", devices, classes=classes)]}


@pytest.mark.parametrize(("wanted", "verdict"), [(6, FITS), (7, NOT), (8, NOT)])
def test_fr_125_whole_gpus_beside_slices_are_counted_alone(wanted, verdict):
    classes, given = partly_cut()
    assert answered(a_runtime(gpus=wanted), classes, **given).verdict == verdict


def test_fr_125_a_slice_serves_only_where_it_is_allowed():
    classes, given = partly_cut()
    small = a_runtime(minMemory=19)
    slices = "nvidia-a100-80gb-mig-2g.20gb"
    assert verdicts(answered(small, classes, **given)) == {"nvidia-a100-80gb": FITS, slices: NOT}
    allowed = answered(small, classes, allow_partitions=True, **given)
    assert verdicts(allowed) == {"nvidia-a100-80gb": FITS, slices: FITS}
    # 19968 MiB are 19.5 GiB, and a slice is never rounded up.
    exact = answered(a_runtime(minMemory=20), classes, allow_partitions=True, **given)
    assert verdicts(exact) == {"nvidia-a100-80gb": FITS, slices: NOT}


def test_fr_126_the_driver_is_named_as_the_reason():
    key = f"{DOMAIN}/driver-major"
    terms = [{"matchExpressions": [{"key": key, "operator": "Gt", "values": ["579"]}]}]
    affinity = {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    }
    split = bare_class("h100-cuda13", vendor="nvidia", model="h100", selector={}, affinity=affinity)
    nodes = [
        a_node("old", "nvidia-h100-80gb", labels={key: "535"}),
        a_node("new", "nvidia-h100-80gb", labels={key: "580"}),
    ]
    answer = answered(a_runtime(gpus=8), [split], nodes=nodes)
    assert [(node.name, node.verdict, node.reasons) for node in answer.nodes] == [
        ("new", FITS, ()),
        ("old", NOT, (f"driver-major is 535, affinity of class h100-cuda13 needs {key} Gt 579",)),
    ]
    assert answer.classes[0].nodes_total == 1


@pytest.mark.parametrize("state", ["lost", "needs-reset", "failed", "unreadable"])
def test_fr_128_a_sick_gpu_is_not_promised_and_is_named(state):
    devices = [a_device("nvidia-h100-80gb", index) for index in range(7)]
    devices.append(a_device("nvidia-h100-80gb", 7, state=state, reasons=["xid-79"]))
    given = {"nodes": [a_node("n1", "nvidia-h100-80gb", 7, allocatable={"nvidia.com/gpu": "8"})]}
    given["records"] = [a_record("n1", devices)]
    eight_wanted = answered(a_runtime(gpus=8), [H100], **given)
    assert eight_wanted.verdict == NOT
    assert eight_wanted.nodes[0].reasons[:2] == (
        "needs 8 whole, has 7 usable of 8",
        f"GPU-7 is {state} (xid-79)",
    )
    assert answered(a_runtime(gpus=7), [H100], **given).verdict == FITS


@pytest.mark.parametrize(
    ("runtime", "classes", "nodes"),
    [
        pytest.param(a_runtime(minMemory=80), [bare_class("x")], [], id="class without memory"),
        pytest.param(
            a_runtime(minArchitectureVersion="9.0"), [bare_class("x")], [], id="class without capability"
        ),
        pytest.param(
            a_runtime(gpus=1),
            [bare_class("x", vendor="nvidia", selector={})],
            [a_node("n1")],
            id="class without a selector, node without our labels",
        ),
        pytest.param(a_runtime(), [class_of("nvidia-h100-80gb")], [], id="runtime without requirements"),
        pytest.param(
            a_runtime(minMemory=64),
            [bare_class("x", features=["unified-memory"])],
            [],
            id="unified memory of unknown size",
        ),
    ],
)
def test_fr_130_a_missing_fact_is_neither_a_match_nor_a_zero(runtime, classes, nodes):
    assert answered(runtime, classes, nodes=nodes).verdict == UNKNOWN


@pytest.mark.parametrize(
    ("labelled", "allocatable", "usable", "verdict", "reason"),
    [
        pytest.param(
            8,
            {"nvidia.com/gpu": "7"},
            7,
            NOT,
            "Node/n1 metadata.labels counts 8 usable, the kubelet offers 7 nvidia.com/gpu",
            id="8 labelled, 7 offered",
        ),
        pytest.param(
            8,
            {"nvidia.com/gpu": "0"},
            0,
            NOT,
            "Node/n1 metadata.labels counts 8 usable, the kubelet offers 0 nvidia.com/gpu",
            id="8 labelled, none offered",
        ),
        pytest.param(
            8,
            {},
            None,
            UNKNOWN,
            "Node/n1 metadata.labels counts 8, but the kubelet offers no nvidia.com/gpu",
            id="no such resource",
        ),
    ],
)
def test_fr_135_labels_are_compared_with_what_the_kubelet_offers(
    labelled, allocatable, usable, verdict, reason
):
    node = a_node("n1", "nvidia-h100-80gb", labelled, allocatable=allocatable)
    found = answered(a_runtime(gpus=8), [H100], nodes=[node]).nodes[0]
    assert (found.usable, found.verdict) == (usable, verdict)
    assert reason in found.reasons


def test_fr_135_a_partition_that_no_device_plugin_offers_cannot_be_told():
    slices = "nvidia-a100-80gb-mig-1g.10gb"
    node = a_node(
        "n1",
        allocatable={"nvidia.com/gpu": "0"},
        labels={f"count.{DOMAIN}/{slices}": "7", f"class.{DOMAIN}/{slices}": "true"},
    )
    mig = bare_class(
        slices, vendor="nvidia", memoryGB="9856Mi", selector={f"class.{DOMAIN}/{slices}": "true"}
    )
    found = answered(a_runtime(gpus=1, resource="nvidia.com/mig-1g.10gb"), [mig], nodes=[node])
    assert found.verdict == UNKNOWN
    assert found.nodes[0].reasons == (
        "Node/n1 metadata.labels counts 7, but the kubelet offers no nvidia.com/mig-1g.10gb",
    )


@pytest.mark.parametrize(
    ("device", "other"),
    [
        ("nvidia-a10-24gb", "nvidia-a100-40gb"),
        ("nvidia-l4-24gb", "nvidia-l40s-48gb"),
        ("nvidia-b200-180gb", "nvidia-gb200-186gb"),
        ("nvidia-h20-96gb", "nvidia-h200-141gb"),
    ],
)
def test_a_name_inside_another_is_another_gpu(device, other):
    classes = []
    for name in (device, other):
        found = class_of(name)
        model = found["spec"]["model"]
        classes.append(bare_class(f"my-{name}", vendor="nvidia", model=model))
    answer = answered(a_runtime(gpus=8), classes, records=[eight(device)])
    assert verdicts(answer) == {f"my-{device}": FITS, f"my-{other}": NOT}
    mirrored = answered(a_runtime(gpus=8), classes, records=[eight(other)])
    assert verdicts(mirrored) == {f"my-{device}": NOT, f"my-{other}": FITS}


def test_a_near_name_is_offered_by_whole_words():
    names = ["nvidia-a10-24gb", "nvidia-a100-80gb", "nvidia-l40s-48gb"]
    assert did_you_mean("a10", names) == "; did you mean nvidia-a10-24gb?"
    assert did_you_mean("tpu", names) == ""


def test_a_measured_device_belongs_to_the_class_of_its_nominal_size():
    mine = bare_class("my-h100", vendor="nvidia", model="h100", memoryGB="80Gi")
    record = a_record("n1", [a_device("nvidia-h100-80gb", memoryBytes=81559 * MIB)])
    assert verdicts(answered(a_runtime(gpus=1), [mine], records=[record])) == {"my-h100": FITS}
