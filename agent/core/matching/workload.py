"""What the pods of a runtime ask for: how many, how many accelerators each, parallel sizes, and where they may run."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agent.core.matching.arguments import (
    DATA_FLAGS,
    PIPELINE_FLAGS,
    SHARED_DATA_FLAG,
    TENSOR_FLAGS,
    Flag,
    flags_of,
    size_of,
)
from agent.core.matching.fields import Fields
from agent.core.quantity import InvalidQuantityError, parse_quantity

_ACCELERATOR_PREFIXES = (
    "nvidia.com/gpu",
    "nvidia.com/mig-",
    "amd.com/",
    "gpu.intel.com/",
    "google.com/tpu",
    "aws.amazon.com/neuron",
    "habana.ai/",
)

COMPONENTS = {"engine": "engineConfig", "decoder": "decoderConfig"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Parallelism:
    """Sizes of the parallel groups; `None` is not stated."""

    tensor: int | None = None
    pipeline: int | None = None
    data: int | None = None
    path: str | None = None

    @property
    def stated(self) -> bool:
        """Tell whether any size is given."""
        return any(size is not None for size in (self.tensor, self.pipeline, self.data))

    @property
    def replica(self) -> int:
        """Return the accelerators that hold one copy of the model."""
        return (self.tensor or 1) * (self.pipeline or 1)

    @property
    def total(self) -> int:
        """Return the accelerators of all copies."""
        return self.replica * (self.data or 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where a pod may run, by labels and taints."""

    node_selector: Mapping[str, str] = field(default_factory=dict)
    terms: Sequence[Mapping[str, Any]] | None = None
    """Required node affinity: terms of which one must hold; `None` where there is no such affinity."""
    tolerations: Sequence[Mapping[str, Any]] = ()
    path: str = "spec"


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """The pods of one component."""

    pods: int = 1
    """Of one replica: a leader and its workers, else 1."""
    per_pod: int | None = None
    """Accelerators that each pod asks for; `None` where it asks for none."""
    resource: str | None = None
    path: str | None = None
    """Where the accelerators are asked for."""
    parallelism: Parallelism = Parallelism()
    placement: Placement = Placement()


def workload_of(runtime: Fields | None, service: Fields | None, component: str) -> Workload:
    """Return the pods of a component, from the `spec` of the runtime and of the service that overrides it."""
    pods = [*_pods(runtime, component), *_service_pods(service, component)]
    asks = [ask for pod in pods for ask in _asks(pod)]
    shape = _shape([pod for pod in pods if pod.has("leader") or pod.has("worker")])
    # What a service asks for replaces what the runtime asks for.
    service_asks = [ask for ask in asks if service is not None and ask.path.startswith(service.path + ".")]
    asked = max(service_asks or asks, key=lambda ask: ask.count, default=None)
    return Workload(
        pods=shape,
        per_pod=asked.count if asked else None,
        resource=asked.resource if asked else None,
        path=asked.path if asked else None,
        parallelism=_parallelism(pods),
        placement=_placement(pods),
    )


@dataclass(frozen=True, slots=True)
class _Ask:
    count: int
    resource: str
    path: str


def _pods(spec: Fields | None, component: str) -> Iterator[Fields]:
    """Return the objects that hold pod fields: the spec itself, the component's section, its leader and workers."""
    if spec is None:
        return
    section = spec.inside(COMPONENTS[component])
    yield spec
    if spec.has("workers"):
        yield spec.inside("workers")
    yield from _with_parts(section)


def _service_pods(spec: Fields | None, component: str) -> Iterator[Fields]:
    if spec is not None and spec.has(component):
        yield from _with_parts(spec.inside(component))


def _with_parts(section: Fields) -> Iterator[Fields]:
    yield section
    for part in ("leader", "worker"):
        if section.has(part):
            yield section.inside(part)


def _shape(sections: list[Fields]) -> int:
    """Return the pods of one replica: the last section that has workers decides."""
    for section in reversed(sections):
        if section.has("worker"):
            return 1 + (section.inside("worker").whole("size", unit="pods") or 0)
    return 1


def _containers(pod: Fields) -> Iterator[Fields]:
    if pod.has("runner"):
        yield pod.inside("runner")
    if pod.has("containers"):
        yield from pod.entries("containers")


def _asks(pod: Fields) -> Iterator[_Ask]:
    for container in _containers(pod):
        resources = container.inside("resources")
        for kind in ("limits", "requests"):
            found = list(_accelerators(resources.inside(kind)))
            if found:
                yield from found
                break


def _accelerators(amounts: Fields) -> Iterator[_Ask]:
    for name, raw in amounts.value.items():
        if not name.startswith(_ACCELERATOR_PREFIXES):
            continue
        try:
            count = parse_quantity(raw)
        except InvalidQuantityError as error:
            amounts.refuse(name, str(error))
            continue
        if count < 0 or count != count.to_integral_value():
            amounts.refuse(name, f"{raw!r} is not a whole number of accelerators")
        elif count:
            yield _Ask(int(count), name, f"{amounts.path}[{name}]")


def _parallelism(pods: list[Fields]) -> Parallelism:
    """Return the sizes of the first container that states any; a service's arguments come after the runtime's."""
    for pod in reversed(pods):
        for container in _containers(pod):
            for key in ("args", "command"):
                flags = flags_of(container.texts(key) or ())
                sizes = _sizes(flags, container.at(key))
                if sizes.stated:
                    return sizes
    return Parallelism()


def _sizes(flags: Sequence[Flag], path: str) -> Parallelism:
    shared = any(flag.name == SHARED_DATA_FLAG for flag in flags)
    return Parallelism(
        tensor=size_of(flags, TENSOR_FLAGS),
        pipeline=size_of(flags, PIPELINE_FLAGS),
        data=None if shared else size_of(flags, DATA_FLAGS),
        path=path,
    )


def _placement(pods: list[Fields]) -> Placement:
    """Merge selectors and tolerations; of affinities the last one counts, as a pod has only one."""
    selector: dict[str, str] = {}
    terms: Sequence[Mapping[str, Any]] | None = None
    tolerations: list[Mapping[str, Any]] = []
    path = "spec"
    for pod in pods:
        if pod.has("nodeSelector"):
            selector |= pod.pairs("nodeSelector")
            path = pod.at("nodeSelector")
        if pod.has("affinity"):
            terms = required_terms(pod.inside("affinity"))
            path = pod.at("affinity")
        if pod.has("tolerations"):
            tolerations += [entry.value for entry in pod.entries("tolerations")]
    return Placement(node_selector=selector, terms=terms, tolerations=tuple(tolerations), path=path)


def required_terms(affinity: Fields) -> Sequence[Mapping[str, Any]] | None:
    """Return the terms of a required node affinity, `None` where there is none."""
    required = affinity.inside("nodeAffinity").inside("requiredDuringSchedulingIgnoredDuringExecution")
    if not required.has("nodeSelectorTerms"):
        return None
    return tuple(entry.value for entry in required.entries("nodeSelectorTerms"))
