"""A stand-in for the kubelets: runs the one container of each bound Pod as a process of this machine.

The process gets the container's own command, arguments and environment and a token bound to its Pod. What has no part here:
images, volumes, users, resource limits, network namespaces. A Pod's address is one of the loopback's, told to the process
by the environment that a test adds.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.client import HTTPException
from pathlib import Path
from typing import Any

from agent.cluster import PODS
from tests.cluster.client import ApiError, path_of
from tests.cluster.containers import (
    ContainerConfigError,
    Probes,
    command_of,
    environment_of,
    is_ready,
    pod_status,
    probes_of,
)
from tests.cluster.control_plane import ControlPlane
from tests.cluster.objects import AT_ONCE, account_token, eventually
from tests.cluster.processes import Process

Object = dict[str, Any]
Environment = Callable[[Object, str], Mapping[str, str]]
"""(Pod, its address) → what the test adds to, or puts in place of, the container's own variables."""

TURN_SECONDS = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a Pod's process ended after it was asked to."""

    seconds: float
    """From SIGTERM to its end."""
    status: int | None
    """Its exit status, negative for a signal."""


@dataclass(slots=True, kw_only=True)
class _Running:
    """A Pod whose process was started."""

    pod: Object
    ip: str
    process: Process
    probes: Probes
    restarts: int = 0
    asked_to_end_at: float | None = None
    told: Object = field(default_factory=dict)
    """The status that was last written."""

    @property
    def name(self) -> str:
        return str(self.pod["metadata"]["name"])

    @property
    def started(self) -> bool:
        return self.process.pid is not None and self.probes.started

    @property
    def ready(self) -> bool:
        readiness = self.probes.readiness
        return self.started and (readiness is None or readiness.succeeded)


