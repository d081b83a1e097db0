"""Where the fake API server keeps its objects: versions, the log of changes that watches read, and who owns whom."""

import threading
import time
from dataclasses import dataclass
from typing import Literal

import msgspec

from agent.cluster import Gone, Object, Resource

Key = tuple[str, str, str, str]
"""Group, plural, namespace, name."""

ChangeType = Literal["ADDED", "MODIFIED", "DELETED"]


@dataclass(frozen=True, slots=True)
class Change:
    """One entry of the log."""

    version: int
    key: Key
    type: ChangeType
    object: Object


class Store:
    """Objects by key. `lock` is held around everything that belongs together."""

    def __init__(self) -> None:
        """Start empty, at version 1."""
        self.lock = threading.Condition(threading.RLock())
        self.version = 1
        self._objects: dict[Key, Object] = {}
        self._uids: set[str] = set()
        self._changes: list[Change] = []
        self._compacted = 0

    def get(self, key: Key) -> Object | None:
        """Return the object itself: whoever gives it away copies it."""
        return self._objects.get(key)

    def listed(self, resource: Resource, namespace: str | None) -> list[Object]:
        """Return the objects of a resource, of one namespace or of all, by name."""
        keys = sorted(key for key in self._objects if _is_of(key, resource, namespace))
        return [self._objects[key] for key in keys]

    def keep(self, key: Key, obj: Object, change: ChangeType) -> Object:
        """Keep a new state of an object under a new version and return it."""
        kept = self._versioned(obj)
        self._objects[key] = kept
        self._uids.add(kept["metadata"]["uid"])
        self._note(key, kept, change)
        return kept

    def take(self, key: Key) -> Object:
        """Take an object away, and after it all that only it owned."""
        gone = self._objects.pop(key)
        self._uids.discard(gone["metadata"]["uid"])
        self._note(key, self._versioned(gone), "DELETED")
        for other, obj in list(self._objects.items()):
            owners = obj["metadata"].get("ownerReferences") or ()
            owned = any(owner["uid"] == gone["metadata"]["uid"] for owner in owners)
            if owned and other in self._objects and self.is_orphan(obj):
                self.take(other)
        return gone

    def take_all(self, group: str, plural: str) -> None:
        """Take every object of a kind away, whose definition is gone."""
        for key in [key for key in self._objects if key[:2] == (group, plural)]:
            if key in self._objects:
                self.take(key)

    def is_orphan(self, obj: Object) -> bool:
        """Tell whether an object has owners and none of them lives."""
        owners = obj["metadata"].get("ownerReferences") or ()
        return bool(owners) and not any(owner["uid"] in self._uids for owner in owners)

    def await_changes(
        self, resource: Resource, namespace: str | None, version: int, deadline: float
    ) -> list[Change] | None:
        """Return the changes after a version once there are some, `None` at the deadline (monotonic).

        Raises `Gone` for a version from before the last compaction.
        """
        with self.lock:
            while True:
                if version < self._compacted:
                    raise Gone(f"too old resource version: {version} ({self._compacted})")
                found = [one for one in self._since(version) if _is_of(one.key, resource, namespace)]
                if found:
                    return found
                left = deadline - time.monotonic()
                if left <= 0:
                    return None
                self.lock.wait(left)

    def compact(self) -> None:
        """Forget the log."""
        self._compacted = self.version
        self._changes.clear()
        self.lock.notify_all()

    def _since(self, version: int) -> list[Change]:
        start = len(self._changes)
        while start and self._changes[start - 1].version > version:
            start -= 1
        return self._changes[start:]

    def _note(self, key: Key, obj: Object, change: ChangeType) -> None:
        self._changes.append(Change(self.version, key, change, obj))
        self.lock.notify_all()

    def _versioned(self, obj: Object) -> Object:
        self.version += 1
        return {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self.version)}}


def key_of(resource: Resource, namespace: str | None, name: str) -> Key:
    """Return where an object is kept."""
    return resource.group, resource.plural, (namespace or "") if resource.namespaced else "", name


def copy_of(value: Object) -> Object:
    """Return a copy through JSON: what a server holds is JSON, and nobody shares a dictionary with it."""
    copied: Object = msgspec.json.decode(msgspec.json.encode(value))
    return copied


def _is_of(key: Key, resource: Resource, namespace: str | None) -> bool:
    return key[:2] == (resource.group, resource.plural) and namespace in {None, key[2]}
