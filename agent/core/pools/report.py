"""One pool's report: what each endpoint runs on and serves, whether they are alike, and what somebody should know."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from agent.core.pools.engines import EngineTable, picker_default
from agent.core.pools.hardware import PodHardware
from agent.core.pools.lora import Lora, LoraState, Model, lora_of
from agent.core.pools.names import ENGINE_LABEL, ENGINE_LABELS, UNKNOWN, PoolKeys
from agent.core.pools.odd import odd_endpoints
from agent.core.pools.serving import Refusal, Serving
from agent.core.pools.views import OptIn, PoolPod, PoolView

_LORA_STATES: frozenset[str] = frozenset({"active", "enabled", "off"})
_NAMED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What came of asking one endpoint."""

    serving: Serving | Refusal
    models: tuple[Model, ...] | Refusal | None = None
    """`None` where they were not asked for."""


Looks = Mapping[tuple[str, int], Look]
"""(uid of the pod, port) → the last look."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One pod and port of a pool."""

    pod: PoolPod
    port: int
    hardware: PodHardware
    engine: str | None
    engine_from: Literal["metrics", "label", ""]
    served: Serving | None
    """`None` where it was not asked or did not tell."""
    problem: str
    """Why it did not tell what it serves; empty where it did."""
    lora: Lora
    contradictions: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Return the pod's name, with the port."""
        return f"{self.pod.name}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolReport:
    """What one pool comes to."""

    pool: PoolView
    opt_in: OptIn
    endpoints: tuple[Endpoint, ...]
    homogeneous: bool | None
    """Whether all run on one class; `None` where it is not known of all, or there are none."""
    counts: Mapping[tuple[str, str, str], int]
    """(class, engine, LoRA state) → endpoints; `unknown` for what is not known."""
    contradictions: int
    """Endpoints whose labels say another thing than what was found."""
    odd: tuple[tuple[str, str], ...]
    """(endpoint, how its KV cache differs from its peers')."""
    findings: tuple[str, ...]


def pool_report(
    pool: PoolView,
    members: Iterable[tuple[PoolPod, PodHardware]],
    looks: Looks,
    *,
    opt_in: OptIn,
    table: EngineTable,
    keys: PoolKeys,
) -> PoolReport:
    """Return the report of one pool; `members` are the pods that it selects."""
    endpoints = tuple(
        _endpoint(pod, port, hardware, looks.get((pod.uid, port)), opt_in=opt_in, keys=keys)
        for pod, hardware in sorted(members, key=lambda member: member[0].name)
        for port in endpoint_ports(pool, pod)
    )
    odd = odd_endpoints(
        (endpoint.name, (endpoint.hardware.class_name, served.engine), served.kv_tokens)
        for endpoint in endpoints
        if (served := endpoint.served) is not None
    )
    counts: Counter[tuple[str, str, str]] = Counter(
        (one.hardware.class_name or UNKNOWN, one.engine or UNKNOWN, one.lora.state) for one in endpoints
    )
    return PoolReport(
        pool=pool,
        opt_in=opt_in,
        endpoints=endpoints,
        homogeneous=_homogeneous({one.hardware.class_name for one in endpoints}),
        counts=counts,
        contradictions=sum(1 for one in endpoints if one.contradictions),
        odd=odd,
        findings=tuple(_findings(pool, endpoints, odd, opt_in=opt_in, table=table, keys=keys)),
    )


def endpoint_ports(pool: PoolView, pod: PoolPod) -> tuple[int, ...]:
    """Return the ports of a pool that a pod serves."""
    if pod.active_ports is None:
        return pool.ports
    return tuple(port for port in pool.ports if port in pod.active_ports)


def engine_label(pod: PoolPod) -> tuple[str, str] | None:
    """Return the key and value of the label by which a picker knows the pod's engine, `None` without one."""
    return next(((key, pod.labels[key]) for key in ENGINE_LABELS if pod.labels.get(key)), None)


