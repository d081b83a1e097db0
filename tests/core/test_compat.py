"""gpu-feature-discovery's labels: its names and meanings, and nothing on which devices disagree."""

from dataclasses import replace

from agent.core.compat import gfd_labels
from agent.core.labels import valid_labels
from probes.facts import Driver, Partition
from tests.hardware import facts, failed, h100, inventory, mig, t4

TWO_H100 = {
    "nvidia.com/cuda.driver.major": "580",
    "nvidia.com/cuda.driver.minor": "95",
    "nvidia.com/cuda.driver.rev": "05",
    "nvidia.com/cuda.runtime.major": "13",
    "nvidia.com/cuda.runtime.minor": "0",
    "nvidia.com/gpu.compute.major": "9",
    "nvidia.com/gpu.compute.minor": "0",
    "nvidia.com/gpu.count": "2",
    "nvidia.com/gpu.family": "hopper",
    "nvidia.com/gpu.memory": "81559",
    "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
    "nvidia.com/mig.capable": "false",
}


def test_two_equal_gpus():
    assert gfd_labels(inventory(h100(0), h100(1))) == TWO_H100


def test_a_node_without_gpus_has_none():
    assert gfd_labels(inventory()) == {}


def test_what_two_models_differ_in_is_left_out():
    differs = ("gpu.compute.major", "gpu.compute.minor", "gpu.family", "gpu.memory", "gpu.product")
    expected = {key: value for key, value in TWO_H100.items() if not key.endswith(differs)}
    assert gfd_labels(inventory(h100(0), t4(1))) == expected


def test_partitions_are_counted_by_profile():
    found = gfd_labels(inventory(h100(0, mig=mig("1g.10gb", "1g.10gb", "1g.10gb+me"))))
    assert {key: value for key, value in found.items() if "mig-" in key} == {
        "nvidia.com/mig-1g.10gb.count": "2",
        "nvidia.com/mig-1g.10gb.me.count": "1",
    }
    assert found["nvidia.com/mig.capable"] == "true"


def test_partitions_of_a_lost_gpu_are_not_counted():
    found = gfd_labels(inventory(failed(h100(0, mig=mig("1g.10gb")))))
    assert not any("mig-" in key for key in found)
    assert found["nvidia.com/gpu.count"] == "0"


def test_a_version_of_two_parts_has_no_third():
    drivers = (Driver(name="nvidia", version="550.120"),)
    found = gfd_labels(inventory(h100(0), drivers=drivers))
    assert {key: value for key, value in found.items() if "cuda" in key} == {
        "nvidia.com/cuda.driver.major": "550",
        "nvidia.com/cuda.driver.minor": "120",
    }


def test_fr_042_hostile_text_never_becomes_an_unfit_label():
    odd = mig("1g.10gb")
    odd = replace(odd, partitions=(Partition(profile="1g/10gb \x00"), Partition(profile="p" * 300)))
    drivers = (Driver(name="nvidia", version="5 80.x/y", cuda_version="x y.z"),)
    found = gfd_labels(inventory(*facts(h100(0, mig=odd)).accelerators, drivers=drivers))
    assert valid_labels(found) == found
    assert not any("mig-" in key for key in found)
