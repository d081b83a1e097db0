"""The reflector: keeps a small view of every object of one kind up to date by list and watch.

An object is cut down before the next one is read, so memory holds views, never a whole list. What is kept changes only
by a complete list or by events after one: half a list is no list.
"""

import logging
import random
import threading
from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

from agent.cluster import (
    Cluster,
    ClusterError,
    Gone,
    Invalid,
    NotFound,
    Object,
    Resource,
    ServerFault,
    Throttled,
    Unreachable,
    WatchEvent,
)

_log = logging.getLogger(__name__)

T = TypeVar("T")

_VIEW = "view"
_NAME = "name"
_LONGEST_PAUSE = 30.0
_PAUSE_WITHOUT_DEFINITION = 30.0


class Reflector(Generic[T]):
    """A view of each object of one kind. `run` belongs to one thread; the rest may be called from any."""

    def __init__(
        self,
        cluster: Cluster,
        resource: Resource,
        *,
        view: Callable[[Object], T | None],
        changed: Callable[[], object] = lambda: None,
        watch_seconds: float = 300.0,
        expected: bool = True,
        pause: Callable[[threading.Event, float], object] = threading.Event.wait,
    ) -> None:
        """`view` cuts an object down, `None` when it is of no interest; `changed` is called after each change.

        Of a kind that is not `expected` to be there, absence is no news.
        """
        self._cluster = cluster
        self._resource = resource
        self._view = view
        self._changed = changed
        self._watch_seconds = watch_seconds
        self._expected = expected
        self._pause = pause
        self._lock = threading.Lock()
        self._views: dict[str, T] = {}
        self._pending: dict[str, T | None] = {}
        self._version: str | None = None
        self._streams_lists = True
        self._failures = 0
        self._complete = False
        self._absent = False
        self._problem: ClusterError | None = None
        self._renewing = False

    @property
    def complete(self) -> bool:
        """Tell whether everything was heard once."""
        return self._complete

    @property
    def absent(self) -> bool:
        """Tell whether the cluster does not have this kind of object."""
        return self._absent

    @property
    def problem(self) -> ClusterError | None:
        """Return why nothing new is heard at present."""
        return self._problem

    def drain(self) -> Mapping[str, T | None]:
        """Return the views that changed since the last call, `None` for what is gone."""
        with self._lock:
            pending, self._pending = self._pending, {}
            return pending

    def views(self) -> dict[str, T]:
        """Return all views as they are now, by name."""
        with self._lock:
            return dict(self._views)

    def renew(self) -> None:
        """List everything again after the next event, or when the present watch ends: the view sees with other eyes."""
        self._renewing = True

    def run(self, stop: threading.Event) -> None:
        """List and watch until `stop` is set."""
        while not stop.is_set():
            pause = self.step(stop)
            if pause:
                self._pause(stop, pause)

    def step(self, stop: threading.Event) -> float:
        """Do one list or watch until it ends; return the seconds to wait before the next."""
        if self._renewing:
            self._renewing, self._version = False, None
        try:
            heard = self._list(stop) if self._version is None else self._watch(stop)
        except Gone:
            self._version = None
            return self._backoff()
        except NotFound as error:
            self._note_absence(error)
            return _PAUSE_WITHOUT_DEFINITION * _jitter()
        except ClusterError as error:
            self._note_problem(error)
            if isinstance(error, Throttled) and error.retry_after_seconds:
                return max(self._backoff(), error.retry_after_seconds)
            return self._backoff()
        # A stream that ends at once without a word, again and again, must not make a busy loop.
        return 0.0 if heard else self._backoff()

    def _list(self, stop: threading.Event) -> bool:
        if self._streams_lists:
            try:
                return self._stream_list(stop)
            except Invalid:
                _log.debug("the server streams no lists of %s: it is read in pages", self._resource.plural)
                self._streams_lists = False
        items, version = self._cluster.list_all(self._resource, project=self._cut)
        self._replace(_named_views(items))
        self._version = version
        self._note_success()
        return True

    def _stream_list(self, stop: threading.Event) -> bool:
        found: dict[str, T] = {}
        listed = False
        events = self._cluster.watch(
            self._resource,
            resource_version=None,
            project=self._cut,
            initial_events=True,
            timeout_seconds=self._watch_seconds,
        )
        for event in events:
            if listed:
                self._take(event)
            elif event.initial_end:
                listed = True
                self._replace(found)
                self._version = event.resource_version
                self._note_success()
            elif event.type != "BOOKMARK":
                _keep(found, event.object)
            if stop.is_set() or self._renewing:
                break
        return listed

    def _watch(self, stop: threading.Event) -> bool:
        heard = False
        events = self._cluster.watch(
            self._resource,
            resource_version=self._version,
            project=self._cut,
            timeout_seconds=self._watch_seconds,
        )
        for event in events:
            heard = True
            self._take(event)
            self._note_success()
            if stop.is_set() or self._renewing:
                break
        return heard

    def _take(self, event: WatchEvent) -> None:
        self._version = event.resource_version or self._version
        if event.type == "BOOKMARK":
            return
        name, view = event.object[_NAME], event.object[_VIEW]
        gone = event.type == "DELETED" or view is None
        with self._lock:
            if (None if gone else view) == self._views.get(name):
                return
            if gone:
                del self._views[name]
                self._pending[name] = None
            else:
                self._views[name] = self._pending[name] = view
        self._changed()

    def _replace(self, found: dict[str, T]) -> None:
        with self._lock:
            for name in self._views.keys() - found.keys():
                self._pending[name] = None
            for name, view in found.items():
                if self._views.get(name) != view:
                    self._pending[name] = view
            self._views = found
        self._complete = True
        self._absent = False
        self._changed()

    def _cut(self, obj: Object) -> Object:
        return {_NAME: object_key(obj), _VIEW: self._view(obj)}

    def _note_success(self) -> None:
        self._problem = None
        self._failures = 0

    def _note_problem(self, error: ClusterError) -> None:
        if self._problem is None or str(self._problem) != str(error):
            _log.warning("%s are not heard: %s", self._resource.plural, error)
        self._problem = error
        # After silence or a refusal to wait the version still holds; after anything else it is in doubt.
        if not isinstance(error, Unreachable | Throttled) and not _passes(error):
            self._version = None
        self._changed()

    def _note_absence(self, error: ClusterError) -> None:
        if not self._absent:
            level = logging.WARNING if self._expected else logging.DEBUG
            _log.log(level, "the cluster has no %s: %s", self._resource.plural, error)
        # The views stay: a definition that is being replaced is not found for a moment either.
        self._version = None
        self._absent = True
        self._problem = error
        self._changed()

    def _backoff(self) -> float:
        self._failures += 1
        pause: float = min(0.25 * 2**self._failures, _LONGEST_PAUSE) * _jitter()
        return pause


def object_key(obj: Object) -> str:
    """Return `namespace/name`, or the name of an object without a namespace."""
    metadata = obj["metadata"]
    namespace = metadata.get("namespace")
    return f"{namespace}/{metadata['name']}" if namespace else str(metadata["name"])


def _named_views(items: list[Object]) -> dict[str, T]:
    found: dict[str, T] = {}
    for item in items:
        _keep(found, item)
    return found


def _keep(found: dict[str, T], item: Object) -> None:
    if item[_VIEW] is None:
        found.pop(item[_NAME], None)
    else:
        found[item[_NAME]] = item[_VIEW]


def _passes(error: ClusterError) -> bool:
    return isinstance(error, ServerFault) and not error.permanent


def _jitter() -> float:
    return random.uniform(0.5, 1.5)  # noqa: S311 - no secret
