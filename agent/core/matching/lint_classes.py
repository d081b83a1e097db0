"""Findings about an `AcceleratorClass`: values that OME reads otherwise than they look."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from agent.core.catalogue import GIB
from agent.core.matching.hardware import ClassFacts, gib_text
from agent.core.matching.lint_scope import LintScope, error, info, warning
from agent.core.matching.ome_scores import memory_as_gib
from agent.core.matching.placement import selector_checks
from agent.core.matching.verdicts import Finding
from agent.core.matching.versions import parse_version
from agent.core.quantity import InvalidQuantityError, is_binary, parse_quantity

Check = Callable[[Mapping[str, Any], ClassFacts, LintScope], Iterator[Finding]]

_SPEC = {
    "": ("vendor", "family", "model", "discovery", "capabilities", "resources", "integration", "cost"),
    "discovery": ("nodeSelector", "affinity", "pciVendorID", "deviceIDs"),
    "capabilities": (
        *(
            "memoryGB",
            "computeCapability",
            "memoryBandwidthGBps",
            "features",
            "clockSpeedMHz",
            "levelZeroVersion",
        ),
        "performance",
    ),
    "capabilities.performance": ("fp32Tflops", "fp16Tflops", "int8Tops", "int4Tops", "latency"),
    "cost": ("perHour", "spotPerHour", "perMillionTokens", "tier"),
}

_TIERS = {"low", "medium", "high"}


def class_findings(obj: Mapping[str, Any], facts: ClassFacts, scope: LintScope) -> Iterator[Finding]:
    """Return what will surprise the author of a class."""
    for check in _CHECKS:
        yield from check(obj, facts, scope)


def _memory(_: Mapping[str, Any], facts: ClassFacts, __: LintScope) -> Iterator[Finding]:
    memory, path = facts.memory, "spec.capabilities.memoryGB"
    if memory is None:
        return
    seen, nominal = memory_as_gib(memory.text), int(memory.nominal_gib)
    if seen is None or seen >= nominal:
        return
    advice = f"OME reads {seen}, so minMemory {nominal} leaves the class out; write {nominal}Gi"
    if not is_binary(memory.text):
        yield warning("memory-decimal-unit", path, f"{memory.text} counts in powers of ten: {advice}")
    else:
        yield warning(
            "memory-below-nominal",
            path,
            f"{memory.text} is what the driver measures, not what is sold: {advice}",
        )


def _host_memory(_: Mapping[str, Any], facts: ClassFacts, scope: LintScope) -> Iterator[Finding]:
    if facts.memory is None:
        return
    for node in scope.nodes:
        selected = not list(selector_checks(facts.node_selector, node.labels, "the class"))
        if selected and node.memory_bytes is not None and node.memory_bytes < facts.memory.bytes:
            yield warning(
                "memory-above-host-ram",
                "spec.capabilities.memoryGB",
                f"OME compares it with the RAM of nodes: {node.name} has {gib_text(node.memory_bytes / GIB)}, so "
                "status.nodes leaves it out (pods still land there)",
            )
            return


def _selector(_: Mapping[str, Any], facts: ClassFacts, scope: LintScope) -> Iterator[Finding]:
    if not facts.node_selector:
        yield error(
            "empty-node-selector",
            "spec.discovery.nodeSelector",
            "an empty selector meets every node: pods of this class land anywhere and OME counts all nodes; write "
            f"class.{scope.domain}/{facts.name}: 'true'",
        )


def _affinity(_: Mapping[str, Any], facts: ClassFacts, __: LintScope) -> Iterator[Finding]:
    if facts.affinity:
        path = "spec.discovery.affinity"
        yield warning(
            "affinity-not-in-status", path, "OME's status.nodes ignores it and counts nodes that it rules out"
        )
        yield warning(
            "affinity-replaces-pods",
            path,
            "OME puts it in place of the runtime's own affinity, which is lost",
        )


def _capability(_: Mapping[str, Any], facts: ClassFacts, __: LintScope) -> Iterator[Finding]:
    text, path = facts.capability, "spec.capabilities.computeCapability"
    version = parse_version(text) if text else None
    if text is None or version is None or isinstance(version, str):
        return
    if version[0] >= 10:
        yield warning(
            "capability-compared-as-text",
            path,
            f"OME compares text, where {text} is below 9.0: a minArchitectureVersion of 8.0 or 9.0 leaves the class out",
        )
    elif "." not in text:
        yield warning(
            "capability-compared-as-text",
            path,
            f"OME compares text, where {text} is below {text}.0; write {version[0]}.0",
        )


def _bandwidth(_: Mapping[str, Any], facts: ClassFacts, __: LintScope) -> Iterator[Finding]:
    found = facts.bandwidth_gbps
    if found is not None and found != found.to_integral_value():
        yield warning(
            "bandwidth-rounded-up",
            "spec.capabilities.memoryBandwidthGBps",
            f"{found} is read as {int(found) + 1} GB/s; write whole GB/s, such as 3350",
        )


def _resources(_: Mapping[str, Any], facts: ClassFacts, __: LintScope) -> Iterator[Finding]:
    if facts.resources:
        listed = ", ".join(f"{name}: {count}" for name, count in facts.resources.items())
        yield warning(
            "resources-override-gpu-count",
            "spec.resources",
            f"OME writes {listed} over what a runtime asks for, and leaves other accelerator resources beside it",
        )


def _prices(obj: Mapping[str, Any], _: ClassFacts, __: LintScope) -> Iterator[Finding]:
    cost = (obj.get("spec") or {}).get("cost")
    if not isinstance(cost, Mapping):
        return
    for key in ("perHour", "spotPerHour", "perMillionTokens"):
        if _is_zero(cost.get(key)):
            path = f"spec.cost.{key}"
            yield warning(
                "price-of-zero", path, "0 is free for OME, and Cheapest takes it; leave out what is not known"
            )
    tier = cost.get("tier")
    if isinstance(tier, str) and tier and tier.lower() not in _TIERS:
        message = f"{tier!r} counts as medium for OME; write low, medium or high"
        yield warning("tier-not-known", "spec.cost.tier", message)


def _is_zero(raw: object) -> bool:
    try:
        return raw is not None and parse_quantity(raw) == 0
    except InvalidQuantityError:
        # Told as a value that cannot be used.
        return False


def _family(_: Mapping[str, Any], facts: ClassFacts, __: LintScope) -> Iterator[Finding]:
    if "-" in (facts.family or ""):
        yield warning(
            "family-with-hyphen",
            "spec.family",
            f"OME compares an allowed family with a hyphen as vendor-family, so {facts.family} alone is never met; "
            "write it without the hyphen",
        )


def _fields(obj: Mapping[str, Any], _: ClassFacts, __: LintScope) -> Iterator[Finding]:
    """Tell of fields that OME's proposal shows and the installed schema drops."""
    for place, known in _SPEC.items():
        section = obj.get("spec")
        for key in filter(None, place.split(".")):
            section = section.get(key) if isinstance(section, Mapping) else None
        for key in section if isinstance(section, Mapping) else ():
            if key not in known:
                path = ".".join(filter(None, ("spec", place, key)))
                message = f"the schema has no {key}: the server drops it in silence"
                yield warning("field-not-in-schema", path, message)


def _status(obj: Mapping[str, Any], facts: ClassFacts, _: LintScope) -> Iterator[Finding]:
    if obj.get("status") and facts.total is None:
        yield info(
            "totals-never-filled",
            "status.totalAccelerators",
            "OME never fills it; the inventory controller of this project does",
        )


def _console(_: Mapping[str, Any], __: ClassFacts, ___: LintScope) -> Iterator[Finding]:
    yield info(
        "console-shows-unknown",
        "spec",
        "OME's web console reads fields that do not exist and shows no memory",
    )


_CHECKS: tuple[Check, ...] = (
    _memory,
    _host_memory,
    _selector,
    _affinity,
    _capability,
    _bandwidth,
    _resources,
    _prices,
    _family,
    _fields,
    _status,
    _console,
)
