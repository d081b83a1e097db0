"""Objects in YAML and JSON from files that anyone may have written: bounded, and refused with file, line and reason."""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import yaml

from agent.commands.yaml_values import (
    MAX_DEPTH,
    InputError,
    check_expansion,
    holds_aliases,
    json_value,
    line_of,
)

MIB = 1024**2

MAX_YAML_BYTES = 8 * MIB
"""A YAML text costs some forty times its size in memory while it is read."""

MAX_JSON_BYTES = 64 * MIB
"""Five thousand Nodes are 55 MiB."""

STANDARD_INPUT = "-"


@dataclass(frozen=True, slots=True)
class Document:
    """One object and where it stands."""

    value: dict[str, Any]
    file: str
    line: int
    locate: Callable[[str], int]
    """Line of a path inside the object, such as `spec.acceleratorRequirements.minMemory`."""

    def at(self, path: str) -> str:
        """Return `file:line` of a path."""
        return f"{self.file}:{self.locate(path)}"


def read_documents(name: str, stdin: BinaryIO) -> list[Document]:
    """Return the objects of a file, `-` for standard input; a `List` is taken apart.

    Raises `InputError` for a file that cannot be read, is too large, or holds something else than objects.
    """
    shown = "standard input" if name == STANDARD_INPUT else name
    text = _decoded(_read(name, stdin, shown), shown)
    documents = _json_documents(text, shown) if text.lstrip()[:1] in {"{", "["} else None
    if documents is None:
        if len(text) > MAX_YAML_BYTES:
            raise InputError(
                f"{shown}:1: {len(text) // MIB} MiB of YAML are more than the {MAX_YAML_BYTES // MIB} MiB that are read; "
                "JSON may be larger (kubectl get -o json)"
            )
        documents = list(_yaml_documents(text, shown))
    return [item for document in documents for item in _items(document)]


def _read(name: str, stdin: BinaryIO, shown: str) -> bytes:
    try:
        if name == STANDARD_INPUT:
            data = stdin.read(MAX_JSON_BYTES + 1)
        else:
            with Path(name).open("rb") as file:
                data = file.read(MAX_JSON_BYTES + 1)
    except OSError as error:
        raise InputError(f"{shown}: {error.strerror or error}") from error
    if len(data) > MAX_JSON_BYTES:
        raise InputError(f"{shown}:1: is larger than the {MAX_JSON_BYTES // MIB} MiB that are read")
    return data


def _decoded(data: bytes, shown: str) -> str:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError(f"{shown}:{line}: is not UTF-8 text") from error
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise InputError(f"{shown}:{line}: holds a NUL character, so it is no YAML or JSON")
    return text


class _DuplicateKeyError(Exception):
    """A key that is given twice in one JSON object; its line is found by reading the text as YAML."""


def _json_documents(text: str, shown: str) -> list[Document] | None:
    """Return the objects of a JSON text, `None` for one that may be YAML in flow style."""
    decoder = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_no_constant)
    found: list[Document] = []
    position = 0
    try:
        while position < len(text):
            start = re.compile(r"\s*").match(text, position)
            position = start.end() if start else position
            if position == len(text):
                break
            value, end = decoder.raw_decode(text, position)
            found.append(_json_document(value, text[position:end], text.count("\n", 0, position), shown))
            position = end
    except json.JSONDecodeError as error:
        if len(text) <= MAX_YAML_BYTES and _reads_as_yaml(text):
            return None
        raise InputError(f"{shown}:{error.lineno}: {error.msg}") from error
    except RecursionError as error:
        raise InputError(f"{shown}:1: is nested deeper than {MAX_DEPTH} levels") from error
    except _DuplicateKeyError as error:
        # The JSON decoder does not know lines; the YAML reader refuses the same text with the line.
        list(_yaml_documents(text[:MAX_YAML_BYTES].replace("\t", " "), shown))
        raise InputError(f"{shown}:1: key {error} is given twice in one object") from error
    except ValueError as error:
        raise InputError(f"{shown}:1: {error}") from error
    return found


