"""Findings about an `InferenceService`: what OME's selector ignores, gets wrong, or panics on."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from agent.core.matching.lint_scope import LintScope, error, info, warning
from agent.core.matching.ome import ANNOTATION, NOT_COMPATIBLE, ome_class, required_classes, runtime_classes
from agent.core.matching.ome_scores import OmeClass, eligible
from agent.core.matching.spelling import normal, with_general
from agent.core.matching.verdicts import Finding
from agent.core.matching.versions import compare_versions, parse_version

_SELECTOR = "spec.acceleratorSelector"
_COMPONENTS = ("engine", "decoder")

# How OME scores a precision for which its classes have no figure.
_SCORED_AS = {
    "fp8": "is scored by the figure of int8, so hardware without fp8 scores in full; require the feature fp8 as well",
    "bf16": "scores 0",
    "tf32": "scores 0",
    "fp64": "scores 0",
    "fp6": "scores 0",
    "fp4": "scores 0",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _View:
    """A service as OME's selector sees it."""

    service: Mapping[str, Any]
    runtime: Mapping[str, Any] | None
    listed: list[str]
    """Classes of the runtime."""
    classes: list[OmeClass]
    """Those of them that exist."""
    selector: Mapping[str, Any]
    constraints: Mapping[str, Any] | None
    policies: list[tuple[str, str]]
    """Policy and path of each component that has one; a component's own beats the service's."""

    @property
    def names(self) -> list[tuple[str, str]]:
        """Return each class that is named, with its path; the annotation is apart."""
        named = self.selector.get("acceleratorClass")
        found = [(str(named), f"{_SELECTOR}.acceleratorClass")] if named else []
        for component in _COMPONENTS:
            own = _override(self.service, component).get("acceleratorClass")
            if own:
                found.append((str(own), f"spec.{component}.acceleratorOverride.acceleratorClass"))
        return found


def service_findings(
    obj: Mapping[str, Any], runtime: Mapping[str, Any] | None, scope: LintScope
) -> Iterator[Finding]:
    """Return what will surprise the author of a service whose values are of the right kinds."""
    view = _view(obj, runtime, scope)
    for check in (
        _policies,
        _names,
        _constraints,
        _capabilities,
        _features,
        _unread,
        _engine,
        _costs,
        _default,
    ):
        yield from check(view)
    yield from _missing_runtime(obj, runtime, scope)


def _view(obj: Mapping[str, Any], runtime: Mapping[str, Any] | None, scope: LintScope) -> _View:
    spec = obj.get("spec") or {}
    selector = spec.get("acceleratorSelector") or {}
    listed = runtime_classes(runtime)
    policies = []
    for component in _COMPONENTS:
        own = _override(obj, component).get("policy")
        if own:
            policies.append((str(own), f"spec.{component}.acceleratorOverride.policy"))
    overridden = {path.split(".")[1] for _, path in policies}
    present = {component for component in _COMPONENTS if spec.get(component) is not None} or {"engine"}
    if selector.get("policy") and present - overridden:
        policies.append((str(selector["policy"]), f"{_SELECTOR}.policy"))
    return _View(
        service=obj,
        runtime=runtime,
        listed=listed,
        classes=[ome_class(one) for one in scope.known(listed)],
        selector=selector,
        constraints=selector.get("constraints"),
        policies=policies,
    )


def _override(obj: Mapping[str, Any], component: str) -> Mapping[str, Any]:
    return ((obj.get("spec") or {}).get(component) or {}).get("acceleratorOverride") or {}


def _policies(view: _View) -> Iterator[Finding]:
    many = view.runtime is None or len(view.listed) > 1
    for policy, path in view.policies:
        if policy == "BestFit" and view.constraints is None and many:
            message = (
                "BestFit without constraints makes OME's reconcile panic; write constraints: {} at the least"
            )
            yield error("bestfit-without-constraints", path, message)
        if policy == "FirstAvailable" and many:
            message = "OME takes the first class of the runtime's list, whether any of it is free or not"
            yield warning("first-available-ignores-availability", path, message)
    yield from _unread_policies(view)


