"""The named machines and their boards: all load, all answer through the real binding, and no board is an impossible one."""

import tomllib
from pathlib import Path
from typing import Any

import pynvml
import pytest

from fakes import boards, nodes
from fakes.strict import ScenarioError
from tests.fakes.bound import bound, machine

FACTS = Path(__file__).parents[3] / "shared/facts"
NEEDED = {
    "h100x8", "h200x8", "a100-40x8", "a100-80-mig", "b200x8", "gb200", "gb10", "thor", "l4x4", "l40s", "t4",
    "v100-mixed", "rtx-pro-6000-mig", "vgpu", "gh200", "mixed-3080-3090-4090", "mig-empty", "no-driver", "no-gpu",
    "no-runtime", "version-mismatch", "h100x8-one-lost", "no-answer", "crash",
}  # fmt: skip


def test_the_machines_that_the_documents_name_are_there():
    assert set(nodes.names()) >= NEEDED


@pytest.mark.parametrize("name", nodes.names())
def test_every_machine_loads_in_every_probe(name):
    scenario = nodes.node(name)
    assert [scenario.at(cycle).name for cycle in (1, 2, 600)] == [name] * 3


@pytest.mark.parametrize("name", boards.names())
def test_every_board_answers_with_its_name_and_belongs_to_some_driver(name):
    board = boards.board(name)
    with bound(machine({"board": name}, driver={"version": f"{max(board['minimum_driver'], 450)}.1"})):
        assert pynvml.nvmlDeviceGetName(pynvml.nvmlDeviceGetHandleByIndex(0)) == board["name"]


def test_fr_133_an_h100_has_its_bytes_and_not_its_megabytes_times_a_thousand():
    [device] = machine({"board": "h100-sxm"}).devices
    assert (device.memory.total_bytes, device.compute_capability) == (85520809984, "9.0")


def test_a_lost_gpu_hides_no_other():
    with bound(nodes.node("h100x8-one-lost")):
        found = []
        for index in range(pynvml.nvmlDeviceGetCount()):
            try:
                pynvml.nvmlDeviceGetHandleByIndex(index)
            except pynvml.NVMLError_GpuIsLost:
                continue
            found.append(index)
        assert found == [0, 1, 2, 4, 5, 6, 7]


@pytest.mark.parametrize("source", ["h100x9", "/nonexistent/file"])
def test_an_unknown_source_is_told_with_the_names_that_there_are(source):
    with pytest.raises(ScenarioError, match="is neither a file nor one of h100x8, "):
        nodes.load(source)


@pytest.mark.parametrize(
    ("source", "hint"),
    [("h100x", " (did you mean h100x8?)"), ("no-drivers", " (did you mean no-driver?)"), ("zzz", "")],
)
def test_an_unknown_name_is_told_with_the_nearest_before_the_list(source, hint):
    with pytest.raises(ScenarioError) as told:
        nodes.load(source)
    assert str(told.value).startswith(f"'{source}'{hint} is neither a file nor one of ")


def test_a_file_of_a_scenario_is_read_as_one(tmp_path):
    file = tmp_path / "odd.yaml"
    file.write_text("name: odd\ndevices: [{board: t4}]\n")
    assert nodes.load(str(file)).devices[0].name == "Tesla T4"


def test_a_file_that_is_not_text_is_refused(tmp_path):
    file = tmp_path / "odd.yaml"
    file.write_bytes(b"\xf8\xff")
    with pytest.raises(ScenarioError, match="not text in UTF-8"):
        nodes.load(str(file))


def facts() -> dict[str, Any]:
    if not FACTS.is_dir():
        pytest.skip("the facts are not beside this checkout")
    merged: dict[str, Any] = {"product": [], "mig": {}, "lanes": {}}
    for name in ("nvidia.toml", "nvidia-more.toml"):
        data = tomllib.loads((FACTS / name).read_text())
        merged["product"] += data["product"]
        merged["mig"] |= {entry["id"]: entry["profiles"] for entry in data.get("mig_profile_set", ())}
        merged["lanes"] |= {
            e["cc"]: e["fp32_lanes_per_sm"]
            for e in data.get("compute_capability", ())
            if "fp32_lanes_per_sm" in e
        }
    return merged


@pytest.mark.parametrize("name", boards.names())
def test_fr_133_a_board_agrees_with_the_facts_of_its_pci_device(name):
    board, known = boards.board(name), facts()
    device_id = board.get("pci", {}).get("device_id")
    [product] = [p for p in known["product"] if device_id in p["pci_device_ids"]] or [None]
    if product is None or board.get("virtualization") == "vgpu":
        assert name in {"dgx-display", "orin", "a40-48q", "grid-a100-7-40c", "grid-v100dx-16q"}
        return
    assert agreement(board, product, known) == dict.fromkeys(agreement(board, product, known), True)


def agreement(board: dict[str, Any], product: dict[str, Any], known: dict[str, Any]) -> dict[str, bool]:
    """Return for each figure that both state whether they agree."""
    total = board.get("memory", {}).get("total_bytes")
    buses = [product.get("memory_bus_bits"), *product.get("memory_bus_bits_also_reported", [])]
    clocks = board.get("max_clocks_mhz", {})
    profiles = {
        p["name"]: (p["slices"], p["max_instances"]) for p in board.get("mig", {}).get("profiles", ())
    }
    of_facts = {
        p["name"]: (p["slices"], p["max_instances"])
        for p in known["mig"].get(product.get("mig_profile_set"), ())
    }
    checks = {
        "capability": board["compute_capability"] == product["compute_capability"],
        "name": "nvml_names" not in product or board["name"] in product["nvml_names"],
        "cores": board.get("cores") == product["sm_count"] * known["lanes"][product["compute_capability"]],
        "memory": "nvml_total_mib" not in product
        or total in [mib << 20 for mib in product["nvml_total_mib"]],
        "unified": product.get("unified_memory", False) == (total is None),
        "profiles": profiles == of_facts,
    }
    if board.get("memory_bus_bits"):
        checks["bus"] = board["memory_bus_bits"] in buses
    if "nvml_max_mem_clock_mhz" in product:
        checks["memory clock"] = clocks.get("memory") == product["nvml_max_mem_clock_mhz"]
    if "sm" in clocks and "nvml_max_sm_clock_mhz" in product:
        checks["clock"] = clocks["sm"] == product["nvml_max_sm_clock_mhz"]
    if "power" in board and "default_limit_watts" in board["power"]:
        checks["power"] = board["power"]["default_limit_watts"] == product["tdp_w"]
    return checks
