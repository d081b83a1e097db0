"""What an API server checks and computes without knowing any schema: names, labels, versions, selectors, merge patches.

Pure.
"""

import re
from typing import Any

from agent.cluster import Conflict, Invalid, Object

_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")


def selects(selector: str | None, labels: dict[str, str]) -> bool:
    """Tell whether a label selector of `a=b`, `a!=b`, `a` and `!a`, joined by commas, picks these labels."""
    return all(_matches(part.strip(), labels) for part in (selector or "").split(",") if part.strip())


def _matches(part: str, labels: dict[str, str]) -> bool:
    name, unequal, value = part.partition("!=")
    if unequal:
        return labels.get(name) != value
    name, equal, value = part.partition("=")
    if equal:
        return labels.get(name) == value.removeprefix("=")
    return (part.lstrip("!") in labels) != part.startswith("!")


def merge_patched(target: Any, patch: Any) -> Any:  # noqa: ANN401 - any JSON value
    """Return what a JSON merge patch (RFC 7386) makes of the target."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merge_patched(result.get(name), value)
    return result


def check_preconditions(live: Object, new: Object) -> None:
    """Refuse a write that is bound to another version or another object of the name."""
    wanted, held = new["metadata"], live["metadata"]
    if wanted.get("resourceVersion") not in (None, "", held["resourceVersion"]):
        raise Conflict("the object has been modified; please apply your changes to the latest version")
    if wanted.get("uid") not in (None, "", held["uid"]):
        raise Invalid("metadata.uid: Invalid value: field is immutable", fields=("metadata.uid",))


def check_names(obj: Object) -> None:
    """Refuse an object whose name, labels or annotation keys are not what Kubernetes allows."""
    metadata = obj["metadata"]
    name = metadata.get("name", "")
    if not _SUBDOMAIN.fullmatch(name) or len(name) > 253:
        raise Invalid(f"metadata.name: Invalid value: {name!r}", fields=("metadata.name",))
    for key, value in (metadata.get("labels") or {}).items():
        if not _is_qualified(key) or not (value == "" or _is_label_text(value)):
            raise Invalid(
                f"metadata.labels: Invalid value: {value!r} of {key!r}", fields=("metadata.labels",)
            )
    for key in metadata.get("annotations") or {}:
        if not _is_qualified(key.lower()):
            raise Invalid(f"metadata.annotations: Invalid value: {key!r}", fields=("metadata.annotations",))


def _is_qualified(key: str) -> bool:
    prefix, slash, name = key.rpartition("/")
    if slash and not (_SUBDOMAIN.fullmatch(prefix) and len(prefix) <= 253):
        return False
    return _is_label_text(name)


def _is_label_text(text: str) -> bool:
    return len(text) <= 63 and bool(_LABEL_NAME.fullmatch(text))
