"""Pool reports as tables for people and as plain values for JSON and YAML."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from agent.core.pools.names import UNKNOWN
from agent.core.pools.report import Endpoint, PoolReport
from agent.core.text_table import text_table

NOT_INSTALLED = (
    "The cluster has no InferencePool (inference.networking.k8s.io/v1): there are no pools to tell of."
)


def pools_table(reports: Sequence[PoolReport], *, width: int) -> str:
    """Return one line for each pool."""
    if not reports:
        return "No InferencePool."
    headers = ("pool", "endpoints", "ready", "homogeneous", "classes", "engines", "lora", "findings")
    return text_table(headers, [_pool_row(report) for report in reports], width=width)


def pool_table(report: PoolReport, *, width: int) -> str:
    """Return one pool with all its endpoints and findings."""
    parts = [pools_table([report], width=width)]
    if report.endpoints:
        headers = ("endpoint", "node", "ready", "class", "engine", "from", "lora", "kv tokens", "why")
        parts.append(text_table(headers, [_endpoint_row(one) for one in report.endpoints], width=width))
    if report.findings:
        parts.append("\n".join(f"- {text}" for text in report.findings))
    return "\n\n".join(parts)


def plain_pool(report: PoolReport) -> dict[str, Any]:
    """Return one pool as JSON has it; what is not known is null."""
    return {
        "namespace": report.pool.namespace,
        "name": report.pool.name,
        "homogeneous": report.homogeneous,
        "optedIn": {"ask": report.opt_in.ask, "write": report.opt_in.write},
        "counts": [
            {"class": class_name, "engine": engine, "lora": lora, "endpoints": count}
            for (class_name, engine, lora), count in sorted(report.counts.items())
        ],
        "contradictions": report.contradictions,
        "odd": [{"endpoint": name, "why": why} for name, why in report.odd],
        "findings": list(report.findings),
        "endpoints": [_plain_endpoint(one) for one in report.endpoints],
    }


def _plain_endpoint(one: Endpoint) -> dict[str, Any]:
    return {
        "pod": one.pod.name,
        "port": one.port,
        "address": one.pod.address,
        "node": one.pod.node,
        "ready": one.pod.ready,
        "class": one.hardware.class_name,
        "classReason": one.hardware.reason or None,
        "accelerators": one.hardware.accelerators,
        "engine": one.engine,
        "engineFrom": one.engine_from or None,
        "served": sorted(one.served.specs) if one.served else None,
        "problem": one.problem or None,
        "lora": {"state": one.lora.state, "evidence": one.lora.evidence},
        "kvCacheTokens": one.served.kv_tokens if one.served else None,
        "contradictions": list(one.contradictions),
    }


def _pool_row(report: PoolReport) -> tuple[str, ...]:
    endpoints = report.endpoints
    return (
        report.pool.key,
        str(len(endpoints)),
        str(sum(one.pod.ready for one in endpoints)),
        {True: "yes", False: "no", None: "?"}[report.homogeneous],
        _counted([one.hardware.class_name for one in endpoints]),
        _counted([one.engine for one in endpoints]),
        _counted([one.lora.state for one in endpoints]),
        str(len(report.findings)),
    )


def _counted(values: Sequence[str | None]) -> str:
    counts = Counter(value or UNKNOWN for value in values)
    return " ".join(f"{name}:{count}" for name, count in sorted(counts.items()))


def _endpoint_row(one: Endpoint) -> tuple[str, ...]:
    tokens = one.served.kv_tokens if one.served else None
    return (
        one.name,
        one.pod.node,
        "yes" if one.pod.ready else "no",
        one.hardware.class_name or UNKNOWN,
        one.engine or UNKNOWN,
        one.engine_from,
        one.lora.state,
        "" if tokens is None else str(tokens),
        one.problem or one.lora.evidence,
    )
