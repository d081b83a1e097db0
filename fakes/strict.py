"""Reading data that people write, strictly: unknown and repeated names are errors that say where and what was meant."""

import dataclasses
import types
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, Union, get_args, get_origin, get_type_hints

import yaml

MAX_TEXT_BYTES = 1 << 20


class ScenarioError(ValueError):
    """A scenario that cannot be played; the message names the path, the value and what would do."""


def mapping_from_yaml(text: str) -> dict[str, Any]:
    """Return the mapping of a YAML document; aliases, repeated keys and more than 1 MiB are refused."""
    if len(text.encode("utf-8")) > MAX_TEXT_BYTES:
        raise ScenarioError(f"the document is larger than {MAX_TEXT_BYTES} bytes")
    try:
        root = yaml.compose(text, Loader=yaml.CSafeLoader)
        if root is not None:
            _refuse_repeats(root, "$", set())
        data = yaml.load(text, Loader=yaml.CSafeLoader)
    except yaml.YAMLError as error:
        raise ScenarioError(f"not YAML: {error}") from error
    if not isinstance(data, dict):
        raise ScenarioError(f"expected a mapping with `name` and `devices`, got {type(data).__name__}")
    return data


def refuse_unknown_names(data: Any, expected: Any, path: str = "$") -> None:  # noqa: ANN401 -- any decoded value
    """Raise `ScenarioError` for the first name in `data` that the structure `expected` does not have."""
    structure = _structure(expected)
    if structure is not None and isinstance(data, Mapping):
        hints = get_type_hints(structure)
        for name, value in data.items():
            if name not in hints:
                raise ScenarioError(_unknown(path, str(name), list(hints)))
            refuse_unknown_names(value, hints[name], f"{path}.{name}")
    elif isinstance(data, list | tuple) and (item := _item(expected)) is not None:
        for index, value in enumerate(data):
            refuse_unknown_names(value, item, f"{path}[{index}]")


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
        if dataclasses.is_dataclass(choice):
            return choice
    return None


def _item(expected: Any) -> Any:  # noqa: ANN401 -- type forms have no type
    for choice in _choices(expected):
        if get_origin(choice) is tuple:
            return get_args(choice)[0]
    return None


def _refuse_repeats(node: yaml.Node, path: str, seen: set[int]) -> None:
    if id(node) in seen:
        # An alias is the same node again; nested ones multiply into a document without bound.
        raise ScenarioError(f"{path}: anchors and aliases are not allowed")
    seen.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            _refuse_repeats(item, f"{path}[{index}]", seen)
    elif isinstance(node, yaml.MappingNode):
        keys = [key.value for key, _ in node.value]
        if twice := [key for key in keys if keys.count(key) > 1]:
            raise ScenarioError(f"{path}: {twice[0]!r} stands twice")
        for key, value in node.value:
            _refuse_repeats(value, f"{path}.{key.value}", seen)