def _unread_policies(view: _View) -> Iterator[Finding]:
    service_policy = view.selector.get("policy")
    path = f"{_SELECTOR}.policy"
    if service_policy and path not in {where for _, where in view.policies}:
        yield warning(
            "policy-never-read", path, "every component has a policy of its own, so this one is never read"
        )
    for _, where in view.policies:
        component = where.split(".")[1]
        named = view.selector.get("acceleratorClass") or _override(view.service, component).get(
            "acceleratorClass"
        )
        if named:
            yield warning("policy-never-read", where, f"the class {named} is named, so no policy is read")
        elif view.runtime is not None and not view.listed:
            message = "the runtime lists no acceleratorClasses, so there is nothing to choose from and no class is set"
            yield warning("policy-never-read", where, message)


def _names(view: _View) -> Iterator[Finding]:
    for name, path in view.names:
        if view.runtime is not None and name not in view.listed:
            yield error(
                "class-not-in-runtime-list", path, f"OME: {NOT_COMPATIBLE}; add {name} to the runtime's list"
            )
        if view.constraints:
            message = f"the class {name} is named, so its constraints are never checked"
            yield warning("constraints-ignored", f"{_SELECTOR}.constraints", message)
    annotations = (view.service.get("metadata") or {}).get("annotations") or {}
    if annotations.get(ANNOTATION):
        yield warning(
            "annotation-selects-nothing",
            f"metadata.annotations[{ANNOTATION}]",
            "it restricts which runtime is taken and then selects no class; set acceleratorSelector.acceleratorClass",
        )
    if view.policies or view.names:
        yield info(
            "class-change-not-noticed",
            _SELECTOR,
            "OME does not look again when a class changes; touch the service after editing one",
        )


def _constraints(view: _View) -> Iterator[Finding]:
    constraints = view.constraints or {}
    path = f"{_SELECTOR}.constraints"
    for key in ("minComputePerformanceTFLOPS", "preferredPrecisions"):
        if constraints.get(key):
            message = "OME only scores by it and leaves out no class"
            yield warning("constraint-never-filters", f"{path}.{key}", message)
    for place, precision in enumerate(constraints.get("preferredPrecisions") or ()):
        how = _SCORED_AS.get(str(precision).lower())
        if how:
            where = f"{path}.preferredPrecisions[{place}]"
            yield warning("precision-scored-otherwise", where, f"{precision} {how}")
    for place, family in enumerate(constraints.get("architectureFamilies") or ()):
        yield from _family(str(family), f"{path}.architectureFamilies[{place}]", view)
    for key in ("minMemory", "minComputePerformanceTFLOPS"):
        if constraints.get(key) == 0:
            yield info("minimum-of-zero", f"{path}.{key}", "0 asks for nothing; leave it out")
    if view.classes and len(view.classes) == len(view.listed) and not view.names:
        reasons = [(one["name"], eligible(one, constraints)) for one in view.classes]
        if not any(answer.ok for _, answer in reasons):
            listed = "; ".join(f"{name}: {answer.reason}" for name, answer in reasons[:4])
            message = f"for OME no listed class is left, so none is selected and nobody is told ({listed})"
            yield error("no-candidate-left", path, message)


def _family(family: str, path: str, view: _View) -> Iterator[Finding]:
    vendors = {str(one.get("vendor") or "").lower() for one in view.classes} or {"nvidia", "amd", "intel"}
    if "-" in family and family.lower().split("-")[0] not in vendors:
        message = f"OME reads it as vendor-family; write the family without a hyphen, or nvidia-{family.replace('-', '')}"
        yield warning("family-with-hyphen", path, message)


