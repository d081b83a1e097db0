"""One call of NVML that fails for once takes no label from hardware that is well."""

import msgspec
import pytest

from fakes.scenario import Scenario
from tests.hardware import scenario_facts
from tests.probes.probing import resolved_symbols
from tests.world import World

CUT = {"enabled": True, "instances": [{"profile": "3g.40gb"}, {"profile": "1g.10gb"}]}
MACHINES = {
    "two H100": Scenario.from_data({"name": "two", "devices": [{"board": "h100-sxm", "count": 2}]}),
    "a cut A100": Scenario.from_data({"name": "cut", "devices": [{"board": "a100-80", "mig": CUT}]}),
    "an L4": Scenario.from_data({"name": "one", "devices": [{"board": "l4"}]}),
}
CASES = [
    pytest.param(machine, function, code, id=f"{name} {function} {code}")
    for name, machine in MACHINES.items()
    # The end of a session answers nothing that a label could be of.
    for function in sorted(resolved_symbols(machine) - {"nvmlShutdown"})
    for code in (10, 999)
]


@pytest.mark.parametrize(("machine", "function", "code"), CASES)
def test_every_label_stays(machine, function, code):
    world = World()
    world.run(scenario_facts(machine))
    before = world.ours
    script = {"failures": [{"function": function, "code": code}]}
    failing = Scenario.from_data({**msgspec.to_builtins(machine), **script})
    world.run(scenario_facts(failing))
    assert world.ours == before
    assert world.record["spec"]["devices"]


@pytest.mark.parametrize("code", [4, 16, 19], ids=["no permission", "wants a reset", "in use"])
def test_fr_070_partitions_that_are_being_cut_anew_are_not_promised(code):
    world = World()
    machine = MACHINES["a cut A100"]
    world.run(scenario_facts(machine))
    handles = {"function": "nvmlDeviceGetMigDeviceHandleByIndex", "code": code}
    cutting = Scenario.from_data({**msgspec.to_builtins(machine), "failures": [handles]})
    before = world.ours
    world.run(scenario_facts(cutting))
    gone = {key for key in before if key not in world.ours}
    assert gone
    assert all("-mig-" in key for key in gone)
