"""Passes of an agent on a cluster in memory: what is written, what is left alone, and what a failure changes."""

import logging
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from random import Random

import pytest

from agent.cluster import (
    ACCELERATOR_NODES,
    NODES,
    Conflict,
    FieldConflict,
    Forbidden,
    Invalid,
    NotFound,
    ServerFault,
    Throttled,
    Unauthorized,
    Unreachable,
)
from agent.core.cluster_views import record_view
from agent.core.inventory import Options, inventory_of
from agent.core.labels import labels_for
from agent.node_pass import NodePass, NodePassOptions
from probes.facts import Mig
from tests.hardware import (
    DOMAIN,
    ManualClock,
    could_not_ask,
    facts,
    failed,
    fake_facts,
    h100,
    mig,
    on_the_bus,
    pci,
    readable_nodes,
    t4,
    unread,
)
from tests.world import FOREIGN, World


@pytest.fixture
def world():
    return World()


TWO = facts(h100(0), h100(1))
READS = [("get", "nodes"), ("get", "acceleratornodes")]
CLASS, COUNT = f"{DOMAIN}/class", f"{DOMAIN}/count"


def expected(found, **options):
    return labels_for(inventory_of(found), **options)


def test_the_first_pass_writes_labels_and_record(world):
    assert world.run() == [*READS, ("apply", "nodes"), ("apply", "acceleratornodes")]
    assert world.labels == expected(TWO) | FOREIGN
    assert world.outcomes == {"labels": "Written", "record": "Written"}
    assert world.record["metadata"]["ownerReferences"][0]["name"] == "gpu-1"
    assert world.condition("LabelsPublished")["status"] == "True"


def test_a_second_pass_writes_nothing(world):
    world.run()
    versions = world.record["metadata"]["resourceVersion"]
    assert world.run() == READS
    assert world.record["metadata"]["resourceVersion"] == versions
    assert world.outcomes == {"labels": "Unchanged", "record": "Unchanged"}


def test_fr_005_a_node_without_accelerators_gets_neither_labels_nor_a_record(world):
    assert world.run(facts()) == READS
    assert (world.labels, world.record) == (FOREIGN, None)


@pytest.mark.parametrize("name", readable_nodes())
def test_every_fake_machine_is_published_once_and_accepted_whole(world, name):
    world.found = fake_facts(name)
    world.run()
    assert not any(one.failed for one in world.agent.report.published)
    assert world.ours == (expected(world.found) if world.found.asked else {})
    assert world.run() == READS


# --- restarts and changes of the world


def test_fr_081_a_restart_writes_nothing(world):
    world.run()
    world.new_agent()
    assert world.run() == READS


def test_fr_081_a_restart_into_a_failing_probe_removes_nothing(world):
    world.run()
    world.new_agent()
    world.run(could_not_ask(), could_not_ask("no-driver", "DriverNotLoaded"))
    assert world.ours == expected(TWO)
    assert len(world.record["spec"]["devices"]) == 2
    assert world.condition("ProbeSucceeded")["reason"] == "DriverNotLoaded"


def test_fr_086_what_changed_while_the_agent_was_down_is_put_right(world):
    world.run()
    world.new_agent()
    two_t4 = facts(t4(0), t4(1))
    world.run(two_t4)
    assert world.ours == expected(two_t4)
    world.new_agent()
    world.run(facts())
    assert world.labels == FOREIGN
    assert "devices" not in world.record["spec"]
    assert world.record["status"]["summary"]["count"] == 0


def test_fr_001_devices_that_a_container_lost_leave_the_labels_as_they_are(world):
    world.found = lambda cycle: fake_facts("h100x8-container-lost", cycle)
    world.run(*[world.found] * 3)
    labels = world.ours
    assert labels[COUNT] == "8"
    for _ in range(5):
        world.run()
        assert world.ours == labels
    assert world.agent.report.facts.verdict == "no-answer"
    assert world.condition("ProbeSucceeded")["status"] == "False"
    assert world.run() == READS


