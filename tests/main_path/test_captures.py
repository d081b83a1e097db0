"""What real machines printed goes through the commands and comes out as the machines said of themselves."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

CAPTURES = Path(__file__).parents[3] / "shared" / "captures"
FILES = sorted(path for path in CAPTURES.glob("*") if path.suffix == ".xml" or path.name.endswith(".q.txt"))

EXPECTED = {
    "a100-sxm4-v12.xml": ("nvidia-a100-80gb", "8.0", ["1g.20gb"] * 4),
    "h100-80gb-hbm3_590.48.01.q.txt": ("nvidia-h100-80gb", "9.0", []),
    "h200-mig_590.48.01.q.txt": (
        "nvidia-h200-141gb",
        "9.0",
        ["1c.3g.71gb", "2c.3g.71gb", "2g.35gb", "1g.18gb", "1g.18gb"],
    ),
    "l40s_595.80.q.txt": ("nvidia-l40s-48gb", "8.9", []),
    "rtx-3080-v12.xml": ("nvidia-rtx-3080-10gb", "8.6", []),
    "tesla-t4.xml": ("nvidia-t4-16gb", "7.5", []),
}

pytestmark = pytest.mark.skipif(not FILES, reason="the captures of real machines are not beside this clone")


def printed(what: str, file: Path) -> Any:
    result = subprocess.run(
        [sys.executable, "-m", "agent", what, "--fake", str(file), "-o", "json"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def own_figures(file: Path) -> dict[str, str]:
    """Return what the capture says of its first GPU."""
    text = file.read_text()
    if file.suffix == ".xml":
        gpu = ET.fromstring(text).find("gpu")
        assert gpu is not None
        return {
            "product": gpu.findtext("product_name", ""),
            "memory": gpu.findtext("fb_memory_usage/total", ""),
            "driver": ET.fromstring(text).findtext("driver_version", ""),
        }

    def line(pattern: str) -> str:
        found = re.search(pattern, text)
        assert found is not None, pattern
        return found.group(1).strip()

    return {
        "product": line(r"Product Name\s+: (.*)"),
        "memory": line(r"\n    FB Memory Usage\n\s+Total\s+: (.*)"),
        "driver": line(r"Driver Version\s+: (.*)"),
    }


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_a_capture_comes_out_as_the_machine_said(file: Path) -> None:
    _, capability, profiles = EXPECTED[file.name]
    own = own_figures(file)
    facts = printed("probe", file)
    device = facts["accelerators"][0]
    assert facts["simulated"] is True
    assert device["product"] == own["product"]
    assert f"{device['memory_bytes'] // 1024**2} MiB" == own["memory"]
    assert facts["drivers"][0]["version"] == own["driver"]
    assert ".".join(map(str, device["compute_capability"])) == capability
    partitions = (device["mig"] or {}).get("partitions") or []
    assert [partition["profile"] for partition in partitions] == profiles


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_the_labels_of_a_capture_state_its_figures(file: Path) -> None:
    class_name, capability, profiles = EXPECTED[file.name]
    own = own_figures(file)
    labels = printed("labels", file)
    assert labels["accelerators.ome.io/class"] == class_name
    assert labels["accelerators.ome.io/compute-capability"] == capability
    assert labels["accelerators.ome.io/memory-mib"] + " MiB" == own["memory"]
    assert labels["accelerators.ome.io/driver-version"] == own["driver"]
    counted = {
        f"count.accelerators.ome.io/{class_name}-mig-{profile}": str(profiles.count(profile))
        for profile in profiles
    } or {f"count.accelerators.ome.io/{class_name}": "1"}
    assert {key: value for key, value in labels.items() if key.startswith("count.")} == counted


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_the_classes_of_a_capture_are_its_whole_gpu_or_its_partitions(file: Path) -> None:
    class_name, capability, profiles = EXPECTED[file.name]
    found = printed("classes", file)
    items = found.get("items", [found])
    names = {f"{class_name}-mig-{profile}" for profile in profiles} or {class_name}
    assert {item["metadata"]["name"] for item in items} == names
    assert {item["spec"]["capabilities"]["computeCapability"] for item in items} == {capability}
