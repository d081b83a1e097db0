"""What an API server's refusal means: an HTTP status and its `Status` object in, a `ClusterError` out.

Pure; knows no client. The texts that are looked at are those that kube-apiserver 1.30 to 1.37 writes.
"""

import re
from collections.abc import Mapping
from typing import Any

from agent.cluster import (
    ClusterError,
    Conflict,
    FieldConflict,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    ServerFault,
    Throttled,
    Unauthorized,
)

_MANAGER = re.compile(r'conflict with "((?:[^"\\]|\\.)*)"')
_UNTYPABLE = "failed to create typed patch object"
_DENIALS = ("denied request", "denied the request")
_MESSAGE_LIMIT = 2048


def refusal(
    status: int, body: Mapping[str, Any], *, retry_after_seconds: float | None = None
) -> ClusterError:
    """Return what a response outside 200 to 299 means; `body` is its `Status` object, or empty."""
    message = str(body.get("message") or f"the API server answered {status}")[:_MESSAGE_LIMIT]
    details = _mapping(body.get("details"))
    match status:
        case 401:
            return Unauthorized(message)
        case 403:
            return Forbidden(message, denied=any(words in message for words in _DENIALS))
        case 404:
            return NotFound(message)
        case 409:
            return Conflict(message, conflicts=_field_conflicts(details))
        case 410:
            return Gone(message)
        case 400 | 415 | 422:
            return Invalid(message, fields=_fields(details))
        case 429:
            stated = details.get("retryAfterSeconds")
            return Throttled(message, retry_after_seconds=retry_after_seconds or stated)
        case _:
            return ServerFault(message, permanent=status == 500 and _UNTYPABLE in message)


def names_the_object(body: Mapping[str, Any], name: str) -> bool:
    """Tell whether a 404 speaks of this object; one for a resource type that is not installed names none."""
    return _mapping(body.get("details")).get("name") == name


def lacks_the_type(body: Mapping[str, Any]) -> bool:
    """Tell whether a 404 is for a resource type that is not installed: such a one names no object of any kind."""
    return not _mapping(body.get("details")).get("name")


def _field_conflicts(details: Mapping[str, Any]) -> tuple[FieldConflict, ...]:
    found = []
    for cause in details.get("causes") or ():
        if cause.get("reason") == "FieldManagerConflict":
            named = _MANAGER.search(cause.get("message", ""))
            manager = named.group(1) if named else ""
            found.append(FieldConflict(field=cause.get("field", ""), manager=manager))
    return tuple(found)


def _fields(details: Mapping[str, Any]) -> tuple[str, ...]:
    named = [cause.get("field", "") for cause in details.get("causes") or ()]
    # "<nil>" stands where the object could not be decoded at all.
    return tuple(dict.fromkeys(field for field in named if field not in {"", "<nil>"}))


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