def test_fr_017_a_device_that_the_driver_drops_is_counted_out_and_stays_known(world):
    world.found = lambda cycle: fake_facts("h100x8-count-shrinks", cycle)
    world.run()
    product = world.ours[f"{DOMAIN}/product"]
    world.run()
    assert (world.ours[COUNT], world.ours[f"{DOMAIN}/health"]) == ("7", "failed")
    assert world.ours[f"{DOMAIN}/product"] == product
    states = [device["state"] for device in world.record["spec"]["devices"]]
    assert sorted(states) == ["lost"] + ["ok"] * 7
    complete = world.condition("InventoryComplete")
    assert (complete["status"], complete["reason"]) == ("False", "DeviceMissing")
    world.new_agent()
    world.run(fake_facts("h100x8-count-shrinks", 2))
    assert world.ours[COUNT] == "7"
    assert len(world.record["spec"]["devices"]) == 8


def test_fr_070_a_restart_beside_a_device_that_tells_nothing_keeps_what_it_is(world):
    world.run()
    before = world.ours
    world.new_agent()
    world.run(facts(h100(0), unread(1, pci=pci("2330", slot=1))))
    changed = {key for key in before | world.ours if before.get(key) != world.ours.get(key)}
    assert changed == {COUNT, f"{DOMAIN}/health", f"count.{DOMAIN}/nvidia-h100-80gb"}
    assert [device["id"] for device in world.record["spec"]["devices"]] == ["GPU-h100-0", "GPU-h100-1"]


def test_the_record_is_remembered_also_when_it_could_be_read_late(world):
    world.run()
    world.new_agent()
    world.cluster.fault = lambda _: Unreachable("refused")
    world.run(facts(h100(0), unread(1, pci=pci("2330", slot=1))))
    world.cluster.fault = lambda _: None
    world.run()
    assert [device["id"] for device in world.record["spec"]["devices"]] == ["GPU-h100-0", "GPU-h100-1"]


def test_fr_070_a_re_cut_that_hangs_keeps_the_product(world):
    pending = facts(h100(0, mig=Mig(enabled=False, pending_enabled=True)), h100(1))
    cut = facts(h100(0, mig=mig(*["1g.12gb"] * 7)), h100(1))
    world.run()
    for found in (*[pending] * 5, cut):
        world.run(found)
        assert world.ours[f"{DOMAIN}/product"] == "NVIDIA-H100-80GB-HBM3"
    assert world.ours[f"count.{DOMAIN}/nvidia-h100-80gb-mig-1g.12gb"] == "7"


def test_fr_071_fr_100_keys_of_the_old_cut_are_gone(world):
    for profile in ("1g.10gb", "2g.20gb"):
        world.run(facts(h100(0, mig=mig(profile))))
        assert [key for key in world.ours if key.startswith("count.")] == [
            f"count.{DOMAIN}/nvidia-h100-80gb-mig-{profile}"
        ]
    world.run(facts(h100(0)))
    assert world.ours == expected(facts(h100(0)))
    assert "" not in world.ours.values()


def test_fr_077_the_node_is_written_once_however_devices_are_enumerated(world):
    station = fake_facts("dgx-station")
    world.run(station)
    version = world.cluster.get(NODES, "gpu-1")["metadata"]["resourceVersion"]
    for cycle in range(100):
        order = Random(cycle).sample(station.accelerators, len(station.accelerators))
        devices = tuple(replace(device, index=index) for index, device in enumerate(order))
        assert ("apply", "nodes") not in world.run(replace(station, accelerators=devices))
    assert world.cluster.get(NODES, "gpu-1")["metadata"]["resourceVersion"] == version


def test_a_node_that_was_made_again_gets_its_labels_and_a_record_of_its_own(world):
    world.run()
    world.cluster.delete(NODES, "gpu-1")
    assert world.record is None
    world.make_node()
    world.run()
    assert world.ours == expected(TWO)
    uid = world.cluster.get(NODES, "gpu-1")["metadata"]["uid"]
    assert world.record["metadata"]["ownerReferences"][0]["uid"] == uid


def left_behind(world):
    """Have the record be owned by a former Node, as when the collector missed its end."""
    owner = {**world.record["metadata"]["ownerReferences"][0], "uid": "of-another-node"}
    patch = {"metadata": {"ownerReferences": [owner]}}
    world.cluster.merge_patch(ACCELERATOR_NODES, "gpu-1", patch, manager="tests")
    return [owner]


def test_a_record_of_a_node_that_is_gone_is_left_to_the_collector(world):
    world.run()
    left_behind(world)
    world.run(facts(h100(0)))
    assert world.outcomes["record"] == "OwnerIsGone"
    assert len(world.record["spec"]["devices"]) == 2


