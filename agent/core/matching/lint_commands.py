"""Findings about command lines and environments that OME rewrites once a class is chosen."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent.core.matching.arguments import PIPELINE_FLAGS, TENSOR_FLAGS, flag_value, flags_of, is_multi_line
from agent.core.matching.fields import Fields
from agent.core.matching.lint_scope import warning
from agent.core.matching.requirements import Override
from agent.core.matching.subject import Subject
from agent.core.matching.verdicts import Finding

_PARALLELISM_VARIABLE = "PARALLELISM_SIZE"
_ALIASES = (TENSOR_FLAGS, PIPELINE_FLAGS)


@dataclass(frozen=True, slots=True)
class _Line:
    """The arguments of one container."""

    path: str
    arguments: tuple[str, ...]


def command_findings(obj: Mapping[str, Any], subject: Subject) -> Iterator[Finding]:
    """Return what happens to arguments, parallel sizes and variables of a runtime."""
    lines = list(_lines(Fields(obj, "").inside("spec")))
    yield from _dropped_variable(obj, lines, subject)
    for override in subject.requirements.overrides:
        yield from _lost_size(
            override, "tensorParallelSize", TENSOR_FLAGS, override.parallelism.tensor, lines
        )
        yield from _lost_size(
            override, "pipelineParallelSize", PIPELINE_FLAGS, override.parallelism.pipeline, lines
        )
    for config in _configs(Fields(obj, "").inside("spec")):
        yield from _argument_override(config, lines)
        yield from _environment(config)


def _lines(spec: Fields) -> Iterator[_Line]:
    for container in _containers(spec):
        for key in ("args", "command"):
            arguments = container.texts(key)
            if arguments:
                yield _Line(container.at(key), arguments)


def _containers(spec: Fields) -> Iterator[Fields]:
    yield from spec.entries("containers")
    for component in ("engineConfig", "decoderConfig"):
        section = spec.inside(component)
        yield section.inside("runner")
        yield section.inside("leader").inside("runner")
        yield section.inside("worker").inside("runner")


def _configs(spec: Fields) -> Iterator[Fields]:
    for entry in spec.entries("supportedModelFormats"):
        configs = entry.inside("acceleratorConfig")
        for class_name in configs.value:
            yield configs.inside(class_name)


def _dropped_variable(obj: Mapping[str, Any], lines: Sequence[_Line], subject: Subject) -> Iterator[Finding]:
    if subject.requirements.classes is None:
        return
    paths = [
        line.path for line in lines if any(f"({_PARALLELISM_VARIABLE})" in text for text in line.arguments)
    ]
    for container in _containers(Fields(obj, "").inside("spec")):
        paths += [
            entry.path
            for entry in container.entries("env")
            if f"({_PARALLELISM_VARIABLE})" in str(entry.value)
        ]
    for path in paths:
        yield warning(
            "parallelism-size-dropped",
            path,
            f"OME no longer sets {_PARALLELISM_VARIABLE} once a class is chosen; write the number, or set the variable "
            "in environmentOverride",
        )


def _lost_size(
    override: Override, key: str, flags: Sequence[str], size: int | None, lines: Sequence[_Line]
) -> Iterator[Finding]:
    """Tell where OME finds no flag whose number it could replace."""
    if size is None:
        return
    why = _why_lost(lines, flags)
    if why is not None:
        yield warning(
            "parallel-size-override-lost",
            f"{override.parallelism.path}.{key}",
            f"{why}, so {size} is not set",
        )


def _why_lost(lines: Sequence[_Line], flags: Sequence[str]) -> str | None:
    holding = [line for line in lines if flag_value(flags_of(line.arguments), flags) is not None]
    if not holding:
        return f"no argument has {' or '.join(flags)}"
    arguments = holding[0].arguments
    if is_multi_line(arguments):
        pattern = "|".join(map(re.escape, flags))
        return (
            None if re.search(rf"(?:{pattern})(?:=|\s+)\d+", "\n".join(arguments)) else _variable(holding[0])
        )
    if len(arguments) == 1 and " " in arguments[0].strip():
        return f"{holding[0].path} is one line, which OME does not search"
    if any(" " in argument and any(flag in argument for flag in flags) for argument in arguments):
        return f"{holding[0].path} has the flag inside a longer text, which OME does not search"
    return None


def _variable(line: _Line) -> str:
    return f"{line.path} has a variable where OME looks for a number"


def _argument_override(config: Fields, lines: Sequence[_Line]) -> Iterator[Finding]:
    override = config.texts("runtimeArgsOverride") or ()
    path = config.at("runtimeArgsOverride")
    if not override:
        return
    written = [argument for line in lines for argument in line.arguments]
    for origin, arguments in ((path, override), *((line.path, line.arguments) for line in lines)):
        counts = Counter(flag.name for flag in flags_of(arguments))
        for name in sorted(name for name, count in counts.items() if count > 1):
            yield warning("repeated-flag-collapses", origin, f"{name} is given more than once; OME keeps one")
    yield from _split_values(path, override)
    yield from _doubled_aliases(path, override, written)
    if any(is_multi_line(line.arguments) for line in lines):
        message = "OME splits the script by line and glues it with backslashes, which breaks anything but one command"
        yield warning("script-is-glued", path, message)


def _split_values(path: str, override: Sequence[str]) -> Iterator[Finding]:
    for place, argument in enumerate(override):
        follows_flag = place > 0 and override[place - 1].startswith("--") and "=" not in override[place - 1]
        if follows_flag and re.fullmatch(r"-[0-9.]+", argument):
            flag = override[place - 1]
            message = f"OME takes {argument} for a flag of its own; write {flag}={argument}"
            yield warning("negative-value-splits", f"{path}[{place}]", message)


def _doubled_aliases(path: str, override: Sequence[str], written: Sequence[str]) -> Iterator[Finding]:
    new = {flag.name for flag in flags_of(override)}
    old = {flag.name for flag in flags_of(written)}
    for aliases in _ALIASES:
        mine, theirs = new.intersection(aliases), old.intersection(aliases)
        if mine and theirs and not mine & theirs:
            message = f"{min(mine)} is added beside {min(theirs)}: OME does not know that they are one flag"
            yield warning("alias-added-twice", path, message)


def _environment(config: Fields) -> Iterator[Finding]:
    variables = config.pairs("environmentOverride")
    path = config.at("environmentOverride")
    if variables:
        yield warning(
            "environment-override-wins",
            path,
            "OME puts these over the user's own values, against its documentation",
        )
    if len(variables) > 1:
        yield warning(
            "environment-order-changes",
            path,
            f"{len(variables)} variables are appended in random order, so the pod template may change at each reconcile",
        )
