"""What a pool's endpoints are found to be: engine, KV cache, LoRA, class; real servers behind real addresses."""

import time

import pytest

from agent.cluster import PODS
from tests.inventory.hardware import h100
from tests.pools import expositions
from tests.pools.servers import answer, close, endless_stream, gigabyte, hang
from tests.pools.stage import H100, VLLM, l40s

SERVED = [
    ("vllm", expositions.vllm(), "vllm", 432000),
    ("vllm of the older name", expositions.old_vllm(), "vllm", 432000),
    ("vllm before its cache is laid out", expositions.vllm(blocks="None"), "vllm", None),
    ("vllm with two ranks behind one port", expositions.vllm_ranks(1000, 1200), "vllm", 35200),
    ("sglang", expositions.sglang(), "sglang", 380000),
    ("triton with tensorrt-llm", expositions.triton_tensorrt_llm(), "triton-tensorrt-llm", 399296),
    ("triton", expositions.triton(), "triton", None),
    ("trtllm-serve", expositions.trtllm_serve(), "trtllm-serve", None),
]


@pytest.fixture
def opened(stage):
    """A stage with a pool in a namespace that opted in, and two Nodes."""
    stage.namespace("team", "observe")
    stage.node("hopper", [h100(0), h100(1)])
    stage.node("ada", [l40s(0), l40s(1)])
    stage.pool()
    return stage


def test_every_engine_is_known_by_what_it_serves(opened):
    for name, metrics, _, _ in SERVED:
        opened.pod(name.replace(" ", "-"), metrics)
    found = {
        one.pod.name: (one.engine, one.engine_from, one.served.kv_tokens)
        for one in opened.reports()["llama"].endpoints
    }
    assert found == {
        name.replace(" ", "-"): (engine, "metrics", tokens) for name, _, engine, tokens in SERVED
    }


NOTHING_TOLD = [
    ("hangs", {"behave": hang}, "it did not answer within 1 s"),
    ("streams-without-end", {"behave": endless_stream}, "/metrics is larger than 1024 KiB"),
    ("answers-1-gb", {"behave": gigabyte}, "/metrics is larger than 1024 KiB"),
    (
        "redirects",
        {"behave": answer("", status="301 Moved", headers=("Location: http://127.0.0.1:1/metrics",))},
        "/metrics redirects (301), which is not followed",
    ),
    ("answers-html", {"behave": answer("<html></html>")}, "/metrics is a page (HTML), no metrics"),
    ("wants-credentials", {"behave": answer("", status="401 Unauthorized")}, "/metrics answers 401"),
    (
        "says-nothing",
        {"behave": close},
        "no answer: Remote end closed connection without response",
    ),
    ("has-no-server", {}, "no answer: Connection refused"),
    (
        "is-no-model-server",
        {"metrics": 'go_info{version="1"} 1\n'},
        "it serves metrics, and none by which an engine is known",
    ),
    (
        "is-two-engines",
        {"metrics": expositions.vllm() + expositions.sglang()},
        "it serves metrics of sglang and vllm",
    ),
]


def test_a_pod_that_does_not_tell_is_unknown_with_its_reason_and_delays_no_other(opened):
    for name, options, _ in NOTHING_TOLD:
        opened.pod(name, **options)
    opened.pod("broken", behave=answer('vllm:num_requests_waiting{a="\n'))
    opened.pod("well", expositions.vllm())
    began = time.monotonic()
    report = opened.reports()["llama"]
    assert time.monotonic() - began < 4
    found = {one.pod.name: one for one in report.endpoints}
    broken, well = found.pop("broken"), found.pop("well")
    assert {name: (one.engine, one.lora.state, one.problem) for name, one in found.items()} == {
        name: (None, "unknown", reason) for name, _, reason in NOTHING_TOLD
    }
    assert {name: one.lora.evidence for name, one in found.items()} == {
        name: reason for name, _, reason in NOTHING_TOLD
    }
    assert (broken.engine, broken.problem.partition(":")[0]) == (None, "/metrics cannot be parsed")
    assert well.engine == "vllm"
    assert dict(report.counts) == {(H100, "unknown", "unknown"): 11, (H100, "vllm", "unknown"): 1}


