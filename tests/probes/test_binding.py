"""The module that `import pynvml` finds must be the official one and new enough (FR-011)."""

import sys
from pathlib import Path

import pytest

from probes.host_process import probe_once
from probes.nvml import NEEDED, binding_problem

ROOT = Path(__file__).parents[2]

IMPOSTORS = {
    "community package 11.x": "nvmlInit = nvmlDeviceGetHandleByIndex = None\nclass NVMLError(Exception): pass\n",
    "old official": "".join(f"{name} = None\n" for name in NEEDED if name != "c_nvmlGpuFabricInfo_v2_t"),
    "something else": "",
}


def test_the_installed_binding_will_do():
    assert binding_problem() is None


@pytest.mark.parametrize("source", IMPOSTORS.values(), ids=IMPOSTORS.keys())
def test_fr_011_another_module_of_that_name_is_refused_with_its_path_and_never_read_as_no_gpus(
    tmp_path, source
):
    (tmp_path / "pynvml.py").write_text(source)
    environment = f"PYTHONPATH={tmp_path}:{ROOT}"
    facts = probe_once(["env", environment, sys.executable, "-m", "probes.child"], timeout_seconds=10)
    assert (facts.verdict, facts.reason) == ("no-answer", "BindingUnsuitable")
    assert f"the module pynvml at {tmp_path / 'pynvml.py'} is not a recent nvidia-ml-py" in facts.message
    assert "reinstall nvidia-ml-py" in facts.message
