"""Runtimes, services and models → what they require, each requirement with the path of the field that states it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Generic, TypeVar

from agent.core.catalogue import PRECISIONS
from agent.core.matching.fields import Fields
from agent.core.matching.spelling import normal
from agent.core.matching.versions import parse_version
from agent.core.matching.workload import Parallelism, Workload

_Value = TypeVar("_Value")

POLICIES = ("BestFit", "Cheapest", "MostCapable", "FirstAvailable")

_ALIASES = {
    "float32": "fp32",
    "float": "fp32",
    "float16": "fp16",
    "half": "fp16",
    "bfloat16": "bf16",
    "e4m3": "fp8",
    "e5m2": "fp8",
    "float8": "fp8",
    "float4": "fp4",
    "nvfp4": "fp4",
    "mxfp4": "fp4",
}

# Names of quantizations; the last three say how weights lie in memory, not what the hardware multiplies.
_QUANTIZATIONS = {"fbgemmfp8": "fp8", "w8a8": "int8", "w4a16": "int4", "awq": "int4", "gptq": "int4"}

_PARAMETERS = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,9})?)\s?([KMBT])", re.IGNORECASE)
_BILLIONS = {"K": Decimal("1e-6"), "M": Decimal("1e-3"), "B": Decimal(1), "T": Decimal(1000)}


@dataclass(frozen=True, slots=True)
class Stated(Generic[_Value]):
    """A required value and where it stands."""

    value: _Value
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """`acceleratorConfig` of one class in one supported model format."""

    class_name: str
    quantization: str | None
    parallelism: Parallelism
    gb_per_billion: int | None
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """The model that is to run; parameters in 10^9."""

    name: str
    billions: Decimal | None = None
    precision: str | None = None
    """Of the weights: decides their size, not what the hardware must compute."""
    source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirements:
    """All that a runtime, a service over it and a model ask of hardware. A field may be stated at several places."""

    classes: Stated[tuple[str, ...]] | None = None
    """The runtime's list; only these may be chosen."""
    named: tuple[Stated[str], ...] = ()
    """Classes that a service names."""
    excluded: tuple[Stated[tuple[str, ...]], ...] = ()
    families: tuple[Stated[tuple[str, ...]], ...] = ()
    min_memory: tuple[Stated[int], ...] = ()
    max_memory: tuple[Stated[int], ...] = ()
    min_tflops: tuple[Stated[int], ...] = ()
    min_architecture: tuple[Stated[str], ...] = ()
    features: tuple[Stated[tuple[str, ...]], ...] = ()
    precisions: Stated[tuple[str, ...]] | None = None
    policy: Stated[str] | None = None
    overrides: tuple[Override, ...] = ()
    model: Model | None = None
    workload: Workload = field(default_factory=Workload)

    @property
    def nothing_stated(self) -> bool:
        """Tell whether there is nothing that hardware could be compared with."""
        work = self.workload
        return not (
            self.classes
            or self.named
            or self.families
            or self.min_memory
            or self.max_memory
            or self.min_tflops
            or self.min_architecture
            or self.features
            or self.precisions
            or (self.model and self.model.billions)
            or work.per_pod
            or work.parallelism.stated
        )

    def override_for(self, class_name: str) -> Override | None:
        """Return the settings for a class; of several formats the one with the model's quantization, else the first."""
        found = [override for override in self.overrides if override.class_name == class_name]
        if self.model is not None and self.model.precision is not None:
            matching = [
                o
                for o in found
                if o.quantization and weights_precision(o.quantization) == self.model.precision
            ]
            found = matching or found
        return found[0] if found else None


def precision_word(text: str) -> str | None:
    """Return the precision that a text names (`BF16`, `float16`, `e4m3`), `None` for a word that names none."""
    word = normal(text)
    if word in PRECISIONS:
        return word
    return _ALIASES.get(word)


def weights_precision(quantization: str) -> str | None:
    """Return the precision in which a model's weights lie in memory, `None` for a quantization that is not known."""
    return precision_word(quantization) or _QUANTIZATIONS.get(normal(quantization))


def parameter_count(text: str) -> Decimal | None:
    """Return 10^9 parameters of a size such as `70B`, `7.62B` or `350M`, `None` for a text that is no such size."""
    found = _PARAMETERS.fullmatch(text.strip())
    if found is None:
        return None
    return Decimal(found[1]) * _BILLIONS[found[2].upper()] or None


def requirement_fields(section: Fields) -> dict[str, Any]:
    """Return what `acceleratorRequirements` or `constraints` state, by the names of `Requirements`.

    A minimum of 0 asks for nothing and is left out.
    """
    return {
        "min_memory": _numbers(section, "minMemory", "GB"),
        "max_memory": _numbers(section, "maxMemory", "GB"),
        "min_tflops": _numbers(section, "minComputePerformanceTFLOPS", "TFLOPS"),
        "min_architecture": _version(section),
        "features": _names(section, "requiredFeatures"),
        "excluded": _names(section, "excludedClasses"),
        "families": _names(section, "architectureFamilies"),
        "precisions": _names(section, "preferredPrecisions"),
    }


def model_of(obj: Mapping[str, Any], path: str, problems: list[Any]) -> Model:
    """Return the size and precision that a BaseModel or ClusterBaseModel states."""
    spec = Fields(obj, "", problems).inside("spec")
    spec = Fields(spec.value, path, problems)
    name = str((obj.get("metadata") or {}).get("name", ""))
    size, quantization = spec.text("modelParameterSize"), spec.text("quantization")
    billions = parameter_count(size) if size is not None else None
    if size is not None and billions is None:
        spec.refuse("modelParameterSize", f"{size!r} is not a size such as 70B, 7.62B or 350M")
    return Model(
        name=name,
        billions=billions,
        precision=weights_precision(quantization) if quantization else None,
        source=spec.at("modelParameterSize"),
    )


def overrides_of(spec: Fields) -> tuple[Override, ...]:
    """Return the `acceleratorConfig` entries of all supported model formats of a runtime."""
    found = []
    for entry in spec.entries("supportedModelFormats"):
        configs = entry.inside("acceleratorConfig")
        quantization = entry.text("quantization")
        for class_name in configs.value:
            config = configs.inside(class_name)
            found.append(_override(class_name, quantization, config))
    return tuple(found)


def _override(class_name: str, quantization: str | None, config: Fields) -> Override:
    sizes = config.inside("tensorParallelismOverride")
    return Override(
        class_name=class_name,
        quantization=quantization,
        parallelism=Parallelism(
            tensor=sizes.whole("tensorParallelSize", unit="accelerators") or None,
            pipeline=sizes.whole("pipelineParallelSize", unit="stages") or None,
            data=sizes.whole("dataParallelSize", unit="replicas") or None,
            path=sizes.path,
        ),
        gb_per_billion=config.whole("minMemoryPerBillionParams", unit="GB") or None,
        path=config.path,
    )


def _numbers(section: Fields, key: str, unit: str) -> tuple[Stated[int], ...]:
    value = section.whole(key, unit=unit)
    return (Stated(value, section.at(key)),) if value else ()


def _names(section: Fields, key: str) -> tuple[Stated[tuple[str, ...]], ...]:
    values = section.texts(key)
    return (Stated(values, section.at(key)),) if values else ()


def _version(section: Fields) -> tuple[Stated[str], ...]:
    text = section.text("minArchitectureVersion")
    if text is None:
        return ()
    if parse_version(text) is None:
        section.refuse(
            "minArchitectureVersion", f"{text!r} is not an architecture version such as 9.0, sm_90 or gfx942"
        )
        return ()
    return (Stated(text, section.at("minArchitectureVersion")),)
