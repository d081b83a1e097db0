"""The fake probe host as a process of its own."""

import os
import sys
import tempfile
from pathlib import Path

import pynvml
import pytest

from fakes import child, filesystem, nodes, nvml
from fakes.functions import SINCE
from probes import nvml as real
from probes.host_process import ProbeHost
from probes.spawned_host import SpawnedHost
from tests.fakes.bound import installed

NEWEST = {"version": "610.43.02"}


def test_a_named_machine_is_probed_by_the_real_host():
    with ProbeHost(SpawnedHost([sys.executable, "-m", "fakes.child", "l4x4"], timeout_seconds=20)) as host:
        facts = host.probe(1)
    assert (facts.verdict, [device.product for device in facts.accelerators]) == (
        "complete",
        ["NVIDIA L4"] * 4,
    )


def test_each_probe_plays_its_own_cycle():
    command = [sys.executable, "-m", "fakes.child", "h100x8-count-shrinks"]
    with ProbeHost(SpawnedHost(command, timeout_seconds=20)) as host:
        counts = [(len(facts.accelerators), len(facts.pci)) for facts in (host.probe(1), host.probe(2))]
    assert counts == [(8, 8), (7, 8)]


def test_the_journal_tells_every_call_and_each_probe_closes_what_it_opened(tmp_path):
    journal = tmp_path / "journal"
    command = [sys.executable, "-m", "fakes.child", "t4", "--journal", str(journal)]
    with ProbeHost(SpawnedHost(command, timeout_seconds=20)) as host:
        host.probe(1)
        host.probe(2)
    calls = [line.split() for line in journal.read_text().splitlines()]
    opened = [(cycle, code) for cycle, _, function, code in calls if function == "nvmlInitWithFlags"]
    closed = [(cycle, code) for cycle, _, function, code in calls if function == "nvmlShutdown"]
    assert (opened, closed) == ([("1", "0"), ("2", "0")], [("1", "0"), ("2", "0")])


def test_a_source_that_is_not_there_is_a_usage_error(capsys):
    with pytest.raises(SystemExit) as ended:
        child.main(["h100x9"])
    assert (ended.value.code, "is neither a file nor one of" in capsys.readouterr().err) == (2, True)


@pytest.mark.parametrize("name", nodes.names())
def test_every_symbol_that_a_probe_resolves_exists_in_the_fake(name):
    scenario = nodes.node(name)
    if any(failure.hang or failure.abort for failure in scenario.failures) or not scenario.driver.loaded:
        pytest.skip("the machine does not answer to the end")
    with installed(scenario) as library:
        for _ in real.probe_nvml(on_call=lambda _device, _call: None):
            pass
        newer = {symbol for symbol in library.missing if SINCE.get(symbol, 0) > scenario.driver.branch}
        assert (library.missing - newer, library.open_sessions) == (set(), 0)
        assert set(pynvml._nvmlGetFunctionPointer_cache) <= set(SINCE)


def test_staging_writes_files_and_installs_the_library_of_the_probe(tmp_path, monkeypatch):
    rendered: list[int] = []
    render = filesystem.render

    def counting(scenario, root: Path):
        rendered.append(len(scenario.devices))
        render(scenario, root)

    monkeypatch.setattr(filesystem, "render", counting)
    prepare = child.stage(lambda: nodes.node("h100x8-count-shrinks"), tmp_path)
    try:
        counts = []
        for cycle in (1, 1, 2):
            prepare(cycle)
            pynvml.nvmlInit()
            counts.append(pynvml.nvmlDeviceGetCount())
        assert (counts, rendered) == ([8, 8, 7], [8, 8])
    finally:
        nvml.uninstall()


def test_files_of_a_host_that_was_killed_are_removed_by_the_next(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    abandoned, in_use = (
        tmp_path / "accelerator-fake-4194999-a",
        tmp_path / f"accelerator-fake-{os.getpid()}-b",
    )
    abandoned.mkdir()
    in_use.mkdir()
    child.remove_abandoned()
    assert list(tmp_path.iterdir()) == [in_use]


def test_a_file_that_was_changed_is_read_again_and_one_that_became_wrong_counts_as_it_was(tmp_path, capsys):
    file = tmp_path / "machine.yaml"
    file.write_text("name: changing\ndevices: [{board: t4}]\n")
    current = child.current_scenario(str(file))
    assert len(current().devices) == 1
    for text, devices in (
        ("name: changing\ndevices: [{board: t4, count: 2}]\n", 2),
        ("name: changing\ndevises: []\n", 2),
        ("name: changing\ndevices: []\n", 0),
    ):
        fresh = tmp_path / "fresh"
        fresh.write_text(text)
        fresh.replace(file)
        assert len(current().devices) == devices
    assert "did you mean" in capsys.readouterr().err
