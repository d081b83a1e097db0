"""The alerts: each fires on the fault it is for and on nothing else, and every one has its page in the runbook."""

import json
import re
import subprocess
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent.cluster import Forbidden
from agent.core.fleet_report import InventoryReport
from agent.core.fold import ClassState
from probes.facts import Health, NodeFacts
from tests.cluster.objects import DAEMONSET_FOLDER
from tests.deploy import tools
from tests.deploy.timeline import NodeTimeline, Series, controllers, rule_test
from tests.hardware import could_not_ask, fake_facts

ROOT = DAEMONSET_FOLDER.parents[1]
RULES = DAEMONSET_FOLDER.parent / "observability" / "alerts.yaml"
OBJECT = DAEMONSET_FOLDER / "components" / "prometheus-rules" / "prometheus-rule.yaml"
XIDS = ROOT / "agent" / "core" / "data" / "xid.toml"


def alerts() -> dict[str, dict[str, Any]]:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"]}


@pytest.fixture(scope="session")
def promtool() -> Path:
    return tools.promtool()


@pytest.fixture
def assert_firing(promtool: Path, tmp_path: Path) -> Callable[..., None]:
    """`assert_firing(series, minute, Name=count, …)` has Prometheus' own code evaluate the rules minute by minute."""

    def check(series: Series, minute: int, **firing: int) -> None:
        document = rule_test(series, rules=str(RULES), minute=minute, firing=firing)
        path = tmp_path / f"at-{minute}.yaml"
        path.write_text(yaml.safe_dump(document))
        done = subprocess.run(
            [promtool, "test", "rules", path], capture_output=True, text=True, check=False, timeout=60
        )
        assert done.returncode == 0, done.stdout + done.stderr

    return check


def real(name: str, cycle: int = 1) -> NodeFacts:
    """Return a fake machine's facts as if they came from hardware, so that nothing but its fault can fire."""
    return replace(fake_facts(name, cycle), simulated=False)


GOOD = "h100x8"

# What is wrong → (facts, minutes until it must be told, the alerts that then fire).
HARDWARE_FAULTS: dict[str, tuple[NodeFacts, int, dict[str, int]]] = {
    "the driver is not loaded": (real("no-driver"), 25, {"AcceleratorProbeFailing": 1}),
    "the runtime gave nothing": (real("no-runtime"), 25, {"AcceleratorProbeFailing": 1}),
    "library and module differ": (real("version-mismatch"), 25, {"AcceleratorProbeFailing": 1}),
    "no call returns": (
        could_not_ask("no-answer", "NoAnswer"),
        25,
        {"AcceleratorProbeFailing": 1},
    ),
    "one of eight is lost": (
        real("h100x8-one-lost"),
        25,
        {"AcceleratorDeviceUnusable": 1, "AcceleratorPartlyReadable": 1},
    ),
    "one needs a reset": (
        real("h100x8-needs-reset"),
        25,
        {"AcceleratorDeviceUnusable": 1, "AcceleratorPartlyReadable": 1},
    ),
    "partitions may not be read": (
        real("mig-no-permission"),
        25,
        {"AcceleratorPartitionsNotReadable": 1},
    ),
}


@pytest.mark.parametrize(("facts", "minutes", "firing"), HARDWARE_FAULTS.values(), ids=HARDWARE_FAULTS)
def test_a_fault_of_the_hardware_fires(
    assert_firing: Callable[..., None], facts: NodeFacts, minutes: int, firing: dict[str, int]
) -> None:
    told = NodeTimeline().minutes(10, real(GOOD)).minutes(minutes + 5, facts)
    series = told.series()
    assert_firing(series, 9)
    assert_firing(series, 9 + minutes, **firing)