def test_a_record_that_the_collector_missed_is_written_over_and_says_whose_it_is(world):
    world.run()
    owners = left_behind(world)
    world.run(*[facts(h100(0))] * 3)
    assert world.outcomes["record"] == "Written"
    assert world.record["metadata"]["ownerReferences"] == owners
    uid = world.cluster.get(NODES, "gpu-1")["metadata"]["uid"]
    assert record_view(world.record, domain=DOMAIN).owner_uid == uid
    assert len(world.record["spec"]["devices"]) == 1
    assert ("apply", "acceleratornodes") not in world.run()
    world.run(could_not_ask())
    assert world.condition("ProbeSucceeded")["status"] == "False"
    # The next agent need not wait.
    world.new_agent()
    assert ("apply", "acceleratornodes") in world.run(TWO)
    world.cluster.delete(ACCELERATOR_NODES, "gpu-1")
    world.run()
    assert world.record["metadata"]["ownerReferences"][0]["uid"] == uid
    assert "nodeUID" not in world.record["spec"]


def test_a_record_of_a_former_node_is_not_written_over_by_what_could_not_be_asked(world):
    world.run()
    left_behind(world)
    world.run(*[could_not_ask()] * 5)
    assert world.outcomes["record"] == "OwnerIsGone"


# --- who owns a key


def test_a_foreign_key_is_never_touched(world):
    world.run(TWO, facts(), TWO, facts(t4(0)))
    assert {key: world.labels[key] for key in FOREIGN} == FOREIGN


def test_fr_083_a_key_that_a_rival_overwrote_is_left_to_it_and_told(world):
    world.run()
    world.rival({CLASS: "theirs"}, manager="gfd")
    for _ in range(3):
        world.run()
        assert world.labels[CLASS] == "theirs"
    [labels] = [one for one in world.agent.report.published if one.target == "labels"]
    assert labels.rivals == {CLASS: "gfd"}
    told = world.condition("LabelsPublished")
    assert (told["status"], told["reason"]) == ("False", "OwnedByOthers")
    assert f"{CLASS} by gfd" in told["message"]
    assert world.ours[COUNT] == "2"
    assert world.run() == READS


def test_fr_083_keys_that_a_rival_deletes_are_put_back_and_then_left_alone(world):
    world.run()
    reasons = []
    for _ in range(4):
        world.rival(dict.fromkeys(world.ours), manager="cleaner")
        world.run()
        reasons.append(world.outcomes["labels"])
    assert reasons == ["Written", "Written", "RivalDeletesLabels", "RivalDeletesLabels"]
    assert world.ours == {}
    world.clock.advance(600.0)
    world.run()
    assert world.ours == expected(TWO)


def test_fr_083_a_prefix_that_gfd_owns_is_left_to_it(world):
    world.rival({"nvidia.com/gpu.product": "theirs"}, manager="gpu-feature-discovery")
    world.new_agent(compat_labels=("gfd",))
    world.run()
    assert world.labels["nvidia.com/gpu.product"] == "theirs"
    assert world.labels["nvidia.com/gpu.count"] == "2"


def test_fr_084_a_feature_that_is_switched_off_takes_its_keys_along(world):
    world.new_agent(compat_labels=("gfd",))
    world.run()
    assert world.labels["nvidia.com/gpu.count"] == "2"
    world.new_agent()
    world.run()
    assert world.ours == expected(TWO)


def test_fr_084_another_domain_takes_the_old_one_along(world):
    world.run()
    world.new_agent(domain="gpu.example.com", former_domains=(DOMAIN,))
    world.run()
    assert world.ours == expected(TWO, domain="gpu.example.com")


def test_fr_084_lost_bookkeeping_is_made_good(world):
    world.run(facts(h100(0, mig=mig("1g.10gb"))))
    node = world.cluster.get(NODES, "gpu-1")
    node["metadata"]["managedFields"] = [{}]
    world.cluster.replace(NODES, node, manager="somebody")
    world.new_agent()
    world.run(TWO)
    # Nobody owns the note any more either, so it counts as one of our own that was left.
    assert world.labels == expected(TWO) | {"team": "search"}
    assert world.run() == READS


# --- refusals


class Refusing:
    """Refuses requests of one verb and resource, the first few of them."""

    def __init__(self, verb, resource, error, times=10**6):
        self.wanted, self.error, self.left = (verb, resource), error, times

    def __call__(self, call):
        if (call.verb, call.resource) != self.wanted or not self.left:
            return None
        self.left -= 1
        return self.error


