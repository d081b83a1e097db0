"""The script of failures: who is hit, when, and what then happens."""

import faulthandler
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pynvml
import pytest

from fakes.scenario import Scenario
from tests.fakes.bound import bound, h100, installed, machine, refusal


def script(*failures: dict, count: int = 2) -> Scenario:
    return machine(h100(count=count), failures=list(failures))


def test_a_code_hits_the_named_function_and_device_only():
    with bound(script({"function": "nvmlDeviceGetName", "device": 1, "code": 999})):
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(2)]
        assert [refusal(pynvml.nvmlDeviceGetName, handle) for handle in handles] == [None, 999]
        assert refusal(pynvml.nvmlDeviceGetUUID, handles[1]) is None


def test_a_lookup_by_index_belongs_to_the_device_that_it_looks_up():
    with bound(script({"function": "nvmlDeviceGetHandleByIndex_v2", "device": 1, "code": 15})):
        assert [refusal(pynvml.nvmlDeviceGetHandleByIndex, index) for index in range(2)] == [None, 15]


def test_a_device_of_the_script_is_the_same_one_in_any_order_of_enumeration():
    failure = {"function": "nvmlDeviceGetName", "device": 0, "code": 15}
    scenario = machine(h100(count=2), failures=[failure], enumeration=[1, 0])
    with bound(scenario):
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(2)]
        assert [refusal(pynvml.nvmlDeviceGetName, handle) for handle in handles] == [None, 15]


def test_a_pattern_can_leave_functions_out():
    with bound(script({"function": "nvmlDevice*", "but_not": "*HandleBy*", "device": 0, "code": 16})):
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        assert [refusal(pynvml.nvmlDeviceGetName, handle), refusal(pynvml.nvmlDeviceGetUUID, handle)] == [
            16,
            16,
        ]


def test_a_mig_device_is_named_by_its_uuid():
    mig = {"enabled": True, "instances": [{"profile": "1g.10gb"}, {"profile": "1g.10gb"}]}
    with bound(machine(h100(mig=mig))):
        parent = pynvml.nvmlDeviceGetHandleByIndex(0)
        uuid = pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetMigDeviceHandleByIndex(parent, 1))
    failure = {"function": "nvmlDeviceGetMemoryInfo*", "device": uuid, "code": 4}
    with bound(machine(h100(mig=mig), failures=[failure])):
        parent = pynvml.nvmlDeviceGetHandleByIndex(0)
        parts = [pynvml.nvmlDeviceGetMigDeviceHandleByIndex(parent, index) for index in range(2)]
        assert [refusal(pynvml.nvmlDeviceGetMemoryInfo, part) for part in (parent, *parts)] == [None, None, 4]


@pytest.mark.parametrize(
    ("cycle", "code"),
    [pytest.param(1, None, id="before"), pytest.param(2, 12, id="first"), pytest.param(3, None, id="after")],
)
def test_a_failure_of_one_probe_is_of_that_probe(cycle, code):
    with installed(script({"function": "nvmlInitWithFlags", "cycle": 2, "code": 12}), cycle):
        assert refusal(pynvml.nvmlInit) == code


def test_calls_are_counted_for_the_device_that_the_script_names():
    with bound(script({"function": "nvmlDeviceGetName", "device": 1, "call": "2-", "code": 10})):
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(2)]
        answers = [refusal(pynvml.nvmlDeviceGetName, handle) for handle in (*handles, *handles)]
        assert answers == [None, None, None, 10]


def test_the_first_entry_that_fits_counts():
    entries = ({"function": "nvmlDeviceGetName", "code": 3}, {"function": "*", "cycle": 1, "code": 999})
    with installed(script(*entries)):
        assert (
            refusal(pynvml.nvmlInit),
            refusal(pynvml._nvmlGetFunctionPointer("nvmlDeviceGetName"), None),
        ) == (999, None)
        assert pynvml._nvmlGetFunctionPointer("nvmlDeviceGetName")(None) == 3