def _endpoint(
    pod: PoolPod, port: int, hardware: PodHardware, look: Look | None, *, opt_in: OptIn, keys: PoolKeys
) -> Endpoint:
    serving = look.serving if look is not None and opt_in.ask else None
    served = serving if isinstance(serving, Serving) else None
    problem = serving.message if isinstance(serving, Refusal) else "" if served else _unasked(pod, opt_in)
    label = engine_label(pod)
    models = look.models if look is not None else None
    lora = lora_of(served, pod.told, models, problem)
    if lora.state == "unknown" and served is None:
        lora = _annotated(pod, keys) or lora
    return Endpoint(
        pod=pod,
        port=port,
        hardware=hardware,
        engine=served.engine if served else label[1] if label else None,
        engine_from="metrics" if served else "label" if label else "",
        served=served,
        problem=problem,
        lora=lora,
        contradictions=tuple(_contradictions(pod, hardware, served, keys)),
    )


def _unasked(pod: PoolPod, opt_in: OptIn) -> str:
    if not opt_in.ask:
        return "its namespace did not opt in to be asked"
    return "it was not asked yet" if pod.running and pod.address else "it does not run yet"


def _annotated(pod: PoolPod, keys: PoolKeys) -> Lora | None:
    """Return what the controller found and wrote on the pod, for one who cannot ask it."""
    states: Mapping[str, LoraState] = {"active": "active", "enabled": "enabled", "off": "off"}
    state = states.get(pod.lora or "") if keys.lora in pod.ours else None
    return Lora(state, f"the annotation {keys.lora}") if state else None


def _contradictions(
    pod: PoolPod, hardware: PodHardware, served: Serving | None, keys: PoolKeys
) -> Iterable[str]:
    label = engine_label(pod)
    if label and served and label[0] not in pod.ours and label[1] != served.engine:
        yield f"the label {label[0]} says {label[1]}, and the server is {served.engine}"
    stated = pod.labels.get(keys.class_)
    if stated and hardware.class_name and keys.class_ not in pod.ours and stated != hardware.class_name:
        yield f"the label {keys.class_} says {stated}, and the pod runs on {hardware.class_name}"


def _homogeneous(classes: set[str | None]) -> bool | None:
    known = classes - {None}
    if len(known) > 1:
        return False
    return None if not known or None in classes else True


def _findings(
    pool: PoolView,
    endpoints: Sequence[Endpoint],
    odd: Sequence[tuple[str, str]],
    *,
    opt_in: OptIn,
    table: EngineTable,
    keys: PoolKeys,
) -> Iterable[str]:
    classes = Counter(one.hardware.class_name for one in endpoints if one.hardware.class_name)
    if len(classes) > 1:
        listed = ", ".join(f"{name} ({count})" for name, count in sorted(classes.items()))
        yield f"endpoints run on {len(classes)} classes: {listed}; `pools split {pool.key}` prints pools that do not"
    yield from _grouped(
        (one.name, one.hardware.reason) for one in endpoints if one.hardware.class_name is None
    )
    yield from (f"{one.name}: {text}" for one in endpoints for text in one.contradictions)
    yield from _unlabelled(endpoints, table)
    if opt_in.ask:
        yield from _grouped((one.name, one.problem) for one in endpoints if one.problem)
    elif endpoints:
        yield f"engines are not asked: the namespace {pool.namespace} has no label {keys.opt_in}=true"
    states = Counter(one.lora.state for one in endpoints if one.lora.state in _LORA_STATES)
    if states.get("off") and len(states) > 1:
        yield f"LoRA is off on {states['off']} of {len(endpoints)} endpoints and not on others"
    yield from (f"{name}: {text}" for name, text in odd)


def _unlabelled(endpoints: Sequence[Endpoint], table: EngineTable) -> Iterable[str]:
    """Yield what a picker would read wrongly for want of a label it knows."""
    default = picker_default(table)
    for engine, names in _by_key(
        (one.served.engine, one.name)
        for one in endpoints
        if one.served and one.served.engine != default and engine_label(one.pod) is None
    ):
        yield (
            f"{_listed(names)} without the label {ENGINE_LABEL}: a picker reads {engine} there as {default}, "
            "unless its defaultEngine says otherwise"
        )


def _grouped(reasons: Iterable[tuple[str, str]]) -> Iterable[str]:
    for reason, names in _by_key((reason, name) for name, reason in reasons):
        yield f"{_listed(names)}: {reason}"


def _by_key(pairs: Iterable[tuple[str, str]]) -> list[tuple[str, list[str]]]:
    found: dict[str, list[str]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return sorted(found.items())


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
