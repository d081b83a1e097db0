"""Which pods a pool selects; a pod may belong to several pools."""

from collections.abc import Iterable, Mapping

from agent.core.pools.views import PoolPod, PoolView

_Pair = tuple[str, str, str]


def members_of(pools: Iterable[PoolView], pods: Iterable[PoolPod]) -> dict[str, list[PoolPod]]:
    """Return the pods of each pool by its key.

    Only labels that a selector names are looked up, and of a selector the rarest first, so that hundreds of pools over
    thousands of pods cost no product of both.
    """
    pools = list(pools)
    wanted = {(pool.namespace, *pair) for pool in pools for pair in pool.selector.items()}
    by_pair: dict[_Pair, list[PoolPod]] = {}
    for pod in pods:
        for pair in pod.labels.items():
            key = (pod.namespace, *pair)
            if key in wanted:
                by_pair.setdefault(key, []).append(pod)
    return {pool.key: _selected(pool, by_pair) for pool in pools}


def selects(pool: PoolView, labels: Mapping[str, str]) -> bool:
    """Tell whether a pool's selector picks these labels; an empty one picks nothing."""
    return bool(pool.selector) and pool.selector.items() <= labels.items()


def _selected(pool: PoolView, by_pair: Mapping[_Pair, list[PoolPod]]) -> list[PoolPod]:
    candidates = [by_pair.get((pool.namespace, *pair), []) for pair in pool.selector.items()]
    rarest = min(candidates, key=len, default=[])
    return [pod for pod in rarest if selects(pool, pod.labels)]
