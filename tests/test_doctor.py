"""`doctor` in front of a cluster: what it asks, what it finds, and what it says when it may not look."""

import io
import json
import re

import pytest
import yaml

from agent.cluster import ACCELERATOR_CLASSES, ACCELERATOR_NODES, CRDS, NODES, Forbidden, Unreachable
from agent.commands.doctor import Patient, doctor_checks, run_doctor
from agent.core.doctor.check import findings
from agent.core.doctor.machine import Surroundings
from agent.core.doctor.rights import AGENT_RIGHTS, Right, inventory_rights
from agent.settings import Settings
from tests.cluster.objects import CLASS_CRD, MINIMAL_CLASS_CRD, documents
from tests.hardware import DOMAIN, facts, h100
from tests.world import DEPLOY, World

GPU = "nvidia.com/gpu"
H100 = "nvidia-h100-80gb"
PRIVILEGED = Surroundings(in_container=False, user=0, system_administrator=True)


class Clinic(World):
    """A Node whose agent has run, on a cluster with both definitions, and the doctor that looks at it."""

    def __init__(self):
        super().__init__()
        for body in documents(CLASS_CRD):
            self.cluster.apply(CRDS, body, manager="kubectl")
        self.offer("gpu-1", "2")
        self.run()
        self.cluster.calls.clear()

    def offer(self, node, count):
        status = {"status": {"allocatable": {GPU: count}, "capacity": {GPU: count}}}
        self.cluster.merge_patch(NODES, node, status, manager="kubelet", subresource="status")

    def add_node(self, name, *, labels=None, taints=()):
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels or {}}}
        self.cluster.create(NODES, {**body, "spec": {"taints": list(taints)}}, manager="kubelet")

    def deny(self, *denied):
        """Refuse these (verb, plural) requests."""
        self.cluster.fault = lambda call: (
            Forbidden(f"{call.resource} is forbidden") if (call.verb, call.resource) in denied else None
        )

    def checks(self, *, on_node=True, hardware=True, **settings):
        found = self.found if hardware else None
        patient = Patient(facts=found, surroundings=PRIVILEGED, cluster=self.cluster)
        settings = {"node_name": "gpu-1" if on_node else None, **settings}
        return doctor_checks(patient, Settings(**settings), now=self.clock().wall)

    def named(self, **options):
        return [check.id for check in findings(self.checks(**options))]

    def check(self, id_, **options):
        [found] = [check for check in self.checks(**options) if check.id == id_]
        return found


@pytest.fixture
def clinic():
    return Clinic()


def test_all_is_well_where_an_agent_has_run(clinic):
    assert clinic.named() == []
    looked_at = {check.id for check in clinic.checks() if check.status == "ok"}
    assert looked_at >= {
        "cluster",
        "rights-agent",
        "rights-inventory",
        "definition-records",
        "definition-classes",
        "node",
        "labels",
        "rivals",
        "record",
        "conditions",
        "allocatable",
    }


def test_nothing_is_written(clinic):
    clinic.checks()
    assert {
        (call.verb, call.resource) for call in clinic.cluster.calls if call.verb not in {"get", "list"}
    } == {
        ("create", "selfsubjectreviews"),
        ("create", "subjectaccessreviews"),
    }


def test_a_cluster_that_does_not_answer_is_the_only_finding(clinic):
    clinic.cluster.fault = lambda _call: Unreachable("connection refused")
    assert clinic.named() == ["cluster"]
    assert clinic.check("cluster").evidence == "Unreachable: connection refused"


def test_no_cluster_is_no_finding(clinic):
    patient = Patient(facts=clinic.found, surroundings=PRIVILEGED, cluster=None)
    checks = doctor_checks(patient, Settings(), now=clinic.clock().wall)
    assert [check.evidence for check in checks if check.id == "cluster"] == [
        "no cluster is configured (no kubeconfig, and not in a pod)"
    ]
    assert findings(checks) == ()


# Rights


def test_a_missing_right_is_named_by_verb_and_resource(clinic):
    """FR-105."""
    clinic.cluster.allows = lambda _user, asked: (
        (asked["verb"], asked["resource"]) != ("patch", "acceleratornodes")
    )
    assert clinic.named() == ["rights-agent"]
    assert (
        clinic.check("rights-agent").evidence
        == "accelerator-agent may not: patch acceleratornodes.accelerators.ome.io"
    )


