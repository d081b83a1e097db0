"""The probe host as a real process: calls that hang, children and hosts that die, devices left out and tried again."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from probes.facts import Accelerator, DeviceFault, NodeFacts
from probes.findings import start_time
from probes.host_process import ProbeHost, probe_once
from probes.spawned_host import SpawnedHost

TIMEOUT = 0.6
EIGHT = [{"board": "h100-sxm", "count": 8}]


@dataclass
class ManualClock:
    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def command(tmp_path) -> Callable[..., list[str]]:
    """Return what starts a probe host on a fake machine."""

    def write(*flags: str, **fields: Any) -> list[str]:
        file = tmp_path / "scenario.yaml"
        file.write_bytes(msgspec.json.encode({"name": "test", "devices": EIGHT, **fields}))
        return [sys.executable, "-m", "tests.probes.staged", str(file), *flags]

    return write


def journal(tmp_path: Path) -> list[list[str]]:
    """Return the NVML calls made: probe, process, function, code."""
    return [line.split() for line in (tmp_path / "journal").read_text().splitlines()]


def hang(function: str, device: int | None, **fields: Any) -> dict[str, Any]:
    return {"function": function, "device": device, "hang": True, **fields}


def faults(facts: NodeFacts) -> dict[int, DeviceFault]:
    return {device.index: device.fault for device in facts.accelerators if device.fault}


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def until(condition: Callable[[], Any], seconds: float = 5.0) -> Any:
    """Wait for what another process does."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.005)
    return found


def test_a_probe_reads_all_devices_and_leaves_no_session_and_no_process(command, tmp_path):
    with ProbeHost(SpawnedHost(command(), timeout_seconds=10), simulated=True) as host:
        facts = [host.probe(cycle) for cycle in (1, 2, 3)]
        assert {found.reason for found in facts} == {"AllDevicesRead"}
        assert [len(found.accelerators) for found in facts] == [8, 8, 8]
        assert replace(facts[0], duration_seconds=None) == replace(facts[2], duration_seconds=None)
        assert children_of(host.pid) == []
        calls = journal(tmp_path)
    opened = [(pid, name) for _, pid, name, code in calls if name == "nvmlInitWithFlags" and code == "0"]
    closed = [pid for _, pid, name, code in calls if name == "nvmlShutdown" and code == "0"]
    assert [pid for pid, _ in opened] == closed
    assert len(set(closed)) == 3
    assert facts[0].simulated


def test_fr_008_seven_devices_are_known_within_twice_the_timeout_when_one_hangs(command):
    """FR-008, at the very first probe."""
    failures = [hang("nvmlDeviceGetMemoryInfo_v2", 3)]
    started = time.monotonic()
    with ProbeHost(SpawnedHost(command(failures=failures), timeout_seconds=1.0)) as host:
        host_ready = time.monotonic()
        facts = host.probe(1)
        took = time.monotonic() - host_ready
        assert host.stuck_children == 0
    assert took < 2.0 + 0.5, started
    assert (facts.verdict, facts.reason) == ("partial", "DeviceNoAnswer")
    call = "nvmlDeviceGetMemoryInfo_v2"
    assert faults(facts) == {3: DeviceFault(kind="no-answer", call=call, error="no-answer")}
    silent = facts.accelerators[3]
    assert silent.product == "NVIDIA H100 80GB HBM3"
    assert silent.id is not None
    assert silent.pci is not None
    assert f"GPU 3 at {silent.pci.address} ({silent.id}) did not answer [{call}: no-answer]" in facts.message
    assert all(device.memory_bytes for device in facts.accelerators if device.index != 3)


def test_a_device_whose_handle_hangs_is_named_by_its_index_and_the_slot_that_is_left_over(command):
    facts = probe_once(command(failures=[hang("nvmlDeviceGetHandleByIndex_v2", 5)]), timeout_seconds=TIMEOUT)
    call = "nvmlDeviceGetHandleByIndex"
    assert faults(facts) == {5: DeviceFault(kind="no-answer", call=call, error="no-answer")}
    assert facts.accelerators[5].pci is not None
    assert facts.accelerators[5].pci.address == "0000:c3:00.0"


def test_a_device_that_did_not_answer_is_left_out_and_tried_again_with_growing_patience(command):
    clock = ManualClock()
    failures = [hang("nvmlDeviceGetMemoryInfo_v2", 3, cycle="1-3")]
    with ProbeHost(SpawnedHost(command(failures=failures), timeout_seconds=TIMEOUT), clock=clock) as host:
        first = host.probe(1)

        second = host.probe(2)
        assert second.accelerators == first.accelerators
        assert second.duration_seconds is not None
        assert second.duration_seconds < TIMEOUT / 2

        clock.now += 2 * TIMEOUT
        third = host.probe(3)
        assert third.accelerators == first.accelerators
        assert third.duration_seconds is not None
        assert third.duration_seconds > TIMEOUT / 2

        clock.now += 2 * TIMEOUT
        assert faults(host.probe(4)) == faults(first)
        clock.now += 2 * TIMEOUT
        assert host.probe(5).reason == "AllDevicesRead"
        assert host.probe(6).reason == "AllDevicesRead"


