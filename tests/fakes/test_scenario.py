"""The scenario format: what it refuses, and how a machine changes from probe to probe."""

import re
from pathlib import Path

import msgspec.structs
import pynvml
import pytest

from fakes import boards
from fakes.scenario import Failure, Scenario, within
from fakes.strict import ScenarioError
from tests.fakes.bound import bound, h100, machine

H100 = "name: t\ndevices:\n- board: h100-sxm\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("nam: t\n", "$: unknown field 'nam'; did you mean 'name'?", id="top"),
        pytest.param(
            f"{H100}  memory: {{totl_bytes: 1}}\n",
            "$.devices[0].memory: unknown field 'totl_bytes'; did you mean 'total_bytes'?",
            id="in a part",
        ),
        pytest.param(
            f"{H100}  mig: {{instances: [{{profil: 1g.10gb}}]}}\n",
            "$.devices[0].mig.instances[0]: unknown field 'profil'; did you mean 'profile'?",
            id="in a list in a part",
        ),
        pytest.param(
            f"{H100}failures: [{{function: nvmlInitWithFlags, codes: 1}}]\n",
            "$.failures[0]: unknown field 'codes'; did you mean 'code'?",
            id="in the script",
        ),
        pytest.param(
            "name: t\ndevices:\n- board: h200-sxm\n",
            "$.devices[0].board: no board 'h200-sxm'; there are",
            id="board",
        ),
        pytest.param(
            f"{H100}  pci: {{device_id: 2330}}\n",
            "Expected `str`, got `int` - at `$.devices[0].pci.device_id`",
            id="number for text",
        ),
        pytest.param(
            f"{H100}  mig: {{instances: [{{profile: 1g.5gb}}]}}\n",
            "$.devices[0].mig.instances[0].profile: the board has no '1g.5gb', only 1g.10gb, ",
            id="profile of another board",
        ),
        pytest.param(
            f"{H100}driver: {{version: '470.82.01'}}\n",
            "$.devices[0]: NVIDIA H100 80GB HBM3 needs driver 525 or later, the scenario has 470.82.01",
            id="driver that does not know the board",
        ),
        pytest.param(
            f"{H100}failures: [{{function: nvmlDeviceGetNmae, code: 1}}]\n",
            "$.failures[0].function: no function of the fake fits 'nvmlDeviceGetNmae'",
            id="function",
        ),
        pytest.param(
            f"{H100}failures: [{{function: '*', code: 1, hang: true}}]\n",
            "$.failures[0]: code, value, bytes, hang and abort exclude each other",
            id="two outcomes",
        ),
        pytest.param(f"{H100}failures: [{{function: '*'}}]\n", "$.failures[0]: needs one of code", id="no outcome"),
        pytest.param(
            f"{H100}failures: [{{function: '*', device: 1, code: 1}}]\n",
            "$.failures[0].device: there are 1 devices, got 1",
            id="device of the script",
        ),
        pytest.param(
            f"{H100}events: [{{device: 3, xid: 79}}]\n", "$.events[0].device: there are 1", id="device of an event"
        ),
        pytest.param(f"{H100}enumeration: [1]\n", "$.enumeration: expected each of 0 to 0 once", id="enumeration"),
        pytest.param(
            f"{H100}- {{board: h100-sxm, pci: {{address: '0000:1b:00.0'}}}}\n",
            "$.devices: two devices have pci.address 0000:1b:00.0",
            id="two in one slot",
        ),
        pytest.param(
            f"{H100}changes: [{{cycle: 2, set: {{driver: {{verson: x}}}}}}]\n", "$.driver: unknown field", id="change"
        ),
        pytest.param(
            f"{H100}changes: [{{cycle: 2, set: {{devices: {{5: {{}}}}}}}}]\n",
            "$.changes: devices.5: there are 1 devices",
            id="change of a device that is not there",
        ),
        pytest.param("name: t\nname: u\n", "$: 'name' stands twice", id="twice"),
        pytest.param("name: &a t\ndriver: {version: *a}\n", "anchors and aliases are not allowed", id="alias"),
        pytest.param("- 1\n", "expected a mapping with `name` and `devices`, got list", id="no mapping"),
        pytest.param("a: [", "not YAML: ", id="no YAML"),
        pytest.param("#" * (1 << 21), "larger than 1048576 bytes", id="too large"),
        pytest.param("devices: [{board: t4, count: 99}]\nname: t\n", "$.devices[0].count: expected 1 to 64", id="count"),
    ],
)  # fmt: skip
def test_fr_133_a_scenario_that_is_wrong_says_where_and_what_was_meant(text, message):
    with pytest.raises(ScenarioError) as refused:
        Scenario.from_yaml(text)
    assert message in str(refused.value)


