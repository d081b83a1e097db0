"""YAML nodes → JSON values, and their lines.

Nothing is executed or expanded: no tags, no merge keys, few aliases, no duplicate keys, values of JSON's kinds alone.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import yaml
from yaml.constructor import ConstructorError, SafeConstructor

MAX_DEPTH = 100
MAX_VALUES = 1_000_000
"""Of one YAML text, each use of an alias counted anew."""

_TAG = "tag:yaml.org,2002:"


class InputError(Exception):
    """A text that cannot be used; the message begins with file and line."""


def holds_aliases(text: str, shown: str) -> bool:
    """Tell whether aliases occur; refuse a text of too many values before a tree of them is built."""
    aliases = False
    for number, event in enumerate(yaml.parse(text, Loader=yaml.CSafeLoader)):
        if number > MAX_VALUES:
            raise InputError(f"{shown}:{_line(event)}: holds more than {MAX_VALUES} values")
        aliases = aliases or isinstance(event, yaml.AliasEvent)
    return aliases


def check_expansion(root: yaml.Node, shown: str) -> None:
    """Refuse a document whose aliases would blow it up, before anything walks through it."""
    sizes: dict[int, int] = {}
    stack: list[tuple[yaml.Node, bool]] = [(root, False)]
    open_nodes: set[int] = set()
    while stack:
        node, leaving = stack.pop()
        if id(node) in sizes:
            continue
        children = _children(node)
        if leaving:
            open_nodes.discard(id(node))
            sizes[id(node)] = 1 + sum(sizes[id(child)] for child in children)
            if sizes[id(node)] > MAX_VALUES:
                line = node.start_mark.line + 1
                raise InputError(f"{shown}:{line}: aliases make more than {MAX_VALUES} values of it")
            continue
        open_nodes.add(id(node))
        stack.append((node, True))
        for child in children:
            if id(child) in open_nodes:
                raise InputError(f"{shown}:{child.start_mark.line + 1}: an alias holds itself")
            stack.append((child, False))


def json_value(node: yaml.Node, shown: str, depth: int = 0) -> Any:  # noqa: ANN401  # any JSON value
    """Return the value of a node. Raises `InputError` for what JSON has no kind for."""
    line = node.start_mark.line + 1
    if depth > MAX_DEPTH:
        raise InputError(f"{shown}:{line}: is nested deeper than {MAX_DEPTH} levels")
    if isinstance(node, yaml.MappingNode) and node.tag == f"{_TAG}map":
        return _mapping(node, shown, depth)
    if isinstance(node, yaml.SequenceNode) and node.tag == f"{_TAG}seq":
        return [json_value(child, shown, depth + 1) for child in node.value]
    if isinstance(node, yaml.ScalarNode):
        return _scalar(node, shown)
    raise InputError(f"{shown}:{line}: has the tag {node.tag}, which is not read")


def line_of(root: yaml.Node | None, path: str) -> int:
    """Return the line of the deepest part of a path that is there; keys may hold dots."""
    node, rest = root, path
    line = root.start_mark.line + 1 if root else 1
    while node is not None and rest:
        step = _step(node, rest)
        if step is None:
            break
        line, node, rest = step
    return line


def _children(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


def _mapping(node: yaml.MappingNode, shown: str, depth: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key_node, value_node in node.value:
        line = key_node.start_mark.line + 1
        if key_node.tag == f"{_TAG}merge":
            raise InputError(f"{shown}:{line}: merge keys (<<) are not read; write the fields out")
        if not isinstance(key_node, yaml.ScalarNode) or key_node.tag != f"{_TAG}str":
            written = key_node.value if isinstance(key_node, yaml.ScalarNode) else "a collection"
            raise InputError(f"{shown}:{line}: the key {written} is not text; write it in quotes")
        if key_node.value in found:
            raise InputError(f"{shown}:{line}: key {key_node.value} is given twice in one object")
        found[key_node.value] = json_value(value_node, shown, depth + 1)
    return found


_SCALARS: dict[str, Callable[[SafeConstructor, yaml.ScalarNode], Any]] = {
    f"{_TAG}null": SafeConstructor.construct_yaml_null,
    f"{_TAG}bool": SafeConstructor.construct_yaml_bool,
    f"{_TAG}int": SafeConstructor.construct_yaml_int,
    f"{_TAG}float": SafeConstructor.construct_yaml_float,
}

# A date is text in JSON, and so it is for Kubernetes.
_TEXTS = {f"{_TAG}str", f"{_TAG}timestamp"}


@lru_cache(maxsize=1)
def _constructor() -> SafeConstructor:
    """Return the one constructor of scalars; making it costs more than a scalar does."""
    return SafeConstructor()


def _scalar(node: yaml.ScalarNode, shown: str) -> Any:  # noqa: ANN401  # any JSON scalar
    if node.tag in _TEXTS:
        return node.value
    construct = _SCALARS.get(node.tag)
    line = node.start_mark.line + 1
    if construct is None:
        raise InputError(f"{shown}:{line}: has the tag {node.tag}, which is not read")
    try:
        return construct(_constructor(), node)
    except (ValueError, ConstructorError) as error:
        # Python refuses to read a number of thousands of digits.
        raise InputError(f"{shown}:{line}: {node.value[:20]}… is no number that can be used") from error


def _step(node: yaml.Node, path: str) -> tuple[int, yaml.Node, str] | None:
    """Return line, value and remaining path behind the first part of a path."""
    indexed = re.match(r"\[([^\]]*)\]\.?", path)
    if isinstance(node, yaml.SequenceNode) and indexed and indexed[1].isdigit():
        place = int(indexed[1])
        if place < len(node.value):
            child = node.value[place]
            return child.start_mark.line + 1, child, path[indexed.end() :]
        return None
    if not isinstance(node, yaml.MappingNode):
        return None
    for key, value in sorted(node.value, key=lambda pair: -len(str(pair[0].value))):
        name = str(key.value)
        if indexed and indexed[1] == name:
            return key.start_mark.line + 1, value, path[indexed.end() :]
        if path == name or path.startswith((f"{name}.", f"{name}[")):
            return key.start_mark.line + 1, value, path[len(name) :].removeprefix(".")
    return None


def _line(event: yaml.Event) -> int:
    return event.start_mark.line + 1 if event.start_mark else 1
