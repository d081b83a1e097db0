"""What real machines answered, through the fake library and the real binding, against the captures' own figures."""

from pathlib import Path
from typing import NamedTuple

import pytest

from fakes import nodes
from tests.probes.probing import facts

CAPTURES = Path(__file__).parents[2] / "../shared/captures"

pytestmark = pytest.mark.skipif(
    not CAPTURES.is_dir(), reason="the captures of real machines are not in this checkout"
)


class Capture(NamedTuple):
    """Figures read in the capture with the eye."""

    driver: str
    cuda: str
    product: str
    address: str
    device_id: str
    subsystem: str
    total_mib: int
    memory_clock: int
    power_limit: float
    pcie: tuple[int, int]
    capability: tuple[int, int]
    profiles: tuple[str, ...] | None


EXPECTED = {
    "a100-sxm4-v12.xml": Capture(
        driver="535.54.03",
        cuda="12.2",
        product="NVIDIA A100-SXM4-80GB",
        address="0000:01:00.0",
        device_id="20b2",
        subsystem="10de:147f",
        total_mib=81920,
        memory_clock=1593,
        power_limit=500.0,
        pcie=(4, 16),
        capability=(8, 0),
        profiles=("1g.20gb", "1g.20gb", "1g.20gb", "1g.20gb"),
    ),
    "h100-80gb-hbm3_590.48.01.q.txt": Capture(
        driver="590.48.01",
        cuda="13.1",
        product="NVIDIA H100 80GB HBM3",
        address="0000:00:09.0",
        device_id="2330",
        subsystem="10de:16c1",
        total_mib=81559,
        memory_clock=2619,
        power_limit=700.0,
        pcie=(5, 16),
        capability=(9, 0),
        profiles=(),
    ),
    "h200-mig_590.48.01.q.txt": Capture(
        driver="590.48.01",
        cuda="13.1",
        product="NVIDIA H200",
        address="0000:83:00.0",
        device_id="2335",
        subsystem="10de:18be",
        total_mib=143771,
        memory_clock=3201,
        power_limit=700.0,
        pcie=(5, 16),
        capability=(9, 0),
        profiles=("1c.3g.71gb", "2c.3g.71gb", "2g.35gb", "1g.18gb", "1g.18gb"),
    ),
    "l40s_595.80.q.txt": Capture(
        driver="595.80",
        cuda="13.2",
        product="NVIDIA L40S",
        address="0000:01:00.0",
        device_id="26b9",
        subsystem="10de:1851",
        total_mib=46068,
        memory_clock=9001,
        power_limit=350.0,
        pcie=(4, 16),
        capability=(8, 9),
        profiles=None,
    ),
    "rtx-3080-v12.xml": Capture(
        driver="536.40",
        cuda="12.2",
        product="NVIDIA GeForce RTX 3080",
        address="0000:04:00.0",
        device_id="2216",
        subsystem="19da:1612",
        total_mib=10240,
        memory_clock=9501,
        power_limit=320.0,
        pcie=(4, 16),
        capability=(8, 6),
        profiles=None,
    ),
    "tesla-t4.xml": Capture(
        driver="515.105.01",
        cuda="11.7",
        product="Tesla T4",
        address="0000:00:1e.0",
        device_id="1eb8",
        subsystem="10de:12a2",
        total_mib=15360,
        memory_clock=5001,
        power_limit=70.0,
        pcie=(3, 16),
        capability=(7, 5),
        profiles=None,
    ),
}


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_a_capture_comes_out_with_its_own_figures(name, tmp_path):
    found = facts(nodes.load(str(CAPTURES / name)), tmp_path)
    assert (found.verdict, found.reason) == ("complete", "AllDevicesRead")
    [driver], [device] = found.drivers, found.accelerators
    assert device.problems == ()
    assert device.pci is not None
    assert device.link is not None
    assert device.memory_bytes is not None
    assert EXPECTED[name] == Capture(
        driver=driver.version or "",
        cuda=driver.cuda_version or "",
        product=device.product or "",
        address=device.pci.address,
        device_id=device.pci.device_id,
        subsystem=f"{device.pci.subsystem_vendor_id}:{device.pci.subsystem_id}",
        total_mib=device.memory_bytes >> 20,
        memory_clock=device.memory_clock_max_mhz or 0,
        power_limit=device.power_limit_watts or 0,
        pcie=(device.link.pcie_generation_max or 0, device.link.pcie_width_max or 0),
        capability=device.compute_capability or (0, 0),
        profiles=tuple(part.profile or "" for part in device.mig.partitions or ()) if device.mig else None,
    )


def test_every_capture_is_expected():
    shown = {path.name for path in CAPTURES.iterdir() if path.name != "README.md" and ".L." not in path.name}
    assert shown == EXPECTED.keys()