@pytest.mark.parametrize("right", inventory_rights("accelerator-system"), ids=str)
def test_each_right_of_the_controller_is_asked_for(clinic, right):
    """FR-105."""
    asked = {
        "verb": right.verb,
        "group": right.group,
        "resource": right.resource,
        "subresource": right.subresource,
    }
    asked |= {"name": right.name, "namespace": right.namespace}
    wanted = {key: value for key, value in asked.items() if value}
    inventory = "system:serviceaccount:accelerator-system:accelerator-inventory"
    clinic.cluster.allows = lambda user, attributes: user != inventory or attributes != wanted
    assert clinic.check("rights-inventory").evidence == f"accelerator-inventory may not: {right}"


def test_an_account_of_ours_asks_for_itself_alone(clinic):
    clinic.cluster.user = "system:serviceaccount:accelerator-system:accelerator-agent"
    asked = [check.id for check in clinic.checks() if check.id.startswith("rights-")]
    assert asked == ["rights-agent"]
    assert {call.resource for call in clinic.cluster.calls if call.verb == "create"} == {
        "selfsubjectreviews",
        "selfsubjectaccessreviews",
    }


def test_who_may_not_ask_for_others_is_told_so(clinic):
    clinic.deny(("create", "subjectaccessreviews"))
    assert clinic.check("rights-agent").status == "skipped"
    assert clinic.named() == []


def granted(file):
    """Return the rights that the rules of a manifest grant, one by one."""
    found = []
    for document in yaml.safe_load_all((DEPLOY / "base" / file).read_text()):
        if document["kind"] not in {"ClusterRole", "Role"}:
            continue
        where = document["metadata"].get("namespace", "")
        for rule in document["rules"]:
            found += [
                Right(
                    verb=verb,
                    group=group,
                    resource=resource.partition("/")[0],
                    subresource=resource.partition("/")[2],
                    namespace=where,
                    name=name,
                )
                for group in rule["apiGroups"]
                for resource in rule["resources"]
                for verb in rule["verbs"]
                for name in rule.get("resourceNames", [""])
            ]
    return sorted(found, key=str)


def test_the_rights_that_are_asked_for_are_those_that_the_manifests_grant():
    assert sorted(AGENT_RIGHTS, key=str) == granted("agent-rbac.yaml")
    assert sorted(inventory_rights("accelerator-system"), key=str) == granted("inventory-rbac.yaml")


# Definitions


def test_records_without_a_definition_are_a_finding(clinic):
    clinic.cluster.remove(CRDS, "acceleratornodes.accelerators.ome.io")
    assert "definition-records" in clinic.named()


def test_the_variant_of_the_definition_of_classes_is_told(clinic):
    """OME ships both."""
    assert clinic.check("definition-classes").evidence == "acceleratorclasses.ome.io is installed (validated)"
    clinic.cluster.remove(CRDS, "acceleratorclasses.ome.io")
    assert clinic.named() == ["definition-classes"]
    for body in documents(MINIMAL_CLASS_CRD):
        clinic.cluster.apply(CRDS, body, manager="kubectl")
    assert "minimal" in clinic.check("definition-classes").evidence
    assert clinic.named() == []


def test_who_may_not_read_definitions_learns_whether_they_are_served(clinic):
    clinic.deny(("get", "customresourcedefinitions"))
    assert clinic.check("definition-classes").status == "ok"
    clinic.cluster.remove(CRDS, "acceleratorclasses.ome.io")
    assert clinic.named() == ["definition-classes"]


# The Node, its labels and its record


def test_a_node_name_that_is_no_node_is_a_finding(clinic):
    assert "node" in clinic.named(node_name="gpu-1.example.com")


def test_labels_that_differ_from_the_facts_are_named(clinic):
    """FR-086."""
    clinic.found = facts(h100(0))
    assert clinic.named() == ["labels"]
    assert f"{DOMAIN}/count is '2', not '1'" in clinic.check("labels").evidence


def test_labels_are_not_judged_where_the_hardware_could_not_be_asked(clinic):
    clinic.found = facts(verdict="no-answer", reason="InitFailed", message="999")
    assert clinic.check("labels").status == "skipped"
    assert clinic.named() == ["nvml"]