def _capabilities(view: _View) -> Iterator[Finding]:
    """Tell where comparing text leaves out a class that is new enough, or takes one that is not."""
    wanted = (view.constraints or {}).get("minArchitectureVersion")
    required = parse_version(wanted) if isinstance(wanted, str) else None
    if wanted is None or required is None:
        return
    path = f"{_SELECTOR}.constraints.minArchitectureVersion"
    wrong = []
    for one in view.classes:
        found = (one.get("capabilities") or {}).get("computeCapability") or ""
        version = parse_version(found)
        by_text = bool(found) and found.encode() >= wanted.encode()
        if version is not None and by_text != (compare_versions(version, required) == "reached"):
            wrong.append(f"{one['name']} ({found}) is {'taken' if by_text else 'left out'}")
    if wrong:
        message = f"OME compares text, where 10.0 is below 9.0: {', '.join(wrong)}"
        yield error("capability-compared-as-text", path, message)
    elif isinstance(required, tuple) and (not view.classes or required[0] >= 10 or "." not in wanted):
        message = (
            f"OME compares text, where 10.0 is below 9.0; {wanted} does not mean what it says for every class"
        )
        yield warning("capability-compared-as-text", path, message)


def _features(view: _View) -> Iterator[Finding]:
    for place, wanted in enumerate((view.constraints or {}).get("requiredFeatures") or ()):
        for one in view.classes:
            features = (one.get("capabilities") or {}).get("features") or ()
            exact = str(wanted).lower() in {feature.lower() for feature in features}
            if not exact and normal(str(wanted)) in with_general(features):
                yield warning(
                    "feature-spelling",
                    f"{_SELECTOR}.constraints.requiredFeatures[{place}]",
                    f"OME compares features to the letter, so {one['name']} lacks {wanted} for it",
                )
                break


def _unread(view: _View) -> Iterator[Finding]:
    for component in _COMPONENTS:
        if _override(view.service, component).get("constraints"):
            yield warning(
                "component-constraints-never-read",
                f"spec.{component}.acceleratorOverride.constraints",
                "OME reads the constraints of spec.acceleratorSelector alone",
            )


def _engine(view: _View) -> Iterator[Finding]:
    """Tell of what a class brings and OME does not apply, for want of an engine section."""
    spec = view.service.get("spec") or {}
    if any(spec.get(component) is not None for component in _COMPONENTS):
        return
    for one in view.classes:
        brings = [
            name
            for name, value in (
                ("resources", one.get("resources")),
                ("affinity", (one.get("discovery") or {}).get("affinity")),
            )
            if value
        ]
        if brings:
            listed = " and ".join(brings)
            yield warning(
                "resources-skipped-without-engine",
                "spec.engine",
                f"OME does not apply the {listed} of {one['name']} without an engine section; write engine: {{}}",
            )


def _costs(view: _View) -> Iterator[Finding]:
    for policy, path in view.policies:
        if policy != "Cheapest" or not view.classes:
            continue
        kinds = {str(one["name"]): _price_kind(one) for one in view.classes}
        without = [name for name, kind in kinds.items() if kind is None]
        if without:
            message = f"OME drops classes without a cost: {', '.join(without)}"
            yield warning("cheapest-without-cost", path, message)
        named = {kind for kind in kinds.values() if kind}
        if len(named) > 1:
            message = f"classes are priced by {', '.join(sorted(named))}: OME compares one kind and drops the others"
            yield warning("prices-of-several-kinds", path, message)


def _price_kind(one: OmeClass) -> str | None:
    cost = one.get("cost") or {}
    if cost.get("spotPerHour") is not None or cost.get("perHour") is not None:
        return "hour"
    if cost.get("perMillionTokens") is not None:
        return "token"
    return "tier" if cost.get("tier") else None


def _default(view: _View) -> Iterator[Finding]:
    if view.listed and not view.policies and not required_classes(view.service):
        yield warning(
            "no-policy-no-class",
            _SELECTOR,
            "neither a policy nor a class is given: OME selects no class, although its README names a default policy",
        )


def _missing_runtime(
    obj: Mapping[str, Any], runtime: Mapping[str, Any] | None, scope: LintScope
) -> Iterator[Finding]:
    named = ((obj.get("spec") or {}).get("runtime") or {}).get("name")
    if named and runtime is None and scope.runtimes:
        yield error("runtime-missing", "spec.runtime.name", f"there is no runtime {named}")
