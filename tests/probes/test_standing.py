"""What the probe host keeps between probes: which questions it saves, and that nothing stale is ever told."""

import os
import signal
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from probes.facts import NodeFacts
from probes.host_process import ProbeHost
from probes.pci import Census, read_census
from probes.spawned_host import SpawnedHost
from probes.standing import ASKED_ANEW_AFTER
from tests.probes.test_pci import put_h100

BOARD_QUESTIONS = {"nvmlDeviceGetNumGpuCores", "nvmlDeviceGetMaxPcieLinkWidth", "nvmlDeviceGetNvLinkVersion"}
EVERY_TIME = {
    "nvmlDeviceGetUUID",
    "nvmlDeviceGetPciInfo_v3",
    "nvmlDeviceGetName",
    "nvmlDeviceGetMigMode",
    "nvmlDeviceGetMemoryInfo_v2",
    "nvmlDeviceGetRemappedRows",
    "nvmlDeviceGetCurrPcieLinkWidth",
}
TWO = [{"board": "h100-sxm", "count": 2}]
OTHER_UUID = "GPU-ffffffff-0000-0000-0000-000000000001"


@pytest.fixture
def opened(tmp_path) -> Callable[..., ProbeHost]:
    """Return what opens a probe host on a fake machine of two devices."""

    def open_host(**fields: Any) -> ProbeHost:
        file = tmp_path / "scenario.yaml"
        file.write_bytes(msgspec.json.encode({"name": "test", "devices": TWO, **fields}))
        return ProbeHost(
            SpawnedHost([sys.executable, "-m", "tests.probes.staged", str(file)], timeout_seconds=10)
        )

    return open_host


def asked(folder: Path) -> dict[int, Counter[str]]:
    """Return probe → how often each function was called."""
    calls: dict[int, Counter[str]] = {}
    for line in (folder / "journal").read_text().splitlines():
        probe, _, function, _ = line.split()
        calls.setdefault(int(probe), Counter())[function] += 1
    return calls


def without_duration(facts: NodeFacts) -> NodeFacts:
    return replace(facts, duration_seconds=None)


def test_the_second_probe_asks_no_figure_of_the_board_and_tells_the_same(opened, tmp_path):
    with opened() as host:
        first, second = host.probe(1), host.probe(2)
    assert without_duration(first) == without_duration(second)
    calls = asked(tmp_path)
    assert {function: calls[1][function] for function in BOARD_QUESTIONS} == dict.fromkeys(BOARD_QUESTIONS, 2)
    assert {function: calls[2][function] for function in BOARD_QUESTIONS} == dict.fromkeys(BOARD_QUESTIONS, 0)
    assert {function: calls[2][function] for function in EVERY_TIME} == dict.fromkeys(EVERY_TIME, 2)
    # All 18 links, and not the one behind the last.
    assert (calls[1]["nvmlDeviceGetNvLinkState"], calls[2]["nvmlDeviceGetNvLinkState"]) == (38, 36)


def test_everything_is_asked_anew_every_tenth_probe(opened, tmp_path):
    with opened() as host:
        for cycle in range(1, 2 * ASKED_ANEW_AFTER + 2):
            host.probe(cycle)
    asking = [cycle for cycle, calls in asked(tmp_path).items() if calls["nvmlDeviceGetNumGpuCores"]]
    assert asking == [1, ASKED_ANEW_AFTER, 2 * ASKED_ANEW_AFTER]


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"devices": {0: {"uuid": OTHER_UUID, "cores": 7}}}, id="another-uuid"),
        pytest.param({"devices": {0: {"name": "NVIDIA H100 PCIe", "cores": 7}}}, id="another-name"),
        pytest.param({"devices": {0: {"pci": {"address": "0000:aa:00.0"}, "cores": 7}}}, id="another-slot"),
        pytest.param({"devices": {0: {"mig": {"enabled": True}, "cores": 7}}}, id="mig-switched-on"),
        pytest.param({"devices": {0: {"cores": 7}}, "driver": {"version": "580.99.01"}}, id="another-driver"),
        pytest.param({"devices": {0: {"cores": 7}, 1: {"enumerated": False}}}, id="fewer-devices"),
    ],
)
def test_a_device_that_is_another_one_is_asked_for_its_figures(opened, change):
    with opened(changes=[{"cycle": "2-", "set": change}]) as host:
        assert [host.probe(cycle).accelerators[0].cores for cycle in (1, 2)] == [16896, 7]