def test_a_rival_is_named_with_what_it_owns(clinic):
    key = f"{DOMAIN}/family"
    clinic.cluster.apply(
        NODES,
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "gpu-1", "labels": {key: "volta"}}},
        manager="gitops",
        force=True,
    )
    assert clinic.named() == ["rivals"]
    assert clinic.check("rivals").evidence == f"gitops owns {key}"


def test_a_key_under_our_domain_that_no_agent_writes_has_no_rival(clinic):
    assert f"{DOMAIN}/note" in clinic.labels
    assert clinic.check("rivals").status == "ok"


def test_a_machine_without_a_record_is_a_finding(clinic):
    clinic.cluster.remove(ACCELERATOR_NODES, "gpu-1")
    assert clinic.named() == ["record"]


def test_a_record_that_is_old_is_a_finding_and_says_how_old(clinic):
    clinic.clock.advance(3600)
    assert clinic.named() == ["record"]
    assert clinic.check("record").evidence == "gpu-1 was observed 61 min ago"


def test_conditions_that_are_not_true_are_told(clinic):
    clinic.run(facts(verdict="no-driver", reason="DriverNotLoaded", message="not loaded"))
    assert clinic.named() == ["kernel-module", "conditions"]
    assert (
        "gpu-1: ProbeSucceeded is False (DriverNotLoaded): not loaded" in clinic.check("conditions").evidence
    )


# What the kubelet offers (FR-135)


@pytest.mark.parametrize(
    ("offered", "evidence"),
    [
        ("1", "gpu-1: 2 usable of nvidia.com/gpu, and the kubelet offers 1"),
        ("0", "gpu-1: 2 usable of nvidia.com/gpu, and the kubelet offers 0"),
        ("8", "gpu-1: 2 usable of nvidia.com/gpu, and the kubelet offers 8"),
        (None, "gpu-1: 2 usable of nvidia.com/gpu, and the kubelet offers no such resource"),
    ],
)
def test_a_kubelet_that_offers_something_else_is_a_finding(clinic, offered, evidence):
    """FR-135, FR-124."""
    clinic.offer("gpu-1", offered)
    assert clinic.named() == ["allocatable"]
    assert clinic.check("allocatable").evidence == evidence


# The whole cluster


def test_fr_131_nodes_with_gpus_and_no_agent_are_named_with_their_taints(clinic):
    """FR-131."""
    taint = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
    clinic.add_node("gpu-2", labels={"nvidia.com/gpu.present": "true"}, taints=[taint])
    clinic.add_node("gpu-3")
    clinic.offer("gpu-3", "4")
    clinic.add_node("cpu-1", labels={"feature.node.kubernetes.io/pci-10de.present": "false"})
    assert clinic.named(on_node=False, hardware=False) == ["uncovered"]
    assert clinic.check("uncovered", on_node=False, hardware=False).evidence == (
        "gpu-2 (taints nvidia.com/gpu=present:NoSchedule); gpu-3 (no taint)"
    )


def add_class(clinic, name, selector):
    body = {
        "apiVersion": ACCELERATOR_CLASSES.api_version,
        "kind": ACCELERATOR_CLASSES.kind,
        "metadata": {"name": name},
        "spec": {"capabilities": {}, "discovery": {"nodeSelector": selector}},
    }
    clinic.cluster.create(ACCELERATOR_CLASSES, body, manager="accelerator-inventory")


def test_a_node_that_its_class_selects_is_no_finding(clinic):
    add_class(clinic, H100, {f"class.{DOMAIN}/{H100}": "true"})
    add_class(clinic, "nvidia-t4-16gb", {f"class.{DOMAIN}/nvidia-t4-16gb": "true"})
    found = clinic.check("unselected", on_node=False, hardware=False)
    assert (found.status, found.evidence) == (
        "ok",
        "every Node is chosen by the selectors of its classes (1 compared)",
    )


def test_a_node_under_another_label_domain_than_its_class_selects_by_is_named(clinic):
    add_class(clinic, H100, {f"class.gpu.example.com/{H100}": "true"})
    assert clinic.named(on_node=False, hardware=False) == ["unselected"]
    assert clinic.check("unselected", on_node=False, hardware=False).evidence == (
        f"gpu-1 has usable devices of {H100} and not class.gpu.example.com/{H100}=true"
    )
    assert clinic.named() == ["unselected"]


