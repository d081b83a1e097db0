"""Scenarios as YAML text, strictly: aliases, repeated names and large documents are errors; imported where text is read."""

from typing import Any

import yaml

from fakes.strict import MAX_TEXT_BYTES, ScenarioError


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
