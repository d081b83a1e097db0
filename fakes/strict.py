"""Reading data that people write, strictly: an unknown name is an error that says where, and what was meant."""

import types
from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache
from typing import Any, Union, get_args, get_origin, get_type_hints

from msgspec import Struct

MAX_TEXT_BYTES = 1 << 20


class ScenarioError(ValueError):
    """A scenario that cannot be played; the message names the path, the value and what would do."""


def refuse_unknown_names(data: Any, expected: Any, path: str = "$") -> None:  # noqa: ANN401 -- any decoded value
    """Raise `ScenarioError` for the first name in `data` that the structure `expected` does not have."""
    structure = _structure(expected)
    if structure is not None and isinstance(data, Mapping):
        hints = _hints(structure)
        for name, value in data.items():
            if name not in hints:
                raise ScenarioError(_unknown(path, str(name), list(hints)))
            refuse_unknown_names(value, hints[name], f"{path}.{name}")
    elif isinstance(data, list | tuple) and (item := _item(expected)) is not None:
        for index, value in enumerate(data):
            refuse_unknown_names(value, item, f"{path}[{index}]")


@cache
def _hints(structure: type) -> dict[str, Any]:
    return get_type_hints(structure)


def _unknown(path: str, name: str, known: list[str]) -> str:
    near = get_close_matches(name, known, n=1)
    meant = f"; did you mean {near[0]!r}?" if near else f"; known are {', '.join(known)}"
    return f"{path}: unknown field {name!r}{meant}"


def _choices(expected: Any) -> tuple[Any, ...]:  # noqa: ANN401 -- type forms have no type
    if get_origin(expected) in {Union, types.UnionType}:
        return get_args(expected)
    return (expected,)


def _structure(expected: Any) -> Any:  # noqa: ANN401 -- type forms have no type
    for choice in _choices(expected):
        if isinstance(choice, type) and issubclass(choice, Struct):
            return choice
    return None


def _item(expected: Any) -> Any:  # noqa: ANN401 -- type forms have no type
    for choice in _choices(expected):
        if get_origin(choice) is tuple:
            return get_args(choice)[0]
    return None
