"""Whether an endpoint serves LoRA adapters, and by what evidence. Absence of a metric alone says nothing."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from agent.core.pools.arguments import Told
from agent.core.pools.engines import EngineTable
from agent.core.pools.serving import Refusal, Serving

LoraState = Literal["active", "enabled", "off", "unknown"]

_NAMED = 5


@dataclass(frozen=True, slots=True)
class Lora:
    """A state and why it is thought to hold."""

    state: LoraState
    evidence: str


@dataclass(frozen=True, slots=True)
class Model:
    """One entry of `/v1/models`."""

    id: str
    parent: str | None = None
    """The model that an adapter belongs to; `None` for a model itself."""


def asks_models(serving: Serving, told: Sequence[Told], table: EngineTable) -> bool:
    """Tell whether `/v1/models` could decide what metrics and arguments leave open."""
    open_ = serving.adapters is None and not any(one.engine == serving.engine for one in told)
    return open_ and table[serving.engine].takes_lora


def lora_of(
    serving: Serving | None,
    told: Sequence[Told],
    models: Sequence[Model] | Refusal | None,
    why_unknown: str = "",
) -> Lora:
    """Return the state of one endpoint; `models` is `None` where they were not asked for.

    `why_unknown` is the reason for which nothing is known of what it serves.
    """
    if serving is None:
        return _without_metrics(told, why_unknown)
    if serving.adapters is not None and serving.adapters.names:
        return Lora("active", f"adapters in use: {_listed(serving.adapters.names)}")
    if isinstance(models, Sequence) and (adapters := [model.id for model in models if model.parent]):
        return Lora("enabled", f"/v1/models lists adapters: {_listed(adapters)}")
    if serving.adapters is not None:
        return Lora("enabled", "the LoRA metric is served, and no adapter is in use")
    for one in told:
        if one.engine == serving.engine:
            return Lora("enabled" if one.lora == "on" else "off", one.evidence)
    if isinstance(models, Refusal):
        return Lora("unknown", f"no LoRA metric; /v1/models: {models.message}")
    if models is not None:
        return Lora(
            "unknown", "no LoRA metric and no adapter in /v1/models: none was loaded yet, or LoRA is off"
        )
    return Lora("unknown", "the arguments do not tell, and this engine has no LoRA metric")


def _without_metrics(told: Sequence[Told], why: str) -> Lora:
    """Return what the arguments alone say: one engine may be told of, but which one runs is not known."""
    if told and len({one.lora for one in told}) == 1 and told[0].lora == "on":
        return Lora("enabled", told[0].evidence)
    return Lora("unknown", why or "the endpoint was not asked")


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