def test_fr_042_a_denied_key_is_left_out_and_the_rest_lands(world):
    denial = Forbidden(f"admission webhook denied the request: key {CLASS} is not allowed", denied=True)
    world.cluster.fault = Refusing("apply", "nodes", denial, times=1)
    world.run()
    assert world.ours == {key: value for key, value in expected(TWO).items() if key != CLASS}
    [labels, _] = world.agent.report.published
    assert (labels.reason, set(labels.left_out)) == ("PartlyRefused", {CLASS})
    assert CLASS in world.condition("LabelsPublished")["message"]


def test_fr_042_a_denied_key_is_not_sent_again_with_each_pass_but_after_ever_longer_times(world):
    denial = Forbidden(f"admission webhook denied the request: key {CLASS} is not allowed", denied=True)
    tried = []

    class Webhook:
        """Denies each apply that holds the key."""

        def __getattr__(self, name):
            return getattr(world.cluster, name)

        def apply(self, resource, body, *, manager, force=False):
            if resource == NODES and CLASS in body["metadata"]["labels"]:
                tried.append(world.clock.seconds)
                raise denial
            return world.cluster.apply(resource, body, manager=manager, force=force)

    world.agent._cluster = Webhook()
    requests = [world.run() for _ in range(40)]
    assert [seconds - tried[0] for seconds in tried] == [0.0, 600.0, 1800.0]
    assert sum(("apply", "nodes") in made for made in requests) == len(tried)
    assert world.outcomes["labels"] == "PartlyRefused"
    assert CLASS in world.condition("LabelsPublished")["message"]
    assert world.ours == {key: value for key, value in expected(TWO).items() if key != CLASS}


def test_fr_042_a_key_that_the_server_finds_invalid_is_left_out_and_the_rest_lands(world):
    message = f'Node "gpu-1" is invalid: metadata.labels: Invalid value: "{CLASS}": must be something else'
    world.cluster.fault = Refusing("apply", "nodes", Invalid(message, fields=("metadata.labels",)), times=1)
    world.run()
    assert world.ours == {key: value for key, value in expected(TWO).items() if key != CLASS}
    assert world.outcomes["labels"] == "PartlyRefused"


def test_fr_042_a_value_that_the_server_finds_invalid_is_left_out(world):
    value = expected(TWO)[f"{DOMAIN}/product"]
    message = f'Node "gpu-1" is invalid: metadata.labels: Invalid value: "{value}": must be shorter'
    world.cluster.fault = Refusing("apply", "nodes", Invalid(message, fields=("metadata.labels",)), times=1)
    world.run()
    assert f"{DOMAIN}/product" not in world.ours
    assert world.ours[COUNT] == "2"


def test_fr_042_a_denial_that_is_about_a_longer_key_costs_no_shorter_one(world):
    denial = Forbidden(f"denied the request: {DOMAIN}/memory-gib-old", denied=True)
    world.cluster.fault = Refusing("apply", "nodes", denial)
    world.run()
    assert world.outcomes["labels"] == "Forbidden"


def test_a_conflict_that_came_between_read_and_write_is_left_out(world):
    conflict = Conflict("conflict", conflicts=(FieldConflict(f".metadata.labels.{CLASS}", "gfd"),))
    world.cluster.fault = Refusing("apply", "nodes", conflict, times=1)
    world.run()
    assert CLASS not in world.ours
    assert world.ours[COUNT] == "2"


def test_fr_093_a_node_is_never_replaced_and_a_passing_conflict_waits_for_the_next_pass(world):
    world.cluster.fault = Refusing("apply", "nodes", Conflict("the object has been modified"), times=1)
    world.run()
    assert world.outcomes == {"labels": "Conflict", "record": "Written"}
    world.run()
    assert world.ours == expected(TWO)
    assert {call.verb for call in world.cluster.calls} <= {"get", "apply"}


def test_a_node_that_was_made_again_between_read_and_write_is_read_again(world):
    error = Invalid("metadata.uid: field is immutable", fields=("metadata.uid",))
    world.cluster.fault = Refusing("apply", "nodes", error, times=1)
    world.run()
    assert world.outcomes["labels"] == "NodeWasRecreated"
    world.run()
    assert world.outcomes["labels"] == "Written"


