"""The objects that `match` was given in files: of known kinds, named, each once, and with values that can be used."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

from agent.commands.documents import Document, read_documents
from agent.commands.yaml_values import InputError
from agent.core.keys import DEFAULT_DOMAIN
from agent.core.matching.hardware import class_facts
from agent.core.matching.nodes import object_problems
from agent.core.matching.requirements import model_of
from agent.core.matching.spelling import did_you_mean
from agent.core.matching.subject import (
    MODEL_KINDS,
    RUNTIME_KINDS,
    SERVICE_KIND,
    runtime_subject,
    service_subjects,
)
from agent.core.matching.verdicts import Problem

Object = Mapping[str, Any]

_OME = "ome.io/v1beta1"

API_VERSIONS = {
    "ServingRuntime": _OME,
    "ClusterServingRuntime": _OME,
    "InferenceService": _OME,
    "BaseModel": _OME,
    "ClusterBaseModel": _OME,
    "AcceleratorClass": _OME,
    "Node": "v1",
    "AcceleratorNode": "accelerators.ome.io/v1alpha1",
}

NODE_KINDS = ("Node", "AcceleratorNode")

_MOST_PROBLEMS = 20


@dataclass(frozen=True, slots=True)
class Inputs:
    """All documents of all files."""

    documents: tuple[Document, ...] = ()

    def of(self, *kinds: str) -> list[dict[str, Any]]:
        """Return the objects of some kinds, in the order in which they were given."""
        return [document.value for document in self.documents if document.value["kind"] in kinds]

    def files_of(self, *kinds: str) -> list[str]:
        """Return the names of the files that hold objects of some kinds."""
        return list(
            dict.fromkeys(document.file for document in self.documents if document.value["kind"] in kinds)
        )


def read_inputs(names: Sequence[str], stdin: BinaryIO) -> Inputs:
    """Return the objects of all files. Raises `InputError` for a file or an object that cannot be used at all."""
    if list(names).count("-") > 1:
        raise InputError("standard input can be read once; -f - is given twice")
    documents = [document for name in names for document in read_documents(name, stdin)]
    seen: dict[tuple[str, str | None, str], Document] = {}
    for document in documents:
        key = _checked(document)
        if key in seen:
            raise InputError(f"{document.at('')}: {key[0]} {key[2]} is given before, at {seen[key].at('')}")
        seen[key] = document
    return Inputs(tuple(documents))


def refuse_bad_values(inputs: Inputs, *, domain: str = DEFAULT_DOMAIN) -> None:
    """Raise `InputError` with each value that is no value of its field: wrong kinds, units, signs, null lists."""
    messages = [
        f"{document.at(problem.path)}: {_title(document.value)} {problem.path}: {problem.message}"
        for document in inputs.documents
        for problem in value_problems(document.value, domain=domain)
    ]
    if not messages:
        return
    more = len(messages) - _MOST_PROBLEMS
    shown = messages[:_MOST_PROBLEMS] + ([f"… and {more} more"] if more > 0 else [])
    raise InputError("\n".join(shown))


def value_problems(obj: Object, *, domain: str = DEFAULT_DOMAIN) -> Iterable[Problem]:
    """Return what cannot be used of one object, whichever kind it is of."""
    kind = obj["kind"]
    if kind in RUNTIME_KINDS:
        return runtime_subject(obj).problems
    if kind == SERVICE_KIND:
        return dict.fromkeys(
            problem for subject in service_subjects(obj, runtime=None) for problem in subject.problems
        )
    if kind in MODEL_KINDS:
        problems: list[Problem] = []
        model_of(obj, "spec", problems)
        return problems
    if kind == "AcceleratorClass":
        return class_facts(obj, domain=domain).problems
    return object_problems(obj)


def _checked(document: Document) -> tuple[str, str | None, str]:
    """Return kind, namespace and name of an object that is of a kind we read."""
    value = document.value
    kind, version = value.get("kind"), value.get("apiVersion")
    if not isinstance(kind, str) or not isinstance(version, str):
        given = (("apiVersion", version), ("kind", kind))
        lacking = " and no ".join(key for key, found in given if not isinstance(found, str))
        raise InputError(f"{document.at('')}: is no Kubernetes object: it has no {lacking}")
    expected = API_VERSIONS.get(kind)
    if expected is None:
        kinds = ", ".join(API_VERSIONS)
        raise InputError(
            f"{document.at('kind')}: {kind} is not read here{did_you_mean(kind, API_VERSIONS)} (read are {kinds})"
        )
    if version != expected:
        raise InputError(
            f"{document.at('apiVersion')}: {kind} of {version} is not read here, only of {expected}"
        )
    metadata = value.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if not isinstance(metadata, dict) or not isinstance(name, str) or not name:
        raise InputError(f"{document.at('metadata')}: {kind} has no metadata.name")
    namespace = metadata.get("namespace")
    if namespace is not None and not isinstance(namespace, str):
        raise InputError(
            f"{document.at('metadata.namespace')}: {kind} {name} has a namespace that is not text"
        )
    for section in ("spec", "status"):
        if not isinstance(value.get(section, {}), dict):
            raise InputError(f"{document.at(section)}: {section} of {kind} {name} is no object")
    return kind, namespace, name


def _title(obj: Object) -> str:
    return f"{obj['kind']} {obj['metadata']['name']}"
