"""What the chaos run breaks: each fault begins, lasts a while and is undone; none is beyond what is seen in the field."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import TypeVar

import psutil

from agent.cluster import ACCELERATOR_CLASSES, NODES, PODS
from bench.chaos_world import Data, Edit, Machine, Member, World
from tests.cluster.client import ApiError
from tests.cluster.faults import (
    CutWatch,
    Delay,
    Fault,
    HalfAnswer,
    Reset,
    Silence,
    WatchError,
    refusal,
)
from tests.cluster.objects import delete_pod, make_pod, set_ready

T = TypeVar("T")
Undo = Callable[[], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """One fault that has begun."""

    name: str
    until: float
    undo: Undo
    concerns: str = ""
    """The member or Node that it is about, empty for all."""


def nothing() -> None:
    """Undo what undoes itself."""


class Faults:
    """Draws faults by chance; the same seed draws the same."""

    def __init__(self, world: World, random: Random) -> None:
        self._world = world
        self._random = random
        self._serial = 0
        self._next_device: dict[str, int] = {}
        self._kinds: tuple[tuple[int, Callable[[], Trouble | None]], ...] = (
            (8, self.hardware),
            (5, self.requests),
            (3, self.kill_child),
            (2, self.kill_agent),
            (1, self.suspend_agent),
            (2, self.renew_token),
            (2, self.step_clock),
            (1, self.server_away),
            (1, self.server_frozen),
            (1, self.server_slow),
            (1, self.kill_controller),
            (1, self.suspend_controller),
            (2, self.cordon),
            (1, self.not_ready),
            (3, self.pod),
            (1, self.person_edits),
        )

    def draw(self, active: list[Trouble]) -> Trouble | None:
        """Begin a fault and return it, `None` where what was drawn is not possible now."""
        weights = [weight for weight, _ in self._kinds]
        _, begin = self._random.choices(self._kinds, weights)[0]
        taken = {trouble.concerns for trouble in active if trouble.concerns}
        trouble = begin()
        if trouble is not None and trouble.concerns in taken:
            # Two faults on one would undo each other.
            trouble.undo()
            return None
        return trouble

    # Hardware

    def hardware(self) -> Trouble:
        """Break a machine: a device of it, or all."""
        machine = self._pick(list(self._world.machines.values()))
        name, edit = self._random.choice(list(self._edits(machine)))
        self._serial += 1
        key = self._serial
        machine.faults[key] = edit
        machine.write()

        def undo() -> None:
            machine.faults.pop(key, None)
            machine.write()

        return self._lasting(f"{machine.name}: {name}", 10, 70, undo, concerns=f"hardware of {machine.name}")

    def _edits(self, machine: Machine) -> Iterator[tuple[str, Edit]]:
        count = sum(device.get("count", 1) for device in machine.built()["devices"])
        # In turn, so that no device flaps so much that it is held for minutes.
        number = self._next_device.get(machine.name, 0) % count
        self._next_device[machine.name] = number + 1
        every = {"function": "nvmlDevice*", "but_not": "nvmlDeviceGetHandleBy*", "device": number}
        handle = {"function": "nvmlDeviceGetHandleByIndex_v2", "device": number}
        memory = {"function": "nvmlDeviceGetMemoryInfo*", "device": number}
        yield f"GPU {number} is lost", failing({**every, "code": 15})
        yield f"GPU {number} gives no handle", failing({**handle, "code": 15})
        yield f"GPU {number} needs a reset", failing({**every, "code": 16})
        yield f"GPU {number} answers errors", failing({**every, "code": 999})
        yield f"GPU {number} never answers", failing({**memory, "hang": True})
        yield f"a call on GPU {number} crashes", failing({**memory, "abort": True})
        yield f"GPU {number} answers slowly", failing({**memory, "delay_seconds": 1.0})
        yield (
            f"the name of GPU {number} is not UTF-8",
            failing({"function": "nvmlDeviceGetName", "bytes": "f8ff"}),
        )
        yield "the container lost its devices", failing({"function": "*", "code": 999})
        yield "NVML never opens", failing({"function": "nvmlInitWithFlags", "hang": True})
        yield "NVML crashes", failing({"function": "nvmlDeviceGetCount_v2", "abort": True})
        yield "the library is away", driver({"library": False})
        yield "the driver is unloaded", driver({"loaded": False})
        yield "library and module differ", driver({"kernel_module_version": "418.1"})

    # Requests

    def requests(self) -> Trouble:
        """Have some requests of agents and controllers meet a fault on their way."""
        faults: tuple[tuple[str, Fault, bool | None], ...] = (
            ("429", refusal(429, retry_after=1), False),
            ("500", refusal(500), None),
            ("503", refusal(503), None),
            ("401 at random", refusal(401), None),
            ("410 on watches", WatchError(status=410), True),
            ("watches cut", CutWatch(seconds=2.0), True),
            ("watches reset", CutWatch(seconds=1.0, abruptly=True), True),
            ("resets", Reset(), None),
            ("answers lost after the write", Reset(after_forwarding=True), False),
            ("half answers", HalfAnswer(), False),
            ("silence", Silence(), None),
        )
        name, fault, watch = self._random.choice(faults)
        method = self._random.choice((None, "GET", "PATCH"))
        self._world.proxy.add(
            fault, watch=watch, method="GET" if watch else method, times=self._random.randint(3, 40)
        )
        return self._lasting(f"requests: {name}", 8, 25, self._world.proxy.clear, concerns="requests")

    def server_slow(self) -> Trouble:
        """Have every request be late."""
        self._world.proxy.add(Delay(seconds=self._random.choice((0.5, 2.0, 6.0))), watch=False)
        return self._lasting("the server is slow", 8, 20, self._world.proxy.clear, concerns="requests")

    def server_away(self) -> Trouble | None:
        """Stop the API server and start it again."""
        if self._world.api_down:
            return None
        self._world.api_down = True
        self._world.plane.close_clients()
        self._world.plane.stop_apiserver()

        def undo() -> None:
            self._world.plane.start_apiserver()
            self._world.api_down = False

        return self._lasting("the API server is stopped", 2, 25, undo, concerns="server")

    def server_frozen(self) -> Trouble | None:
        """Freeze the API server: it accepts connections and does not answer."""
        if self._world.api_down:
            return None
        self._world.api_down = True
        self._world.plane.close_clients()
        self._world.plane.pause_apiserver()

        def undo() -> None:
            self._world.plane.resume_apiserver()
            self._world.api_down = False

        return self._lasting("the API server is frozen", 3, 20, undo, concerns="server")

    # Processes

    def kill_child(self) -> Trouble | None:
        """Kill a probe host, or whatever it forked."""
        agent = self._pick(list(self._world.agents.values()))
        children = agent.descendants()
        if not children:
            return None
        with suppress(psutil.Error):
            self._random.choice(children).kill()
        return self._over(f"a child of {agent.name} is killed")

    def kill_agent(self) -> Trouble | None:
        """End an agent, in order or not; one is spared, to be watched for long."""
        agent = self._pick([one for one in self._world.agents.values() if one.name != "gpu-b"])
        return self._end(agent)

    def kill_controller(self) -> Trouble | None:
        """End one controller, in order or not; the other is spared, to be watched for long."""
        return self._end(self._world.controllers["inventory-a"])

    def suspend_agent(self) -> Trouble | None:
        """Stop an agent and all its children from running for a while."""
        return self._suspend(self._pick(list(self._world.agents.values())), longest=40)

    def suspend_controller(self) -> Trouble | None:
        """Stop a controller from running for a while: it may think that it leads when it wakes."""
        return self._suspend(self._pick(list(self._world.controllers.values())), longest=40)

    def renew_token(self) -> Trouble | None:
        """Replace a token; of an agent the former is void at once, and for a moment its file is empty."""
        if self._world.api_down:
            return None
        member = self._pick(list(self._world.members))
        path = self._world.plane.folder / f"{member.name}.kubeconfig"
        path.write_text("")
        time.sleep(0.1)
        self._world.renew_token(member.name)
        return self._over(f"the token of {member.name} is replaced")

    def step_clock(self) -> Trouble | None:
        """Step a process' wall clock, and back."""
        if self._world.clock_library is None:
            return None
        member = self._pick(list(self._world.members))
        # Not back by more: the server's certificate is an hour old at its oldest.
        step = self._random.choice((-2400, -61, 61, 3600, 86400))
        member.step_clock(step)
        return self._lasting(
            f"the clock of {member.name} is stepped by {step} s",
            10,
            60,
            lambda: member.step_clock(0),
            concerns=f"clock of {member.name}",
        )

    # The cluster

    def cordon(self) -> Trouble | None:
        """Cordon a Node."""
        return self._on_a_node(
            "cordoned",
            lambda name: self._patch_node(name, {"spec": {"unschedulable": True}}),
            lambda name: self._patch_node(name, {"spec": {"unschedulable": None}}),
        )

    def not_ready(self) -> Trouble | None:
        """Have a kubelet go silent."""
        admin = self._world.plane.admin
        return self._on_a_node(
            "not ready",
            lambda name: set_ready(admin, name, ready=False),
            lambda name: set_ready(admin, name, ready=True),
        )

    def pod(self) -> Trouble | None:
        """Have a Pod take devices and give them back."""
        if self._world.api_down:
            return None
        self._serial += 1
        name, node = f"work-{self._serial}", self._pick(["gpu-a", "gpu-b", "gpu-d", "gpu-e"])
        admin = self._world.plane.admin
        make_pod(admin, name, node=node, requests={"nvidia.com/gpu": str(self._random.randint(1, 4))})
        return self._lasting(
            f"{name} runs on {node}", 5, 60, self._patiently(lambda: delete_pod(admin, name))
        )

    def person_edits(self) -> Trouble | None:
        """Have a person set a price on a class, which then is theirs."""
        if self._world.api_down:
            return None
        patch = {"spec": {"cost": {"perHour": str(self._random.randint(1, 9))}}}
        with suppress(ApiError):  # the class may not be there yet
            self._world.plane.admin.patch(ACCELERATOR_CLASSES, "nvidia-l40s-48gb", patch)
        return self._over("a person sets a price")

    def _on_a_node(self, what: str, do: Callable[[str], None], undo: Callable[[str], None]) -> Trouble | None:
        if self._world.api_down:
            return None
        name = self._pick(list(self._world.machines))
        do(name)
        return self._lasting(
            f"{name} is {what}", 5, 40, self._patiently(lambda: undo(name)), concerns=f"Node {name}"
        )

    def _patch_node(self, name: str, body: Data) -> None:
        self._world.plane.admin.patch(NODES, name, body, manager="kubectl")

    def _patiently(self, undo: Undo) -> Undo:
        """Return what undoes once the server is there."""

        def later() -> None:
            if self._world.api_down:
                raise NotNow
            undo()

        return later

    def _end(self, member: Member) -> Trouble | None:
        pid = member.pid
        if pid is None or member.stopped:
            return None
        how = self._random.choice((signal.SIGKILL, signal.SIGTERM))
        os.kill(pid, how)
        return self._over(f"{member.name} gets {how.name}")

    def _suspend(self, member: Member, *, longest: int) -> Trouble | None:
        pid = member.pid
        if pid is None or member.stopped:
            return None
        processes = [pid, *(child.pid for child in member.descendants())]
        member.stopped = True
        for one in processes:
            _signal(one, signal.SIGSTOP)

        def undo() -> None:
            for one in processes:
                _signal(one, signal.SIGCONT)
            member.stopped = False

        return self._lasting(f"{member.name} is suspended", 5, longest, undo, concerns=member.name)

    def _lasting(self, name: str, least: float, most: float, undo: Undo, *, concerns: str = "") -> Trouble:
        until = time.monotonic() + self._random.uniform(least, most)
        return Trouble(name=name, until=until, undo=undo, concerns=concerns)

    def _over(self, name: str) -> Trouble:
        return Trouble(name=name, until=time.monotonic(), undo=nothing)

    def _pick(self, choices: list[T]) -> T:
        return self._random.choice(choices)


class NotNow(Exception):  # noqa: N818 - no error: it is tried again
    """The API server is away, so this cannot be undone yet."""


def failing(entry: Data) -> Edit:
    """Return what adds an entry to a machine's script of failures."""

    def edit(data: Data) -> None:
        data.setdefault("failures", []).append(entry)

    return edit


def driver(fields: Data) -> Edit:
    """Return what changes a machine's driver."""

    def edit(data: Data) -> None:
        data["driver"] = {**data.get("driver", {}), **fields}

    return edit


def leftover_pods(world: World) -> list[str]:
    """Return the Pods that still take devices."""
    return [pod["metadata"]["name"] for pod in world.plane.admin.items(PODS, namespace="default")]


def _signal(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)