class Kubelet:
    """All Nodes' kubelets at once, in one thread, from `start` to `stop`."""

    def __init__(
        self, plane: ControlPlane, folder: Path, *, environment: Environment, probe_scale: float = 0.1
    ) -> None:
        """Keep logs and credentials in `folder`; probe periods are multiplied by `probe_scale`."""
        self._plane = plane
        self._folder = folder
        self._environment = environment
        self._scale = probe_scale
        self._running: dict[str, _Running] = {}
        self._refused: dict[str, str] = {}
        self._addresses = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kubelet", daemon=True)
        self.ended: dict[str, Ended] = {}
        """By the Pod's name."""
        self.bug: Exception | None = None

    def start(self) -> None:
        """Begin to run Pods."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._thread.start()

    def stop(self) -> None:
        """End every process at once and stop; raises what broke the loop, if anything did."""
        self._stop.set()
        self._thread.join()
        for running in self._running.values():
            running.process.kill()
        if self.bug is not None:
            raise self.bug

    def process(self, pod_name: str) -> Process:
        """Return a Pod's process, to kill, pause or read its log."""
        return self._named(pod_name).process

    def address(self, pod_name: str) -> str:
        """Return a Pod's address."""
        return self._named(pod_name).ip

    def restarts(self, pod_name: str) -> int:
        """Return how often a Pod's container was started again."""
        return self._named(pod_name).restarts

    def token_file(self, pod_name: str) -> Path:
        """Return the file with a Pod's token, to put another one in its place."""
        return self._folder / f"{pod_name}.token"

    def await_ready(
        self, namespace: str, count: int, *, selector: str = "", seconds: float = 30.0
    ) -> list[Object]:
        """Return the Pods that `selector` picks, once there are exactly `count` and each is Ready."""

        def all_ready() -> list[Object]:
            query = {"labelSelector": selector}
            pods = self._plane.admin.ask("GET", path_of(PODS, namespace=namespace), query=query)["items"]
            return pods if len(pods) == count and all(map(is_ready, pods)) else []

        return eventually(all_ready, seconds=seconds, what=f"{count} Ready Pods of {selector or namespace}")

    def _named(self, pod_name: str) -> _Running:
        return next(running for running in list(self._running.values()) if running.name == pod_name)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._turn()
            except (
                OSError,
                HTTPException,
                ApiError,
            ):  # the server is down, or a Pod changed meanwhile: the next turn sees it afresh
                pass
            except Exception as error:  # noqa: BLE001 - the thread's outermost line; `stop` raises it in the test
                self.bug = error
                return
            self._stop.wait(TURN_SECONDS)

    def _turn(self) -> None:
        pods = {
            pod["metadata"]["uid"]: pod
            for pod in self._plane.admin.items(PODS)
            if pod["spec"].get("nodeName")
        }
        for uid in self._running.keys() - pods.keys():
            self._running.pop(uid).process.kill()
        for uid, pod in pods.items():
            running = self._running.get(uid)
            if pod["metadata"].get("deletionTimestamp"):
                self._end(uid, pod, running)
            elif running is None:
                self._begin(uid, pod)
            else:
                self._tend(running)

    def _begin(self, uid: str, pod: Object) -> None:
        if uid in self._refused or pod["spec"].get("restartPolicy", "Always") != "Always":
            return
        self._addresses += 1
        ip = f"127.0.{1 + self._addresses // 250}.{1 + self._addresses % 250}"
        try:
            running = self._prepared(pod, ip)
        except ContainerConfigError as error:
            self._refused[uid] = str(error)
            waiting = {"reason": "CreateContainerConfigError", "message": str(error)}
            self._tell_state(pod, {"phase": "Pending"}, {"state": {"waiting": waiting}, "ready": False})
            return
        running.process.start()
        self._running[uid] = running
        self._tell(running)

    def _prepared(self, pod: Object, ip: str) -> _Running:
        (container,) = pod["spec"]["containers"]
        own = environment_of(pod, container, ip=ip)
        name = pod["metadata"]["name"]
        folder = self._folder / name
        folder.mkdir(exist_ok=True)
        given = {
            # The programs of this environment are the image's.
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), "/usr/bin", "/bin"]),
            "HOME": str(folder),
            "KUBECONFIG": str(self._credentials(pod)),
        }
        process = Process(
            name,
            command_of(container, own),
            log=self._folder / f"{name}.log",
            env=given | own | dict(self._environment(pod, ip)),
            folder=folder,
        )
        return _Running(pod=pod, ip=ip, process=process, probes=self._fresh_probes(container, ip))

    def _credentials(self, pod: Object) -> Path:
        """Write a token bound to the Pod, and a kubeconfig that reads it again from its file as a Pod's volume is read."""
        metadata = pod["metadata"]
        account = pod["spec"].get("serviceAccountName", "default")
        token = account_token(self._plane.admin, account, namespace=metadata["namespace"], pod=pod)
        file = self.token_file(metadata["name"])
        file.touch(mode=0o600)
        file.write_text(token)
        config = self._folder / f"{metadata['name']}.kubeconfig"
        body = json.loads(self._plane.admin_kubeconfig.read_text())
        body["users"][0]["user"] = {"tokenFile": str(file)}
        config.write_text(json.dumps(body))
        return config

    def _fresh_probes(self, container: Object, ip: str) -> Probes:
        return probes_of(container, ip=ip, now=time.monotonic(), scale=self._scale)

    def _tend(self, running: _Running) -> None:
        if running.process.pid is None:
            self._restart(running)
            return
        running.probes.ask(time.monotonic())
        if running.probes.failed:
            running.process.stop()
            self._restart(running)
            return
        self._tell(running)

    def _restart(self, running: _Running) -> None:
        """Start the container again at once: waiting longer after each end would only make tests wait."""
        (container,) = running.pod["spec"]["containers"]
        running.probes = self._fresh_probes(container, running.ip)
        running.restarts += 1
        running.process.start()
        self._tell(running)

    def _end(self, uid: str, pod: Object, running: _Running | None) -> None:
        """End a Pod that is being deleted: SIGTERM, its grace period, SIGKILL, and then the object."""
        now = time.monotonic()
        if running is not None and running.process.pid is not None:
            if running.asked_to_end_at is None:
                running.asked_to_end_at = now
                running.process.terminate()
            if now - running.asked_to_end_at < pod["metadata"].get("deletionGracePeriodSeconds", 30):
                return
            running.process.kill()
        if running is not None:
            waited = now - (running.asked_to_end_at or now)
            self.ended[running.name] = Ended(seconds=waited, status=running.process.returncode)
            del self._running[uid]
        metadata = pod["metadata"]
        options = AT_ONCE | {"preconditions": {"uid": uid}}
        self._plane.admin.delete(PODS, metadata["name"], namespace=metadata["namespace"], options=options)

    def _tell(self, running: _Running) -> None:
        status = pod_status(ip=running.ip, ready=running.ready)
        container = {
            "state": {"running": {}},
            "ready": running.ready,
            "started": running.started,
            "restartCount": running.restarts,
        }
        now_told = {"status": status, "container": container}
        if now_told != running.told:
            self._tell_state(running.pod, status, container)
            running.told = now_told

    def _tell_state(self, pod: Object, status: Object, container: Object) -> None:
        """Write a Pod's status, where it differs."""
        (specified,) = pod["spec"]["containers"]
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        conditions = [one | {"lastTransitionTime": now} for one in status.get("conditions", [])]
        whole = {
            "name": specified["name"],
            "image": specified["image"],
            "imageID": "none",
            "restartCount": 0,
        } | container
        body = {"status": status | {"conditions": conditions, "containerStatuses": [whole]}}
        metadata = pod["metadata"]
        self._plane.admin.patch(
            PODS,
            metadata["name"],
            body,
            namespace=metadata["namespace"],
            subresource="status",
            manager="kubelet",
        )
