"""One pool on two classes with two engines: its report, metrics, configuration and split, each whole as a file.

`make snapshots` writes the files anew.
"""

import argparse
import io
import re
from pathlib import Path

import pytest
import yaml

from agent.commands.pools import add_pools_arguments, run_pools
from agent.core.pools.metrics import pool_families
from agent.edges.endpoints import Endpoints
from agent.edges.web import exposition
from tests.inventory.hardware import h100
from tests.pools import expositions
from tests.pools.stage import ENGINE, KEYS, VLLM, l40s

FOLDER = Path(__file__).parent / "snapshots"
REPLICA_SET = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "uid": "1", "controller": True}


def mixed(stage, *, opt_in="observe"):
    """A pool of three vLLM servers on two H100 each, one of them older, and two SGLang servers on an L40S each."""
    stage.namespace("team", opt_in)
    stage.node("hopper", [h100(index) for index in range(8)])
    stage.node("ada", [l40s(index) for index in range(2)])
    stage.pool()
    for number in range(3):
        metrics = (
            expositions.old_vllm()
            if number == 2
            else expositions.vllm(lora=[(100.0, "sql", "")] if number == 0 else ())
        )
        stage.pod(
            f"llama-vllm-5d4f9-{number}",
            metrics,
            gpus=2,
            command=[*VLLM, "--enable-lora"],
            labels={ENGINE: "vllm", "pod-template-hash": "5d4f9"},
            owner={**REPLICA_SET, "name": "llama-vllm-5d4f9"},
        )
    for number in range(2):
        stage.pod(
            f"llama-sglang-7c6b8-{number}",
            expositions.sglang(),
            node="ada",
            labels={"pod-template-hash": "7c6b8"},
            owner={**REPLICA_SET, "name": "llama-sglang-7c6b8"},
        )


def ran(stage, *words, output="table"):
    """What a command prints, with the port that this run happens to use put as 8000."""
    parser = argparse.ArgumentParser()
    add_pools_arguments(parser)
    out, err = io.StringIO(), io.StringIO()
    status = run_pools(
        parser.parse_args(words),
        cluster=stage.cluster,
        reader=Endpoints(seconds=1.0),
        table=stage.table,
        keys=KEYS,
        output=output,
        width=200,
        stdout=out,
        stderr=err,
    )
    return status, settled(stage, out.getvalue()), settled(stage, err.getvalue())


def settled(stage, text):
    return re.sub(r"127\.77\.\d+\.\d+", "10.0.0.1", re.sub(rf"\b{stage.port}\b", "8000", text))


def printed(stage, *words, output="table"):
    status, out, _ = ran(stage, *words, output=output)
    assert status == 0
    return out


def metrics(stage):
    stage.turn()
    return exposition(pool_families(stage.controller.report()))[0].decode()


SNAPSHOTS = {
    "pools": printed,
    "report": lambda stage: printed(stage, "llama"),
    "report-json": lambda stage: printed(stage, "llama", output="json"),
    "config": lambda stage: printed(stage, "config", "llama"),
    "split": lambda stage: printed(stage, "split", "llama"),
    "split-by-tflops": lambda stage: printed(stage, "split", "team/llama", "--by", "tflops"),
    "patch": lambda stage: printed(stage, "patch", "llama"),
    "metrics": metrics,
}


@pytest.fixture
def one(stage):
    mixed(stage)
    return stage


def test_everything_of_a_mixed_pool_is_what_the_files_say(one, request):
    found = {name: make(one) for name, make in SNAPSHOTS.items()}
    if request.config.getoption("--update-snapshots"):
        FOLDER.mkdir(exist_ok=True)
        for name, text in found.items():
            (FOLDER / f"mixed-{name}.txt").write_text(text)
    assert found == {name: (FOLDER / f"mixed-{name}.txt").read_text() for name in SNAPSHOTS}


def test_every_file_is_of_something_that_is_printed():
    assert sorted(file.stem for file in FOLDER.glob("*.txt")) == sorted(f"mixed-{name}" for name in SNAPSHOTS)


def test_the_configuration_names_only_families_that_the_servers_serve(fake_stage):
    mixed(fake_stage)
    (document,) = yaml.safe_load_all(printed(fake_stage, "config", "llama", output="yaml"))
    served = {spec for endpoint in fake_stage.reports()["llama"].endpoints for spec in endpoint.served.specs}
    named = {
        value
        for engine in document["plugins"][0]["parameters"]["engineConfigs"]
        for key, value in engine.items()
        if key.endswith("Spec")
    }
    assert named
    assert named <= served


def test_the_pools_of_a_split_are_accepted_and_homogeneous(stage):
    mixed(stage, opt_in="true")
    stage.turn()
    pools = [
        body
        for body in yaml.safe_load_all(printed(stage, "split", "llama", output="yaml"))
        if body["kind"] == "InferencePool"
    ]
    for body in pools:
        body["spec"]["targetPorts"] = [{"number": stage.port}]
        stage.pool(body["metadata"]["name"], **body["spec"])
    reports = stage.reports()
    assert {name: (one.homogeneous, len(one.endpoints)) for name, one in reports.items()} == {
        "llama": (False, 5),
        "llama-nvidia-h100-80gb": (True, 3),
        "llama-nvidia-l40s-48gb": (True, 2),
    }


def test_a_configuration_without_adapters_has_no_lora(fake_stage):
    fake_stage.namespace("team", "observe")
    fake_stage.node("hopper", [h100(0)])
    fake_stage.pool()
    fake_stage.pod("a", expositions.vllm(), command=VLLM)
    (document,) = yaml.safe_load_all(printed(fake_stage, "config", "llama", "--picker", "llm-d"))
    assert document == {
        "apiVersion": "llm-d.ai/v1alpha1",
        "kind": "EndpointPickerConfig",
        "plugins": [
            {
                "type": "core-metrics-extractor",
                "parameters": {
                    "engineLabelKey": ENGINE,
                    "defaultEngine": "vllm",
                    "engineConfigs": [
                        {
                            "name": "vllm",
                            "queuedRequestsSpec": "vllm:num_requests_waiting",
                            "runningRequestsSpec": "vllm:num_requests_running",
                            "kvUsageSpec": "vllm:kv_cache_usage_perc",
                            "cacheInfoSpec": "vllm:cache_config_info",
                            "cacheBlockSizeLabelName": "block_size",
                            "cacheNumBlocksLabelName": "num_gpu_blocks",
                        }
                    ],
                },
            }
        ],
    }


def test_a_pool_that_nobody_may_ask_gets_no_engine_configured(fake_stage):
    mixed(fake_stage, opt_in=None)
    status, out, err = ran(fake_stage, "config", "llama", output="json")
    assert status == 0
    assert yaml.safe_load(out)["plugins"][0]["parameters"] == {"engineLabelKey": ENGINE}
    assert "no server of this pool told what it serves, so no engine is configured here" in err.splitlines()


def test_a_pool_of_one_class_is_not_split(fake_stage):
    fake_stage.namespace("team")
    fake_stage.node("hopper", [h100(0)])
    fake_stage.pool()
    fake_stage.pod("a")
    assert printed(fake_stage, "split", "llama") == (
        "# team/llama runs on one class or on none that is known\n\n"
    )