def test_devices_that_change_places_keep_their_own_figures(opened):
    with opened(
        devices=[{"board": "h100-sxm"}, {"board": "l40s"}],
        changes=[{"cycle": "2-", "set": {"enumeration": [1, 0]}}],
    ) as host:
        first, second = host.probe(1), host.probe(2)
    assert [device.cores for device in first.accelerators] == [16896, 18176]
    assert [device.cores for device in second.accelerators] == [18176, 16896]


def test_what_can_change_is_never_kept(opened):
    worse = {
        "remapped_rows": {"pending": True},
        "pcie": {"width": 8},
        "nvlink": {"inactive": [3, 4]},
        "ecc": {"enabled": False},
        "persistence_mode": False,
    }
    with opened(changes=[{"cycle": "2-", "set": {"devices": {1: worse}}}]) as host:
        host.probe(1)
        found = host.probe(2).accelerators[1]
    assert found.link is not None
    assert found.health is not None
    assert found.health.row_remapping is not None
    assert (found.link.pcie_width, found.link.nvlink_active, found.link.nvlink_total) == (8, 16, 18)
    assert (found.health.row_remapping.pending, found.health.ecc_enabled, found.health.persistence_mode) == (
        True,
        False,
        False,
    )


@pytest.mark.parametrize(
    "failure",
    [
        pytest.param({"function": "nvmlDeviceGet*", "but_not": "*ByIndex*", "code": 15}, id="lost"),
        pytest.param({"function": "nvmlDeviceGetMemoryInfo_v2", "abort": True}, id="crash"),
    ],
)
def test_after_trouble_with_one_device_everything_is_asked_of_all(opened, tmp_path, failure):
    with opened(failures=[{**failure, "device": 0, "cycle": "2"}]) as host:
        for cycle in (1, 2, 3):
            host.probe(cycle)
    calls = asked(tmp_path)[3]
    assert calls["nvmlDeviceGetNumGpuCores"] == calls["nvmlDeviceGetUUID"] > 0


def test_an_event_makes_the_next_probe_ask_everything(opened, tmp_path):
    with opened(events=[{"device": 0, "xid": 48}]) as host:
        host.probe(1)
        host.probe(2)
        host.listen(on=True)
        assert host.events(10)
        host.probe(3)
        host.probe(4)
    counts = [asked(tmp_path)[cycle]["nvmlDeviceGetNumGpuCores"] for cycle in (1, 2, 3, 4)]
    assert counts == [2, 0, 2, 0]


def test_a_new_host_knows_nothing(opened, tmp_path):
    host = opened()
    with host:
        host.probe(1)
        os.kill(host.pid, signal.SIGKILL)
        assert host.probe(2).reason == "AllDevicesRead"
    assert asked(tmp_path)[2]["nvmlDeviceGetNumGpuCores"] == 2


def test_a_driver_bound_to_another_is_seen_at_once(tmp_path):
    folder = put_h100(tmp_path)
    before = read_census(tmp_path)
    (folder / "driver").unlink()
    (folder / "driver").symlink_to("../../../bus/pci/drivers/vfio-pci")
    after = read_census(tmp_path, before=before)
    assert before.functions is not None
    assert after == replace(before, functions=(replace(before.functions[0], driver="vfio-pci"),))


def test_a_function_that_came_or_went_has_the_bus_read_again(tmp_path):
    put_h100(tmp_path)
    before = read_census(tmp_path)
    put_h100(tmp_path, "0000:43:00.0")
    after = read_census(tmp_path, before=before)
    assert after == read_census(tmp_path)
    assert [one.identity.address for one in after.functions or ()] == ["0000:1b:00.0", "0000:43:00.0"]


def test_a_bus_that_cannot_be_read_any_more_is_not_known(tmp_path):
    put_h100(tmp_path)
    assert read_census(tmp_path / "elsewhere", before=read_census(tmp_path)) == Census()
