"""What the passes ask of a Kubernetes API server: the `Cluster` protocol, its resources and its refusals.

`agent.edges.cluster` keeps it over HTTP, `fakes.cluster` in memory; `tests/contract` holds both to the same cases.
Objects are plain JSON values, as the server sends them.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

Object = dict[str, Any]
"""A Kubernetes object in its JSON form."""

Projection = Callable[[Object], Object]
"""Keeps of an object the fields that a caller needs, before the next object is read (memory stays bounded)."""


@dataclass(frozen=True, slots=True)
class Resource:
    """One kind of object, by the names the API server knows it by."""

    group: str
    """Empty for the core group."""
    version: str
    plural: str
    kind: str
    namespaced: bool = False

    @property
    def api_version(self) -> str:
        """Return what stands in an object's `apiVersion`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def has_definition(self) -> bool:
        """Tell whether a CustomResourceDefinition serves it, and no API server by itself."""
        return self.group not in _BUILT_IN_GROUPS


_BUILT_IN_GROUPS = frozenset(
    {"", "coordination.k8s.io", "apiextensions.k8s.io", "authentication.k8s.io", "authorization.k8s.io"}
)
"""Of those that are asked here."""

NODES = Resource("", "v1", "nodes", "Node")
PODS = Resource("", "v1", "pods", "Pod", namespaced=True)
EVENTS = Resource("", "v1", "events", "Event", namespaced=True)
NAMESPACES = Resource("", "v1", "namespaces", "Namespace")
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease", namespaced=True)
CRDS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition")
INFERENCE_POOLS = Resource(
    "inference.networking.k8s.io", "v1", "inferencepools", "InferencePool", namespaced=True
)
ACCELERATOR_NODES = Resource("accelerators.ome.io", "v1alpha1", "acceleratornodes", "AcceleratorNode")
ACCELERATOR_CLASSES = Resource("ome.io", "v1beta1", "acceleratorclasses", "AcceleratorClass")
SERVING_RUNTIMES = Resource("ome.io", "v1beta1", "servingruntimes", "ServingRuntime", namespaced=True)
CLUSTER_SERVING_RUNTIMES = Resource("ome.io", "v1beta1", "clusterservingruntimes", "ClusterServingRuntime")
INFERENCE_SERVICES = Resource("ome.io", "v1beta1", "inferenceservices", "InferenceService", namespaced=True)
SELF_REVIEWS = Resource("authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview")
SELF_ACCESS_REVIEWS = Resource(
    "authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview"
)
ACCESS_REVIEWS = Resource("authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview")
BASE_MODELS = Resource("ome.io", "v1beta1", "basemodels", "BaseModel", namespaced=True)
CLUSTER_BASE_MODELS = Resource("ome.io", "v1beta1", "clusterbasemodels", "ClusterBaseModel")


@dataclass(frozen=True, slots=True)
class FieldConflict:
    """One field of an apply that another manager owns."""

    field: str
    """Path as the server writes it: `.metadata.labels.<key>`; keys hold dots, so compare with the keys that were sent."""
    manager: str


@dataclass(eq=False)  # an exception must stay hashable
class ClusterError(Exception):
    """The API server did not do what was asked. Each kind of refusal is a class of its own."""

    message: str

    def __str__(self) -> str:
        """Return the message."""
        return self.message


class Unreachable(ClusterError):
    """No answer: refused, reset, timed out, or no configuration tells where the server is."""


class Unauthorized(ClusterError):
    """401, after the token was read again once."""


class NotFound(ClusterError):
    """404 of something that a write needs, or of a resource type that is not installed."""


def not_installed(resource: Resource) -> NotFound:
    """Return the refusal of a kind of object that the server does not have."""
    if not resource.has_definition:
        return NotFound(
            f"404 for {resource.plural} of {resource.api_version}, which every API server has: the address is not one's"
        )
    return NotFound(
        f"the API server knows no {resource.plural} of {resource.api_version}: their definition is not installed, or "
        "does not serve that version"
    )


class Gone(ClusterError):
    """410: a resource version or continue token has expired; start from the beginning."""


@dataclass(eq=False)  # an exception must stay hashable
class Forbidden(ClusterError):
    """403: a missing RBAC rule, or an admission policy's denial (`denied`)."""

    denied: bool = False


@dataclass(eq=False)  # an exception must stay hashable
class Conflict(ClusterError):
    """409: other managers own fields of an apply (`conflicts`), or the object changed or went away (none)."""

    conflicts: tuple[FieldConflict, ...] = ()


@dataclass(eq=False)  # an exception must stay hashable
class Invalid(ClusterError):
    """400 or 422: the object is not what its schema allows; `fields` are the paths that the server named."""

    fields: tuple[str, ...] = ()


@dataclass(eq=False)  # an exception must stay hashable
class Throttled(ClusterError):
    """429 that outlasted the bounded retries."""

    retry_after_seconds: float | None = None


@dataclass(eq=False)  # an exception must stay hashable
class ServerFault(ClusterError):
    """5xx that outlasted the bounded retries; `permanent` for an apply whose body the schema cannot type (500)."""

    permanent: bool = False


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """One change, or a bookmark (only `resource_version` counts; `initial` marks the end of a watch-list's first part)."""

    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]
    object: Object = field(default_factory=dict)
    resource_version: str = ""
    initial_end: bool = False


class Cluster(Protocol):
    """The few requests this product makes. Every one has a deadline; every failure is a `ClusterError`."""

    def get(
        self, resource: Resource, name: str, *, namespace: str | None = None, cached: bool = False
    ) -> Object | None:
        """Return the object, `None` when it does not exist; `cached` lets the server answer from its watch cache."""
        ...

    def apply(
        self,
        resource: Resource,
        body: Object,
        *,
        manager: str,
        force: bool = False,
        subresource: str | None = None,
    ) -> Object:
        """Server-side apply `body` (name, namespace and kind are in it) and return what the server then holds."""
        ...

    def merge_patch(
        self,
        resource: Resource,
        name: str,
        patch: Object,
        *,
        manager: str,
        namespace: str | None = None,
        subresource: str | None = None,
    ) -> Object:
        """Apply a JSON merge patch (RFC 7386) and return what the server then holds."""
        ...

    def create(self, resource: Resource, body: Object, *, manager: str) -> Object:
        """Create an object; `Conflict` when it exists."""
        ...

    def replace(self, resource: Resource, body: Object, *, manager: str) -> Object:
        """Replace an object; a `resourceVersion` in the body makes it conditional."""
        ...

    def delete(self, resource: Resource, name: str, *, namespace: str | None = None) -> None:
        """Delete an object; nothing happens when it does not exist."""
        ...

    def list_all(
        self,
        resource: Resource,
        *,
        project: Projection | None = None,
        namespace: str | None = None,
        label_selector: str | None = None,
    ) -> tuple[list[Object], str]:
        """Return every object, read in pages, and the list's resource version; complete or an error."""
        ...

    def watch(
        self,
        resource: Resource,
        *,
        resource_version: str | None,
        project: Projection | None = None,
        namespace: str | None = None,
        initial_events: bool = False,
        timeout_seconds: float = 300.0,
    ) -> Iterator[WatchEvent]:
        """Yield changes until the server ends the stream; `initial_events` asks for a watch-list (no version)."""
        ...
