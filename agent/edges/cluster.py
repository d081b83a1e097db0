"""The Kubernetes API over HTTP: keeps the `Cluster` protocol with the official client's generic `ApiClient`.

The only module that imports `kubernetes`. Objects stay plain dictionaries: the typed models of the client cost
20 MiB and five times the memory of an object. Every request has connect and read timeouts and is retried a
bounded number of times; what is left after that is a `ClusterError`.
"""

import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast

import msgspec
import urllib3
import yaml
from kubernetes.client.api_client import ApiClient
from kubernetes.client.configuration import Configuration
from kubernetes.client.exceptions import ApiException
from kubernetes.config.config_exception import ConfigException
from kubernetes.config.incluster_config import InClusterConfigLoader
from kubernetes.config.kube_config import load_kube_config

from agent.api_requests import (
    APPLY_PATCH,
    JSON,
    MERGE_PATCH,
    ApiRequest,
    api_request,
    lines_of,
    pause_before_retry,
    watch_event,
)
from agent.cluster import (
    ClusterError,
    Gone,
    NotFound,
    Object,
    Projection,
    Resource,
    ServerFault,
    Unauthorized,
    Unreachable,
    WatchEvent,
    not_installed,
)
from agent.refusals import lacks_the_type, names_the_object, refusal

ConfigurationSource = Callable[[], Configuration]
"""Reads where the server is and with which credentials to ask it, again at each call."""

_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class RequestObserver(Protocol):
    """Told of every request once it is over, for metrics."""

    def __call__(self, *, verb: str, resource: str, status: int) -> None:
        """Count one request; `status` is 0 when no answer came."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long a request may take. Seconds."""

    connect: float = 5.0
    read: float = 15.0
    attempts: int = 5
    total: float = 30.0
    """No attempt starts later than this after the first."""
    watch_idle: float = 100.0
    """A watch hears a bookmark each minute; longer silence is a dead connection."""


def in_cluster(
    environ: Mapping[str, str] = os.environ, service_account: Path = _SERVICE_ACCOUNT
) -> ConfigurationSource:
    """Return the source for a pod: its service account's token and the address in its environment."""

    def read() -> Configuration:
        configuration = Configuration()
        loader = InClusterConfigLoader(  # type: ignore[no-untyped-call]
            token_filename=str(service_account / "token"),
            cert_filename=str(service_account / "ca.crt"),
            environ=environ,
        )
        loader.load_and_set(configuration)  # type: ignore[no-untyped-call]
        return configuration

    return read


def kubeconfig(path: str | None = None, *, context: str | None = None) -> ConfigurationSource:
    """Return the source for a kubeconfig file; without `path` the one that kubectl would read."""

    def read() -> Configuration:
        configuration = Configuration()
        try:
            load_kube_config(  # type: ignore[no-untyped-call]
                config_file=path, context=context, client_configuration=configuration, persist_config=False
            )
        except (TypeError, AttributeError, KeyError, ValueError, yaml.YAMLError) as error:
            # What the client meets in a file that is no kubeconfig: it indexes before it looks.
            raise ConfigException(f"{path or 'the kubeconfig file'} is no kubeconfig: {error}") from error
        # It would read the file's settings anew at each request. A credential that has expired is a 401, and then the
        # whole file is read again.
        configuration.refresh_api_key_hook = None
        return configuration

    return read


def usual_configuration(path: str | None = None, *, context: str | None = None) -> ConfigurationSource:
    """Return the named kubeconfig, else the pod's own credentials inside a cluster, else kubectl's file."""
    inside = bool(os.environ.get("KUBERNETES_SERVICE_HOST")) and (_SERVICE_ACCOUNT / "token").exists()
    if path is None and context is None and inside:
        return in_cluster()
    return kubeconfig(path, context=context)


