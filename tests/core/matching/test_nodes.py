"""Nodes: what is usable and free, where a pod may land, and records of any age and completeness."""

from datetime import UTC, datetime, timedelta

import pytest

from agent.core.cluster_views import pod_view
from agent.core.matching.nodes import node_views, object_problems, pod_requests
from tests.core.matching.kit import (
    DOMAIN,
    a_device,
    a_node,
    a_record,
    a_runtime,
    an_object,
    answered,
    bare_class,
    class_of,
)

FITS, NOT, UNKNOWN = "fits", "does-not-fit", "cannot-tell"
NAME = "nvidia-h100-80gb"
H100 = class_of(NAME)


def node_of(runtime, *, node=None, record=None, **given):
    """Return the one node's answer."""
    nodes, records = ([node] if node else []), ([record] if record else [])
    return answered(runtime, [H100], nodes=nodes, records=records, **given).nodes[0]


def said(found):
    return found.verdict, found.when_free, found.free, found.usable, found.reasons


EIGHT = a_runtime(gpus=8)


def test_an_empty_node_fits():
    assert said(node_of(EIGHT, node=a_node("n1", NAME))) == (FITS, FITS, 8, 8, ())


def test_what_pods_hold_is_not_free_and_the_node_would_fit_when_it_is():
    found = node_of(EIGHT, node=a_node("n1", NAME), requested={"n1": {"nvidia.com/gpu": 3}})
    assert said(found) == (NOT, FITS, 5, 8, ("needs 8, has 5 free of 8; fits when free",))


def test_a_class_answer_counts_what_is_there_in_total_and_tells_how_many_fit_now():
    answer = answered(
        EIGHT,
        [H100],
        nodes=[a_node("n1", NAME), a_node("n2", NAME)],
        requested={"n1": {"nvidia.com/gpu": 8}},
    )
    one = answer.classes[0]
    assert (one.verdict, one.nodes_now, one.nodes_total) == (FITS, 1, 2)


def test_a_node_that_cannot_tell_leaves_the_count_open_and_not_at_zero():
    record = a_record("n1", [a_device(NAME, index) for index in range(8)])
    answer = answered(EIGHT, [H100], records=[record])
    one = answer.classes[0]
    assert (one.verdict, one.now, one.nodes_now, one.nodes_total) == (FITS, UNKNOWN, None, 1)


def test_a_class_that_fits_now_on_one_node_is_the_first_available_whatever_another_cannot_tell():
    record = a_record("n2", [a_device(NAME, index) for index in range(8)])
    answer = answered(EIGHT, [H100], nodes=[a_node("n1", NAME)], records=[record], policy="FirstAvailable")
    assert (answer.classes[0].now, answer.classes[0].nodes_now) == (FITS, None)
    assert answer.choice.reason == "first of the runtime's order that fits now"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        pytest.param({"cordoned": True}, "is cordoned", id="cordon"),
        pytest.param({"ready": False}, "is not Ready", id="not ready"),
        pytest.param(
            {"taints": [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}]},
            "taint nvidia.com/gpu:NoSchedule is not tolerated",
            id="taint",
        ),
        pytest.param(
            {"labels": {f"class.{DOMAIN}/{NAME}": "false"}},
            f"{NAME} is false, class {NAME} selects true (label class.{DOMAIN}/{NAME})",
            id="the class's own selector",
        ),
    ],
)
def test_what_keeps_pods_away_is_named(changes, reason):
    found = node_of(EIGHT, node=a_node("n1", NAME, **changes))
    assert (found.verdict, found.when_free, found.reasons) == (NOT, NOT, (reason,))


def with_pod_fields(**fields):
    return a_runtime(gpus=8, engine={"runner": {"resources": {"limits": {"nvidia.com/gpu": 8}}}, **fields})