def test_bytes_that_are_not_utf8_reach_the_decoder_of_the_binding():
    with bound(script({"function": "nvmlDeviceGetName", "bytes": "f8ff"})):
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        with pytest.raises(UnicodeDecodeError):
            pynvml.nvmlDeviceGetName(handle)


def test_bytes_overwrite_the_beginning_of_a_structure():
    with bound(script({"function": "nvmlDeviceGetPciInfo_v3", "bytes": "f8"})):
        info = pynvml.nvmlDeviceGetPciInfo_v3(pynvml.nvmlDeviceGetHandleByIndex(0))
        assert info.domain == 0
        with pytest.raises(UnicodeDecodeError):
            _ = info.busIdLegacy


@pytest.mark.parametrize(
    ("function", "value", "call", "expected"),
    [
        pytest.param(
            "nvmlDeviceGetMemoryInfo", {"total": 2**64 - 1}, lambda h: pynvml.nvmlDeviceGetMemoryInfo(h).total,
            2**64 - 1, id="field of a structure",
        ),
        pytest.param("nvmlDeviceGetPowerUsage", 2**32 - 1, pynvml.nvmlDeviceGetPowerUsage, 2**32 - 1, id="number"),
        pytest.param(
            "nvmlDeviceGetCudaComputeCapability", [10, 3], pynvml.nvmlDeviceGetCudaComputeCapability, (10, 3),
            id="several numbers",
        ),
        pytest.param("nvmlDeviceGetName", "RTX 8000 / 6000", pynvml.nvmlDeviceGetName, "RTX 8000 / 6000", id="text"),
        pytest.param(
            "nvmlDeviceGetNumaNodeId", 2, pynvml.nvmlDeviceGetNumaNodeId, 2, id="where the device has no such figure"
        ),
    ],
)  # fmt: skip
def test_a_value_is_answered_in_place_of_the_true_one(function, value, call: Callable, expected):
    with bound(script({"function": function, "value": value})):
        assert call(pynvml.nvmlDeviceGetHandleByIndex(0)) == expected


def test_a_delay_comes_before_the_answer():
    with bound(script({"function": "nvmlDeviceGetName", "delay_seconds": 0.05})):
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        before = time.monotonic()
        assert pynvml.nvmlDeviceGetName(handle) == "NVIDIA H100 80GB HBM3"
        assert time.monotonic() - before >= 0.05


def in_a_child(act: Callable[[], object]) -> int:
    """Run something in a forked child and return its process id."""
    pid = os.fork()
    if pid == 0:
        faulthandler.disable()
        try:
            act()
        finally:
            os._exit(0)
    return pid


def test_an_abort_ends_the_process_with_its_signal():
    with installed(script({"function": "nvmlInitWithFlags", "abort": True})):
        _, status = os.waitpid(in_a_child(pynvml.nvmlInit), 0)
    assert os.WTERMSIG(status) == signal.SIGABRT


def test_a_hang_is_deaf_to_every_signal_but_kill():
    reader, writer = os.pipe()
    with installed(script({"function": "nvmlShutdown", "hang": True})):
        pid = in_a_child(lambda: (pynvml.nvmlInit(), os.write(writer, b"."), pynvml.nvmlShutdown()))
    os.read(reader, 1)
    deadline = time.monotonic() + 10
    while not int(blocked(pid), 16) & (1 << (signal.SIGTERM - 1)):
        assert time.monotonic() < deadline
    os.kill(pid, signal.SIGTERM)
    still_there = os.waitpid(pid, os.WNOHANG) == (0, 0)
    os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    os.close(reader)
    os.close(writer)
    assert (still_there, os.WTERMSIG(status)) == (True, signal.SIGKILL)


def blocked(pid: int) -> str:
    """Return the mask of signals that a process blocks, in hex."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    return next(line.split()[1] for line in lines if line.startswith("SigBlk"))
