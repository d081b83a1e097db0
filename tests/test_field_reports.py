"""Reports of the field that concern the agent as a whole: what it asks of a server, what it keeps, what it says cut off."""

import gc
import json
import threading
import tracemalloc
from collections import Counter
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from kubernetes.client.configuration import Configuration

from agent.cluster import ACCELERATOR_CLASSES, ACCELERATOR_NODES, NODES, Unreachable
from agent.core.class_status import MAX_NODES, wanted_status
from agent.core.cluster_views import NodeView, record_view
from agent.core.fold import fold
from agent.core.metrics import node_families
from agent.edges.cluster import KubernetesCluster
from agent.edges.web import exposition
from agent.node_pass import NodePass, NodePassOptions
from fakes.scenario import Scenario
from tests.hardware import DOMAIN, ManualClock, fake_facts, scenario_facts
from tests.inventory.hardware import START, h100, record
from tests.world import World

CLASS = "nvidia-h100-80gb"


def test_fr_019_a_gpu_that_needs_a_reset_has_a_state_of_its_own_and_is_promised_to_nobody():
    world = World()
    world.run(fake_facts("h100x8-needs-reset"))
    states = Counter(device["state"] for device in world.record["spec"]["devices"])
    assert states == {"ok": 7, "needs-reset": 1}
    assert world.labels[f"{DOMAIN}/count"] == world.labels[f"count.{DOMAIN}/{CLASS}"] == "7"
    assert world.labels[f"{DOMAIN}/health"] == "failed"


def test_fr_087_the_status_of_a_class_of_5000_nodes_is_bounded_and_counts_living_nodes_alone():
    one = record("n", "u", [h100(index) for index in range(8)], at=START)
    records, nodes = {}, {}
    for number in range(5000):
        name = f"node-{number:04d}"
        body = json.loads(json.dumps(one))
        body["metadata"]["name"] = name
        body["metadata"]["ownerReferences"][0] |= {"name": name, "uid": name}
        records[name] = record_view(body, domain=DOMAIN)
        # Only each hundredth Node still exists; of the others nobody said goodbye.
        if number % 100 == 0:
            nodes[name] = NodeView(name=name, uid=name, ready=True, schedulable=True)
    [few] = fold(records, nodes, (), stale_before=0.0).values()
    assert (len(few.nodes), few.total) == (50, 400)
    every = {name: NodeView(name=name, uid=name, ready=True, schedulable=True) for name in records}
    [many] = fold(records, every, (), stale_before=0.0).values()
    live = {"metadata": {"name": CLASS}, "status": {}}
    status = wanted_status(many, live, (), now=datetime.now(UTC), with_nodes=True)
    assert (status["totalAccelerators"], len(status["nodes"])) == (40000, MAX_NODES)
    assert len(json.dumps(status)) < 64 * 1024


def test_fr_090_an_agent_reads_its_own_two_objects_by_name_and_writes_nothing_but_the_heartbeat():
    world = World()
    world.run()
    asked = Counter()
    for _ in range(60):
        asked.update(world.run())
    assert asked == {("get", "nodes"): 60, ("get", "acceleratornodes"): 60, ("apply", "acceleratornodes"): 4}
    assert all(call.name == "gpu-1" for call in world.cluster.calls if call.verb == "get")


def test_fr_096_a_server_that_never_answers_shows_in_the_metrics_and_takes_no_number_away():
    world = World()
    world.run()
    good = world.agent.report.tallies["labels"].last_success

    def silent(*_):
        raise Unreachable("no answer to get /api/v1/nodes/gpu-1: read timed out")

    world.cluster.fault = silent
    for _ in range(3):
        world.run()
    report = world.agent.report
    assert report.tallies["labels"].failures == {"Unreachable": 3}
    assert report.tallies["labels"].last_success == good
    families = {
        f.name: f for f in node_families(report, monotonic=world.clock().monotonic, stale_after_seconds=300.0)
    }
    assert [s.value for s in families["accelerator_publish_failures"].samples] == [3.0]
    assert len(families["accelerator_device_info"].samples) == 2


@contextmanager
def noting_server():
    """A server that notes each request's method, path and content type, and answers with an empty object."""
    seen = []

    class Handler(BaseHTTPRequestHandler):
        def do_PATCH(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            seen.append((self.path.partition("?")[0], self.headers["Content-Type"]))
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}", seen
    server.shutdown()
    server.server_close()
    thread.join()


def test_fr_099_custom_objects_are_written_by_apply_or_by_merge_patch_and_by_no_other_kind():
    path = f"/apis/ome.io/v1beta1/acceleratorclasses/{CLASS}"
    body = {"apiVersion": "ome.io/v1beta1", "kind": "AcceleratorClass", "metadata": {"name": CLASS}}
    with noting_server() as (url, seen):

        def source():
            configuration = Configuration()
            configuration.host = url
            return configuration

        cluster = KubernetesCluster(source)
        cluster.apply(ACCELERATOR_CLASSES, body, manager="m")
        cluster.merge_patch(ACCELERATOR_CLASSES, CLASS, {"spec": {}}, manager="m")
        cluster.merge_patch(ACCELERATOR_CLASSES, CLASS, {"status": {}}, manager="m", subresource="status")
        cluster.close()
    assert seen == [
        (path, "application/apply-patch+yaml"),
        (path, "application/merge-patch+json"),
        (f"{path}/status", "application/merge-patch+json"),
    ]


FULLY_CUT = {
    "board": "a100-80",
    "count": 8,
    "mig": {"enabled": True, "instances": [{"profile": "1g.10gb"}] * 7},
}


def test_fr_111_passes_and_scrapes_of_8_gpus_with_56_partitions_keep_no_memory():
    found = scenario_facts(Scenario.from_data({"name": "cut", "devices": [FULLY_CUT]}))
    clock = ManualClock()
    options = NodePassOptions(node_name="gpu-1", agent_version="0.1.0")
    agent = NodePass(lambda _: found, None, options, now=clock, jitter=lambda: 1.0)

    def rounds(count):
        for _ in range(count):
            report = agent.run()
            clock.advance(60.0)
            exposition(node_families(report, monotonic=clock().monotonic, stale_after_seconds=300.0))

    rounds(20)
    tracemalloc.start()
    try:
        rounds(5)
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        rounds(60)
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown < 64 * 1024


@pytest.mark.parametrize("resource", [NODES, ACCELERATOR_NODES], ids=["the Node", "the record"])
def test_fr_082_one_answer_of_not_found_takes_nothing_away(resource):
    world = World()
    world.run()
    held = world.ours
    get = world.cluster.get
    missing = [resource]

    def once(asked, name, **options):
        return None if missing and missing.pop() == asked else get(asked, name, **options)

    world.cluster.get = once
    world.run()
    world.cluster.get = get
    world.run()
    assert world.ours == held
    assert len(world.record["spec"]["devices"]) == 2
