"""Findings about a serving runtime: requirements that nobody reads, classes that are missing, counts that disagree."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from agent.core.matching.fields import Fields
from agent.core.matching.hardware import class_facts
from agent.core.matching.lint_commands import command_findings
from agent.core.matching.lint_scope import LintScope, error, info, warning
from agent.core.matching.ome import runtime_classes
from agent.core.matching.spelling import did_you_mean, same_name
from agent.core.matching.subject import Subject
from agent.core.matching.verdicts import Finding
from agent.core.matching.workload import Parallelism

Check = Callable[[Mapping[str, Any], Subject, LintScope], Iterator[Finding]]

_SECTION = "spec.acceleratorRequirements"

_NEVER_READ = (
    "minMemory",
    "minComputePerformanceTFLOPS",
    "minArchitectureVersion",
    "requiredFeatures",
    "preferredPrecisions",
)

_WHOLE_NVIDIA = "nvidia.com/gpu"


def runtime_findings(obj: Mapping[str, Any], subject: Subject, scope: LintScope) -> Iterator[Finding]:
    """Return what will surprise the author of a runtime whose values are of the right kinds."""
    for check in _CHECKS:
        yield from check(obj, subject, scope)
    yield from command_findings(obj, subject)


def _never_read(obj: Mapping[str, Any], _: Subject, __: LintScope) -> Iterator[Finding]:
    section = (obj.get("spec") or {}).get("acceleratorRequirements") or {}
    for key in _NEVER_READ:
        if section.get(key) not in (None, [], 0):
            yield warning(
                "requirement-never-read",
                f"{_SECTION}.{key}",
                "OME reads acceleratorClasses alone; repeat it in the service's acceleratorSelector.constraints",
            )
    for key in ("minMemory", "minComputePerformanceTFLOPS"):
        if section.get(key) == 0:
            yield info("minimum-of-zero", f"{_SECTION}.{key}", "0 asks for nothing; leave it out")


def _overrides(_: Mapping[str, Any], subject: Subject, __: LintScope) -> Iterator[Finding]:
    classes = runtime_classes(subject.runtime)
    for override in subject.requirements.overrides:
        if override.gb_per_billion is not None:
            path = f"{override.path}.minMemoryPerBillionParams"
            yield warning(
                "memory-per-billion-never-read", path, "OME never reads it; accelerator-agent match does"
            )
        if override.parallelism.data is not None:
            path = f"{override.parallelism.path}.dataParallelSize"
            message = "OME never sets a data-parallel size; write the flag into runtimeArgsOverride"
            yield warning("data-parallel-never-read", path, message)
        if override.class_name not in classes:
            near = did_you_mean(override.class_name, classes)
            yield error(
                "override-key-without-class",
                override.path,
                f"{override.class_name} is not in acceleratorClasses, so these settings are never used{near}",
            )


def _classes(_: Mapping[str, Any], subject: Subject, scope: LintScope) -> Iterator[Finding]:
    stated = subject.requirements.classes
    if stated is None or scope.classes is None:
        return
    for place, name in enumerate(stated.value):
        if name in scope.classes:
            continue
        path = f"{stated.path}[{place}]"
        close = same_name(name, scope.classes)
        if close is not None:
            yield error("class-name-spelling", path, f"OME compares names to the letter: write {close}")
        else:
            near = did_you_mean(name, scope.classes)
            message = (
                f"there is no class {name}: a policy then selects no class at all, and nobody is told{near}"
            )
            yield error("listed-class-missing", path, message)
        yield error(
            "runtime-cannot-be-edited",
            path,
            f"while {name} does not exist OME's webhook denies every change of this runtime; nothing guards a listed "
            "class against deletion",
        )


def _counts(_: Mapping[str, Any], subject: Subject, scope: LintScope) -> Iterator[Finding]:
    """Tell where accelerators asked for and parallel sizes disagree: OME keeps them apart."""
    work = subject.requirements.workload
    if work.per_pod is None:
        return
    asked = work.per_pod * work.pods
    sizes: list[tuple[str | None, Parallelism]] = [(None, work.parallelism)]
    sizes += [(override.class_name, override.parallelism) for override in subject.requirements.overrides]
    for class_name, parallelism in sizes:
        count = _given_by_class(class_name, work.resource, scope) or asked
        if parallelism.stated and parallelism.total != count:
            yield warning(
                "tensor-parallel-differs",
                parallelism.path or "spec",
                f"parallel sizes take {parallelism.total} accelerators and the pods get {count} ({work.path}); OME keeps "
                "neither equal to the other",
            )


def _given_by_class(class_name: str | None, resource: str | None, scope: LintScope) -> int | None:
    """Return the count that a class's own `resources` put in place of the runtime's."""
    found = scope.known([class_name] if class_name else [])
    return class_facts(found[0]).resources.get(resource or "") if found else None


def _resources(_: Mapping[str, Any], subject: Subject, scope: LintScope) -> Iterator[Finding]:
    work = subject.requirements.workload
    if work.per_pod is None or work.resource is None:
        return
    for obj in scope.known(runtime_classes(subject.runtime)):
        facts = class_facts(obj)
        for name, count in facts.resources.items():
            if name != work.resource:
                message = (
                    f"class {facts.name} adds {name}: {count} beside {work.resource}: the pod asks for both"
                )
            elif count != work.per_pod:
                message = f"class {facts.name} sets {name} to {count} over the {work.per_pod} asked for here"
            else:
                continue
            yield warning("resources-override-gpu-count", work.path or "spec", message)


def _affinity(_: Mapping[str, Any], subject: Subject, scope: LintScope) -> Iterator[Finding]:
    placement = subject.requirements.workload.placement
    if placement.terms is None:
        return
    for obj in scope.known(runtime_classes(subject.runtime)):
        if class_facts(obj).affinity:
            name = obj["metadata"]["name"]
            yield warning(
                "affinity-replaced", placement.path, f"class {name} replaces it wholly once it is chosen"
            )


def _model_init(_: Mapping[str, Any], subject: Subject, __: LintScope) -> Iterator[Finding]:
    work = subject.requirements.workload
    if work.resource is not None and work.resource != _WHOLE_NVIDIA:
        yield warning(
            "model-init-needs-nvidia-gpu",
            work.path or "spec",
            f"a pod with {work.resource} and no {_WHOLE_NVIDIA} makes OME's model-init injector panic where it is on",
        )


def _formats(obj: Mapping[str, Any], _: Subject, __: LintScope) -> Iterator[Finding]:
    """Tell of formats that differ in quantization alone and carry settings: the first one's are used for all."""
    seen: dict[str, tuple[int, Any]] = {}
    spec = Fields(obj, "").inside("spec")
    for place, entry in enumerate(spec.entries("supportedModelFormats")):
        config = entry.value.get("acceleratorConfig")
        rest = {
            key: value
            for key, value in entry.value.items()
            if key not in {"acceleratorConfig", "quantization", "modelArchitecture", "priority", "autoSelect"}
        }
        first = seen.setdefault(repr(sorted(rest.items(), key=str)), (place, config))
        if first[0] != place and first[1] != config:
            yield warning(
                "formats-share-overrides",
                entry.path,
                f"OME tells it from supportedModelFormats[{first[0]}] neither by quantization nor by architecture, and "
                "uses the acceleratorConfig of one for both",
            )


_CHECKS: tuple[Check, ...] = (
    _never_read,
    _overrides,
    _classes,
    _counts,
    _resources,
    _affinity,
    _model_init,
    _formats,
)