class KubernetesCluster:
    """A Kubernetes API server. Safe to share between threads."""

    def __init__(
        self,
        source: ConfigurationSource,
        *,
        patience: Patience | None = None,
        observe: RequestObserver | None = None,
        user_agent: str = "accelerator-discovery-agent",
        wait: Callable[[float], object] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
        page_size: int = 500,
    ) -> None:
        """Connect to nothing yet; `wait` pauses between attempts and may raise to give up."""
        self._source = source
        self._patience = patience or Patience()
        self._observe = observe
        self._user_agent = user_agent
        self._wait = wait
        self._clock = clock
        self._page_size = page_size
        self._client: ApiClient | None = None

    def get(
        self, resource: Resource, name: str, *, namespace: str | None = None, cached: bool = False
    ) -> Object | None:
        """Return the object, `None` when it does not exist; `cached` allows the server's watch cache."""
        query = (("resourceVersion", "0"),) if cached else ()
        try:
            return self._send(
                api_request("get", "GET", resource, namespace=namespace, name=name, query=query)
            )
        except _MissingObject:
            return None

    def apply(
        self,
        resource: Resource,
        body: Object,
        *,
        manager: str,
        force: bool = False,
        subresource: str | None = None,
    ) -> Object:
        """Server-side apply `body` and return what the server then holds."""
        metadata = body["metadata"]
        request = api_request(
            "apply",
            "PATCH",
            resource,
            namespace=metadata.get("namespace"),
            name=metadata["name"],
            subresource=subresource,
            query=(("fieldManager", manager), ("force", "true" if force else "false")),
            body=body,
            content_type=APPLY_PATCH,
            conflict_may_pass="resourceVersion" not in metadata,
        )
        return self._send(request)

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
        """Apply a JSON merge patch and return what the server then holds."""
        request = api_request(
            "patch",
            "PATCH",
            resource,
            namespace=namespace,
            name=name,
            subresource=subresource,
            query=(("fieldManager", manager),),
            body=patch,
            content_type=MERGE_PATCH,
            conflict_may_pass="resourceVersion" not in patch.get("metadata", {}),
        )
        return self._send(request)

    def create(self, resource: Resource, body: Object, *, manager: str) -> Object:
        """Create an object; `Conflict` when it exists."""
        namespace = body["metadata"].get("namespace")
        query = (("fieldManager", manager),)
        return self._send(
            api_request("create", "POST", resource, namespace=namespace, query=query, body=body)
        )

    def replace(self, resource: Resource, body: Object, *, manager: str) -> Object:
        """Replace an object; a `resourceVersion` in the body makes it conditional."""
        metadata = body["metadata"]
        request = api_request(
            "update",
            "PUT",
            resource,
            namespace=metadata.get("namespace"),
            name=metadata["name"],
            query=(("fieldManager", manager),),
            body=body,
        )
        return self._send(request)

    def delete(self, resource: Resource, name: str, *, namespace: str | None = None) -> None:
        """Delete an object; nothing happens when it does not exist."""
        try:
            self._send(api_request("delete", "DELETE", resource, namespace=namespace, name=name))
        except _MissingObject:
            return

    def list_all(
        self,
        resource: Resource,
        *,
        project: Projection | None = None,
        namespace: str | None = None,
        label_selector: str | None = None,
    ) -> tuple[list[Object], str]:
        """Return every object and the list's version; starts again, twice, when a continue token expires."""
        for _ in range(2):
            try:
                return self._list_pages(resource, project, namespace, label_selector)
            except Gone:
                continue
        return self._list_pages(resource, project, namespace, label_selector)

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
        """Yield changes until the server ends the stream."""
        query = [("watch", "true"), ("allowWatchBookmarks", "true")]
        query.append(("timeoutSeconds", str(max(1, round(timeout_seconds)))))
        if resource_version is not None:
            query.append(("resourceVersion", resource_version))
        if initial_events:
            query += [("sendInitialEvents", "true"), ("resourceVersionMatch", "NotOlderThan")]
        request = api_request("watch", "GET", resource, namespace=namespace, query=tuple(query))
        response = self._open(request, read_seconds=self._patience.watch_idle)
        try:
            for line in lines_of(response.stream(65536)):
                yield watch_event(line, project)
        except urllib3.exceptions.HTTPError as error:
            raise Unreachable(f"the watch of {resource.plural} broke: {error}") from error
        finally:
            # The connection is in the middle of a stream: it can serve nobody else.
            response.close()

    def close(self) -> None:
        """Close idle connections."""
        if self._client is not None:
            self._client.close()  # type: ignore[no-untyped-call]

    def _list_pages(
        self, resource: Resource, project: Projection | None, namespace: str | None, selector: str | None
    ) -> tuple[list[Object], str]:
        # No resourceVersion: with "0" the server ignores the limit and answers with everything at once.
        fixed = [("limit", str(self._page_size))]
        if selector:
            fixed.append(("labelSelector", selector))
        items: list[Object] = []
        token = ""
        while True:
            query = (*fixed, ("continue", token)) if token else tuple(fixed)
            page = self._send(api_request("list", "GET", resource, namespace=namespace, query=query))
            if "items" not in page or "metadata" not in page:
                raise ServerFault(f"a page of {resource.plural} came without items: half a list is no list")
            found = page["items"] or []
            items.extend(found if project is None else map(project, found))
            token = page["metadata"].get("continue", "")
            if not token:
                return items, page["metadata"].get("resourceVersion", "")

    def _send(self, request: ApiRequest) -> Object:
        """Return the JSON object that answers, after as many attempts as patience allows."""
        response = self._open(request, read_seconds=self._patience.read, preload=True)
        try:
            decoded = msgspec.json.decode(response.data)
        except msgspec.DecodeError as error:
            raise ServerFault(f"the answer to {request.verb} {request.path} is no JSON: {error}") from error
        if not isinstance(decoded, dict):
            raise ServerFault(f"the answer to {request.verb} {request.path} is no object")
        return decoded

    def _open(
        self, request: ApiRequest, *, read_seconds: float, preload: bool = False
    ) -> urllib3.BaseHTTPResponse:
        started = self._clock()
        token_was_read_again = False
        attempt = 1
        while True:
            try:
                return self._attempt(request, read_seconds, preload=preload)
            except Unauthorized:
                # The kept token may be older than the file: the client renews it by the wall clock.
                self._forget_client()
                if token_was_read_again:
                    raise
                token_was_read_again = True
                continue
            except ClusterError as error:
                pause = pause_before_retry(error, request, attempt)
                spent = self._clock() - started
                if (
                    pause is None
                    or attempt >= self._patience.attempts
                    or spent + pause > self._patience.total
                ):
                    raise
            self._wait(pause)
            attempt += 1

    def _attempt(
        self, request: ApiRequest, read_seconds: float, *, preload: bool
    ) -> urllib3.BaseHTTPResponse:
        status = 0
        try:
            response = self._call(request, read_seconds)
            status = response.status
            if preload or not _succeeded(status):
                # Reads the body, so that the connection goes back to the pool.
                _ = response.data
        except ConfigException as error:
            # A token file is empty for a moment while it is being replaced.
            self._forget_client()
            raise Unreachable(f"no usable cluster configuration: {error}") from error
        except ApiException as error:  # only TLS failures come as this: the CA may have been rotated
            self._forget_client()
            raise Unreachable(f"no trusted connection to the API server: {error.reason}") from error
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise Unreachable(f"no answer to {request.verb} {request.path}: {error}") from error
        finally:
            if self._observe is not None:
                self._observe(verb=request.verb, resource=request.resource.plural, status=status)
        if _succeeded(status):
            return response
        raise _failure(request, response)

    def _call(self, request: ApiRequest, read_seconds: float) -> urllib3.BaseHTTPResponse:
        client = self._client or self._connect()
        call = client.param_serialize(
            request.method,
            request.path,
            query_params=list(request.query),
            header_params={"Accept": JSON, "Content-Type": request.content_type},
            body=request.body,
            auth_settings=["BearerToken"],
        )
        answer = client.call_api(*call, _request_timeout=(self._patience.connect, read_seconds))
        return cast("urllib3.BaseHTTPResponse", answer.response)

    def _connect(self) -> ApiClient:
        configuration = self._source()
        # Attempts are counted here; urllib3 would add its own below them without a pause.
        configuration.retries = False
        client = ApiClient(configuration)
        client.user_agent = self._user_agent
        self._client = client
        return client

    def _forget_client(self) -> None:
        self._client = None


class _MissingObject(NotFound):
    """The resource type is there, the object is not."""


def _succeeded(status: int) -> bool:
    return 200 <= status <= 299


def _failure(request: ApiRequest, response: urllib3.BaseHTTPResponse) -> ClusterError:
    try:
        decoded: Any = msgspec.json.decode(response.data)
    except msgspec.DecodeError:
        decoded = None  # "404 page not found" of a group that is not installed, or a proxy's page
    body = decoded if isinstance(decoded, dict) else {}
    stated = response.headers.get("Retry-After", "")
    error = refusal(response.status, body, retry_after_seconds=float(stated) if stated.isdigit() else None)
    name = request.path.rsplit("/", 1)[-1]
    if not isinstance(error, NotFound):
        return error
    if names_the_object(body, name):
        return _MissingObject(error.message)
    # The server's own words do not say what it lacks.
    return not_installed(request.resource) if lacks_the_type(body) else error
