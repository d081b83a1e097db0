"""The lines between a child, its host and the parent."""

import os

import pytest

from probes import findings
from probes.facts import Accelerator, Driver, PciIdentity
from probes.findings import Answered, Attempt, Identity, Opened, Ready, Refused, Surroundings
from probes.lines import whole_lines

DEVICE = Accelerator(
    index=11,
    vendor="nvidia",
    product="a\nb\0\x1f é",
    pci=PciIdentity(address="0000:1b:00.0", vendor_id="10de", device_id="2330"),
    compute_capability=(9, 0),
    power_limit_watts=700.0,
)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (findings.SURROUNDINGS, Surroundings(pci=(), kernel_module_version="580.95.05")),
        (findings.REFUSED, Refused(code=999, library_path="/usr/lib/libnvidia-ml.so.1")),
        (findings.DEVICE, DEVICE),
        (findings.ANSWERED, Answered(attempts=(Attempt(ended="crash", signal=6),), stuck=((7, "12345"),))),
        (findings.READY, Ready(problem="the module pynvml is not nvidia-ml-py")),
    ],
)
def test_a_finding_survives_its_line(kind, value):
    line = findings.encode(kind, value)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert findings.decode(line) == value


def test_a_devices_line_tells_its_index_without_being_decoded():
    line = findings.encode(findings.IDENTITY, DEVICE, DEVICE.index)
    assert findings.index_of(line) == 11
    assert findings.decode(line) == Identity(DEVICE)


@pytest.mark.parametrize("line", [b"\n", b"x- {}\n", b"d0 {}\n", b"d0 {\n", b"warning: a library spoke\n"])
def test_what_is_no_finding_is_an_error(line):
    with pytest.raises(ValueError, match=r"."):
        findings.decode(line)


def test_lines_are_taken_whole_and_the_rest_is_kept():
    buffer = bytearray(b"one\ntwo\nthr")
    assert whole_lines(buffer) == [b"one\n", b"two\n"]
    assert buffer == b"thr"
    assert whole_lines(buffer) == []


def test_a_process_is_named_by_its_start_time():
    assert findings.start_time(os.getpid()).isdigit()
    assert findings.start_time(2**22 + 1) == ""


def test_an_opened_library_without_a_count_keeps_its_code():
    opened = Opened(driver=Driver(name="nvidia"), count=None, error=999)
    assert findings.decode(findings.encode(findings.OPENED, opened)) == opened
