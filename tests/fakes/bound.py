"""The fake library under the real binding, for the length of a test."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pynvml

from fakes import nvml
from fakes.scenario import Scenario


def machine(*devices: dict[str, Any], **fields: Any) -> Scenario:
    return Scenario.from_data({"name": "test", "devices": list(devices), **fields})


def h100(**fields: Any) -> dict[str, Any]:
    return {"board": "h100-sxm", **fields}


@contextmanager
def bound(scenario: Scenario, cycle: int = 1) -> Iterator[nvml.FakeNvml]:
    """Install the scenario and open one session."""
    with installed(scenario, cycle) as library:
        pynvml.nvmlInit()
        yield library


@contextmanager
def installed(scenario: Scenario, cycle: int = 1) -> Iterator[nvml.FakeNvml]:
    nvml.install(scenario, cycle)
    library = nvml.installed()
    assert library is not None
    try:
        yield library
    finally:
        nvml.uninstall()


def refusal(function: Any, *arguments: Any) -> int | None:
    """Return the NVML code with which a call of the binding fails, `None` when it succeeds."""
    try:
        function(*arguments)
    except pynvml.NVMLError as error:
        return error.value
    return None
