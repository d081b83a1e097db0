"""What an endpoint's metrics say → which engine it is, what it holds in its KV cache, whether it has adapters."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from agent.core.pools.engines import Engine, EngineTable, Spec

_RANK_LABEL = "engine"
"""Data-parallel ranks behind one port tell themselves apart by it; each has a cache of its own."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One series of an exposition."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    value: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why an endpoint told nothing."""

    word: str
    """For metrics: `no-answer`, `status`, `redirect`, `too-large`, `not-metrics`, `no-engine`, `several-engines`."""
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapters:
    """What the newest series of an engine's LoRA metric says."""

    names: tuple[str, ...]
    """Running and waiting, sorted; empty where none is in use at present."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """What one endpoint serves."""

    engine: str
    specs: frozenset[str]
    """Those of the engine's families that are there, as pickers write them."""
    kv_tokens: int | None = None
    """Tokens that the KV cache holds; `None` where the engine does not tell."""
    adapters: Adapters | None = None
    """`None` where the LoRA metric is absent: no adapter was loaded yet, or LoRA is off."""


def serving_of(readings: Sequence[Reading], table: EngineTable) -> Serving | Refusal:
    """Return what these series say, a `Refusal` where they tell no engine, or several."""
    by_name: dict[str, list[Reading]] = {}
    for reading in readings:
        by_name.setdefault(reading.name, []).append(reading)
    names = {
        name
        for name, engine in table.items()
        if any(_matching(spec, by_name) for spec in (*engine.waiting, *engine.running))
    }
    names = {name for name in names if not table[name].yields_to & names}
    if not names:
        message = "it serves metrics, and none by which an engine is known"
        return Refusal(word="no-engine", message=message)
    if len(names) > 1:
        listed = " and ".join(sorted(names))
        return Refusal(word="several-engines", message=f"it serves metrics of {listed}")
    engine = table[names.pop()]
    return Serving(
        engine=engine.name,
        specs=frozenset(str(spec) for spec in engine.specs() if _matching(spec, by_name)),
        kv_tokens=_kv_tokens(engine, by_name),
        adapters=_adapters(engine, by_name),
    )


def _matching(spec: Spec | None, by_name: Mapping[str, Sequence[Reading]]) -> list[Reading]:
    if spec is None:
        return []
    return [
        reading
        for reading in by_name.get(spec.name, ())
        if all(reading.labels.get(key) == value for key, value in spec.labels)
    ]


def _kv_tokens(engine: Engine, by_name: Mapping[str, Sequence[Reading]]) -> int | None:
    infos = _matching(engine.cache_info, by_name)
    if infos:
        # One of each rank: a server that was configured anew may still show its former series.
        ranks = {reading.labels.get(_RANK_LABEL, ""): reading.labels for reading in infos}
        return _sum(
            _product(labels.get(engine.block_size_label), labels.get(engine.blocks_label))
            for labels in ranks.values()
        )
    sizes, blocks = _matching(engine.block_size, by_name), _matching(engine.blocks, by_name)
    if not sizes or not blocks:
        return None
    return _product(sizes[0].value, blocks[0].value)


def _product(size: str | float | None, blocks: str | float | None) -> int | None:
    try:
        tokens = int(float(size or 0)) * int(float(blocks or 0))
    except (
        ValueError,
        OverflowError,
    ):  # a label such as "None" before the cache is laid out, NaN, or infinity
        return None
    return tokens if 0 < tokens < 1 << 53 else None


def _sum(parts: Iterable[int | None]) -> int | None:
    known = list(parts)
    return None if None in known else sum(part for part in known if part is not None)


def _adapters(engine: Engine, by_name: Mapping[str, Sequence[Reading]]) -> Adapters | None:
    series = _matching(engine.lora_info, by_name)
    if not series:
        return None
    # The value is the time of the last update; older series stay in the exposition.
    newest = max(series, key=lambda reading: reading.value)
    listed = (newest.labels.get(f"{word}_lora_adapters", "") for word in ("running", "waiting"))
    names = {name.strip() for text in listed for name in text.split(",") if name.strip()}
    return Adapters(names=tuple(sorted(names)))
