"""What the controller writes on pods: labels where they are absent, one Event for a contradiction, nothing unasked."""

import pytest

from agent.cluster import ACCELERATOR_NODES, INFERENCE_POOLS, NAMESPACES, PODS, Conflict, Forbidden
from agent.core.pools.names import POOLS_MANAGER
from tests.inventory.hardware import h100
from tests.pools import expositions
from tests.pools.servers import close
from tests.pools.stage import (
    CLASS,
    ENGINE,
    H100,
    L40S,
    LORA,
    OLD_ENGINE,
    OPT_IN,
    VARIANT,
    VENDOR,
    VLLM,
    l40s,
)

HARDWARE = {CLASS: H100, VARIANT: "gpu", VENDOR: "nvidia"}
ALL = {**HARDWARE, ENGINE: "vllm"}


@pytest.fixture
def opened(stage):
    stage.namespace("team", "true")
    stage.node("hopper", [h100(0), h100(1)])
    stage.node("ada", [l40s(0)])
    stage.pool()
    return stage


def test_a_pod_without_labels_gets_them_all_in_one_turn_and_none_in_the_next(opened):
    opened.pod("a", expositions.vllm(), command=VLLM)
    opened.turn()
    assert opened.labels("a") == ALL
    assert opened.annotations("a") == {LORA: "off"}
    before = opened.versions()
    opened.turn(after=1)
    opened.turn(after=100)
    assert opened.versions() == before


def test_labels_of_a_person_or_a_template_stay_as_they_are(opened):
    given = {CLASS: "my-h100", VARIANT: "gpu-sxm", ENGINE: "vllm"}
    opened.pod("a", expositions.vllm(), labels=given, annotations={LORA: "whatever"})
    opened.turn()
    opened.turn(after=100)
    assert opened.labels("a") == {**given, VENDOR: "nvidia"}
    assert opened.annotations("a") == {LORA: "whatever"}


def test_a_label_that_a_person_changes_is_the_persons_from_then_on(opened):
    opened.pod("a", expositions.vllm())
    opened.turn()
    patch = {"metadata": {"labels": {CLASS: "mine"}}}
    opened.cluster.merge_patch(PODS, "a", patch, manager="kubectl-edit", namespace="team")
    opened.turn(after=100)
    opened.turn(after=100)
    assert opened.labels("a") == {**ALL, CLASS: "mine"}


def test_the_older_engine_label_is_read_and_no_second_one_is_given(opened):
    opened.pod("a", expositions.vllm(), labels={OLD_ENGINE: "vllm"})
    opened.turn()
    assert opened.labels("a") == {**HARDWARE, OLD_ENGINE: "vllm"}
    assert opened.events() == []


def test_a_pod_that_is_made_anew_has_its_labels_after_one_turn(opened):
    opened.pod("a", expositions.vllm())
    opened.turn()
    opened.remove_at_once("a")
    opened.turn(after=1)
    opened.pod("a", expositions.sglang())
    opened.turn(after=1)
    assert opened.labels("a") == {**HARDWARE, ENGINE: "sglang"}


def test_a_pod_that_was_made_anew_unheard_is_not_written_by_what_was_known_of_the_former(opened, monkeypatch):
    opened.pod("a", expositions.vllm(), node="hopper")
    opened.controller._take_in()
    opened.remove_at_once("a")
    opened.pod("a", expositions.vllm(), node="ada")
    # The watch has not told yet: one turn by the former pod's facts.
    with monkeypatch.context() as held:
        held.setattr(opened.controller, "_take_in", lambda: None)
        opened.turn()
    assert opened.labels("a") == {}
    opened.turn(after=10)
    assert opened.labels("a")[CLASS] == L40S


def test_a_server_that_restarts_keeps_its_labels(opened):
    server = opened.pod("a", expositions.vllm())
    opened.turn()
    server.metrics = "<html>starting</html>"
    for _ in range(5):
        opened.turn(after=100)
    assert opened.labels("a") == ALL
    (endpoint,) = opened.controller.report().pools[0].endpoints
    assert (endpoint.engine, endpoint.engine_from) == ("vllm", "label")
    assert endpoint.problem == "/metrics is a page (HTML), no metrics"


