"""The small world of the chaos run: machines as files, agents and controllers as processes, and what is known of them.

Whoever plays kubelet here starts again what ended. Nothing in this module breaks anything.
"""

import copy
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from agent.cluster import NODES, Object
from fakes.machines import a100_80_mig, eight, h100x8
from tests.cluster.client import Answer, ApiClient
from tests.cluster.control_plane import ControlPlane
from tests.cluster.fault_proxy import FaultProxy
from tests.cluster.objects import INVENTORY_ACCOUNT, account_token, node_token, ready_node
from tests.main_path.agent_process import AgentProcess

Data = dict[str, Any]
Edit = Callable[[Data], None]

INTERVAL_SECONDS = 5
FOREIGN_LABELS = {"team": "search", "example.com/rack": "r7"}
FOREIGN_ANNOTATIONS = {"example.com/note": "by hand"}
CLOCK_SOURCE = Path(__file__).parent / "wall_clock.c"

AGENT_SETTINGS = {
    "ACCELERATOR_ALLOW_SIMULATED": "true",
    "ACCELERATOR_LISTEN": "127.0.0.1:0",
    "ACCELERATOR_PROBE_INTERVAL": f"{INTERVAL_SECONDS}s",
    "ACCELERATOR_PROBE_TIMEOUT": "3s",
    "ACCELERATOR_EXIT_AFTER": "45s",
    "ACCELERATOR_HEARTBEAT": "60s",
    "ACCELERATOR_STALE_AFTER": "120s",
}


def _l40s() -> Data:
    buses = ("21", "41", "81", "a1")
    return {"devices": [{"board": "l40s", "pci": {"address": f"0000:{bus}:00.0"}} for bus in buses]}


def _with_events() -> Data:
    """Tell of an application's error, of which no device is worse, half a minute after each start of a listener."""
    return h100x8(events=[{"device": 2, "xid": 31, "after_seconds": 30.0}])


MACHINES: Mapping[str, Callable[[], Data]] = {
    "gpu-a": _with_events,
    "gpu-b": lambda: h100x8(devices=eight("h100-sxm")),
    "gpu-c": a100_80_mig,
    "gpu-d": _l40s,
    "gpu-e": _l40s,
}
ALLOCATABLE: Mapping[str, Mapping[str, str]] = {
    "gpu-a": {"nvidia.com/gpu": "8"},
    "gpu-b": {"nvidia.com/gpu": "8"},
    "gpu-c": {
        "nvidia.com/gpu": "2",
        "nvidia.com/mig-1g.10gb": "9",
        "nvidia.com/mig-2g.20gb": "1",
        "nvidia.com/mig-3g.40gb": "1",
    },
    "gpu-d": {"nvidia.com/gpu": "4"},
    "gpu-e": {"nvidia.com/gpu": "4"},
}
TOTALS: Mapping[str, int] = {
    "nvidia-h100-80gb": 16,
    "nvidia-a100-80gb": 2,
    "nvidia-a100-80gb-mig-1g.10gb": 9,
    "nvidia-a100-80gb-mig-2g.20gb": 1,
    "nvidia-a100-80gb-mig-3g.40gb": 1,
    "nvidia-l40s-48gb": 8,
}
"""Devices and partitions of each class while every machine is what it was built as."""


@dataclass(slots=True)
class Machine:
    """A fake machine and what is wrong with it at present."""

    name: str
    path: Path
    built: Callable[[], Data]
    faults: dict[int, Edit] = field(default_factory=dict)

    def write(self) -> None:
        """Write the file that its probe host reads, at once and whole."""
        data = copy.deepcopy(self.built())
        for edit in self.faults.values():
            edit(data)
        data["name"] = self.name
        unfinished = self.path.with_suffix(".unfinished")
        unfinished.write_text(json.dumps(data))
        unfinished.replace(self.path)


@dataclass(slots=True)
class Member:
    """One process that is kept running."""

    name: str
    running: AgentProcess
    clock: Path
    """File from which its wall clock is stepped."""
    wanted: bool = True
    stopped: bool = False
    """By SIGSTOP."""
    starts: int = 0
    ends: Counter[int | None] = field(default_factory=Counter)

    @property
    def pid(self) -> int | None:
        """The process id while it runs."""
        return self.running.process.pid

    def keep(self) -> None:
        """Start it where it should run and does not, as a kubelet does."""
        if self.pid is not None or not self.wanted:
            return
        if self.starts:
            self.ends[self.running.process.returncode] += 1
        self.starts += 1
        self.stopped = False
        self.running.process.start()

    def step_clock(self, seconds: int) -> None:
        """Set its wall clock this far from the true time."""
        with self.clock.open("r+b") as file:
            file.write(struct.pack("=q", seconds))

    def descendants(self) -> list[psutil.Process]:
        """Return the probe host and its children."""
        with suppress(psutil.Error):
            return psutil.Process(self.pid).children(recursive=True) if self.pid else []
        return []