def test_an_older_driver_is_played_when_the_scenario_asks_for_it():
    scenario = machine(h100(minimum_driver=None), driver={"version": "470.82.01"})
    assert scenario.driver.branch == 470


def test_what_a_device_leaves_out_comes_from_the_board_and_the_rest_is_its_own():
    [device] = machine(h100(memory={"used_bytes": 5})).devices
    figures = boards.board("h100-sxm")
    assert (device.memory.total_bytes, device.memory.used_bytes) == (figures["memory"]["total_bytes"], 5)


def test_null_takes_a_figure_away():
    [device] = machine(h100(memory=None)).devices
    assert device.memory is None


def test_devices_of_one_entry_differ_in_what_identifies_them():
    devices = machine(h100(count=3)).devices
    identities = [(device.uuid, device.serial, device.minor_number, device.pci.address) for device in devices]
    assert all(len(set(column)) == 3 for column in zip(*identities, strict=True))


def test_the_same_scenario_names_the_same_devices_each_time():
    assert machine(h100(count=2)) == machine(h100(count=2))


@pytest.mark.parametrize(
    ("span", "inside", "outside"),
    [
        pytest.param(3, [3], [2, 4], id="number"),
        pytest.param("3", [3], [2, 4], id="text"),
        pytest.param("2-4", [2, 4], [1, 5], id="range"),
        pytest.param("2-", [2, 999], [1], id="open"),
        pytest.param(None, [1, 999], [], id="every"),
    ],
)
def test_a_span_holds_its_numbers(span, inside, outside):
    assert [within(span, number) for number in (*inside, *outside)] == [True] * len(inside) + [False] * len(
        outside
    )


def test_a_machine_changes_from_probe_to_probe():
    cut = {"enabled": True, "instances": [{"profile": "7g.80gb"}]}
    scenario = machine(
        h100(count=2),
        changes=[
            {"cycle": "2-3", "set": {"devices": {1: {"mig": cut}}}},
            {
                "cycle": "3-",
                "set": {"devices": {0: {"enumerated": False}}, "driver": {"version": "590.48.01"}},
            },
        ],
    )

    def seen(cycle: int) -> tuple[str, list[int]]:
        with bound(scenario, cycle):
            handles = [pynvml.nvmlDeviceGetHandleByIndex(n) for n in range(pynvml.nvmlDeviceGetCount())]
            modes = [pynvml.nvmlDeviceGetMigMode(handle)[0] for handle in handles]
            return pynvml.nvmlSystemGetDriverVersion(), modes

    assert [seen(cycle) for cycle in (1, 2, 3, 4)] == [
        ("580.95.05", [0, 0]),
        ("580.95.05", [0, 1]),
        ("590.48.01", [1]),
        ("590.48.01", [0]),
    ]


def test_a_change_may_replace_all_devices():
    scenario = machine(h100(), changes=[{"cycle": "2-", "set": {"devices": [{"board": "t4", "count": 2}]}}])
    assert [device.name for device in scenario.at(2).devices] == ["Tesla T4", "Tesla T4"]


def test_a_listed_order_is_the_order_of_enumeration():
    scenario = machine({"board": "t4"}, {"board": "l4"}, enumeration=[1, 0])
    with bound(scenario):
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(2)]
        assert [pynvml.nvmlDeviceGetName(handle) for handle in handles] == ["NVIDIA L4", "Tesla T4"]
        assert [pynvml.nvmlDeviceGetIndex(handle) for handle in handles] == [0, 1]


def test_the_example_of_the_readme_is_a_scenario():
    readme = Path(boards.__file__).parents[1] / "README.md"
    example = re.search(r"```yaml\n(.*?)```", readme.read_text(encoding="utf-8"), re.DOTALL)
    assert len(Scenario.from_yaml(example[1]).devices) == 8


def test_the_readme_explains_every_field_of_a_failure():
    readme = (Path(boards.__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    explained = {
        name
        for row in re.findall(r"^\| (`.*?) \|", readme, re.MULTILINE)
        for name in re.findall(r"`(\w+)`", row)
    }
    assert {field.name for field in msgspec.structs.fields(Failure)} <= explained