LORA = [
    (
        "no-adapter-yet",
        {"metrics": expositions.vllm()},
        "unknown",
        "no LoRA metric; /v1/models: /v1/models answers 404",
    ),
    (
        "models-without-adapters",
        {"metrics": expositions.vllm(), "models": [("m", None)]},
        "unknown",
        "no LoRA metric and no adapter in /v1/models: none was loaded yet, or LoRA is off",
    ),
    (
        "models-with-adapters",
        {"metrics": expositions.vllm(), "models": [("m", None), ("sql", "m")]},
        "enabled",
        "/v1/models lists adapters: sql",
    ),
    (
        "argument",
        {"metrics": expositions.vllm(), "command": VLLM, "args": ["--enable-lora", "--max-loras", "4"]},
        "enabled",
        "the container server has the argument --enable-lora",
    ),
    (
        "other-spelling",
        {"metrics": expositions.vllm(), "args": ["--enable_lora"]},
        "enabled",
        "the container server has the argument --enable_lora",
    ),
    (
        "shell",
        {
            "metrics": expositions.vllm(),
            "command": ["/bin/sh", "-c"],
            "args": ["exec vllm serve m --enable-lora"],
        },
        "enabled",
        "the container server has the argument --enable-lora",
    ),
    (
        "switched-off",
        {"metrics": expositions.vllm(), "args": ["--no-enable-lora"]},
        "off",
        "the container server has the argument --no-enable-lora",
    ),
    (
        "command-without-it",
        {"metrics": expositions.vllm(), "command": VLLM},
        "off",
        "the container server starts vllm without --enable-lora",
    ),
    (
        "image-that-is-the-server",
        {
            "metrics": expositions.vllm(),
            "image": "docker.io/vllm/vllm-openai:v0.11.0",
            "args": ["--model", "m"],
        },
        "off",
        "the container server starts vllm without --enable-lora",
    ),
    (
        "image-that-may-add-some",
        {"metrics": expositions.vllm(), "args": ["--model", "m"], "models": []},
        "unknown",
        "no LoRA metric and no adapter in /v1/models: none was loaded yet, or LoRA is off",
    ),
    (
        "arguments-from-variables",
        {"metrics": expositions.vllm(), "command": ["sh", "-c", "vllm serve m $EXTRA"], "models": []},
        "unknown",
        "no LoRA metric and no adapter in /v1/models: none was loaded yet, or LoRA is off",
    ),
    (
        "arguments-from-a-file",
        {"metrics": expositions.vllm(), "command": [*VLLM, "--config", "/etc/vllm.yaml"], "models": []},
        "unknown",
        "no LoRA metric and no adapter in /v1/models: none was loaded yet, or LoRA is off",
    ),
    (
        "adapters-in-use",
        {"metrics": expositions.vllm(lora=[(100.0, "sql,chat", "code")])},
        "active",
        "adapters in use: chat, code, sql",
    ),
    (
        "newest-has-none",
        {"metrics": expositions.vllm(lora=[(1764619200.5, "", ""), (1764619100.0, "sql", "")])},
        "enabled",
        "the LoRA metric is served, and no adapter is in use",
    ),
    (
        "newest-has-one",
        {"metrics": expositions.vllm(lora=[(1764619100.0, "", ""), (1764619200.5, "sql", "")])},
        "active",
        "adapters in use: sql",
    ),
    (
        "metric-against-arguments",
        {"metrics": expositions.vllm(lora=[(100.0, "sql", "")]), "command": VLLM},
        "active",
        "adapters in use: sql",
    ),
    (
        "sglang-with-paths",
        {"metrics": expositions.sglang(), "args": ["--lora-paths", "sql=/adapters/sql"]},
        "enabled",
        "the container server has the argument --lora-paths",
    ),
    (
        "engine-without-lora",
        {"metrics": expositions.triton()},
        "unknown",
        "the arguments do not tell, and this engine has no LoRA metric",
    ),
]


