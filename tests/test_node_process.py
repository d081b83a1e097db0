"""The agent's process: ready after its first pass, alive while passes end, retrying soon, giving up at the right time."""

import http.client
import threading
from dataclasses import replace

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from agent.node_pass import NodePass, NodePassOptions
from agent.node_process import NodeProcess
from agent.settings import Duration, Settings
from probes.facts import XidEvent
from tests.hardware import ManualClock, could_not_ask, facts, h100

SETTINGS = Settings(
    node_name="gpu-1", listen="127.0.0.1:0", probe_interval=Duration(3600), exit_after=Duration(900)
)
TWO = facts(h100(0), h100(1), duration_seconds=0.01)


class Host:
    """Stands for the probe host: no children, events when a test gives some, and a note of what it was told."""

    stuck_children = 0

    def __init__(self):
        self.closed, self.given = threading.Event(), threading.Event()
        self.listening = []
        self.waiting = []

    def listen(self, *, on):
        self.listening.append(on)

    def give(self, *events):
        self.waiting += events
        self.given.set()

    def events(self, timeout_seconds):
        if self.closed.is_set():
            return ()
        self.given.wait(timeout_seconds)
        self.given.clear()
        events, self.waiting = tuple(self.waiting), []
        return events

    def close(self):
        self.closed.set()
        self.given.set()


class Running:
    """An agent's process without a cluster, with a probe that answers what the test says."""

    def __init__(self, **settings):
        self.clock, self.host, self.stop = ManualClock(), Host(), threading.Event()
        self.found = TWO
        self.delays = []
        node_pass = NodePass(
            lambda _: self.answer(),
            None,
            NodePassOptions(node_name="gpu-1", agent_version="0.1.0"),
            now=self.clock,
            jitter=lambda: 1.0,
        )
        self.process = NodeProcess(
            node_pass, self.host, replace(SETTINGS, **settings), stop=self.stop, now=self.clock
        )
        self.process._timer.run_in = self.delays.append

    def answer(self):
        if isinstance(self.found, Exception):
            raise self.found
        return self.found

    def passes(self, *found, seconds=60.0):
        """Make a pass for each of these facts, so many seconds apart."""
        for one in found:
            self.found = one
            self.process._run_once()
            self.clock.advance(seconds)


@pytest.fixture
def running():
    """`running(**settings)` returns a process that is not started; its port is freed with the test."""
    made = []

    def make(**settings):
        made.append(Running(**settings))
        return made[-1]

    yield make
    for one in made:
        one.process._web._server.server_close()


def test_it_is_ready_after_the_first_pass_whatever_that_found(running):
    agent = running()
    assert agent.process.ready() == (False, "the first pass has not ended yet")
    agent.passes(could_not_ask())
    assert agent.process.ready() == (True, "1 passes")


def test_fr_110_it_is_alive_while_passes_end_and_not_when_they_stop(running):
    agent = running(probe_interval=Duration(60), probe_timeout=Duration(30))
    agent.passes(*[could_not_ask()] * 30)
    assert agent.process.alive()[0]
    agent.clock.advance(300.0)
    assert agent.process.alive()[0]
    agent.clock.advance(200.0)
    assert agent.process.alive() == (False, "the last pass ended 560 s ago (limit 420 s)")


def test_a_bug_in_a_pass_is_logged_and_does_not_count_as_a_standstill(running, caplog):
    agent = running()
    agent.process._failed(KeyError("a bug"))
    assert agent.process.alive()[0]
    assert [(record.levelname, record.message) for record in caplog.records] == [
        ("ERROR", "a pass failed by a bug")
    ]


GIVES_UP = [("no-answer", 7), ("not-in-container", 6)]


@pytest.mark.parametrize(("verdict", "status"), GIVES_UP)
def test_fr_001_fr_002_it_exits_when_only_a_new_container_can_help(running, verdict, status):
    agent = running()
    agent.passes(TWO, *[could_not_ask(verdict, "X")] * 15)
    assert not agent.stop.is_set()
    agent.passes(could_not_ask(verdict, "X"))
    assert agent.stop.is_set()
    assert agent.process._exit_status == status


@pytest.mark.parametrize("verdict", ["no-driver", "version-mismatch"])
def test_fr_003_it_waits_for_what_happens_outside_its_container(running, verdict):
    agent = running()
    agent.passes(*[could_not_ask(verdict, "X")] * 500)
    assert not agent.stop.is_set()


