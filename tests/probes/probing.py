"""Probes fake machines through the real binding, within the test's own process."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pynvml

from fakes import filesystem, nvml
from fakes.scenario import Scenario
from probes import nvml as real
from probes.evidence import Evidence, node_facts
from probes.facts import Accelerator, NodeFacts
from probes.forked import read_surroundings


def machine(*devices: dict[str, Any], **fields: Any) -> Scenario:
    """Return a fake machine of these devices."""
    return Scenario.from_data({"name": "test", "devices": list(devices), **fields})


def h100(**fields: Any) -> dict[str, Any]:
    return {"board": "h100-sxm", **fields}


MIG_INSTANCES = [
    {"profile": "3g.40gb", "compute_instances": [{"slices": 1}, {"slices": 2}]},
    {"profile": "2g.20gb"},
    {"profile": "1g.10gb"},
    {"profile": "1g.10gb+me"},
]


def h100_mig(**fields: Any) -> dict[str, Any]:
    return h100(mig={"enabled": True, "instances": MIG_INSTANCES}, **fields)


@contextmanager
def installed(scenario: Scenario, cycle: int = 1) -> Iterator[nvml.FakeNvml]:
    """Have the fake library under the binding, and find every session closed at the end."""
    nvml.install(scenario, cycle)
    library = nvml.installed()
    assert library is not None
    try:
        yield library
        assert library.open_sessions == 0
    finally:
        nvml.uninstall()


def unheard(_device: int | None, _call: str) -> None:
    """Listen to no progress."""


def gather(scenario: Scenario, cycle: int = 1) -> Evidence:
    """Return what one probe finds of NVML, without the machine's files."""
    evidence = Evidence()
    with installed(scenario, cycle):
        for finding in real.probe_nvml(on_call=unheard):
            evidence.take(finding)
    return evidence


def devices(scenario: Scenario, cycle: int = 1) -> list[Accelerator]:
    return list(gather(scenario, cycle).devices.values())


def device(scenario: Scenario) -> Accelerator:
    [found] = devices(scenario)
    return found


def facts(scenario: Scenario, root: Path, cycle: int = 1) -> NodeFacts:
    """Return the facts of the node, files included, without a host process."""
    filesystem.render(scenario.at(cycle), root)
    evidence = gather(scenario, cycle)
    evidence.surroundings = read_surroundings(root)
    return node_facts(evidence, simulated=True)


def resolved_symbols(scenario: Scenario) -> set[str]:
    """Return the C functions that a probe of the machine looks up."""
    with installed(scenario):
        for _ in real.probe_nvml(on_call=unheard):
            pass
        return set(pynvml._nvmlGetFunctionPointer_cache)
