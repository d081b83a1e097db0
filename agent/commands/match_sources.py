"""Where classes, nodes, runtimes, services and models come from: files first, then the cluster, then this machine."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from agent.commands.match_cluster import ClusterReader
from agent.commands.match_input import NODE_KINDS, Inputs
from agent.commands.yaml_values import InputError
from agent.core.keys import DEFAULT_DOMAIN
from agent.core.matching.hardware import class_facts
from agent.core.matching.lint_scope import runtime_named_by
from agent.core.matching.nodes import NodeView, node_views
from agent.core.matching.question import Hardware
from agent.core.matching.requirements import Model, Stated, parameter_count, precision_word
from agent.core.matching.subject import (
    MODEL_KINDS,
    RUNTIME_KINDS,
    SERVICE_KIND,
    Subject,
    runtime_subject,
    service_subjects,
)
from agent.core.matching.verdicts import Finding

Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Hardware, the objects behind it, and what was learned while it was read."""

    hardware: Hardware
    classes: Sequence[Object]
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalHardware:
    """This machine: its AcceleratorClass objects and its AcceleratorNode, or why it could not be asked."""

    objects: Sequence[Object] = ()
    not_asked: str | None = None
    """`None` where it was asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFlags:
    """What the command line says of the model."""

    name: str | None = None
    parameters: str | None = None
    precision: str | None = None


@dataclass(slots=True)
class Sources:
    """One command's sources, each asked only where it is needed."""

    inputs: Inputs
    connect: Callable[[], ClusterReader | None]
    """Returns `None` without a cluster."""
    local: Callable[[], LocalHardware]
    domain: str = DEFAULT_DOMAIN
    namespace: str | None = None
    _readers: list[ClusterReader | None] = field(default_factory=list)

    @property
    def reader(self) -> ClusterReader | None:
        """Return what reads the cluster, connected at the first call."""
        if not self._readers:
            self._readers.append(self.connect())
        return self._readers[0]

    def hardware(self) -> Found:
        """Return classes and nodes; each kind from the first source that has it."""
        local = LocalHardware()
        classes: Sequence[Object] = self.inputs.of("AcceleratorClass")
        origin = ", ".join(self.inputs.files_of("AcceleratorClass"))
        if not classes and self.reader is not None:
            classes, origin = self.reader.classes(), "the cluster"
        elif not classes:
            local = self.local()
            classes = [obj for obj in local.objects if obj.get("kind") == "AcceleratorClass"]
            origin = "this machine" if local.not_asked is None else "this machine, which could not be asked"
        facts = tuple(class_facts(obj, domain=self.domain) for obj in classes)
        nodes, records, requested, findings, node_origin = self._nodes(local.objects)
        views, problems = node_views(nodes, records, requested=requested, domain=self.domain)
        unread = tuple(
            Finding(id="value-not-usable", severity="error", path=one.path, message=one.message)
            for one in problems
        )
        where = origin if node_origin in ("", origin) else f"{origin}, nodes of {node_origin}"
        hardware = Hardware(classes=facts, nodes=views, source=where, live=node_origin == "the cluster")
        return Found(hardware=hardware, classes=classes, findings=(*findings, *unread, *_not_asked(local)))

    def class_objects(self) -> Sequence[Object] | None:
        """Return all classes that exist for lint, `None` where neither files nor a cluster tell."""
        classes = self.inputs.of("AcceleratorClass")
        if classes:
            return classes
        return self.reader.classes() if self.reader is not None else None

    def node_views(self) -> tuple[NodeView, ...]:
        """Return the nodes of the files, for lint."""
        views, _ = node_views(self.inputs.of("Node"), self.inputs.of("AcceleratorNode"), domain=self.domain)
        return views

    def runtimes(self) -> list[Object]:
        """Return the runtimes of the files."""
        return list(self.inputs.of(*RUNTIME_KINDS))

    def subjects(self, names: Sequence[str], model: ModelFlags) -> list[Subject]:
        """Return what is asked about: the runtimes and services of the files, else of the cluster, cut to `names`."""
        objects: list[Object] = list(self.inputs.of(*RUNTIME_KINDS, SERVICE_KIND))
        if not objects and self.reader is not None:
            objects = [*self.reader.runtimes(self.namespace), *self.reader.services(self.namespace)]
        wanted = _named(objects, names)
        if not wanted:
            raise InputError(
                "nothing to match: give a ServingRuntime, ClusterServingRuntime or InferenceService with -f"
                + ("" if self.reader is not None else ", or a cluster that has some")
            )
        return [
            self._with_flags(subject, model) for obj in wanted for subject in self._subjects_of(obj, model)
        ]

    def runtime_for(self, service: Object) -> Object | None:
        """Return the runtime that a service names; without a name the only one of the files."""
        given = {
            (o["kind"], o["metadata"].get("namespace"), o["metadata"]["name"]): o for o in self.runtimes()
        }
        found = runtime_named_by(service, given)
        reference = (service.get("spec") or {}).get("runtime")
        name = reference.get("name") if isinstance(reference, Mapping) else None
        if found is None and isinstance(name, str):
            # A namespaced runtime in a file may leave its namespace to kubectl.
            found = next((obj for obj in given.values() if obj["metadata"]["name"] == name), None)
        if found is not None or self.reader is None or not isinstance(name, str):
            only = list(given.values())
            return found or (only[0] if len(only) == 1 and name is None else None)
        kind = reference.get("kind") if isinstance(reference, Mapping) else None
        return self.reader.runtime(name, kind, _namespace(service))

    def _subjects_of(self, obj: Object, model: ModelFlags) -> Iterable[Subject]:
        if obj["kind"] == SERVICE_KIND:
            return service_subjects(obj, runtime=self.runtime_for(obj), model=self._model(obj, model.name))
        return (runtime_subject(obj, model=self._model(None, model.name)),)

    def _model(self, service: Object | None, name: str | None) -> Object | None:
        given = list(self.inputs.of(*MODEL_KINDS))
        reference = (service.get("spec") or {}).get("model") if service else None
        if name is None and isinstance(reference, Mapping):
            name = reference.get("name")
        if name is None:
            return given[0] if len(given) == 1 else None
        found: Object | None = next((obj for obj in given if obj["metadata"]["name"] == name), None)
        if found is None and self.reader is not None:
            kind = reference.get("kind") if isinstance(reference, Mapping) else None
            found = self.reader.model(name, kind, _namespace(service) if service else self.namespace)
        if found is None and service is None:
            raise InputError(f"--model {name}: there is no such BaseModel or ClusterBaseModel")
        return found

    def _nodes(
        self, local: Sequence[Object]
    ) -> tuple[
        Sequence[Object], Sequence[Object], Mapping[str, Mapping[str, int]] | None, tuple[Finding, ...], str
    ]:
        if self.inputs.of(*NODE_KINDS):
            origin = ", ".join(self.inputs.files_of(*NODE_KINDS))
            return self.inputs.of("Node"), self.inputs.of("AcceleratorNode"), None, (), origin
        if self.reader is not None:
            read = self.reader.nodes()
            return read.nodes, read.records, read.requested, read.findings, "the cluster"
        records = [obj for obj in local if obj.get("kind") == "AcceleratorNode"]
        return (), records, None, (), "this machine" if records else ""

    def _with_flags(self, subject: Subject, flags: ModelFlags) -> Subject:
        requirements = subject.requirements
        model = requirements.model
        if flags.parameters is not None:
            billions = parameter_count(flags.parameters)
            if billions is None:
                raise InputError(f"--params {flags.parameters!r} is not a size such as 70B, 7.62B or 350M")
            precision = model.precision if model else None
            model = Model(name="--params", billions=billions, precision=precision, source="--params")
        precisions = requirements.precisions
        if flags.precision is not None:
            word = precision_word(flags.precision)
            if word is None:
                raise InputError(
                    f"--precision {flags.precision!r} is not a precision such as fp8, bf16 or int8"
                )
            precisions = Stated((word,), "--precision")
            model = replace(model, precision=word) if model else None
        return replace(subject, requirements=replace(requirements, model=model, precisions=precisions))


def _not_asked(local: LocalHardware) -> Iterable[Finding]:
    if local.not_asked is not None:
        message = f"the hardware of this machine could not be asked: {local.not_asked}"
        yield Finding(id="hardware-not-asked", severity="error", path="", message=message)


def _named(objects: Sequence[Object], names: Sequence[str]) -> list[Object]:
    """Return the objects that are asked for: by name, or by `Kind/name`."""
    if not names:
        return list(objects)
    found = []
    for name in names:
        matching = [
            obj
            for obj in objects
            if name in (obj["metadata"]["name"], f"{obj['kind']}/{obj['metadata']['name']}")
        ]
        if not matching:
            known = ", ".join(f"{obj['kind']}/{obj['metadata']['name']}" for obj in objects[:20]) or "none"
            raise InputError(f"there is no runtime or service {name}; there are {known}")
        found += matching
    return found


def _namespace(service: Object | None) -> str | None:
    return (service.get("metadata") or {}).get("namespace") if service else None