@pytest.mark.parametrize("reason", ["ProbesStuck", "BusNotReadable", "BindingUnsuitable"])
def test_it_does_not_start_anew_for_ever_where_a_new_container_would_find_the_same(running, reason):
    agent = running()
    agent.passes(*[could_not_ask("no-answer", reason)] * 100)
    assert not agent.stop.is_set()


def test_one_answer_starts_the_time_to_give_up_anew(running):
    agent = running()
    for _ in range(5):
        agent.passes(*[could_not_ask()] * 14, TWO)
    agent.passes(*[could_not_ask()] * 10, could_not_ask("no-driver", "X"), *[could_not_ask()] * 10)
    assert not agent.stop.is_set()


def test_fr_002_it_tries_again_soon_and_then_later_each_time(running):
    agent = running(probe_interval=Duration(60))
    agent.passes(*[could_not_ask("no-driver", "X")] * 8)
    meant = [1, 2, 4, 8, 16, 32, 60, 60]
    assert all(
        0.8 * seconds <= delay <= 1.2 * seconds for seconds, delay in zip(meant, agent.delays, strict=True)
    )
    agent.passes(TWO, could_not_ask("no-driver", "X"))
    assert agent.delays[-1] <= 1.2


def test_a_good_pass_asks_for_no_early_one(running):
    agent = running()
    agent.passes(TWO, TWO, facts())
    assert agent.delays == []


def test_many_agents_do_not_start_in_the_same_second(running):
    agents = [running(probe_interval=Duration(60)) for _ in range(20)]
    first = {agent.process._timer._due for agent in agents}
    assert len(first) == 20


def test_it_listens_for_events_where_there_are_devices_to_hear_of(running):
    agent = running()
    agent.passes(could_not_ask(), facts(), TWO, could_not_ask())
    assert agent.host.listening == [False, False, True, True]


def samples(exposition):
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(exposition)
        for sample in family.samples
    }


def ask(port, path, **headers):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    body = answer.read().decode()
    connection.close()
    return answer.status, body


def test_it_serves_passes_and_ends_when_it_is_told_to():
    agent = Running(probe_interval=Duration(0.05))
    status = []
    thread = threading.Thread(target=lambda: status.append(agent.process.run()))
    thread.start()
    port = agent.process.port
    until(lambda: ask(port, "/readyz")[0] == 200)
    found = samples(ask(port, "/metrics", Accept="application/openmetrics-text; version=1.0.0")[1])
    page = ask(port, "/")[1]
    agent.stop.set()
    thread.join(5)
    assert status == [0]
    assert agent.host.closed.is_set()
    assert found["accelerator_probe_success", (("probe", "nvidia"),)] == 1
    assert found["accelerator_node_devices", (("class", "nvidia-h100-80gb"), ("state", "ok"))] == 2
    assert any(name == "accelerator_build_info" for name, _ in found)
    assert "NVIDIA H100 80GB HBM3" in page
    with pytest.raises(OSError, match="refused"):
        ask(port, "/healthz")


def test_an_event_asks_for_a_pass_at_once_and_is_counted():
    agent = Running(probe_interval=Duration(10))
    thread = threading.Thread(target=agent.process.run)
    thread.start()
    try:
        until(lambda: agent.process.ready()[0])
        agent.host.give(XidEvent(device="GPU-h100-0", xid=79), XidEvent(device=None, xid=13))
        until(lambda: agent.process._pass.report.passes >= 2)
    finally:
        agent.stop.set()
        agent.host.close()
        thread.join(5)
    report = agent.process._pass.report
    assert report.xid_errors == {("GPU-h100-0", 79): 1}
    assert [device.assessment.state for device in report.inventory.devices] == ["lost", "ok"]


def until(found, seconds=4.0):
    waiting = threading.Event()
    for _ in range(int(seconds / 0.01)):
        if found():
            return
        waiting.wait(0.01)
    raise AssertionError("did not come about")


def test_fr_109_over_an_hour_without_an_answer_old_numbers_go_and_the_port_stays_honest(running):
    agent = running(exit_after=Duration(7200))
    agent.passes(TWO)
    shown = []
    for _ in range(60):
        agent.passes(could_not_ask())
        families = {family.name: family for family in agent.process.families()}
        shown.append(bool(families["accelerator_device_info"].samples))
        assert [sample.value for sample in families["accelerator_probe_success"].samples] == [0]
        [last] = families["accelerator_probe_last_success_timestamp_seconds"].samples
    assert shown == [True] * 4 + [False] * 56
    assert last.value == ManualClock()().wall.timestamp()
    assert agent.process.alive()[0]
