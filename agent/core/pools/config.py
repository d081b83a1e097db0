"""One pool's report → the part of an `EndpointPickerConfig` that says how to read its servers. Printed, never applied.

It names a metric family only where a server of the pool was seen to serve it.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from agent.core.pools.engines import Engine, EngineTable, Spec, picker_default
from agent.core.pools.names import ENGINE_LABEL, ENGINE_LABELS, PoolKeys
from agent.core.pools.report import Endpoint, PoolReport, engine_label

Picker = Literal["gateway-api", "llm-d"]

API_VERSIONS: Mapping[Picker, str] = {
    "gateway-api": "inference.networking.x-k8s.io/v1alpha1",
    "llm-d": "llm-d.ai/v1alpha1",
}

_LORA = frozenset({"active", "enabled"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Printed:
    """Documents to print and what their reader should know."""

    documents: tuple[Mapping[str, Any], ...]
    notes: tuple[str, ...]


def picker_config(report: PoolReport, table: EngineTable, keys: PoolKeys, *, picker: Picker) -> Printed:
    """Return the fragment for one pool."""
    served = [one for one in report.endpoints if one.served]
    by_engine: dict[str, list[Endpoint]] = {}
    for one in served:
        by_engine.setdefault(one.served.engine if one.served else "", []).append(one)
    label_key = _label_key(report.endpoints)
    parameters: dict[str, Any] = {"engineLabelKey": label_key}
    if by_engine:
        parameters["defaultEngine"] = _default_engine(by_engine, table)
        parameters["engineConfigs"] = [
            _engine_config(table[name], members) for name, members in sorted(by_engine.items())
        ]
    plugins: list[dict[str, Any]] = [{"type": "core-metrics-extractor", "parameters": parameters}]
    profiles = []
    classes = sorted({one.hardware.class_name for one in report.endpoints if one.hardware.class_name})
    for name in classes if len(classes) > 1 else ():
        plugins.append(
            {
                "type": "label-selector-filter",
                "name": f"on-{name}",
                "parameters": {"matchLabels": {keys.class_: name}},
            }
        )
        profiles.append({"name": name, "plugins": [{"pluginRef": f"on-{name}"}]})
    document: dict[str, Any] = {
        "apiVersion": API_VERSIONS[picker],
        "kind": "EndpointPickerConfig",
        "plugins": plugins,
    }
    if profiles:
        document["schedulingProfiles"] = profiles
    notes = _notes(report, by_engine, parameters, profiles=bool(profiles), table=table, keys=keys)
    return Printed(documents=(document,), notes=tuple(notes))


def _label_key(endpoints: Iterable[Endpoint]) -> str:
    """Return the label that the pods carry; the newer one where none does."""
    used = {label[0] for one in endpoints if (label := engine_label(one.pod))}
    return next((key for key in ENGINE_LABELS if key in used), ENGINE_LABEL)


def _default_engine(by_engine: Mapping[str, Sequence[Endpoint]], table: EngineTable) -> str:
    """Return what the most endpoints without a label are, since only they are read as the default."""
    unlabelled = {
        name: sum(1 for one in members if engine_label(one.pod) is None)
        for name, members in by_engine.items()
    }
    usual = picker_default(table)
    return max(by_engine, key=lambda name: (unlabelled[name], len(by_engine[name]), name == usual, name))


def _engine_config(engine: Engine, members: Sequence[Endpoint]) -> dict[str, Any]:
    seen = Counter(spec for one in members if one.served for spec in one.served.specs)
    lora = engine.lora_info if any(one.lora.state in _LORA for one in members) else None
    found: dict[str, Any] = {
        "name": engine.name,
        "queuedRequestsSpec": _served(engine.waiting, seen),
        "runningRequestsSpec": _served(engine.running, seen),
        "kvUsageSpec": _served(engine.kv_use, seen),
        "loraSpec": _served([lora] if lora else (), seen),
    }
    info = _served([engine.cache_info] if engine.cache_info else (), seen)
    if info:
        found |= {
            "cacheInfoSpec": info,
            "cacheBlockSizeLabelName": engine.block_size_label,
            "cacheNumBlocksLabelName": engine.blocks_label,
        }
    else:
        found |= {
            "cacheBlockSizeSpec": _served([engine.block_size] if engine.block_size else (), seen),
            "cacheNumBlocksSpec": _served([engine.blocks] if engine.blocks else (), seen),
        }
    return {key: value for key, value in found.items() if value}


def _served(specs: Iterable[Spec], seen: Mapping[str, int]) -> str | None:
    """Return the one that most endpoints serve; the newer name where as many serve either."""
    names = [str(spec) for spec in specs if seen.get(str(spec))]
    return max(names, key=lambda name: seen[name], default=None)


def _notes(
    report: PoolReport,
    by_engine: Mapping[str, Sequence[Endpoint]],
    parameters: Mapping[str, Any],
    *,
    profiles: bool,
    table: EngineTable,
    keys: PoolKeys,
) -> Iterable[str]:
    if not by_engine:
        yield "no server of this pool told what it serves, so no engine is configured here"
    unasked = [one for one in report.endpoints if one.served is None]
    if by_engine and unasked:
        yield f"{len(unasked)} of {len(report.endpoints)} endpoints did not tell what they serve and are left out"
    configs = {one["name"]: one for one in parameters.get("engineConfigs", ())}
    for name, members in sorted(by_engine.items()):
        yield from _unread(table[name], configs[name], members)
    default = parameters.get("defaultEngine")
    for name, members in sorted(by_engine.items()):
        bare = [one.name for one in members if engine_label(one.pod) is None]
        if bare and name != default:
            yield f"{', '.join(bare)}: label the pod {parameters['engineLabelKey']}={name}, else it is read as {default}"
    if profiles:
        yield "add scorers and a picker to each profile, and to your profile handler when to use which"
        bare = [one.name for one in report.endpoints if keys.class_ not in one.pod.labels]
        if bare:
            yield (
                f"{len(bare)} endpoints lack the label {keys.class_} that the filters select by: "
                f"label the namespace {keys.opt_in}=true, or the pods' templates (pools patch)"
            )


def _unread(engine: Engine, config: Mapping[str, Any], members: Sequence[Endpoint]) -> Iterable[str]:
    """Yield the endpoints on which a chosen name is absent, since they serve an older one."""
    for key, specs in (
        ("queuedRequestsSpec", engine.waiting),
        ("runningRequestsSpec", engine.running),
        ("kvUsageSpec", engine.kv_use),
    ):
        chosen = config.get(key)
        others = {str(spec) for spec in specs} - {chosen}
        blind = [
            one.name
            for one in members
            if chosen and one.served and chosen not in one.served.specs and others & one.served.specs
        ]
        if blind:
            yield f"{', '.join(blind)}: serves another name than {chosen}, so that a picker reads nothing there"
