"""A real control plane with one agent, or more, as real processes: what the rows about running agents share."""

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from bench import fake_library, machine
from tests.cluster.control_plane import ControlPlane
from tests.cluster.definitions import install_base, install_crd
from tests.cluster.objects import CLASS_CRD, node_token, ready_node
from tests.cluster.program import find_or_build
from tests.main_path.agent_process import AgentProcess

NODE = "gpu-1"
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """A control plane with one Node, and where its files lie."""

    plane: ControlPlane
    folder: Path
    environment: Mapping[str, str]
    """Of a process that finds compiled modules, the library that answers at once, and the Node's credentials."""


@contextmanager
def scene(*, apiserver_flags: tuple[str, ...] = ()) -> Iterator[Scene]:
    """Open a control plane with all definitions, rights and policies, and one Node with eight GPUs."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        plane = ControlPlane(find_or_build(), folder / "plane", apiserver_flags=apiserver_flags)
        plane.start()
        try:
            install_base(plane.admin)
            install_crd(plane.admin, CLASS_CRD)
            ready_node(plane.admin, NODE, resources={"nvidia.com/gpu": "8"})
            environment = {
                **machine.compiled(folder),
                **fake_library.build(folder / "library"),
                "KUBECONFIG": str(plane.kubeconfig(node_token(plane.admin, NODE))),
                "ACCELERATOR_NODE_NAME": NODE,
                "ACCELERATOR_LISTEN": "127.0.0.1:0",
            }
            yield Scene(plane=plane, folder=folder, environment=environment)
        finally:
            plane.stop()


@contextmanager
def agent(on: Scene, *arguments: str, command: str = "node", **environment: str) -> Iterator[AgentProcess]:
    """Run a command of the program as a process, and wait until it listens."""
    log = on.folder / f"{command}-{time.monotonic_ns()}.log"
    process = AgentProcess(command, *arguments, log=log, environment={**on.environment, **environment})
    with process:
        await_value(lambda: process.port, what="the port")
        yield process


def passes(process: AgentProcess) -> int:
    """Return how many passes an agent has made."""
    _, body = process.get("/readyz")
    word = body.partition(" ")[0]
    return int(word) if word.isdecimal() else 0


def await_value(found: Callable[[], T | None], *, seconds: float = 60.0, every: float = 0.05, what: str) -> T:
    """Return the first true value; end the benchmark where none comes."""
    deadline = time.monotonic() + seconds
    while True:
        value = found()
        if value:
            return value
        if time.monotonic() > deadline:
            raise SystemExit(f"{what} did not come within {seconds:.0f} s")
        time.sleep(every)