def test_one_missed_answer_changes_nothing_in_the_report(opened):
    server = opened.pod("a", expositions.vllm())
    opened.turn()
    server.metrics = "<html>busy</html>"
    opened.turn(after=100)
    (endpoint,) = opened.controller.report().pools[0].endpoints
    assert (endpoint.engine, endpoint.engine_from, endpoint.problem) == ("vllm", "metrics", "")


def test_a_node_whose_record_is_gone_takes_no_label_away(opened):
    opened.pod("a", expositions.vllm())
    opened.turn()
    opened.cluster.delete(ACCELERATOR_NODES, "hopper")
    opened.turn(after=100)
    assert opened.labels("a") == ALL


def test_an_adapter_that_is_not_in_use_now_is_no_reason_to_write(opened):
    server = opened.pod("a", expositions.vllm(lora=[(100.0, "sql", "")]))
    opened.turn()
    assert opened.annotations("a") == {LORA: "active"}
    before = opened.versions()
    server.metrics = expositions.vllm(lora=[(200.0, "", "")])
    opened.turn(after=100)
    assert opened.versions() == before
    (endpoint,) = opened.controller.report().pools[0].endpoints
    assert endpoint.lora.state == "enabled"


def test_a_contradiction_makes_one_event_and_counts_and_changes_no_label(opened):
    opened.pod("a", expositions.sglang(), labels={ENGINE: "vllm"})
    opened.pod("b", expositions.vllm(), labels={CLASS: L40S})
    for _ in range(3):
        opened.turn(after=100)
    opened.new_controller()
    opened.turn(after=100)
    assert opened.events() == [
        ("a", "PoolLabelContradiction", f"the label {ENGINE} says vllm, and the server is sglang"),
        ("b", "PoolLabelContradiction", f"the label {CLASS} says {L40S}, and the pod runs on {H100}"),
    ]
    assert opened.labels("a") == {**HARDWARE, ENGINE: "vllm"}
    assert opened.controller.report().pools[0].contradictions == 2


OPTED = [
    ("nothing", None, {}, 0),
    ("another word", "yes", {}, 0),
    ("observe", "observe", {}, 1),
    ("labels", "labels", HARDWARE, 0),
    ("all", "true", ALL, 1),
]


@pytest.mark.parametrize(
    ("opt_in", "labels", "asked"), [row[1:] for row in OPTED], ids=[row[0] for row in OPTED]
)
def test_a_namespace_decides_whether_its_pods_are_asked_and_written(stage, opt_in, labels, asked):
    stage.namespace("team", opt_in)
    stage.node("hopper", [h100(0)])
    stage.pool()
    server = stage.pod("a", expositions.vllm(), args=["--enable-lora"])
    before = stage.versions()
    stage.turn()
    stage.turn(after=10)
    assert stage.labels("a") == labels
    assert len(server.requests) == asked
    assert (stage.versions() == before) == (not labels)


def test_a_pod_that_no_pool_selects_is_neither_asked_nor_written(opened):
    stranger = opened.pod("stranger", expositions.vllm(), app="another")
    opened.pod("member", expositions.vllm())
    opened.turn()
    assert opened.labels("stranger") == {}
    assert stranger.requests == []


def test_opting_out_ends_requests_and_writes(opened):
    server = opened.pod("a", expositions.vllm())
    opened.turn()
    patch = {"metadata": {"labels": {OPT_IN: None}}}
    opened.cluster.merge_patch(NAMESPACES, "team", patch, manager="administrator")
    asked, before = len(server.requests), opened.versions()
    opened.pod("b", expositions.vllm())
    for _ in range(3):
        opened.turn(after=200)
    assert len(server.requests) == asked
    assert opened.labels("b") == {}
    assert opened.versions()["a"] == before["a"]


def test_only_the_leader_asks_and_writes(opened):
    server = opened.pod("a", expositions.vllm())
    opened.leading = False
    opened.turn()
    assert (server.requests, opened.labels("a"), opened.controller.report().pools) == ([], {}, ())
    opened.leading = True
    opened.turn(after=10)
    assert opened.labels("a") == ALL