REFUSALS = [
    ("apply", "nodes", Forbidden("no patch on nodes"), {"labels": "Forbidden", "record": "Written"}),
    (
        "apply",
        "acceleratornodes",
        Forbidden("no patch on records"),
        {"labels": "Written", "record": "Forbidden"},
    ),
    (
        "apply",
        "acceleratornodes",
        Invalid("spec.x", fields=("spec.x",)),
        {"labels": "Written", "record": "Invalid"},
    ),
    ("apply", "nodes", Throttled("429"), {"labels": "Throttled", "record": "Written"}),
    ("apply", "nodes", ServerFault("500"), {"labels": "ServerFault", "record": "Written"}),
    ("get", "nodes", Unauthorized("401"), {"labels": "Unauthorized"}),
    ("get", "nodes", Forbidden("no get on nodes"), {"labels": "Forbidden"}),
    (
        "get",
        "acceleratornodes",
        Forbidden("no get on records"),
        {"labels": "Written", "record": "Forbidden"},
    ),
    (
        "get",
        "acceleratornodes",
        NotFound("the server could not find the requested resource"),
        {"labels": "Written", "record": "NotFound"},
    ),
    ("get", "acceleratornodes", Unreachable("no answer"), {"labels": "Unreachable"}),
    ("get", "nodes", Unreachable("connection refused"), {"labels": "Unreachable"}),
]


@pytest.mark.parametrize(
    ("verb", "resource", "error", "outcomes"),
    REFUSALS,
    ids=[f"{verb} {resource} {type(error).__name__}" for verb, resource, error, _ in REFUSALS],
)
def test_fr_105_each_refusal_costs_its_own_part_is_counted_and_passes(world, verb, resource, error, outcomes):
    world.cluster.fault = Refusing(verb, resource, error)
    world.run()
    assert world.outcomes == outcomes
    [(target, reason)] = [item for item in outcomes.items() if item[1] != "Written"]
    assert world.agent.report.tallies[target].failures == {reason: 1}
    world.cluster.fault = lambda _: None
    world.run()
    assert world.ours == expected(TWO)
    assert len(world.record["spec"]["devices"]) == 2


def test_fr_100_an_answer_that_does_not_hold_the_labels_is_not_believed(world):
    class Deaf:
        """Answers an apply with the Node as it was."""

        def __getattr__(self, name):
            return getattr(world.cluster, name)

        def apply(self, resource, body, *, manager, force=False):
            if resource == NODES:
                return world.cluster.get(NODES, body["metadata"]["name"])
            return world.cluster.apply(resource, body, manager=manager, force=force)

    agent = world.new_agent()
    agent._cluster = Deaf()
    world.run()
    assert world.outcomes["labels"] == "NotHeld"


def test_fr_055_a_node_name_that_is_no_node_is_told_plainly(world):
    world.new_agent(node_name="Node01-CPU01")
    world.run()
    [labels] = world.agent.report.published
    assert labels.reason == "NodeNotFound"
    assert "must be the Node's name, not the host's" in labels.message
    assert {call.verb for call in world.cluster.calls} == {"get"}


# --- made-up hardware


def test_fr_137_made_up_hardware_is_not_published_without_being_allowed(world):
    world.new_agent(allow_simulated=False)
    assert world.run(replace(TWO, simulated=True)) == []
    assert world.outcomes == {"labels": "SimulatedNotAllowed"}
    assert world.labels == FOREIGN


def test_fr_137_made_up_hardware_is_marked_and_the_mark_goes_with_it(world):
    world.run(replace(TWO, simulated=True))
    assert world.labels[f"{DOMAIN}/simulated"] == "true"
    assert world.record["spec"]["simulated"] is True
    world.new_agent(allow_simulated=False)
    world.run(TWO)
    assert f"{DOMAIN}/simulated" not in world.labels
    assert "simulated" not in world.record["spec"]


# --- heartbeat


def test_the_record_is_renewed_at_each_heartbeat_and_at_no_other_time(world):
    world.run()
    write = ("apply", "acceleratornodes")
    writes = [minute for minute in range(1, 46) if write in world.run()]
    assert writes == [15, 30, 45]
    assert world.record["spec"]["observedAt"] == "2026-11-30T20:45:00Z"


def test_a_restart_keeps_the_rhythm_of_the_heartbeat(world):
    world.run(seconds=600.0)
    world.new_agent()
    assert world.run(seconds=299.0) == READS
    assert world.run(seconds=1.0) == READS
    assert world.run() == [*READS, ("apply", "acceleratornodes")]