class World:
    """The control plane, the machines and all processes."""

    def __init__(self, plane: ControlPlane, proxy: FaultProxy, folder: Path) -> None:
        self.plane = plane
        plane.close_clients()
        plane.admin = Admin(
            plane.server, authority=plane.certificates.authority, token=plane.admin_token, timeout=15.0
        )
        self.proxy = proxy
        self.folder = folder
        self.api_down = False
        self.clock_library = _compiled_clock(folder)
        """What steps the wall clocks of processes, `None` where there is no C compiler."""
        self.machines = {name: self._machine(name, built) for name, built in MACHINES.items()}
        self.agents = {name: self._agent(name) for name in self.machines}
        self.controllers = {name: self._controller(name) for name in ("inventory-a", "inventory-b")}

    @property
    def members(self) -> Iterator[Member]:
        """Yield every process that is kept running."""
        yield from self.agents.values()
        yield from self.controllers.values()

    def keep_all(self) -> None:
        """Start again what ended."""
        for member in self.members:
            member.keep()

    def make_node(self, name: str) -> Object:
        """Register a Node as its kubelet does, with what others have put on it."""
        return ready_node(
            self.plane.admin,
            name,
            labels=FOREIGN_LABELS,
            annotations=FOREIGN_ANNOTATIONS,
            resources=ALLOCATABLE.get(name, {}),
        )

    def labels(self, node: str) -> dict[str, str]:
        """Return the labels of a Node as the server holds them."""
        found: dict[str, str] = self.plane.admin.get(NODES, node)["metadata"].get("labels") or {}
        return found

    def renew_token(self, member: str) -> None:
        """Give a process another token; an agent's former one is no longer valid."""
        admin = self.plane.admin
        if member in self.agents:
            pod = f"/api/v1/namespaces/accelerator-system/pods/accelerator-agent-{member}"
            admin.request("DELETE", pod, {"gracePeriodSeconds": 0})
            token = node_token(admin, member)
        else:
            token = account_token(admin, INVENTORY_ACCOUNT)
        self.plane.kubeconfig(token, server=self.proxy.url, name=member)

    def printed_labels(self, node: str) -> dict[str, str]:
        """Return the labels that the one-shot command prints for a machine as its file is now."""
        done = subprocess.run(
            [sys.executable, "-m", "agent", "labels", "--fake", str(self.machines[node].path), "-o", "json"],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        found: dict[str, str] = json.loads(done.stdout)
        return found

    def stop(self) -> None:
        """End every process."""
        for member in self.members:
            member.wanted = False
            if member.pid is not None:
                with suppress(ProcessLookupError):
                    os.kill(member.pid, signal.SIGCONT)
            member.running.process.stop()

    def _machine(self, name: str, built: Callable[[], Data]) -> Machine:
        machine = Machine(name=name, path=self.folder / f"{name}.json", built=built)
        machine.write()
        return machine

    def _agent(self, name: str) -> Member:
        self.make_node(name)
        own = {"ACCELERATOR_NODE_NAME": name, "ACCELERATOR_FAKE": str(self.machines[name].path)}
        return self._member(name, "node", {**AGENT_SETTINGS, **own})

    def _controller(self, name: str) -> Member:
        settings = {
            "ACCELERATOR_IDENTITY": name,
            "ACCELERATOR_LISTEN": "127.0.0.1:0",
            "ACCELERATOR_RECORD_STALE_AFTER": "5m",
        }
        return self._member(name, "inventory", settings)

    def _member(self, name: str, command: str, settings: Mapping[str, str]) -> Member:
        clock = self.folder / f"{name}.clock"
        clock.write_bytes(bytes(8))
        environment = {**settings, "KUBECONFIG": str(self.folder / f"{name}.kubeconfig")}
        if self.clock_library:
            environment |= {"LD_PRELOAD": str(self.clock_library), "WALL_CLOCK_FILE": str(clock)}
        process = AgentProcess(command, log=self.folder / f"{name}.log", environment=environment)
        return Member(name=name, running=process, clock=clock)

    def start(self) -> None:
        """Hand out the first tokens and start everything."""
        for member in self.members:
            self.renew_token(member.name)
        self.keep_all()


def _compiled_clock(folder: Path) -> Path | None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return None
    library = folder / "wall_clock.so"
    subprocess.run(
        [compiler, "-O1", "-shared", "-fPIC", "-o", str(library), str(CLOCK_SOURCE), "-ldl"], check=True
    )
    return library


class Admin(ApiClient):
    """The run's own client: a server that has just started answers 429 while it fills its stores, and is asked again."""

    def request(self, *arguments: Any, **options: Any) -> Answer:  # noqa: ANN401 - as the base class
        """Return the answer, once the server has one."""
        for _ in range(100):
            answer = super().request(*arguments, **options)
            if answer.status not in {429, 503}:
                return answer
            time.sleep(0.1)
        return answer


def wait_for(reached: Callable[[], bool], seconds: float, each: Callable[[], object]) -> float | None:
    """Wait until `reached()`, calling `each` meanwhile; return after how long, `None` when it did not come."""
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        each()
        if reached():
            return time.monotonic() - began
        time.sleep(0.2)
    return None