@pytest.mark.parametrize(
    ("toleration", "verdict"),
    [
        ({"key": "gpu", "operator": "Exists"}, FITS),
        ({"operator": "Exists"}, FITS),
        ({"key": "gpu", "value": "yes"}, FITS),
        ({"key": "gpu", "operator": "Equal", "value": "no"}, NOT),
        ({"key": "gpu", "operator": "Exists", "effect": "NoExecute"}, NOT),
        ({"key": "cpu", "operator": "Exists"}, NOT),
    ],
    ids=str,
)
def test_tolerations_are_read_as_the_scheduler_reads_them(toleration, verdict):
    taint = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}
    runtime = with_pod_fields(tolerations=[toleration])
    assert node_of(runtime, node=a_node("n1", NAME, taints=[taint])).verdict == verdict


def test_a_taint_that_only_prefers_keeps_nobody_away():
    taint = {"key": "gpu", "effect": "PreferNoSchedule"}
    assert node_of(EIGHT, node=a_node("n1", NAME, taints=[taint])).verdict == FITS


@pytest.mark.parametrize(
    ("operator", "values", "verdict"),
    [
        ("In", ["a", "b"], FITS),
        ("In", ["b"], NOT),
        ("NotIn", ["b"], FITS),
        ("NotIn", ["a"], NOT),
        ("Exists", [], FITS),
        ("DoesNotExist", [], NOT),
        ("Gt", ["1"], NOT),
        ("Unheard", ["a"], NOT),
    ],
    ids=str,
)
def test_required_affinity_is_read_as_the_scheduler_reads_it(operator, values, verdict):
    expression = {"key": "zone", "operator": operator, "values": values}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    found = node_of(with_pod_fields(affinity=affinity), node=a_node("n1", NAME, labels={"zone": "a"}))
    assert found.verdict == verdict


@pytest.mark.parametrize(
    ("terms", "verdict"),
    [
        pytest.param(
            [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}], FITS, id="name"
        ),
        pytest.param([{}], NOT, id="an empty term meets no node"),
        pytest.param([], NOT, id="no term meets no node"),
        pytest.param(
            [{}, {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}],
            FITS,
            id="one of the terms is enough",
        ),
    ],
)
def test_terms_of_an_affinity(terms, verdict):
    affinity = {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    }
    found = node_of(with_pod_fields(affinity=affinity), node=a_node("n1", NAME, labels={"zone": "a"}))
    assert found.verdict == verdict


def test_a_node_selector_of_the_runtime_is_compared_with_labels():
    found = node_of(with_pod_fields(nodeSelector={"pool": "gpu"}), node=a_node("n1", NAME))
    assert found.reasons == ("pool is absent, spec.engineConfig.nodeSelector selects gpu (label pool)",)


def eight_devices():
    return [a_device(NAME, index) for index in range(8)]


def test_a_record_without_its_node_tells_the_total_and_not_what_is_free():
    found = node_of(EIGHT, record=a_record("n1", eight_devices()))
    assert said(found) == (
        UNKNOWN,
        FITS,
        None,
        8,
        ("what is free is not known without the Node object",),
    )


def test_a_label_that_only_the_node_object_could_tell_is_not_known():
    found = node_of(with_pod_fields(nodeSelector={"pool": "gpu"}), record=a_record("n1", eight_devices()))
    assert found.when_free == UNKNOWN
    assert found.reasons[0] == "label pool is not known; spec.engineConfig.nodeSelector selects pool=gpu"


def test_on_a_node_of_two_classes_every_request_may_have_fallen_on_either():
    devices = [a_device(NAME, index) for index in range(4)]
    devices += [a_device("nvidia-a100-80gb", index) for index in range(4, 8)]
    node = a_node("n1", labels={f"class.{DOMAIN}/{NAME}": "true"})
    found = node_of(
        a_runtime(gpus=2),
        node=node,
        record=a_record("n1", devices),
        requested={"n1": {"nvidia.com/gpu": 3}},
    )
    assert said(found) == (NOT, FITS, 1, 4, ("needs 2, has 1 free of 4; fits when free",))


def test_a_node_of_two_classes_promises_neither_by_its_selector():
    devices = [a_device(NAME, 0), a_device("nvidia-a100-80gb", 1)]
    found = node_of(a_runtime(gpus=1), node=a_node("n1", count=2), record=a_record("n1", devices))
    assert found.verdict == NOT
    assert found.reasons == (f"{NAME} is absent, class {NAME} selects true (label class.{DOMAIN}/{NAME})",)