def test_two_devices_that_hang_cost_only_themselves(command):
    failures = [hang("nvmlDeviceGetMemoryInfo_v2", 1), hang("nvmlDeviceGetUUID", 6)]
    facts = probe_once(command(failures=failures), timeout_seconds=TIMEOUT)
    assert {index: fault.call for index, fault in faults(facts).items()} == {
        1: "nvmlDeviceGetMemoryInfo_v2",
        6: "nvmlDeviceGetUUID",
    }


def test_a_native_crash_names_the_device_and_the_call_and_the_others_are_read(command):
    failures = [{"function": "nvmlDeviceGetNvLinkState", "device": 2, "abort": True}]
    facts = probe_once(command(failures=failures), timeout_seconds=10)
    fault = DeviceFault(kind="no-answer", call="nvmlDeviceGetNvLinkState", error="crash")
    assert (facts.verdict, faults(facts)) == ("partial", {2: fault})


def test_fr_007_a_hanging_init_is_no_answer_and_says_so(command):
    """FR-007."""
    facts = probe_once(command(failures=[hang("nvmlInitWithFlags", None)]), timeout_seconds=TIMEOUT)
    assert (facts.verdict, facts.reason) == ("no-answer", "NoAnswer")
    assert facts.accelerators == ()
    assert facts.message.startswith("nvmlInit did not return in time; the bus shows 8 NVIDIA GPU(s)")
    assert facts.duration_seconds is not None
    assert facts.duration_seconds < 2 * TIMEOUT + 0.5


def test_a_crash_in_init_is_no_answer(command):
    facts = probe_once(
        command(failures=[{"function": "nvmlInitWithFlags", "abort": True}]), timeout_seconds=10
    )
    assert (facts.verdict, facts.reason) == ("no-answer", "ProbeCrashed")
    assert "nvmlInit with signal 6" in facts.message


@pytest.mark.parametrize("failure", [{"hang": True}, {"abort": True}], ids=["hang", "abort"])
def test_a_bad_shutdown_costs_nothing(command, failure):
    facts = probe_once(command(failures=[{"function": "nvmlShutdown", **failure}]), timeout_seconds=TIMEOUT)
    assert (facts.verdict, len(facts.accelerators)) == ("complete", 8)


def test_fr_009_slow_hardware_with_persistence_mode_off_is_read_all_the_same(command):
    """FR-009: init and lookups together take longer than the timeout, and no one call does."""
    failures = [
        {"function": "nvmlInitWithFlags", "delay_seconds": 1.0},
        {"function": "nvmlDeviceGetHandleByIndex_v2", "delay_seconds": 0.1},
    ]
    devices = [{"board": "h100-sxm", "count": 8, "persistence_mode": False}]
    facts = probe_once(command(devices=devices, failures=failures), timeout_seconds=1.0)
    assert facts.verdict == "complete"
    assert {device.health.persistence_mode for device in facts.accelerators if device.health} == {False}


def test_a_child_killed_from_outside_costs_the_device_it_was_reading(command):
    failures = [hang("nvmlDeviceGetMemoryInfo_v2", 3)]
    with ProbeHost(SpawnedHost(command(failures=failures), timeout_seconds=20)) as host:
        killer = threading.Thread(
            target=lambda: os.kill(until(lambda: children_in_device_3(host))[0], signal.SIGKILL)
        )
        killer.start()
        facts = host.probe(1)
        killer.join()
    fault = DeviceFault(kind="no-answer", call="nvmlDeviceGetMemoryInfo_v2", error="crash")
    assert faults(facts) == {3: fault}


def children_in_device_3(host: ProbeHost) -> list[int]:
    """Return the child once it blocks all signals, as the fake does when it hangs."""
    found = children_of(host.pid) if host.pid else []
    return [pid for pid in found if "SigBlk:\tfffffffe" in Path(f"/proc/{pid}/status").read_text()]


def test_a_host_killed_between_probes_is_replaced(command):
    with ProbeHost(SpawnedHost(command(), timeout_seconds=10)) as host:
        first = host.probe(1)
        os.kill(host.pid, signal.SIGKILL)
        second = host.probe(2)
    assert second.accelerators == first.accelerators


def test_a_host_killed_during_a_probe_is_replaced_and_asked_again(command):
    failures = [{"function": "nvmlInitWithFlags", "delay_seconds": 0.5}]
    with ProbeHost(SpawnedHost(command(failures=failures), timeout_seconds=10)) as host:
        victim = host.pid
        killer = threading.Thread(
            target=lambda: until(lambda: children_of(victim)) and os.kill(victim, signal.SIGKILL)
        )
        killer.start()
        facts = host.probe(1)
        killer.join()
        assert host.pid != victim
    assert (facts.verdict, len(facts.accelerators)) == ("complete", 8)