def test_a_record_of_a_node_that_was_deleted_is_not_looked_for_in_the_new_one(clinic):
    add_class(clinic, H100, {"elsewhere": "true"})
    former = {"spec": {"nodeUID": "11111111-1111-4111-8111-111111111111"}}
    clinic.cluster.merge_patch(ACCELERATOR_NODES, "gpu-1", former, manager="tests")
    assert clinic.check("unselected", on_node=False, hardware=False).status == "skipped"


def test_a_record_that_was_written_over_one_of_a_former_node_is_of_the_node_that_it_names(clinic):
    uid = clinic.cluster.get(NODES, "gpu-1")["metadata"]["uid"]
    former = {
        "apiVersion": "v1",
        "kind": "Node",
        "name": "gpu-1",
        "uid": "11111111-1111-4111-8111-111111111111",
    }
    change = {"metadata": {"ownerReferences": [former]}, "spec": {"nodeUID": uid}}
    clinic.cluster.merge_patch(ACCELERATOR_NODES, "gpu-1", change, manager="tests")
    assert clinic.check("record").status == "ok"
    clinic.cluster.merge_patch(ACCELERATOR_NODES, "gpu-1", {"spec": {"nodeUID": None}}, manager="tests")
    assert clinic.check("record").evidence == "gpu-1 belongs to a Node of this name that was deleted"


def test_of_a_class_that_shares_its_resource_with_another_no_node_need_be_sure(clinic):
    record = clinic.cluster.get(ACCELERATOR_NODES, "gpu-1")
    [entry] = record["spec"]["classes"]
    two = {"spec": {"classes": [entry, {**entry, "name": "nvidia-a100-80gb"}]}}
    clinic.cluster.merge_patch(ACCELERATOR_NODES, "gpu-1", two, manager="tests")
    add_class(clinic, H100, {"elsewhere": "true"})
    assert clinic.check("unselected", on_node=False, hardware=False).status == "skipped"


def test_who_may_not_list_nodes_is_told_so(clinic):
    clinic.deny(("list", "nodes"))
    checks = {check.id: check for check in clinic.checks(on_node=False, hardware=False)}
    assert (checks["uncovered"].status, checks["uncovered"].evidence) == (
        "skipped",
        "this caller may not read nodes: nodes is forbidden",
    )


# What is printed


def printed(clinic, output):
    stdout = io.StringIO()
    patient = Patient(facts=clinic.found, surroundings=PRIVILEGED, cluster=clinic.cluster)
    settings = Settings(node_name="gpu-1")
    status = run_doctor(patient, settings, now=clinic.clock().wall, output=output, width=120, stdout=stdout)
    return status, stdout.getvalue()


def test_the_exit_status_tells_whether_something_was_found(clinic):
    assert printed(clinic, "table")[0] == 0
    clinic.offer("gpu-1", "1")
    assert printed(clinic, "table")[0] == 1


def test_the_table_ends_with_each_finding_in_full(clinic):
    clinic.offer("gpu-1", "1")
    text = printed(clinic, "table")[1]
    assert (
        "\nallocatable:\n  found gpu-1: 2 usable of nvidia.com/gpu, and the kubelet offers 1\n  means "
        in text
    )
    assert "\n  mend  the cluster's administrator: " in text


@pytest.mark.parametrize(("output", "load"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_a_program_reads_the_same(clinic, output, load):
    clinic.offer("gpu-1", "1")
    document = load(printed(clinic, output)[1])
    assert document["findings"] == ["allocatable"]
    [found] = [check for check in document["checks"] if check["status"] == "finding"]
    assert found.keys() == {"id", "status", "evidence", "meaning", "mend", "who"}
    assert [check for check in document["checks"] if not {"id", "status", "evidence"} <= check.keys()] == []


def test_every_check_is_documented_and_no_other(clinic):
    page = (DEPLOY.parent.parent / "docs" / "doctor.md").read_text(encoding="utf-8")
    documented = re.findall(r"^\| `([a-z-]+)` \|", page, re.MULTILINE)
    made = [check.id for check in clinic.checks()]
    fleet = [check.id for check in clinic.checks(hardware=False)]
    assert sorted(documented) == sorted({*made, *fleet})