NOW = datetime(2026, 11, 30, 20, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("age", "live", "verdict"),
    [
        pytest.param(timedelta(minutes=39), True, FITS, id="two heartbeats old"),
        pytest.param(timedelta(hours=3), True, UNKNOWN, id="stale"),
        pytest.param(timedelta(hours=3), False, FITS, id="from a file, which is as old as it is"),
    ],
)
def test_a_stale_record_is_worth_less_than_none(age, live, verdict):
    record = a_record("n1", eight_devices(), observedAt=(NOW - age).isoformat())
    found = node_of(EIGHT, node=a_node("n1", NAME), record=record, now=NOW, live=live)
    assert found.verdict == verdict
    assert found.reasons == (() if verdict == FITS else ("its record was last confirmed 180 minutes ago",))


def test_simulated_nodes_do_not_count_beside_real_ones():
    given = {
        "records": [a_record("fake", eight_devices(), simulated=True), a_record("real", eight_devices()[:4])]
    }
    answer = answered(EIGHT, [H100], **given)
    assert answer.verdict == NOT
    assert [node.name for node in answer.nodes] == ["real"]
    assert "simulated-nodes" in {finding.id for finding in answer.findings}


def test_simulated_nodes_alone_answer_and_are_marked():
    answer = answered(EIGHT, [H100], records=[a_record("fake", eight_devices(), simulated=True)])
    assert answer.verdict == FITS
    told = {finding.id: finding.message for finding in answer.findings}
    assert told["simulated-nodes"] == "node fake has simulated hardware"


def test_several_simulated_nodes_are_counted():
    records = [a_record(name, eight_devices(), simulated=True) for name in ("fake", "mock")]
    told = {finding.id: finding.message for finding in answered(EIGHT, [H100], records=records).findings}
    assert told["simulated-nodes"] == "2 nodes have simulated hardware, among them fake"


def fabric(cluster, clique=0, state="completed"):
    return {"clusterUUID": cluster, "clique": clique, "state": state}


TENSOR_8 = a_runtime(gpus=8, args=["--tp-size", "8"], requiredFeatures=["nvlink"])


@pytest.mark.parametrize(
    ("devices", "verdict"),
    [
        pytest.param([{"fabric": fabric("one")}] * 8, FITS, id="one domain"),
        pytest.param(
            [{"fabric": fabric("one")}] * 4 + [{"fabric": fabric("two")}] * 4, NOT, id="two domains"
        ),
        pytest.param([{"fabric": fabric(None, state="in-progress")}] * 8, NOT, id="fabric not up"),
        pytest.param([{"link": {"nvlinkActive": 0, "nvlinkTotal": 18}}] * 8, NOT, id="links down"),
        pytest.param([{"link": {"nvlinkActive": 18, "nvlinkTotal": 18}}] * 8, FITS, id="links up, no fabric"),
        pytest.param([{}] * 8, FITS, id="nothing told"),
    ],
)
def test_a_tensor_parallel_group_lies_in_one_nvlink_domain(devices, verdict):
    listed = [a_device(NAME, index, **changes) for index, changes in enumerate(devices)]
    found = node_of(TENSOR_8, node=a_node("n1", NAME), record=a_record("n1", listed))
    assert found.verdict == verdict


def test_devices_of_a_class_without_nvlink_share_no_domain_whatever_their_record_leaves_out():
    records = [a_record("n1", [a_device("nvidia-l40s-48gb", index) for index in range(2)])]
    runtime = a_runtime(gpus=4, args=["--tp-size", "4"], requiredFeatures=["nvlink"])
    (found,) = answered(runtime, [class_of("nvidia-l40s-48gb")], records=records).nodes
    assert found.reasons == (
        "0 devices share an NVLink domain that is up, 4 are needed",
        "needs 4 whole, has 2 usable of 2",
    )