def test_the_child_ends_with_a_host_that_is_killed(command):
    failures = [hang("nvmlInitWithFlags", None)]
    with ProbeHost(SpawnedHost(command(failures=failures), timeout_seconds=30)) as host:
        probe = threading.Thread(target=host.probe, args=(1,))
        probe.start()
        [child] = until(lambda: children_of(host.pid))
        started = start_time(child)
        os.kill(host.pid, signal.SIGKILL)
        until(lambda: start_time(child) != started or "Z" in Path(f"/proc/{child}/stat").read_text())
        host.close()
        probe.join()


def test_a_host_that_cannot_start_is_no_answer_with_its_status():
    facts = probe_once([sys.executable, "-c", "raise SystemExit(3)"], timeout_seconds=5)
    assert (facts.verdict, facts.reason) == ("no-answer", "ProbeHostDied")
    assert "status 3" in facts.message


def test_close_ends_a_hanging_probe_within_a_second(command):
    failures = [hang("nvmlInitWithFlags", None)]
    host = ProbeHost(SpawnedHost(command(failures=failures), timeout_seconds=60))
    host.start()
    found: list[NodeFacts] = []
    probe = threading.Thread(target=lambda: found.append(host.probe(1)))
    probe.start()
    until(lambda: children_of(host.pid))
    started = time.monotonic()
    host.close()
    probe.join()
    assert time.monotonic() - started < 1.0
    assert [(facts.verdict, facts.reason) for facts in found] == [("no-answer", "ProbeDropped")]


def test_a_close_in_the_middle_of_a_probe_says_nothing_of_the_devices_that_were_not_reached(
    command, tmp_path
):
    host = ProbeHost(
        SpawnedHost(command(failures=[hang("nvmlDeviceGetMemoryInfo_v2", 3)]), timeout_seconds=60)
    )
    host.start()
    found: list[NodeFacts] = []
    probe = threading.Thread(target=lambda: found.append(host.probe(1)))
    probe.start()
    named = "nvmlDeviceGetUUID"
    until(lambda: (tmp_path / "journal").exists() and sum(named in call for call in journal(tmp_path)) >= 4)
    host.close()
    probe.join()
    assert [(facts.verdict, facts.reason, facts.accelerators) for facts in found] == [
        ("no-answer", "ProbeDropped", ())
    ]


def test_a_child_that_cannot_be_killed_is_counted_and_the_others_are_still_read(command):
    failures = [hang("nvmlDeviceGetMemoryInfo_v2", 3)]
    with ProbeHost(SpawnedHost(command("--unkillable", failures=failures), timeout_seconds=TIMEOUT)) as host:
        facts = host.probe(1)
        assert host.stuck_children == 1
        assert faults(facts).keys() == {3}
        # Not before a timeout has passed is another one started beside the stuck one.
        again = host.probe(2)
        assert (again.reason, again.accelerators) == ("ProbesStuck", ())
        assert until(lambda: host.probe(3).accelerators) == facts.accelerators
        assert host.stuck_children == 1


def test_there_are_never_more_than_three_stuck_children(command):
    clock = ManualClock()
    with ProbeHost(
        SpawnedHost(command("--unkillable", failures=[hang("nvmlInitWithFlags", None)]), timeout_seconds=0.2),
        clock=clock,
    ) as host:
        reasons = [host.probe(cycle).reason for cycle in range(1, 7)]
        assert host.stuck_children == 3
        assert len(children_of(host.pid)) == 3
    assert reasons == ["NoAnswer", "NoAnswer", "NoAnswer", "ProbesStuck", "ProbesStuck", "ProbesStuck"]


def test_a_host_that_was_suspended_gives_its_child_the_time_back(command):
    failures = [{"function": "nvmlInitWithFlags", "delay_seconds": 0.3}]
    with ProbeHost(SpawnedHost(command(failures=failures), timeout_seconds=0.5)) as host:
        host.probe(1)
        found: list[NodeFacts] = []
        probe = threading.Thread(target=lambda: found.append(host.probe(2)))
        probe.start()
        [child] = until(lambda: children_of(host.pid))
        for pid in (host.pid, child):
            os.kill(pid, signal.SIGSTOP)
        time.sleep(2.2)
        for pid in (host.pid, child):
            os.kill(pid, signal.SIGCONT)
        probe.join()
    assert [facts.verdict for facts in found] == ["complete"]


def test_changed_indices_forget_which_device_did_not_answer(command):
    failures = [hang("nvmlDeviceGetMemoryInfo_v2", 3, cycle="1")]
    changes = [{"cycle": "2-", "set": {"devices": {"7": {"enumerated": False}}}}]
    with ProbeHost(SpawnedHost(command(failures=failures, changes=changes), timeout_seconds=TIMEOUT)) as host:
        assert faults(host.probe(1)).keys() == {3}
        host.probe(2)
        third = host.probe(3)
    assert faults(third) == {}
    assert (third.verdict, third.reason) == ("partial", "DeviceMissing")
    assert isinstance(third.accelerators[0], Accelerator)
