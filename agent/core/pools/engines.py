"""The table of model servers: which metric families tell an engine, and by which flags it takes LoRA adapters.

The table stands in `agent/core/data/engines.toml`; an operator extends it by a setting. No code names an engine.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any

import msgspec

from agent.core.label_text import is_label_value

_SPEC = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{([^{}]*)\})?")
_LABEL = re.compile(r"\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*\"?([^\",={}]*)\"?\s*")


class EngineTableError(ValueError):
    """An entry of the table that cannot be used; the message names it and says why."""


@dataclass(frozen=True, slots=True)
class Spec:
    """One metric family, or those of its series that have some labels, as pickers write it."""

    name: str
    labels: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        """Return `name` or `name{label=value}`."""
        inside = ",".join(f"{key}={value}" for key, value in self.labels)
        return f"{self.name}{{{inside}}}" if inside else self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """One model server."""

    name: str
    waiting: tuple[Spec, ...]
    running: tuple[Spec, ...]
    kv_use: tuple[Spec, ...]
    """Of the KV cache, as a fraction; the newest name first."""
    cache_info: Spec | None
    """An info metric with the size and number of blocks in two labels."""
    block_size_label: str
    blocks_label: str
    block_size: Spec | None
    """Tokens per block, as a gauge of its own."""
    blocks: Spec | None
    lora_info: Spec | None
    lora_on_flags: frozenset[str]
    lora_off_flags: frozenset[str]
    config_flags: frozenset[str]
    """Flags that name a file with more flags, so that what is absent from the arguments is not known."""
    programs: frozenset[str]
    images: tuple[str, ...]
    """Repositories whose entrypoint is the server itself, so that a container's arguments are all of its own."""
    yields_to: frozenset[str]
    picker_default: bool

    @property
    def takes_lora(self) -> bool:
        """Tell whether anything in the table says how this engine shows LoRA."""
        return self.lora_info is not None or bool(self.lora_on_flags)

    def specs(self) -> Iterator[Spec]:
        """Yield every family that is looked for."""
        yield from (*self.waiting, *self.running, *self.kv_use)
        optional = (self.cache_info, self.block_size, self.blocks, self.lora_info)
        yield from (spec for spec in optional if spec is not None)


EngineTable = Mapping[str, Engine]


class _Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    waiting: list[str]
    running: list[str]
    kv_use: list[str] = []
    cache_info: str | None = None
    block_size_label: str = "block_size"
    blocks_label: str = "num_gpu_blocks"
    block_size: str | None = None
    blocks: str | None = None
    lora_info: str | None = None
    lora_on_flags: list[str] = []
    lora_off_flags: list[str] = []
    config_flags: list[str] = []
    programs: list[str] = []
    images: list[str] = []
    yields_to: list[str] = []
    picker_default: bool = False


def engine_table(additions: Mapping[str, Mapping[str, Any]] | None = None) -> EngineTable:
    """Return the table with an operator's additions; what is added under a known name changes only the keys it gives.

    Raises `EngineTableError` for an entry that cannot be used.
    """
    additions = additions or {}
    known = _built_in()
    merged = {name: {**known.get(name, {}), **additions.get(name, {})} for name in (*known, *additions)}
    table = {name: _engine(name, entry) for name, entry in merged.items()}
    defaults = [name for name, engine in table.items() if engine.picker_default]
    if len(defaults) != 1:
        raise EngineTableError(
            f"pools: engines: exactly one engine is the picker's default, not {', '.join(defaults) or 'none'}"
        )
    return table


def picker_default(table: EngineTable) -> str:
    """Return the engine that a picker takes a pod for that has no engine label."""
    return next(name for name, engine in table.items() if engine.picker_default)


def family_names(table: EngineTable) -> frozenset[str]:
    """Return the name of every family that any engine is known or measured by."""
    return frozenset(spec.name for engine in table.values() for spec in engine.specs())


def parse_spec(text: str) -> Spec:
    """Return a family as it is written in the table; `EngineTableError` where it is none."""
    found = _SPEC.fullmatch(text.strip())
    if found is None:
        raise EngineTableError(f"{text!r} is no metric; write name or name{{label=value}}")
    labels = []
    for part in (found[2] or "").split(",") if found[2] else ():
        label = _LABEL.fullmatch(part)
        if label is None:
            raise EngineTableError(f"{text!r}: {part.strip()!r} is not written label=value")
        labels.append((label[1], label[2]))
    return Spec(found[1], tuple(labels))


@lru_cache(maxsize=1)
def _built_in() -> dict[str, dict[str, Any]]:
    text = files("agent.core.data").joinpath("engines.toml").read_text(encoding="utf-8")
    engines: dict[str, dict[str, Any]] = tomllib.loads(text)["engines"]
    return engines


def _engine(name: str, fields: Mapping[str, Any]) -> Engine:
    if not name or not is_label_value(name):
        raise EngineTableError(f"pools: engines: {name!r} cannot be a label's value, so no pod could name it")
    try:
        entry = msgspec.convert(dict(fields), _Entry)
        return Engine(
            name=name,
            waiting=tuple(map(parse_spec, entry.waiting)),
            running=tuple(map(parse_spec, entry.running)),
            kv_use=tuple(map(parse_spec, entry.kv_use)),
            cache_info=_optional(entry.cache_info),
            block_size_label=entry.block_size_label,
            blocks_label=entry.blocks_label,
            block_size=_optional(entry.block_size),
            blocks=_optional(entry.blocks),
            lora_info=_optional(entry.lora_info),
            lora_on_flags=frozenset(entry.lora_on_flags),
            lora_off_flags=frozenset(entry.lora_off_flags),
            config_flags=frozenset(entry.config_flags),
            programs=frozenset(entry.programs),
            images=tuple(entry.images),
            yields_to=frozenset(entry.yields_to),
            picker_default=entry.picker_default,
        )
    except (msgspec.ValidationError, EngineTableError) as error:
        raise EngineTableError(f"pools: engines: {name}: {error}") from error


def _optional(text: str | None) -> Spec | None:
    return None if text is None else parse_spec(text)