def spanning(nvlink):
    pod = {"runner": {"args": ["--tp-size", "8"], "resources": {"limits": {"nvidia.com/gpu": 4}}}}
    features = {"requiredFeatures": ["nvlink"]} if nvlink else {"minMemory": 1}
    return a_runtime(engine={"leader": pod, "worker": {"size": 1, **pod}}, **features)


@pytest.mark.parametrize(
    ("domains", "nvlink", "verdict"),
    [
        pytest.param(("rack", "rack"), True, FITS, id="one rack"),
        pytest.param(("rack", "other"), True, NOT, id="two racks"),
        pytest.param((None, None), True, NOT, id="no fabric"),
        pytest.param(("rack", "rack"), False, NOT, id="nvlink is not required"),
    ],
)
def test_a_group_over_nodes_lies_in_one_nvlink_domain(domains, nvlink, verdict):
    name = "nvidia-gb200-186gb"
    records = [
        a_record(f"n{place}", [a_device(name, index, fabric=fabric(domain)) for index in range(4)])
        for place, domain in enumerate(domains)
    ]
    assert answered(spanning(nvlink), [class_of(name)], records=records).verdict == verdict


def test_pods_count_as_long_as_they_run_and_by_the_larger_of_their_phases():
    def pod(node, *counts, phase="Running", first=0):
        containers = [
            {"resources": {"requests": {"nvidia.com/gpu": str(count), "cpu": "4"}}} for count in counts
        ]
        initial = [{"resources": {"limits": {"nvidia.com/gpu": first}}}]
        spec = {"nodeName": node, "containers": containers, "initContainers": initial}
        return {"metadata": {"name": "p"}, "spec": spec, "status": {"phase": phase}}

    pods = [
        pod("n1", 1, 2),
        pod("n1", 1, first=4),
        pod("n1", 8, phase="Succeeded"),
        pod(None, 8),
        pod("n2", 1),
    ]
    views = [view for view in map(pod_view, pods) if view is not None]
    assert pod_requests(views) == {"n1": {"nvidia.com/gpu": 7}, "n2": {"nvidia.com/gpu": 1}}


@pytest.mark.parametrize(
    ("obj", "path", "message"),
    [
        pytest.param(
            an_object("AcceleratorNode", "n", {"devices": None}),
            "spec.devices",
            "Expected `array`, got `null`",
            id="null list",
        ),
        pytest.param(
            an_object("AcceleratorNode", "n", {"classes": [{"name": "x", "usable": "8"}]}),
            "spec.classes[0].usable",
            "Expected `int | null`, got `str`",
            id="text for a number",
        ),
        pytest.param(
            an_object("Node", "n", {}, status={"allocatable": {"nvidia.com/gpu": "many"}}),
            "status.allocatable[nvidia.com/gpu]",
            "'many' is not a quantity such as 80Gi",
            id="no quantity",
        ),
    ],
)
def test_values_of_another_kind_are_problems_with_their_path(obj, path, message):
    assert [(one.path, one.message) for one in object_problems(obj)] == [(path, message)]


def test_a_record_that_cannot_be_read_leaves_the_others():
    views, problems = node_views(
        [], [an_object("AcceleratorNode", "bad", {"devices": 1}), a_record("good", [])]
    )
    assert [view.name for view in views] == ["good"]
    assert [problem.path for problem in problems] == ["AcceleratorNode/bad spec.devices"]


@pytest.mark.parametrize(
    ("status", "gpus", "verdict"),
    [
        ({"totalAccelerators": 4}, 8, NOT),
        ({"totalAccelerators": 8}, 8, UNKNOWN),
        ({"totalAccelerators": 8}, 1, FITS),
        ({"totalAccelerators": 0}, 1, NOT),
        (None, 8, UNKNOWN),
        (None, 1, FITS),
    ],
    ids=str,
)
def test_without_nodes_the_total_of_the_class_is_all_that_is_known(status, gpus, verdict):
    one = bare_class("x", vendor="nvidia", memoryGB="80Gi", status=status)
    assert answered(a_runtime(gpus=gpus, minMemory=80), [one]).verdict == verdict