def test_lora_needs_evidence_and_absence_of_its_metric_is_none(opened):
    for name, options, _, _ in LORA:
        opened.pod(name, **options)
    found = {one.pod.name: (one.lora.state, one.lora.evidence) for one in opened.reports()["llama"].endpoints}
    assert found == {name: (state, evidence) for name, _, state, evidence in LORA}


def test_adapters_that_are_loaded_turn_a_server_active(opened):
    server = opened.pod("a", expositions.vllm(), args=["--enable-lora"])
    assert opened.endpoint("a").lora.state == "enabled"
    server.metrics = expositions.vllm(lora=[(100.0, "sql", "")])
    assert opened.endpoint("a").lora.state == "active"


def test_models_are_asked_for_only_where_they_could_decide(opened):
    decided = opened.pod("decided", expositions.vllm(), command=VLLM)
    open_ = opened.pod("open", expositions.vllm(), models=[("m", None)])
    opened.reports()
    assert [path for path, _ in decided.requests] == ["/metrics"]
    assert [path for path, _ in open_.requests] == ["/metrics", "/v1/models"]


CLASSES = [
    ("by-resource", {"node": "hopper"}, H100, ""),
    ("no-record", {"node": "unheard-of"}, None, "the node unheard-of has no record of its accelerators"),
    ("no-request", {"gpus": 0}, None, "it asks for no accelerator that hopper has"),
    (
        "several",
        {"node": "both"},
        None,
        "both has several classes that it may run on: nvidia-h100-80gb, nvidia-l40s-48gb",
    ),
]


def test_the_class_is_that_of_the_node_behind_the_resource_that_the_pod_asks_for(opened):
    opened.node("both", [h100(0), l40s(1)])
    for name, options, _, _ in CLASSES:
        opened.pod(name, **options)
    found = {
        one.pod.name: (one.hardware.class_name, one.hardware.reason)
        for one in opened.reports(ask=False)["llama"].endpoints
    }
    assert found == {name: (class_name, reason) for name, _, class_name, reason in CLASSES}


def test_each_port_is_an_endpoint_but_those_that_the_pod_says_do_not_serve(fake_stage):
    fake_stage.namespace("team")
    fake_stage.node("hopper", [h100(0)])
    fake_stage.pool(ports=(8000, 8001, 8002))
    fake_stage.pod("all")
    fake_stage.pod("one", annotations={"inference.networking.k8s.io/active-ports": "8001, 9000"})
    fake_stage.pod("two", annotations={"llm-d.ai/active-ports": "8000,8002"})
    assert [one.name for one in fake_stage.reports()["llama"].endpoints] == [
        "all:8000",
        "all:8001",
        "all:8002",
        "one:8001",
        "two:8000",
        "two:8002",
    ]


def test_pods_that_finished_or_are_on_no_node_are_no_endpoints(fake_stage):
    fake_stage.namespace("team")
    fake_stage.node("hopper", [h100(0)])
    fake_stage.pool()
    fake_stage.pod("runs")
    fake_stage.pod("done")
    fake_stage.cluster.merge_patch(
        PODS,
        "done",
        {"status": {"phase": "Succeeded"}},
        manager="kubelet",
        namespace="team",
        subresource="status",
    )
    assert [one.pod.name for one in fake_stage.reports()["llama"].endpoints] == ["runs"]


def test_an_endpoint_far_from_its_peers_is_named(opened):
    for number, blocks in enumerate((27000, 26800, 27100, 9000)):
        opened.pod(f"h{number}", expositions.vllm(blocks=str(blocks)))
    # Of another class: not a peer, however many tokens it holds.
    opened.pod("a0", expositions.vllm(blocks="9000"), node="ada")
    assert opened.reports()["llama"].odd == (
        (f"h3:{opened.port}", "its KV cache holds 144000 tokens, its peers' 430400"),
    )


def test_of_two_that_differ_neither_is_odd(opened):
    opened.pod("a", expositions.vllm(blocks="9000"))
    opened.pod("b", expositions.vllm(blocks="27000"))
    assert opened.reports()["llama"].odd == ()