def _json_document(value: object, text: str, lines_before: int, shown: str) -> Document:
    if not isinstance(value, dict | list):
        raise InputError(f"{shown}:{lines_before + 1}: holds {_kind(value)} where an object is expected")
    _check_depth(value, shown)

    def locate(path: str) -> int:
        # Needed only for a message, so the text is read again then.
        try:
            root = yaml.compose(text.replace("\t", " "), Loader=yaml.CSafeLoader)
        except yaml.YAMLError:
            return lines_before + 1
        return lines_before + line_of(root, path)

    return Document(
        value if isinstance(value, dict) else {"kind": "List", "items": value},
        shown,
        lines_before + 1,
        locate,
    )


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        raise _DuplicateKeyError(next(key for key, _ in pairs if key in seen or seen.add(key)))  # type: ignore[func-returns-value]
    return found


def _no_constant(word: str) -> float:
    raise ValueError(f"{word} is no JSON number")


def _check_depth(value: dict[str, Any] | list[Any], shown: str) -> None:
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return
    raise InputError(f"{shown}:1: is nested deeper than {MAX_DEPTH} levels")


def _reads_as_yaml(text: str) -> bool:
    try:
        for _ in yaml.parse(text, Loader=yaml.CSafeLoader):
            pass
    except yaml.YAMLError:
        return False
    return True


def _yaml_documents(text: str, shown: str) -> Iterator[Document]:
    try:
        aliases = holds_aliases(text, shown)
        for root in yaml.compose_all(text, Loader=yaml.CSafeLoader):
            if aliases:
                check_expansion(root, shown)
            value = json_value(root, shown, 0)
            line = root.start_mark.line + 1
            if value is None:
                continue
            if not isinstance(value, dict):
                raise InputError(f"{shown}:{line}: holds {_kind(value)} where an object is expected")
            yield Document(value, shown, line, lambda path, root=root: line_of(root, path))  # type: ignore[misc]
    except yaml.MarkedYAMLError as error:
        raise InputError(_yaml_message(error, text, shown)) from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, int(error.position)) + 1
        raise InputError(f"{shown}:{line}: holds a character that YAML does not allow") from error
    except RecursionError as error:
        raise InputError(f"{shown}:1: is nested deeper than {MAX_DEPTH} levels") from error


def _yaml_message(error: yaml.MarkedYAMLError, text: str, shown: str) -> str:
    mark = error.problem_mark or error.context_mark
    number = mark.line + 1 if mark else 1
    lines = text.splitlines()
    line = lines[number - 1] if number <= len(lines) else ""
    if re.match(r"[ ]*\t", line):
        return f"{shown}:{number}: is indented with a tab; YAML takes spaces alone"
    return f"{shown}:{number}: {error.problem or error.context}"


def _items(document: Document) -> Iterator[Document]:
    """Take a `List`, or a typed list such as `NodeList`, apart."""
    kind = document.value.get("kind")
    if not isinstance(kind, str) or not kind.endswith("List") or "items" not in document.value:
        yield document
        return
    items = document.value["items"]
    if not isinstance(items, list):
        raise InputError(f"{document.at('items')}: items is {_kind(items)} where a list is expected")
    inherited = (
        {}
        if kind == "List"
        else {"apiVersion": document.value.get("apiVersion"), "kind": kind.removesuffix("List")}
    )
    for place, item in enumerate(items):
        path = f"items[{place}]"
        if not isinstance(item, dict):
            raise InputError(f"{document.at(path)}: {path} is {_kind(item)} where an object is expected")
        yield Document(
            {**inherited, **item},
            document.file,
            document.line,
            lambda inner, path=path: document.locate(f"{path}.{inner}" if inner else path),  # type: ignore[misc]
        )


def _kind(value: object) -> str:
    """Return what a value is, in JSON's words; a long one is not written out."""
    if value is None:
        return "null"
    names = {dict: "an object", list: "a list", bool: "true or false", str: "text"}
    return names.get(type(value), "a number")
