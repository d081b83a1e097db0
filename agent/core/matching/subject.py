"""A runtime, or one component of a service over its runtime → the subject of an answer."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from agent.core.matching.fields import Fields
from agent.core.matching.requirements import (
    Model,
    Requirements,
    Stated,
    model_of,
    overrides_of,
    precision_word,
    requirement_fields,
)
from agent.core.matching.spelling import nearest
from agent.core.matching.verdicts import Finding, Problem
from agent.core.matching.workload import COMPONENTS, workload_of

RUNTIME_KINDS = ("ServingRuntime", "ClusterServingRuntime")
SERVICE_KIND = "InferenceService"
MODEL_KINDS = ("BaseModel", "ClusterBaseModel")

REQUIREMENT_KEYS = (
    "acceleratorClasses",
    "minMemory",
    "minComputePerformanceTFLOPS",
    "minArchitectureVersion",
    "requiredFeatures",
    "preferredPrecisions",
)
CONSTRAINT_KEYS = (
    "minMemory",
    "maxMemory",
    "minComputePerformanceTFLOPS",
    "minArchitectureVersion",
    "requiredFeatures",
    "excludedClasses",
    "architectureFamilies",
    "preferredPrecisions",
)
SELECTOR_KEYS = ("acceleratorClass", "constraints", "policy")
CONFIG_KEYS = (
    "minMemoryPerBillionParams",
    "tensorParallelismOverride",
    "runtimeArgsOverride",
    "environmentOverride",
)
PARALLELISM_KEYS = ("tensorParallelSize", "pipelineParallelSize", "dataParallelSize")

# Spellings of earlier drafts of the API, and the field that took their place.
OLD_NAMES = {
    "minComputeCapability": "minArchitectureVersion",
    "minComputePerformance": "minComputePerformanceTFLOPS",
    "minTFLOPS": "minComputePerformanceTFLOPS",
    "minMemoryGB": "minMemory",
    "maxMemoryGB": "maxMemory",
    "memoryGB": "minMemory",
    "features": "requiredFeatures",
    "precisions": "preferredPrecisions",
    "requiredPrecisions": "preferredPrecisions",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What one answer is about."""

    kind: str
    name: str
    namespace: str | None = None
    component: str | None = None
    """`engine` or `decoder` of a service, `None` for a runtime."""
    requirements: Requirements
    findings: tuple[Finding, ...] = ()
    problems: tuple[Problem, ...] = ()
    """Values that cannot be used: the subject is refused. The path of one in another object begins with `Kind/name `."""
    runtime: Mapping[str, Any] | None = None
    service: Mapping[str, Any] | None = None

    @property
    def title(self) -> str:
        """Return kind, namespace and name, for people."""
        place = f"{self.namespace}/" if self.namespace else ""
        return f"{self.kind} {place}{self.name}" + (f" ({self.component})" if self.component else "")


def runtime_subject(runtime: Mapping[str, Any], *, model: Mapping[str, Any] | None = None) -> Subject:
    """Return the subject of a ServingRuntime or ClusterServingRuntime alone; a decoder's pods are left out."""
    problems: list[Problem] = []
    findings: list[Finding] = []
    spec = Fields(runtime, "", problems).inside("spec")
    requirements = _runtime_requirements(spec, findings)
    requirements = replace(
        requirements,
        workload=workload_of(spec, None, "engine"),
        model=_model(model, problems),
    )
    return _subject(runtime, requirements, findings, problems, runtime=runtime)


def service_subjects(
    service: Mapping[str, Any],
    *,
    runtime: Mapping[str, Any] | None,
    model: Mapping[str, Any] | None = None,
) -> tuple[Subject, ...]:
    """Return one subject per component of a service: its engine, and its decoder where it has one."""
    spec = service.get("spec")
    decoder = isinstance(spec, Mapping) and spec.get("decoder") is not None
    components = ("engine", "decoder") if decoder else ("engine",)
    return tuple(_component_subject(service, runtime, model, component) for component in components)


def reference(obj: Mapping[str, Any]) -> str:
    """Return `Kind/name` of an object."""
    return f"{obj.get('kind')}/{(obj.get('metadata') or {}).get('name')}"


def _component_subject(
    service: Mapping[str, Any],
    runtime: Mapping[str, Any] | None,
    model: Mapping[str, Any] | None,
    component: str,
) -> Subject:
    problems: list[Problem] = []
    findings: list[Finding] = []
    spec = Fields(service, "", problems).inside("spec")
    runtime_spec = None
    requirements = Requirements()
    if runtime is not None:
        inner = Fields(runtime, "", problems).inside("spec")
        runtime_spec = Fields(inner.value, f"{reference(runtime)} spec", problems)
        requirements = _runtime_requirements(runtime_spec, findings)
    else:
        findings.append(_no_runtime(spec))
    for section in _selectors(spec, component):
        requirements = _with_selector(requirements, section, findings)
    requirements = replace(
        requirements,
        workload=workload_of(runtime_spec, spec, component),
        model=_model(model, problems),
    )
    subject = _subject(service, requirements, findings, problems, runtime=runtime, service=service)
    return replace(subject, component=component)


