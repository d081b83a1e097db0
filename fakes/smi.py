"""Fake machines from what `nvidia-smi` printed on a real one, so that a person's report goes through the real probe.

A report holds what NVML answered; what the silicon fixes and nvidia-smi does not print (cores, bus width, the list of
MIG profiles) comes from the board or the catalogue entry of the same PCI device id. NVLink is not in it and stays unknown.
"""

from pathlib import Path
from typing import Any

from fakes.report import Entry, is_report, is_xml, read_report
from fakes.scenario import Scenario
from fakes.smi_device import device_of
from fakes.smi_partitions import read_list
from fakes.smi_readings import ABSENT, GpuReport, error_code, value_at
from fakes.strict import ScenarioError

__all__ = ["is_report", "scenario_of_file", "scenario_of_report"]

_FUNCTIONS = {
    "name": "nvmlDeviceGetName",
    "uuid": "nvmlDeviceGetUUID",
    "memory_total": "nvmlDeviceGetMemoryInfo*",
    "mig_current": "nvmlDeviceGetMigMode",
    "ecc_current": "nvmlDeviceGetEccMode",
}
"""Calls whose error, printed in place of the value, becomes a failure of the fake."""


def scenario_of_file(path: Path, text: str) -> Scenario:
    """Return the scenario of a report in a file; MIG names and UUIDs come from a `.L.txt` beside it, where there is one."""
    stem = path.name.removesuffix(".q.txt").removesuffix(".xml").removesuffix(".txt")
    beside = path.with_name(f"{stem}.L.txt")
    listed = beside.read_text(encoding="utf-8") if beside.is_file() and beside != path else ""
    return scenario_of_report(text, name=stem, listed=listed)


def scenario_of_report(text: str, *, name: str, listed: str = "") -> Scenario:
    """Return the scenario of a report; `listed` is what `nvidia-smi -L` printed."""
    root = read_report(text)
    xml = is_xml(text)
    reports = [GpuReport(entry, xml) for entry in root.all("gpu")]
    names = read_list(listed)
    version, cuda = (value_at(root, key, xml=xml) for key in ("driver_version", "cuda_version"))
    if version is None or version in ABSENT:
        raise ScenarioError("the report has no driver version: it is not whole")
    if not xml:
        _refuse_a_cut(root)
    devices = [device_of(gpu, names[n] if n < len(names) else ()) for n, gpu in enumerate(reports)]
    uuids = [device["uuid"] for device in devices]
    for device in devices:
        if uuids.count(device["uuid"]) > 1:
            # Blanked out before publication: any others will do, as long as they differ.
            del device["uuid"]
    driver = {"version": version, **({"cuda_version": cuda} if cuda and cuda not in ABSENT else {})}
    failures = [failure for number, gpu in enumerate(reports) for failure in _failures(number, gpu)]
    return Scenario.from_data({"name": name, "driver": driver, "devices": devices, "failures": failures})


def _refuse_a_cut(root: Entry) -> None:
    """Refuse a text report that ends early: XML tells of that by its form, text by what every whole one has."""
    gpus = root.all("gpu")
    attached = root.find("Attached GPUs")
    if attached is None or attached.value != str(len(gpus)):
        counted = "no count" if attached is None else f"{attached.value or 'no number'} attached"
        raise ScenarioError(f"not a whole report of nvidia-smi -q: {counted}, {len(gpus)} in the report")
    for gpu in gpus:
        # All that is read stands before them. A report of single sections (-d) has none either.
        if gpu.find("Processes") is None:
            raise ScenarioError(
                f"not a whole report of nvidia-smi -q: GPU {gpu.value} ends before its processes"
            )


def _failures(number: int, gpu: GpuReport) -> list[dict[str, Any]]:
    return [
        {"function": function, "device": number, "code": code}
        for reading, function in _FUNCTIONS.items()
        if (code := error_code(gpu.raw(reading) or "")) is not None
    ]
