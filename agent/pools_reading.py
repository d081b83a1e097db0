"""One look at the pools of a cluster for a command: reads everything once, asks endpoints where that is allowed."""

from dataclasses import dataclass

from agent.cluster import (
    ACCELERATOR_NODES,
    INFERENCE_POOLS,
    NAMESPACES,
    PODS,
    Cluster,
    Forbidden,
    NotFound,
    Object,
)
from agent.core.cluster_views import RecordView, record_view
from agent.core.pools.engines import EngineTable
from agent.core.pools.hardware import hardware_of
from agent.core.pools.membership import members_of
from agent.core.pools.names import PoolKeys
from agent.core.pools.report import Looks, PoolReport, endpoint_ports, pool_report
from agent.core.pools.views import OptIn, PoolPod, PoolView, opt_in_view, pool_pod_view, pool_view
from agent.pools_asking import EndpointReader, looks_at, targets_of

_VIEW = "view"
_CLOSED = OptIn()


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolsReading:
    """Everything that reports are made from."""

    pools: tuple[PoolView, ...]
    members: dict[str, list[PoolPod]]
    """By the pool's key."""
    opted: dict[str, OptIn]
    records: dict[str, RecordView]
    namespaces_known: bool = True
    """False where Namespaces may not be listed: then none counts as opted in."""


def read_pools(
    cluster: Cluster, *, keys: PoolKeys, table: EngineTable, namespace: str | None = None
) -> PoolsReading | None:
    """List pools and what belongs to them; `None` where the cluster has no InferencePool."""
    try:
        listed, _ = cluster.list_all(INFERENCE_POOLS, namespace=namespace)
    except NotFound:
        return None
    pools = tuple(sorted((pool_view(item) for item in listed), key=lambda pool: pool.key))
    holding = {pool.namespace for pool in pools}
    pods = [pod for name in sorted(holding) for pod in _pods(cluster, name, keys, table)]
    opted, known = _opted(cluster, keys) if pools else ({}, True)
    return PoolsReading(
        pools=pools,
        members=members_of(pools, pods),
        opted=opted,
        records=_records(cluster, keys) if pools else {},
        namespaces_known=known,
    )


def ask_pools(reading: PoolsReading, reader: EndpointReader, table: EngineTable) -> Looks:
    """Ask the endpoints of the pools whose namespaces allow it."""
    targets = targets_of(
        (pod, endpoint_ports(pool, pod))
        for pool in reading.pools
        if reading.opted.get(pool.namespace, _CLOSED).ask
        for pod in reading.members[pool.key]
    )
    return {target.key: look for target, look in looks_at(targets, reader, table)}


def reports_of(
    reading: PoolsReading, looks: Looks, *, keys: PoolKeys, table: EngineTable
) -> tuple[PoolReport, ...]:
    """Return the report of every pool, by namespace and name."""
    hardware = {
        pod.uid: hardware_of(pod, reading.records.get(pod.node))
        for members in reading.members.values()
        for pod in members
    }
    return tuple(
        pool_report(
            pool,
            ((pod, hardware[pod.uid]) for pod in reading.members[pool.key]),
            looks,
            opt_in=reading.opted.get(pool.namespace, _CLOSED),
            table=table,
            keys=keys,
        )
        for pool in reading.pools
    )


def _pods(cluster: Cluster, namespace: str, keys: PoolKeys, table: EngineTable) -> list[PoolPod]:
    def cut(pod: Object) -> Object:
        return {_VIEW: pool_pod_view(pod, keys=keys, table=table)}

    items, _ = cluster.list_all(PODS, namespace=namespace, project=cut)
    return [item[_VIEW] for item in items if item[_VIEW] is not None]


def _opted(cluster: Cluster, keys: PoolKeys) -> tuple[dict[str, OptIn], bool]:
    try:
        items, _ = cluster.list_all(NAMESPACES, label_selector=keys.opt_in)
    except Forbidden:
        return {}, False
    views = {item["metadata"]["name"]: opt_in_view(item, keys=keys) for item in items}
    return {name: view for name, view in views.items() if view is not None}, True


def _records(cluster: Cluster, keys: PoolKeys) -> dict[str, RecordView]:
    def cut(record: Object) -> Object:
        return {_VIEW: record_view(record, domain=keys.domain)}

    try:
        items, _ = cluster.list_all(ACCELERATOR_NODES, project=cut)
    except NotFound:
        return {}  # then every class is not known, and each endpoint says why
    return {item[_VIEW].name: item[_VIEW] for item in items}