def _subject(
    obj: Mapping[str, Any],
    requirements: Requirements,
    findings: list[Finding],
    problems: list[Problem],
    *,
    runtime: Mapping[str, Any] | None,
    service: Mapping[str, Any] | None = None,
) -> Subject:
    metadata = obj.get("metadata") or {}
    return Subject(
        kind=str(obj.get("kind")),
        name=str(metadata.get("name")),
        namespace=metadata.get("namespace"),
        requirements=requirements,
        findings=tuple(dict.fromkeys(findings)),
        problems=tuple(dict.fromkeys(problems)),
        runtime=runtime,
        service=service,
    )


def _runtime_requirements(spec: Fields, findings: list[Finding]) -> Requirements:
    section = spec.inside("acceleratorRequirements")
    findings += unknown_fields(section, REQUIREMENT_KEYS)
    findings += [finding for config in _configs(spec) for finding in config]
    stated = requirement_fields(Fields(_known(section, REQUIREMENT_KEYS), section.path, section.problems))
    classes = section.texts("acceleratorClasses")
    precisions = stated.pop("precisions")
    findings += _unknown_precisions(precisions)
    return Requirements(
        classes=Stated(classes, section.at("acceleratorClasses")) if classes else None,
        precisions=precisions[0] if precisions else None,
        overrides=overrides_of(spec),
        **stated,
    )


def _selectors(spec: Fields, component: str) -> Iterable[Fields]:
    """Return the service-level selector, then the component's override of it."""
    yield spec.inside("acceleratorSelector")
    yield spec.inside(component).inside("acceleratorOverride")


def _with_selector(requirements: Requirements, section: Fields, findings: list[Finding]) -> Requirements:
    """Add what a selector states; of policy, class and precisions the later one counts, all else adds up."""
    constraints = section.inside("constraints")
    findings += unknown_fields(section, SELECTOR_KEYS)
    findings += unknown_fields(constraints, CONSTRAINT_KEYS)
    stated = requirement_fields(constraints)
    precisions = stated.pop("precisions")
    findings += _unknown_precisions(precisions)
    named, policy = section.text("acceleratorClass"), section.text("policy")
    return replace(
        requirements,
        named=(Stated(named, section.at("acceleratorClass")),) if named else requirements.named,
        policy=Stated(policy, section.at("policy")) if policy else requirements.policy,
        precisions=precisions[0] if precisions else requirements.precisions,
        **{name: getattr(requirements, name) + values for name, values in stated.items()},
    )


def unknown_fields(section: Fields, known: Iterable[str]) -> list[Finding]:
    """Return a finding for each field that the API does not have (the server drops it) or has under another name."""
    allowed = tuple(known)
    found = []
    for key in section.unknown(allowed):
        new = OLD_NAMES.get(key)
        if new in allowed:
            found.append(
                Finding(
                    id="old-field-name",
                    severity="error",
                    path=section.at(key),
                    message=f"{key} is an old name and is not evaluated: write {new}",
                )
            )
            continue
        near = nearest(key, allowed)
        hint = f"; did you mean {near}?" if near else ""
        found.append(
            Finding(
                id="unknown-field",
                severity="error",
                path=section.at(key),
                message=f"{key} is no field of the API and is not evaluated{hint}",
            )
        )
    return found


def _known(section: Fields, keys: Iterable[str]) -> dict[str, Any]:
    """Keep the fields that exist at this place: a runtime has no `maxMemory`."""
    return {key: section.value[key] for key in keys if key in section.value}


def _configs(spec: Fields) -> Iterable[list[Finding]]:
    quiet = Fields(spec.value, spec.path)
    for entry in quiet.entries("supportedModelFormats"):
        configs = entry.inside("acceleratorConfig")
        for class_name in configs.value:
            config = configs.inside(class_name)
            yield unknown_fields(config, CONFIG_KEYS)
            yield unknown_fields(config.inside("tensorParallelismOverride"), PARALLELISM_KEYS)


def _unknown_precisions(stated: tuple[Stated[tuple[str, ...]], ...]) -> list[Finding]:
    return [
        Finding(
            id="unknown-precision",
            severity="error",
            path=f"{entry.path}[{position}]",
            message=f"{word!r} is no precision that hardware is described by; write one such as fp8, bf16 or int8",
        )
        for entry in stated
        for position, word in enumerate(entry.value)
        if precision_word(word) is None
    ]


def _model(obj: Mapping[str, Any] | None, problems: list[Problem]) -> Model | None:
    return None if obj is None else model_of(obj, f"{reference(obj)} spec", problems)


def _no_runtime(spec: Fields) -> Finding:
    return Finding(
        id="no-runtime",
        severity="warning",
        path=spec.at("runtime"),
        message="no runtime is known for this service, so only the service's own constraints are compared",
    )


def component_names() -> tuple[str, ...]:
    """Return the components of a service that choose a class."""
    return tuple(COMPONENTS)