def test_a_device_that_the_driver_dropped_without_a_word_fires(assert_firing: Callable[..., None]) -> None:
    before, after = real("h100x8-count-shrinks", 1), real("h100x8-count-shrinks", 2)
    assert (len(before.accelerators), len(after.accelerators)) == (8, 7)
    never_seen = NodeTimeline().minutes(30, after).series()
    assert_firing(never_seen, 25, AcceleratorMissing=1, AcceleratorPartlyReadable=1)
    # What was seen once is remembered as lost, over a restart too.
    known = NodeTimeline().minutes(10, before).restart().minutes(30, after).series()
    assert_firing(known, 9)
    assert_firing(known, 35, AcceleratorDeviceUnusable=1, AcceleratorPartlyReadable=1)


def test_a_degraded_device_fires_after_an_hour(assert_firing: Callable[..., None]) -> None:
    told = NodeTimeline().minutes(10, real(GOOD)).minutes(80, real("h100x8-sick")).series()
    states = [name for name in told if "accelerator_device_state" in name and 'state="degraded"' in name]
    degraded = sum(told[name][-1] == 1 for name in states)
    unusable = sum(
        told[name][-1] == 1
        for name in told
        if "accelerator_device_state" in name
        and re.search('state="(lost|failed|needs-reset|unreadable)"', name)
    )
    assert degraded > 0
    firing = {"AcceleratorDeviceDegraded": degraded} | (
        {"AcceleratorDeviceUnusable": unusable} if unusable else {}
    )
    told_early = {name: count for name, count in firing.items() if name != "AcceleratorDeviceDegraded"}
    assert_firing(told, 40, **told_early)
    assert_firing(told, 80, **firing)


def test_an_xid_that_speaks_of_the_device_fires_at_once_and_ends(assert_firing: Callable[..., None]) -> None:
    told = NodeTimeline().minutes(20, real(GOOD))
    told.world.agent.hear(real(GOOD).accelerators[2].id, 63)
    series = told.minutes(30, real(GOOD)).series()
    assert_firing(series, 19)
    assert_firing(series, 22, AcceleratorXidError=1)
    assert_firing(series, 45)


def test_an_xid_of_an_application_fires_nothing(assert_firing: Callable[..., None]) -> None:
    told = NodeTimeline().minutes(10, real(GOOD))
    for code in (13, 31, 43, 45, 68):
        told.world.agent.hear(real(GOOD).accelerators[2].id, code)
    assert_firing(told.minutes(10, real(GOOD)).series(), 15)


def test_the_codes_that_fire_are_those_that_change_a_devices_state() -> None:
    codes = {entry["code"] for entry in tomllib.loads(XIDS.read_text())["xid"] if entry["state"]}
    named = re.findall(r'xid=~"([\d|]+)"', alerts()["AcceleratorXidError"]["expr"])
    assert [{int(code) for code in one.split("|")} for one in named] == [codes, codes]


def test_slow_probes_without_persistence_mode_fire(assert_firing: Callable[..., None]) -> None:
    facts = real("t4")
    slow = replace(
        facts,
        duration_seconds=24.0,
        accelerators=tuple(
            replace(device, health=replace(device.health or Health(), persistence_mode=False))
            for device in facts.accelerators
        ),
    )
    assert_firing(NodeTimeline().minutes(70, slow).series(), 65, AcceleratorPersistenceModeOff=1)
    quick = replace(slow, duration_seconds=0.2)
    assert_firing(NodeTimeline().minutes(70, quick).series(), 65)


def test_a_pod_that_does_not_answer_fires(assert_firing: Callable[..., None]) -> None:
    told = NodeTimeline().minutes(10, real(GOOD)).silent(25).series()
    assert_firing(told, 20)
    assert_firing(told, 27, AcceleratorAgentDown=1)


def test_a_probe_that_cannot_be_ended_fires(assert_firing: Callable[..., None]) -> None:
    told = NodeTimeline().minutes(5, real(GOOD))
    told.stuck_children = 1
    assert_firing(told.minutes(30, real(GOOD)).series(), 30, AcceleratorProbeStuck=1)


def test_probes_that_outlast_the_interval_fire(assert_firing: Callable[..., None]) -> None:
    told = NodeTimeline()
    for _ in range(60):
        told.overruns += 1
        told.minutes(1, real(GOOD))
    assert_firing(told.series(), 55, AcceleratorProbeOverruns=1)


def test_a_missing_right_fires(assert_firing: Callable[..., None]) -> None:
    told = NodeTimeline().minutes(5, real(GOOD))
    apply = told.world.cluster.apply

    def refused(*_: Any, **__: Any) -> Any:
        raise Forbidden('nodes "gpu-1" is forbidden')

    told.world.cluster.apply = refused
    told.world.rival({"accelerators.ome.io/present": None})
    told.minutes(40, real(GOOD))
    told.world.cluster.apply = apply
    series = told.minutes(40, real(GOOD)).series()
    # Labels and record.
    assert_firing(series, 40, AcceleratorPublishFailing=2)
    assert_firing(series, 80)


def test_a_rival_writer_fires(assert_firing: Callable[..., None]) -> None:
    told = NodeTimeline()
    told.world.rival({"accelerators.ome.io/vendor": "acme"})
    assert_firing(told.minutes(70, real(GOOD)).series(), 65, AcceleratorRivalWriter=1)


def test_fake_hardware_fires(assert_firing: Callable[..., None]) -> None:
    assert_firing(NodeTimeline().minutes(20, fake_facts(GOOD)).series(), 15, AcceleratorSimulated=1)


# What a node may do without anybody being told.


@pytest.mark.parametrize(
    "machine", ["no-gpu", "h100x8", "a100-80-mig", "gb10", "l4x4", "mixed-3080-3090-4090"]
)
def test_a_sound_machine_fires_nothing_in_two_hours(assert_firing: Callable[..., None], machine: str) -> None:
    assert_firing(NodeTimeline().minutes(125, real(machine)).series(), 120)


def test_a_restart_fires_nothing(assert_firing: Callable[..., None]) -> None:
    told = NodeTimeline().minutes(30, real(GOOD))
    for _ in range(3):
        told.silent(2).restart().minutes(20, real(GOOD))
    series = told.series()
    for minute in range(30, 98, 4):
        assert_firing(series, minute)


def test_a_driver_upgrade_fires_nothing(assert_firing: Callable[..., None]) -> None:
    told = NodeTimeline().minutes(10, real(GOOD)).minutes(12, real("no-driver")).minutes(20, real(GOOD))
    series = told.series()
    for minute in (15, 21, 24, 40):
        assert_firing(series, minute)


def test_a_process_that_exits_for_a_new_container_is_told_of_all_the_same(
    assert_firing: Callable[..., None],
) -> None:
    told = NodeTimeline().minutes(10, real(GOOD))
    for _ in range(4):
        told.minutes(15, could_not_ask("not-in-container", "DeviceFilesMissing")).restart()
    assert_firing(told.series(), 60, AcceleratorProbeFailing=1)


# The controller.

LEADER = InventoryReport(
    leading=True,
    complete=True,
    records=3,
    classes=(ClassState(name="nvidia-h100-80gb", content=None, nodes=("gpu-1",), total=8, usable=8),),
)
FOLLOWER = InventoryReport(complete=True, records=3)


def minutes(count: int, report: InventoryReport | None) -> list[InventoryReport | None]:
    return [report] * count


