"""What an operator may set: flags, then environment (`ACCELERATOR_…`), then a YAML file, then the defaults.

Every setting is one field of `Settings`; its flag, its variable and its key in the file are made from the field's name,
and so is the table in the documentation. A key that is not known is an error that names the nearest one.
"""

import argparse
import dataclasses
import re
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from agent.core.keys import DEFAULT_DOMAIN, domain_problem
from agent.core.label_text import MAX_LABEL_LENGTH, is_dns_subdomain

ENVIRONMENT_PREFIX = "ACCELERATOR_"
MAX_SETTINGS_BYTES = 1024 * 1024
LONGEST_SECONDS = 7 * 24 * 3600.0

# YAML's aliases can make the value of a small file endless, so it is shown in part.
_SHORT = reprlib.Repr()
_SHORT.maxlevel, _SHORT.maxstring, _SHORT.maxother = 2, 80, 80

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")
_UNIT_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


class SettingsError(Exception):
    """A setting that cannot be used; the message names it, its value and what would do."""


class Duration(float):
    """Seconds, written `90s`, `5m` or `1h`."""

    __slots__ = ()


def setting(doc: str, *, default: Any = None, by: str = "operator") -> Any:  # noqa: ANN401  # as dataclasses.field
    """Return a field with its documentation and who sets it."""
    metadata = {"doc": doc, "by": by}
    if isinstance(default, dict | list):
        return field(default_factory=default.copy, metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """All settings of all commands, each with its default."""

    node_name: str | None = setting(
        "Name of the Node this agent runs on; never guessed from the host name.",
        by="manifest (downward API `spec.nodeName`)",
    )
    probe_interval: Duration = setting("Time between two probes of the hardware.", default=Duration(60))
    probe_timeout: Duration = setting(
        "Time after which a probe that does not answer is abandoned.", default=Duration(30)
    )
    stale_after: Duration = setting(
        "Age of the last good probe from which device metrics are withdrawn.", default=Duration(300)
    )
    exit_after: Duration = setting(
        "Time without an answer, although the bus shows GPUs, after which the process exits so that a new "
        "container gets the devices.",
        default=Duration(900),
    )
    heartbeat: Duration = setting(
        "Longest time that the record stays without being written again; jittered.", default=Duration(900)
    )
    record_stale_after: Duration = setting(
        "Age of a record's observedAt from which the controller calls it stale.", default=Duration(2400)
    )
    label_domain: str = setting(
        "Domain of all label keys and annotations; the same for agents and controller.",
        default=DEFAULT_DOMAIN,
    )
    former_domains: tuple[str, ...] = setting(
        "Label domains that were used before; their keys are removed from the Node.", default=()
    )
    class_names: dict[str, str] = setting(
        "Canonical class name to the name to publish instead; the same for agents and controller.", default={}
    )
    mig_strategy: Literal["mixed", "single"] = setting(
        "The device plugin's strategy: `single` offers partitions as nvidia.com/gpu.", default="mixed"
    )
    compat_labels: tuple[Literal["gfd"], ...] = setting(
        "Further label families to write where nobody else owns them: `gfd` for nvidia.com/gpu.*.", default=()
    )
    allow_simulated: bool = setting("Publish facts of fake hardware to a cluster.", default=False)
    resources: Literal["none", "per-accelerator"] = setting(
        "Whether classes name the extended resource of one accelerator; it overrides a runtime's GPU count in OME.",
        default="none",
    )
    price_list: dict[str, dict[str, str]] = setting(
        "Class name to {perHour, spotPerHour, perMillionTokens, tier}, per accelerator.", default={}
    )
    class_edits: dict[str, dict[str, dict[str, list[str]]]] = setting(
        "Class name to {features, deviceIDs, resources} to {add, drop}: entries that its lists get or lose; these "
        "lists have one owner in the API, so nobody can add to them by an apply of their own.",
        default={},
    )
    node_selectors: dict[str, dict[str, str]] = setting(
        "Class name to the labels that select its nodes, in place of ours: for autoscalers that know only a "
        "cloud's label.",
        default={},
    )
    kueue_flavors: dict[str, str] = setting(
        "Class name to the Kueue ResourceFlavor that its class names.", default={}
    )
    volcano_gpu_types: dict[str, str] = setting(
        "Class name to the Volcano GPU type that its class names.", default={}
    )
    excluded_fields: tuple[str, ...] = setting(
        "Fields of a class's spec that are never written, as paths such as `capabilities.clockSpeedMHz`.",
        default=(),
    )
    pools: dict[str, dict[str, dict[str, Any]]] = setting(
        "`engines`: model servers beside the built-in ones, by the value of their pods' engine label, each with the "
        "metric families it serves (see pools.md).",
        default={},
    )
    lease_namespace: str = setting(
        "Namespace of the controller's Lease.",
        default="accelerator-system",
        by="manifest (downward API `metadata.namespace`)",
    )
    identity: str | None = setting(
        "Name under which this replica holds the Lease; the host name where absent.",
        by="manifest (downward API `metadata.name`)",
    )
    listen: str = setting("Address and port of metrics, health and the page.", default="[::]:9478")
    host_root: str = setting("Where the host's /sys, /proc and /dev are seen.", default="/")
    kubeconfig: str | None = setting(
        "Path of a kubeconfig file; absent: in-cluster, else KUBECONFIG, else ~/.kube/config."
    )
    context: str | None = setting("Context of the kubeconfig file.")
    log_level: Literal["debug", "info", "warning", "error"] = setting(
        "Least severity to log.", default="info"
    )
    log_format: Literal["text", "json"] = setting("Form of a log line.", default="text")

    def __post_init__(self) -> None:
        """Refuse what no process can run with."""
        for domain in (self.label_domain, *self.former_domains):
            problem = domain_problem(domain)
            if problem is not None:
                raise SettingsError(problem)
        for name, kind in _HINTS.items():
            if kind is Duration and not 0 < getattr(self, name) <= LONGEST_SECONDS:
                raise SettingsError(
                    f"{name} must be longer than 0s and at most 7 days, it is {getattr(self, name):g}s"
                )
        for name in self.class_names.values():
            # It becomes the name of an object, and a label's name and value.
            if not is_dns_subdomain(name) or len(name) > MAX_LABEL_LENGTH:
                raise SettingsError(
                    f"class_names: {name!r} cannot name a class; use up to {MAX_LABEL_LENGTH} lower-case letters, "
                    "digits, '-' and '.'"
                )


def add_settings_arguments(parser: argparse.ArgumentParser) -> None:
    """Add `--config` and a flag for every setting; a flag that is not given leaves the setting to the next source."""
    parser.add_argument("--config", metavar="FILE", help="YAML file of settings")
    group = parser.add_argument_group(
        "settings", "also ACCELERATOR_<NAME> in the environment, or a key in --config"
    )
    for entry in dataclasses.fields(Settings):
        flag = "--" + entry.name.replace("_", "-")
        kind = _HINTS[entry.name]
        if kind is bool:
            group.add_argument(
                flag, action=argparse.BooleanOptionalAction, default=None, help=entry.metadata["doc"]
            )
        else:
            group.add_argument(flag, metavar=metavar_of(entry.name), default=None, help=entry.metadata["doc"])


def load_settings(arguments: Mapping[str, Any], environment: Mapping[str, str]) -> Settings:
    """Return the settings; `arguments` are parsed flags, of which those that are `None` were not given."""
    file_path = arguments.get("config") or environment.get(ENVIRONMENT_PREFIX + "CONFIG")
    values: dict[str, Any] = {}
    if file_path:
        values |= {
            name: _read(name, value, f"{file_path}: {name}")
            for name, value in _file_values(file_path).items()
        }
    values |= _environment_values(environment)
    for name in _HINTS:
        if arguments.get(name) is not None:
            values[name] = _read(name, arguments[name], "--" + name.replace("_", "-"))
    return Settings(**values)


def setting_names() -> tuple[str, ...]:
    """Return the names of all settings, in the order they are documented."""
    return tuple(_HINTS)


def metavar_of(name: str) -> str:
    """Return what stands for a setting's value in help and documentation."""
    kind = _HINTS[name]
    if kind is Duration:
        return "DURATION"
    if kind is bool:
        return "true|false"
    if get_origin(kind) is Literal:
        return "|".join(get_args(kind))
    if get_origin(kind) is tuple:
        return "A,B"
    return "A=B,…" if get_origin(kind) is dict else "TEXT"


def parse_duration(text: object, where: str) -> Duration:
    """Return seconds of `90s`, `5m`, `1h`, `1h30m`; a bare number is refused, since its unit would be a guess."""
    text = text if isinstance(text, str) else _SHORT.repr(text)
    parts = _DURATION.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise SettingsError(f"{where}: {text!r} is not a duration; write it like 90s, 5m or 1h")
    return Duration(sum(float(number) * _UNIT_SECONDS[unit] for number, unit in parts))


_HINTS: dict[str, Any] = {
    name: next((part for part in get_args(kind) if part is not type(None)), kind)
    if type(None) in get_args(kind)
    else kind
    for name, kind in get_type_hints(Settings).items()
}


# Environment variables that belong to a command rather than to a setting.
COMMAND_VARIABLES = frozenset({"CONFIG", "FAKE"})

# The kubelet gives every container variables for each Service of its namespace: a Service called `accelerator-agent`
# makes `ACCELERATOR_AGENT_SERVICE_HOST` and its like.
_SERVICE_LINK = re.compile(r"_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_\w+)?)?)$")


def _environment_values(environment: Mapping[str, str]) -> dict[str, Any]:
    values = {}
    for variable, text in environment.items():
        name = variable.removeprefix(ENVIRONMENT_PREFIX)
        if name == variable or name in COMMAND_VARIABLES or _SERVICE_LINK.search(name):
            continue
        if name.lower() not in _HINTS:
            raise SettingsError(f"{variable} is not a setting{_nearest(name.lower(), ENVIRONMENT_PREFIX)}")
        values[name.lower()] = _read(name.lower(), text, variable)
    return values


def _file_values(path: str) -> dict[str, Any]:
    import yaml  # noqa: PLC0415  # only where there is a file

    try:
        content = Path(path).read_bytes()[: MAX_SETTINGS_BYTES + 1]
    except OSError as error:
        raise SettingsError(f"the settings file {path} cannot be read: {error.strerror}") from error
    if len(content) > MAX_SETTINGS_BYTES:
        raise SettingsError(f"the settings file {path} is larger than 1 MiB")
    try:
        document = yaml.safe_load(content) or {}
    except yaml.YAMLError as error:
        raise SettingsError(f"the settings file {path} is not YAML: {error}") from error
    except RecursionError as error:
        raise SettingsError(f"the settings file {path} is nested too deeply") from error
    if not isinstance(document, dict):
        raise SettingsError(f"the settings file {path} must hold keys and values")
    if document:
        _refuse_repeated(yaml.compose(content, Loader=yaml.SafeLoader), path)
    for name in document:
        if name not in _HINTS:
            raise SettingsError(f"{path}: {name!r} is not a setting{_nearest(str(name), '')}")
    return document


def _refuse_repeated(root: Any, path: str) -> None:  # noqa: ANN401  # a YAML node
    """Refuse a key that stands twice in one mapping: YAML would keep the last in silence."""
    waiting, known = [root], set()
    while waiting:
        node = waiting.pop()
        if id(node) in known or isinstance(node.value, str):
            # An alias stands for a node that was looked at, however often it is used.
            continue
        known.add(id(node))
        pairs = [entry for entry in node.value if isinstance(entry, tuple)]
        keys: set[str] = set()
        for key, _ in pairs:
            if key.value in keys:
                raise SettingsError(
                    f"{path}:{key.start_mark.line + 1}: {key.value!r} stands here for the second time"
                )
            keys |= {key.value} if isinstance(key.value, str) else set()
        waiting += [value for _, value in pairs] or node.value


def _nearest(name: str, prefix: str) -> str:
    import difflib  # noqa: PLC0415  # only for what is wrong

    close = difflib.get_close_matches(name, _HINTS, n=1)
    return f"; did you mean {prefix + (close[0].upper() if prefix else close[0])}?" if close else ""


def _read(name: str, value: object, where: str) -> Any:  # noqa: ANN401  # the type is the setting's
    kind = _HINTS[name]
    if kind is Duration:
        return parse_duration(value, where)
    if isinstance(value, str) and get_origin(kind) is tuple:
        value = [part.strip() for part in value.split(",") if part.strip()]
    if isinstance(value, str) and get_origin(kind) is dict:
        value = _pairs(value, where)
    try:
        return msgspec.convert(value, kind, strict=False)
    except msgspec.ValidationError as error:
        words = _words(kind)
        why = f"known are {', '.join(words)}" if words else str(error)
        raise SettingsError(f"{where}: {_SHORT.repr(value)} cannot be used: {why}") from error


def _words(kind: Any) -> tuple[str, ...]:  # noqa: ANN401  # a type
    """Return the words of which a setting takes one, or several; none where it takes other things."""
    one = get_args(kind)[0] if get_origin(kind) is tuple else kind
    return get_args(one) if get_origin(one) is Literal else ()


def _pairs(text: str, where: str) -> dict[str, str]:
    pairs = {}
    for part in text.split(","):
        key, separator, value = part.partition("=")
        if not separator:
            raise SettingsError(f"{where}: {part!r} must be written key=value")
        pairs[key.strip()] = value.strip()
    return pairs