def test_our_manager_owns_what_we_wrote_and_nothing_else(opened):
    opened.pod("a", expositions.vllm(), labels={ENGINE: "vllm"}, command=VLLM)
    opened.turn()
    (entry,) = (
        entry for entry in opened.live("a")["metadata"]["managedFields"] if entry["manager"] == POOLS_MANAGER
    )
    fields = entry["fieldsV1"]["f:metadata"]
    assert {part: {key for key in held if key != "."} for part, held in fields.items()} == {
        "f:labels": {f"f:{key}" for key in (CLASS, VARIANT, VENDOR)},
        "f:annotations": {f"f:{LORA}"},
    }


def test_a_missing_right_is_told_tried_seldom_and_stops_no_other_namespace(fake_stage):
    for namespace in ("closed", "open"):
        fake_stage.namespace(namespace, "true")
        fake_stage.pool(namespace=namespace)
        fake_stage.pod("a", expositions.vllm(), namespace=namespace)
        fake_stage.pod("b", expositions.vllm(), namespace=namespace)
    fake_stage.node("hopper", [h100(0)])

    def fault(call):
        refused = call.verb == "apply" and call.resource == "pods" and call.namespace == "closed"
        return Forbidden("pods is forbidden: cannot patch") if refused else None

    fake_stage.cluster.fault = fault
    for _ in range(4):
        fake_stage.turn(after=10)
    report = fake_stage.controller.report()
    (problem,) = report.problems
    assert problem == (
        f"the namespace closed has the label {OPT_IN}, and its pods may not be labelled: bind the ClusterRole "
        "accelerator-pools-writer there by a RoleBinding (pods is forbidden: cannot patch)"
    )
    assert report.failures == {("pod", "Forbidden"): 1}
    assert fake_stage.labels("b", "open") == ALL
    fake_stage.cluster.fault = lambda _call: None
    fake_stage.turn(after=100)
    assert fake_stage.labels("b", "closed") == ALL
    assert fake_stage.controller.report().problems == ()


def test_a_conflict_is_left_to_the_other_writer(fake_stage):
    fake_stage.namespace("team", "labels")
    fake_stage.node("hopper", [h100(0)])
    fake_stage.pool()
    fake_stage.pod("a")
    fake_stage.cluster.fault = lambda call: Conflict("a label is another's") if call.verb == "apply" else None
    fake_stage.turn()
    fake_stage.turn(after=1)
    assert fake_stage.controller.report().failures == {("pod", "Conflict"): 1}
    fake_stage.cluster.fault = lambda _call: None
    fake_stage.turn(after=10)
    assert fake_stage.labels("a") == HARDWARE


def test_a_silent_endpoint_is_asked_less_and_less_and_at_once_when_it_becomes_ready(fake_stage):
    fake_stage.namespace("team", "observe")
    fake_stage.node("hopper", [h100(0)])
    fake_stage.pool()
    stranger = fake_stage.pod("a", behave=close)
    asked = []
    for _ in range(12):
        fake_stage.turn(after=5)
        asked.append(stranger.accepted)
    assert asked[0] == 1
    assert 3 <= asked[-1] <= 6
    for status in ("False", "True"):
        conditions = [{"type": "Ready", "status": status}]
        fake_stage.cluster.merge_patch(
            PODS,
            "a",
            {"status": {"conditions": conditions}},
            manager="kubelet",
            namespace="team",
            subresource="status",
        )
        before = stranger.accepted
        fake_stage.turn()
    assert stranger.accepted == before + 1


def test_a_pool_that_is_deleted_ends_requests(opened):
    server = opened.pod("a", expositions.vllm())
    opened.turn()
    opened.cluster.delete(INFERENCE_POOLS, "llama", namespace="team")
    asked = len(server.requests)
    opened.turn(after=200)
    assert len(server.requests) == asked
    assert opened.controller.report().pools == ()


def test_without_the_definition_of_pools_nothing_is_done(stage_without_pools):
    stage_without_pools.turn()
    report = stage_without_pools.controller.report()
    assert (report.installed, report.pools, report.problems) == (False, (), ())
    assert {call.verb for call in stage_without_pools.cluster.calls} == {"apply", "list"}
