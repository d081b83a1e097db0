"""A mixed pool → the pools and the route that would make each of one class, and the labels its workloads would carry.

Printed, never applied.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from agent.core.pools.config import Printed
from agent.core.pools.labels import pod_labels
from agent.core.pools.names import PoolKeys
from agent.core.pools.report import Endpoint, PoolReport

Measure = Literal["bandwidth", "tflops"]

GROUP = "inference.networking.k8s.io"
_TOTAL_WEIGHT = 100
_API_VERSIONS = {"LeaderWorkerSet": "leaderworkerset.x-k8s.io/v1"}


def pool_split(report: PoolReport, keys: PoolKeys, *, measure: Measure) -> Printed:
    """Return one pool for each class and a route over them; nothing for a pool that is not mixed."""
    by_class: dict[str, list[Endpoint]] = {}
    for one in report.endpoints:
        if one.hardware.class_name:
            by_class.setdefault(one.hardware.class_name, []).append(one)
    if len(by_class) < 2:
        return Printed(documents=(), notes=(f"{report.pool.key} runs on one class or on none that is known",))
    strengths, missing = _strengths(by_class, measure)
    weights = _weights(strengths)
    pools = [_pool(report, name, keys) for name in sorted(by_class)]
    route = _route(report, weights)
    return Printed(
        documents=(*pools, route),
        notes=tuple(_split_notes(report, by_class, keys, measure=measure, missing=missing)),
    )


def workload_patches(report: PoolReport, keys: PoolKeys) -> Printed:
    """Return for each workload of a pool the labels that its template lacks, to `kubectl apply --server-side`."""
    by_workload: dict[tuple[str, str], list[Endpoint]] = {}
    loose = []
    for one in report.endpoints:
        if one.pod.workload is None or one.pod.workload[0] == "ReplicaSet":
            loose.append(one.pod.name)
        else:
            by_workload.setdefault(one.pod.workload, []).append(one)
    documents, notes = [], []
    for (kind, name), members in sorted(by_workload.items()):
        labels, differing = _common_labels(members, keys)
        if differing:
            notes.append(
                f"{kind} {name}: its pods differ in {', '.join(differing)}, which no template can say"
            )
        if labels:
            documents.append(_template(kind, name, report.pool.namespace, labels))
    if loose:
        notes.append(f"made by no template that is known: {', '.join(sorted(set(loose)))}")
    return Printed(documents=tuple(documents), notes=tuple(notes))


def _strengths(
    by_class: Mapping[str, Sequence[Endpoint]], measure: Measure
) -> tuple[dict[str, float], tuple[str, ...]]:
    """Return what each class moves or computes in all; accelerators are counted where a figure is missing."""
    figures = {name: _figure(members[0], measure) for name, members in by_class.items()}
    missing = tuple(sorted(name for name, figure in figures.items() if figure is None))
    strengths = {}
    for name, members in by_class.items():
        pods = {one.pod.uid: one.hardware.accelerators for one in members}
        strengths[name] = sum(pods.values()) * (1.0 if missing else figures[name] or 1.0)
    return strengths, missing


def _figure(endpoint: Endpoint, measure: Measure) -> float | None:
    return endpoint.hardware.bandwidth_gbps if measure == "bandwidth" else endpoint.hardware.fp16_tflops


def _weights(strengths: Mapping[str, float]) -> dict[str, int]:
    """Return whole weights that sum to 100, each at least 1; what rounding leaves goes to the largest remainders."""
    total = sum(strengths.values())
    exact = {name: _TOTAL_WEIGHT * strength / total for name, strength in strengths.items()}
    weights = {name: max(1, int(share)) for name, share in exact.items()}
    by_remainder = sorted(exact, key=lambda name: (weights[name] - exact[name], name))
    while (left := _TOTAL_WEIGHT - sum(weights.values())) > 0:
        for name in by_remainder[:left]:
            weights[name] += 1
    # Several that were lifted to 1 are paid by the strongest.
    weights[max(exact, key=lambda name: exact[name])] += left
    return weights


def _pool(report: PoolReport, class_name: str, keys: PoolKeys) -> dict[str, Any]:
    pool = report.pool
    spec: dict[str, Any] = {
        "selector": {"matchLabels": {**pool.selector, keys.class_: class_name}},
        "targetPorts": [{"number": port} for port in pool.ports],
    }
    if pool.app_protocol:
        spec["appProtocol"] = pool.app_protocol
    if pool.picker:
        reference = {**pool.picker, "name": f"{pool.picker['name']}-{class_name}"}
        spec["endpointPickerRef"] = dict(sorted(reference.items()))
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": "InferencePool",
        "metadata": {"name": f"{pool.name}-{class_name}", "namespace": pool.namespace},
        "spec": spec,
    }


def _route(report: PoolReport, weights: Mapping[str, int]) -> dict[str, Any]:
    pool = report.pool
    backends = [
        {"group": GROUP, "kind": "InferencePool", "name": f"{pool.name}-{name}", "weight": weights[name]}
        for name in sorted(weights)
    ]
    return {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "HTTPRoute",
        "metadata": {"name": pool.name, "namespace": pool.namespace},
        "spec": {"rules": [{"backendRefs": backends}]},
    }


def _split_notes(
    report: PoolReport,
    by_class: Mapping[str, Sequence[Endpoint]],
    keys: PoolKeys,
    *,
    measure: Measure,
    missing: Sequence[str],
) -> Iterable[str]:
    if missing:
        yield f"weights count accelerators: the {measure} of {', '.join(missing)} is not known"
    else:
        yield f"weights follow the {measure} of each class's accelerators together"
    yield "set parentRefs, and the matches of the route that this one replaces"
    if report.pool.picker:
        yield "each pool needs an endpoint picker of its own under the name that it refers to"
    unknown = [one.name for one in report.endpoints if one.hardware.class_name is None]
    if unknown:
        yield f"in no pool, since their class is not known: {', '.join(unknown)}"
    bare = {
        one.pod.uid for members in by_class.values() for one in members if keys.class_ not in one.pod.labels
    }
    if bare:
        yield (
            f"{len(bare)} pods lack the label {keys.class_} that these pools select by: label the namespace "
            f"{keys.opt_in}=true, or the pods' templates (pools patch)"
        )


def _common_labels(members: Sequence[Endpoint], keys: PoolKeys) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the labels that all pods of a workload should have and some lack, and the keys on which they differ."""
    by_pod: dict[str, list[Endpoint]] = {}
    for one in members:
        by_pod.setdefault(one.pod.uid, []).append(one)
    wanted = [(of_pod[0].pod, pod_labels(of_pod, keys)) for of_pod in by_pod.values()]
    labels, differing = {}, []
    for key in wanted[0][1]:
        values = {found[key] for _, found in wanted}
        if len(values) > 1:
            differing.append(key)
        # A value that a person or a template gave stands as it is.
        elif (value := values.pop()) and not any(
            key in pod.labels and key not in pod.ours for pod, _ in wanted
        ):
            labels[key] = value
    return labels, tuple(differing)


def _template(kind: str, name: str, namespace: str, labels: Mapping[str, str]) -> dict[str, Any]:
    template = {"metadata": {"labels": dict(labels)}}
    spec: dict[str, Any] = {"template": template}
    if kind == "LeaderWorkerSet":
        spec = {"leaderWorkerTemplate": {"workerTemplate": template}}
    return {
        "apiVersion": _API_VERSIONS.get(kind, "apps/v1"),
        "kind": kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }
