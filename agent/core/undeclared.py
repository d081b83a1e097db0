"""What an older definition does not know of an object: the server's refusal in, the object without those fields out.

Pure. The texts are those of the API server's structured merge.
"""

import re
from collections.abc import Collection
from typing import Any

_UNDECLARED = re.compile(r"(?:^|[\s:])(\.\S+): field not declared in schema")
_INDEX = re.compile(r"\[[^\]]*\]")


def undeclared_fields(message: str) -> frozenset[str]:
    """Return the fields that a refused apply names as `.spec.devices.link.lanes`, without the places in lists."""
    return frozenset(_INDEX.sub("", path) for path in _UNDECLARED.findall(message))


def without_fields(value: Any, fields: Collection[str]) -> Any:  # noqa: ANN401  # any JSON value
    """Return the value without these fields, in every item of a list that their path leads through."""
    return _without(value, frozenset(fields), "") if fields else value


def _without(value: Any, fields: frozenset[str], path: str) -> Any:  # noqa: ANN401  # any JSON value
    if isinstance(value, dict):
        return {
            name: _without(inner, fields, f"{path}.{name}")
            for name, inner in value.items()
            if f"{path}.{name}" not in fields
        }
    if isinstance(value, list):
        return [_without(item, fields, path) for item in value]
    return value