FLEET_FAULTS: dict[str, tuple[InventoryReport, int, dict[str, int]]] = {
    "nobody leads": (FOLLOWER, 15, {"AcceleratorInventoryLeader": 1}),
    "something hinders": (
        replace(LEADER, problems=("nodes: forbidden",)),
        20,
        {"AcceleratorInventoryHindered": 1},
    ),
    "the reading is not complete": (
        replace(LEADER, complete=False),
        20,
        {"AcceleratorInventoryHindered": 1},
    ),
    "records are stale": (replace(LEADER, stale_records=2), 20, {"AcceleratorRecordsStale": 1}),
    "a record cannot be understood": (
        replace(LEADER, unreadable_records=("gpu-2",)),
        20,
        {"AcceleratorRecordsUnreadable": 1},
    ),
    "no device of a class is usable": (
        replace(LEADER, classes=(replace(LEADER.classes[0], usable=0),)),
        20,
        {"AcceleratorClassWithoutDevices": 1},
    ),
    "a class is somebody else's": (
        replace(LEADER, foreign=("nvidia-t4-16gb",)),
        65,
        {"AcceleratorClassForeign": 1},
    ),
}


@pytest.mark.parametrize(("report", "after", "firing"), FLEET_FAULTS.values(), ids=FLEET_FAULTS)
def test_a_fault_of_the_fleet_fires(
    assert_firing: Callable[..., None], report: InventoryReport, after: int, firing: dict[str, int]
) -> None:
    series = controllers(minutes(10, LEADER) + minutes(after + 5, report), minutes(after + 15, FOLLOWER))
    assert_firing(series, 9)
    assert_firing(series, 9 + after, **firing)


def test_two_leaders_fire(assert_firing: Callable[..., None]) -> None:
    assert_firing(controllers(minutes(20, LEADER), minutes(20, LEADER)), 15, AcceleratorInventoryLeader=1)


def test_a_class_whose_nodes_are_gone_fires_nothing(assert_firing: Callable[..., None]) -> None:
    retired = replace(LEADER, classes=(ClassState(name="nvidia-h100-80gb", content=None),))
    assert_firing(controllers(minutes(70, retired), minutes(70, FOLLOWER)), 65)


def test_a_change_of_leader_and_a_rollout_of_the_controllers_fire_nothing(
    assert_firing: Callable[..., None],
) -> None:
    starting = replace(LEADER, complete=False, classes=(), records=0)
    first = minutes(20, LEADER) + minutes(3, None) + minutes(40, FOLLOWER)
    second = minutes(20, FOLLOWER) + minutes(1, FOLLOWER) + minutes(4, starting) + minutes(38, LEADER)
    series = controllers(first, second)
    for minute in range(18, 60, 3):
        assert_firing(series, minute)


# The rules as a whole.


def test_every_alert_has_words_a_severity_and_a_page_in_the_runbook() -> None:
    page = (ROOT / "docs" / "runbook.md").read_text()
    headings = re.findall(r"^## (Accelerator\w+)$", page, re.MULTILINE)
    assert headings == list(alerts())
    for name, rule in alerts().items():
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}, name
        assert set(rule["annotations"]) == {"summary", "description", "runbook"}, name
        assert rule["annotations"]["runbook"] == f"docs/runbook.md#{name.lower()}"


def test_every_alert_is_tested_here() -> None:
    text = Path(__file__).read_text()
    assert [name for name in alerts() if f"{name}=" not in text and f'"{name}"' not in text] == []


def test_prometheus_understands_what_the_dashboards_ask(promtool: Path, tmp_path: Path) -> None:
    asked = [
        target["expr"].replace("$__rate_interval", "5m")
        for path in sorted(RULES.parent.glob("dashboards/*.json"))
        for panel in json.loads(path.read_text())["panels"]
        for target in panel.get("targets", ())
    ]
    assert len(asked) > 30
    rules = [
        {"record": "asked:panel", "expr": expr, "labels": {"number": str(number)}}
        for number, expr in enumerate(asked)
    ]
    path = tmp_path / "asked.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "asked", "rules": rules}]}))
    done = subprocess.run(
        [promtool, "check", "rules", path], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_operators_object_holds_the_same_rules() -> None:
    assert yaml.safe_load(OBJECT.read_text())["spec"] == yaml.safe_load(RULES.read_text())
