"""Xid events from the driver to the agent, through the listener child of the real probe host."""

import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fakes.scenario import Scenario
from probes.facts import XidEvent
from probes.host_process import ProbeHost
from probes.spawned_host import SpawnedHost
from probes.xid import listen
from tests.probes.probing import h100, installed, machine


def uuids(scenario: Scenario) -> list[str]:
    return [device.uuid for device in scenario.devices]


def open_host(tmp_path: Path, **fields: Any) -> ProbeHost:
    file = tmp_path / "scenario.yaml"
    data = {"name": "test", "devices": [{"board": "h100-sxm", "count": 3}], **fields}
    file.write_bytes(msgspec.json.encode(data))
    return ProbeHost(
        SpawnedHost([sys.executable, "-m", "tests.probes.staged", str(file)], timeout_seconds=10)
    )


def sessions(tmp_path: Path) -> int:
    """Return how many NVML sessions were opened and not closed by call."""
    calls = [line.split() for line in (tmp_path / "journal").read_text().splitlines()]
    opened = sum(name == "nvmlInitWithFlags" for _, _, name, _ in calls)
    return opened - sum(name == "nvmlShutdown" for _, _, name, _ in calls)


def test_an_event_names_the_device_by_its_uuid_and_the_code(tmp_path):
    scenario = machine({"board": "h100-sxm", "count": 3})
    with open_host(tmp_path, events=[{"device": 1, "xid": 79, "after_seconds": 0.05}]) as host:
        host.probe(1)
        host.listen(on=True)
        assert host.events(10) == (XidEvent(device=uuids(scenario)[1], xid=79),)
        assert host.events(0) == ()


def test_probes_go_on_beside_a_listener_and_it_keeps_the_only_open_session(tmp_path):
    with open_host(tmp_path, events=[{"device": 0, "xid": 48}]) as host:
        host.probe(1)
        assert sessions(tmp_path) == 0
        host.listen(on=True)
        assert [event.xid for event in host.events(10)] == [48]
        assert [host.probe(cycle).verdict for cycle in (2, 3)] == ["complete", "complete"]
        host.listen(on=True)
        assert sessions(tmp_path) == 1


def test_fr_010_a_listener_that_is_told_to_stop_leaves_nothing_open(tmp_path):
    """FR-010."""
    with open_host(tmp_path, events=[{"device": 0, "xid": 48}]) as host:
        host.probe(1)
        host.listen(on=True)
        host.events(10)
        [listener] = children(host)
        host.listen(on=False)
        host.probe(2)
        assert children(host) == []
        assert not Path(f"/proc/{listener}").exists()


def test_a_listener_that_died_is_started_anew(tmp_path):
    with open_host(tmp_path, events=[{"device": 0, "xid": 48}]) as host:
        host.probe(1)
        host.listen(on=True)
        host.events(10)
        os.kill(children(host)[0], signal.SIGKILL)
        host.probe(2)
        host.listen(on=True)
        assert [event.xid for event in host.events(10)] == [48]


def test_a_host_without_a_driver_listens_to_nothing_and_still_answers(tmp_path):
    with open_host(tmp_path, driver={"library": False}) as host:
        host.listen(on=True)
        assert host.probe(1).verdict == "not-in-container"
        assert host.events(0) == ()


def test_close_wakes_a_thread_that_waits_for_events(tmp_path):
    host = open_host(tmp_path)
    host.start()
    host.probe(1)
    host.listen(on=True)
    heard: list[tuple[XidEvent, ...]] = []
    thread = threading.Thread(target=lambda: heard.append(host.events(60)))
    thread.start()
    started = time.monotonic()
    host.close()
    thread.join()
    assert heard == [()]
    assert time.monotonic() - started < 1.0


def children(host: ProbeHost) -> list[int]:
    pid = host.pid
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_a_wait_that_fails_is_told_as_a_device_gone_and_ends_the_listener():
    scenario = machine(h100(), failures=[{"function": "nvmlEventSetWait_v2", "code": 15}])
    with installed(scenario):
        assert list(listen()) == [XidEvent(device=None, xid=None)]


@pytest.mark.parametrize(
    "function",
    ["nvmlInitWithFlags", "nvmlEventSetCreate", "nvmlDeviceGetCount_v2", "nvmlDeviceRegisterEvents"],
)
def test_a_driver_that_refuses_to_be_listened_to_ends_the_listener_in_silence(function):
    with installed(machine(h100(), failures=[{"function": function, "code": 3}])):
        assert list(listen()) == []


def test_a_device_that_cannot_be_registered_does_not_silence_the_others():
    failures = [
        {"function": "nvmlDeviceRegisterEvents", "device": 0, "code": 15},
        {"function": "nvmlEventSetWait_v2", "call": "2-", "code": 999},
    ]
    scenario = machine(h100(), h100(), failures=failures, events=[{"device": 1, "xid": 94}])
    with installed(scenario):
        assert list(listen()) == [
            XidEvent(device=uuids(scenario)[1], xid=94),
            XidEvent(device=None, xid=None),
        ]
