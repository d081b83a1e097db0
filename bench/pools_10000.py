"""How long the pools' part of the controller computes: 500 pools with 10,000 pods, from what was read to the report.

Budget: 1 s for the report, and the controller's 300 MiB. Every endpoint was asked, and every pod needs labels. Everything
else that the controller keeps is there too: the records of 5,000 nodes.
"""

import resource
import time
from typing import Any

from agent.core.cluster_views import RecordView, record_view
from agent.core.pools.engines import engine_table
from agent.core.pools.labels import pod_plans
from agent.core.pools.membership import members_of
from agent.core.pools.metrics import PoolsReport, pool_families
from agent.core.pools.names import PoolKeys
from agent.core.pools.report import Look, Looks
from agent.core.pools.serving import Reading, serving_of
from agent.core.pools.views import OptIn, PoolPod, pool_pod_view, pool_view
from agent.edges.web import exposition
from agent.pools_reading import PoolsReading, reports_of
from bench.inventory_fold import record

POOLS, PODS, NODES, NAMESPACES = 500, 10_000, 5000, 10
REPORT_BUDGET_SECONDS = 1.0
MEMORY_BUDGET_MIB = 300.0
KEYS = PoolKeys("accelerators.ome.io")
TABLE = engine_table()


def main() -> int:
    """Print the figures; the exit status tells whether the budgets hold."""
    records = {f"node-{number}": _record(number) for number in range(NODES)}
    before = _peak_mib()
    pools = tuple(pool_view(_pool(number)) for number in range(POOLS))
    pods = [view for number in range(PODS) if (view := _view(number)) is not None]
    looks: Looks = {(pod.uid, 8000): _look(number) for number, pod in enumerate(pods)}
    opted = {f"team-{number}": OptIn(ask=True, write=True) for number in range(NAMESPACES)}
    taken_in = _peak_mib() - before

    began = time.perf_counter()
    reading = PoolsReading(pools=pools, members=members_of(pools, pods), opted=opted, records=records)
    reports = reports_of(reading, looks, keys=KEYS, table=TABLE)
    reported = time.perf_counter() - began
    began = time.perf_counter()
    plans = pod_plans(reports, KEYS)
    planned = time.perf_counter() - began
    began = time.perf_counter()
    text, _ = exposition(pool_families(PoolsReport(installed=True, leading=True, pools=reports)))
    exposed = time.perf_counter() - began

    endpoints = sum(len(report.endpoints) for report in reports)
    print(f"{len(reports)} pools, {len(pods)} pods, {endpoints} endpoints, {len(plans)} pods to label")
    print(f"report: {reported:.2f} s (budget {REPORT_BUDGET_SECONDS:.0f} s); plans: {planned:.2f} s")
    print(f"exposition: {len(text) >> 10} KiB in {exposed:.2f} s")
    print(
        f"pods, pools and looks: {taken_in:.0f} MiB; peak in all {_peak_mib():.0f} MiB (budget {MEMORY_BUDGET_MIB:.0f} MiB)"
    )
    held = reported <= REPORT_BUDGET_SECONDS and _peak_mib() <= MEMORY_BUDGET_MIB
    return 0 if held and endpoints == PODS and len(plans) == PODS else 1


def _record(number: int) -> RecordView:
    body = record(number)
    for entry in body["spec"]["classes"]:  # type: ignore[index]
        entry["resource"] = "nvidia.com/gpu"
    return record_view(body, domain=KEYS.domain)


def _pool(number: int) -> dict[str, Any]:
    return {
        "metadata": {"name": f"pool-{number}", "namespace": f"team-{number % NAMESPACES}"},
        "spec": {
            "selector": {"matchLabels": {"app": f"pool-{number}", "role": "decode"}},
            "targetPorts": [{"number": 8000}],
        },
    }


def _view(number: int) -> PoolPod | None:
    pool = number % POOLS
    pod: dict[str, Any] = {
        "metadata": {
            "name": f"pool-{pool}-5d4f9c7b8-{number:05d}",
            "namespace": f"team-{pool % NAMESPACES}",
            "uid": f"00000000-0000-0000-0000-{number:012d}",
            "labels": {
                "app": f"pool-{pool}",
                "role": "decode",
                "pod-template-hash": "5d4f9c7b8",
                **{f"example.com/label-{n}": f"value-{n}" for n in range(8)},
            },
            "ownerReferences": [{"kind": "ReplicaSet", "name": f"pool-{pool}-5d4f9c7b8", "controller": True}],
        },
        "spec": {
            "nodeName": f"node-{number % NODES}",
            "containers": [
                {
                    "name": "vllm",
                    "image": "vllm/vllm-openai:v0.11.0",
                    "args": ["--model", "m", "--tensor-parallel-size", "4", "--enable-lora"],
                    "resources": {"requests": {"nvidia.com/gpu": "4", "cpu": "16"}},
                }
            ],
        },
        "status": {
            "phase": "Running",
            "podIP": f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}",
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }
    return pool_pod_view(pod, keys=KEYS, table=TABLE)


def _look(number: int) -> Look:
    cache = {"block_size": "16", "num_gpu_blocks": str(27000 + number % 7)}
    readings = [
        Reading("vllm:num_requests_waiting", {"model_name": "m"}, 1.0),
        Reading("vllm:num_requests_running", {"model_name": "m"}, 1.0),
        Reading("vllm:kv_cache_usage_perc", {"model_name": "m"}, 0.5),
        Reading("vllm:cache_config_info", cache, 1.0),
    ]
    return Look(serving=serving_of(readings, TABLE))


def _peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    raise SystemExit(main())