def test_a_record_from_the_future_is_no_reason_to_wait_for_ever(world):
    world.clock.advance(10 * 365 * 86400.0)
    world.run()
    world.clock.advance(-10 * 365 * 86400.0)
    world.new_agent()
    world.run(seconds=900.0)
    assert ("apply", "acceleratornodes") in world.run()


def test_a_failed_probe_renews_nothing(world):
    world.run()
    observed = world.record["spec"]["observedAt"]
    world.run(*[could_not_ask()] * 30)
    assert world.record["spec"]["observedAt"] == observed


def test_a_heartbeat_that_was_refused_is_made_up_for(world):
    world.new_agent(heartbeat=timedelta(seconds=60))
    world.run()
    world.cluster.fault = Refusing("apply", "acceleratornodes", Throttled("429"), times=1)
    assert world.run(seconds=1.0) == [*READS, ("apply", "acceleratornodes")]
    assert world.run(seconds=1.0) == [*READS, ("apply", "acceleratornodes")]
    assert world.run(seconds=1.0) == READS


# --- health over passes


def test_a_device_that_comes_back_counts_after_three_good_probes(world):
    counts = []
    for found in (TWO, facts(h100(0), failed(h100(1))), TWO, TWO, TWO):
        world.run(found)
        counts.append(world.ours[COUNT])
    assert counts == ["2", "1", "1", "1", "2"]


def test_an_operators_names_are_the_ones_that_are_published(world):
    world.new_agent(inventory=Options(class_names=(("nvidia-h100-80gb", "big"),)))
    world.run()
    assert world.ours[CLASS] == "big"
    assert world.record["spec"]["classes"][0]["name"] == "big"


def test_an_agent_without_a_cluster_only_probes():
    agent = NodePass(
        lambda _: TWO,
        None,
        NodePassOptions(node_name="x", agent_version="1"),
        now=ManualClock(),
        jitter=lambda: 1.0,
    )
    report = agent.run()
    assert (report.passes, report.published) == (1, ())
    assert report.inventory is not None


# --- what is logged


def test_nothing_is_logged_when_nothing_changed(world, caplog):
    caplog.set_level(logging.INFO)
    world.run()
    assert [record.message for record in caplog.records] == ["published", "published"]
    caplog.clear()
    world.run(TWO, TWO, TWO)
    assert caplog.records == []


def test_a_failure_is_told_once_for_as_long_as_it_stays_the_same(world, caplog):
    world.run()
    world.run(*[could_not_ask()] * 5)
    assert [record.message for record in caplog.records] == ["probe failed"]
    world.run(TWO, could_not_ask())
    assert [record.message for record in caplog.records] == ["probe failed"] * 2
    caplog.clear()
    world.cluster.fault = Refusing("get", "nodes", Unreachable("refused"))
    world.run(TWO, TWO, TWO)
    assert [record.message for record in caplog.records] == ["not published"]


def test_a_device_that_changes_state_is_told_by_name(world, caplog):
    world.run(TWO, facts(h100(0), failed(h100(1))))
    [record] = caplog.records
    assert (record.message, record.device, record.state, record.reasons) == (
        "device changed state",
        "GPU-h100-1",
        "lost",
        "gpu-lost",
    )


def test_the_census_is_part_of_the_record(world):
    world.run(facts(h100(0), pci=(*on_the_bus(h100(0)), *on_the_bus(t4(4), driver="vfio-pci"))))
    assert [entry["deviceID"] for entry in world.record["spec"]["pci"]] == ["1eb8"]


def released(world, value):
    world.cluster.merge_patch(
        NODES, "gpu-1", {"metadata": {"annotations": {f"{DOMAIN}/release": value}}}, manager="kubectl"
    )


def test_fr_010_while_a_driver_is_to_be_released_there_are_minutes_without_a_probe(world):
    probed = []

    def probe(_cycle):
        probed.append(world.clock.seconds)
        return TWO

    world.found = probe
    world.run()
    released(world, "true")
    for _ in range(60):
        world.agent.run()
        world.clock.advance(10.0)
    gaps = [after - before for before, after in pairwise(probed)]
    # The first pass after the annotation still probes: it learns of it only then.
    assert gaps[1:] == [150.0] * len(gaps[1:])
    assert len(gaps) >= 4
    assert world.agent.release_announced
    released(world, None)
    world.agent.run()
    assert probed[-1] == world.clock.seconds
    assert not world.agent.release_announced
    assert world.ours == expected(TWO)
