"""Checked reading of JSON objects: a value of the wrong kind becomes a `Problem` with its path, never a default."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from agent.core.matching.verdicts import Problem


@dataclass(slots=True)
class Fields:
    """One JSON object, its path, and the problems found so far (shared with the objects inside it)."""

    value: Mapping[str, Any]
    path: str
    problems: list[Problem] = field(default_factory=list)

    def at(self, key: str) -> str:
        """Return the path of a field."""
        return f"{self.path}.{key}" if self.path else key

    def has(self, key: str) -> bool:
        """Tell whether the field is written."""
        return key in self.value

    def unknown(self, known: Iterable[str]) -> list[str]:
        """Return the keys that are written and not in `known`."""
        allowed = frozenset(known)
        return [key for key in self.value if key not in allowed]

    def inside(self, key: str) -> "Fields":
        """Return the object under a key; an empty one where it is absent or of another kind."""
        inner = self.value.get(key)
        if inner is not None and not isinstance(inner, Mapping):
            self._refuse(key, inner, "an object")
            inner = None
        return Fields(inner or {}, self.at(key), self.problems)

    def entries(self, key: str) -> Iterator["Fields"]:
        """Return the objects of a list."""
        for position, entry in enumerate(self._list(key)):
            path = f"{self.at(key)}[{position}]"
            if isinstance(entry, Mapping):
                yield Fields(entry, path, self.problems)
            else:
                self._add(path, f"{_shown(entry)} where an object is expected")

    def text(self, key: str) -> str | None:
        """Return a text, `None` where it is absent or of another kind."""
        value = self.value.get(key)
        if value is None or isinstance(value, str):
            return value
        hint = f"text: write {str(value)!r} in quotes" if isinstance(value, int | float) else "text"
        self._refuse(key, value, hint)
        return None

    def texts(self, key: str) -> tuple[str, ...] | None:
        """Return a list of texts, `None` where it is absent or of another kind."""
        if key not in self.value:
            return None
        entries = self._list(key)
        kept = []
        for position, entry in enumerate(entries):
            if isinstance(entry, str) and entry.strip():
                kept.append(entry)
            else:
                self._add(f"{self.at(key)}[{position}]", f"{_shown(entry)} where a name is expected")
        return tuple(kept)

    def whole(self, key: str, *, unit: str) -> int | None:
        """Return a whole number of at least 0, `None` where it is absent or cannot be used."""
        value = self.value.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int):
            self._refuse(key, value, f"a whole number ({unit}), without quotes or suffix,")
            return None
        if not 0 <= value < 2**63:
            self._add(self.at(key), f"{value} is out of range: write a whole number of at least 0 ({unit})")
            return None
        return value

    def pairs(self, key: str) -> dict[str, str]:
        """Return a map of texts; entries of another kind are problems."""
        inner = self.inside(key)
        kept = {}
        for name, value in inner.value.items():
            if isinstance(value, str):
                kept[name] = value
            else:
                self._add(f"{inner.path}[{name}]", f"{_shown(value)} where text is expected")
        return kept

    def refuse(self, key: str, message: str) -> None:
        """Add a problem with a field of this object."""
        self._add(self.at(key), message)

    def _list(self, key: str) -> list[Any]:
        if key not in self.value:
            return []
        value = self.value[key]
        if value is None:
            self._add(self.at(key), "null where a list is expected: write the list, or leave the field out")
            return []
        if not isinstance(value, list):
            self._refuse(key, value, "a list")
            return []
        return value

    def _refuse(self, key: str, value: object, expected: str) -> None:
        self._add(self.at(key), f"{_shown(value)} where {expected} is expected")

    def _add(self, path: str, message: str) -> None:
        self.problems.append(Problem(path=path, message=message))


def _shown(value: object) -> str:
    """Return a value cut to a length that a message can bear."""
    if value is None:
        return "null"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"
