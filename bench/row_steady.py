"""An agent in its steady state on a real API server: processor per pass, all its processes, memory, and where it goes."""

import cProfile
import io
import os
import pstats
import sys
import sysconfig
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from agent.core.health import Instant
from agent.edges.cluster import KubernetesCluster, kubeconfig
from agent.node_pass import NodePass, NodePassOptions
from bench import machine
from bench.figures import Figure, Result, limit
from bench.scene import NODE, Scene, agent, await_value, passes, scene
from probes.host_process import ProbeHost
from probes.spawned_host import SpawnedHost

PASSES = 1000
CPU_MILLISECONDS = 8.0
MEMORY_MIB = 64.0
INTERVAL_SECONDS = 60.0
IDLE_SECONDS = 60.0
SPLIT_PASSES = 200
HEARTBEATS_A_PASS = 1 / 15

METHOD = (
    f"{PASSES} passes of the real process on a real API server, counted from `/proc` over agent, probe host, its children "
    "and the listener for events; the library answers at once."
)
PARTS = (
    "The parts are the least of ten batches in one process with the same code; `write` is a record's apply, due once in "
    "fifteen passes, so a fifteenth of it counts."
)
BOUND = (
    "What bounds it: a child forked from the host touches about 950 pages for the first time, and each such fault costs "
    "about 3.5 µs on this virtual machine (`perf record -e page-faults`); Python's reference counts write to every object "
    "that is looked at."
)


def measure() -> Result:
    with scene() as on:
        with agent(on, "--probe-interval", "50ms") as process:
            await_value(lambda: passes(process) >= 50, what="the first passes")
            pid = process.process.pid or 0
            with machine.peak_pss(pid, every=0.2) as probing:
                whole, best = _per_pass(process, pid)
        idle, resting = _idle(on)
        bare = machine.private_mib("pass", on.environment)
        imports = _imports(on, bare)
        split, profile = _split(on)
        fork = _fork_milliseconds()
    total = whole + idle
    floor = f"fork and end of the host's child {fork:.1f} ms, two round trips {split['read']:.1f} ms"
    return Result(
        row="steady",
        title="an agent in its steady state, eight GPUs",
        figures=(
            limit(
                f"processor per pass, all processes, mean of {PASSES} passes, idle minute included",
                total,
                CPU_MILLISECONDS,
                "ms",
                floor=floor,
            ),
            limit(
                "memory, all processes (PSS)",
                sum(resting),
                MEMORY_MIB,
                "MiB",
                floor=f"three bare interpreters {3 * bare:.0f} MiB",
                digits=1,
            ),
            Figure(
                what="of that agent, probe host and listener for events",
                figure=", ".join(f"{part:.1f}" for part in resting)
                + f" MiB; while a child probes {sum(probing):.1f} together",
            ),
            Figure(what="what bounds the memory", figure=imports),
            Figure(
                what="of that the pass itself: mean, and the best 50 in a row",
                figure=f"{whole:.2f} ms, {best:.2f} ms",
            ),
            Figure(
                what=f"of that a minute of waiting ({INTERVAL_SECONDS:.0f} s between passes)",
                figure=f"{idle:.2f} ms",
            ),
            *(Figure(what=f"part: {name}", figure=f"{ms:.2f} ms") for name, ms in split.items()),
        ),
        notes=(
            METHOD,
            PARTS,
            BOUND,
            f"Load of the machine when measured: {machine.load():.1f}.",
        ),
        profile=profile,
    )


def _per_pass(process: Any, pid: int) -> tuple[float, float]:  # noqa: ANN401
    """Return milliseconds a pass over all passes, and over the cheapest 50 in a row."""
    first, before = passes(process), machine.cpu_seconds(pid)
    best, count, spent = float("inf"), first, before
    while count < first + PASSES:
        time.sleep(2.5)
        now_count, now_spent = passes(process), machine.cpu_seconds(pid)
        if now_count - count >= 20:
            best = min(best, (now_spent - spent) / (now_count - count))
        count, spent = now_count, now_spent
    return 1000 * (spent - before) / (count - first), 1000 * best


def _idle(on: Scene) -> tuple[float, list[float]]:
    """Return what one minute without a pass costs, by the kernel's clock of each thread, and each process's memory then."""
    with agent(on, "--probe-interval", "10m") as process:
        await_value(lambda: passes(process) >= 1, what="the first pass")
        time.sleep(2)
        pid = process.process.pid or 0
        before = _run_nanoseconds(pid)
        time.sleep(IDLE_SECONDS)
        spent = (_run_nanoseconds(pid) - before) / 1e6 * INTERVAL_SECONDS / IDLE_SECONDS
        return spent, [machine.own_pss_mib(one) for one in machine.children_of(pid)]


def _imports(on: Scene, bare: float) -> str:
    """Return what the agent's imports take beside the `bare` interpreter's own memory."""
    client = "kubernetes.client.api_client"
    alone = {
        name: machine.private_mib(f"import {name}", on.environment) - bare
        for name in (client, "apscheduler.schedulers.background", "prometheus_client", "msgspec")
    }
    everything = machine.private_mib("import agent.node_process, agent.edges.cluster", on.environment)
    told = ", ".join(f"{name.partition('.')[0]} {mib:.1f}" for name, mib in alone.items())
    return (
        f"a bare interpreter has {bare:.1f} MiB of its own, and {everything:.1f} with all that an agent imports; alone, "
        f"each adds: {told}"
    )


def _run_nanoseconds(pid: int) -> int:
    total = 0
    for process in machine.children_of(pid):
        for thread in Path(f"/proc/{process}/task").iterdir():
            total += int((thread / "schedstat").read_text().split()[0])
    return total


def _split(on: Scene) -> tuple[dict[str, float], str]:
    """Return milliseconds of processor for each part of a pass, and a profile of the agent's own process."""
    os.environ.update(LD_LIBRARY_PATH=on.environment["LD_LIBRARY_PATH"])
    cluster = KubernetesCluster(kubeconfig(on.environment["KUBECONFIG"]))
    command = (sys.executable, "-m", "probes.child", "--root", on.environment["ACCELERATOR_HOST_ROOT"])
    others = set(machine.children_of(os.getpid()))
    with ProbeHost(SpawnedHost(command)) as host:
        host.probe(1)
        [pid] = set(machine.children_of(os.getpid())) - others
        meter = _Meter(host, cluster, pid)
        node_pass = NodePass(
            meter.probe,
            meter,  # type: ignore[arg-type]
            NodePassOptions(node_name=NODE, agent_version="bench", heartbeat=timedelta(0)),
            now=lambda: Instant(wall=datetime.now(UTC), monotonic=time.monotonic()),
            jitter=lambda: 1.0,
        )
        for _ in range(20):
            node_pass.run()
        parts = min((_batch(meter, node_pass) for _ in range(10)), key=lambda batch: sum(batch.values()))
        profile = cProfile.Profile()
        profile.runcall(lambda: [node_pass.run() for _ in range(50)])
    text = io.StringIO()
    pstats.Stats(profile, stream=text).sort_stats("tottime").print_stats(18)
    lines = [line for line in text.getvalue().splitlines() if line.strip()]
    return parts, "\n".join(_without_places(line) for line in lines)


def _without_places(line: str) -> str:
    """Cut from a line where this machine keeps the project, its packages and Python."""
    for place in (sysconfig.get_path("purelib"), str(machine.ROOT), sysconfig.get_path("stdlib")):
        line = line.replace(f"{place}/", "")
    return line


def _batch(meter: "_Meter", node_pass: NodePass) -> dict[str, float]:
    count = SPLIT_PASSES // 10
    meter.clear()
    began, host_began = time.process_time(), meter.host_cpu()
    for _ in range(count):
        node_pass.run()
    own, host = time.process_time() - began, meter.host_cpu() - host_began
    probe, read, write = meter.spent["probe"], meter.spent["read"], meter.spent["write"]
    parts = {
        "probe, in host and child": host,
        "probe, in the agent": probe,
        "read": read,
        "derive and compare": own - probe - read - write,
        "write": write * HEARTBEATS_A_PASS,
    }
    return {name: 1000 * seconds / count for name, seconds in parts.items()}


class _Meter:
    """A cluster and a probe that count the processor time of what is asked of them."""

    def __init__(self, host: ProbeHost, cluster: KubernetesCluster, host_pid: int) -> None:
        self._host_pid = host_pid
        self._host = host
        self._cluster = cluster
        self.clear()

    def clear(self) -> None:
        self.spent = {"probe": 0.0, "read": 0.0, "write": 0.0}

    def host_cpu(self) -> float:
        return machine.cpu_seconds(self._host_pid)

    def probe(self, cycle: int) -> Any:  # noqa: ANN401
        return self._counted("probe", lambda: self._host.probe(cycle))

    def get(self, *names: Any, **options: Any) -> Any:  # noqa: ANN401
        return self._counted("read", lambda: self._cluster.get(*names, **options))

    def apply(self, *names: Any, **options: Any) -> Any:  # noqa: ANN401
        return self._counted("write", lambda: self._cluster.apply(*names, **options))

    def merge_patch(self, *names: Any, **options: Any) -> Any:  # noqa: ANN401
        return self._counted("write", lambda: self._cluster.merge_patch(*names, **options))

    def _counted(self, part: str, work: Callable[[], Any]) -> Any:  # noqa: ANN401
        began = time.process_time()
        try:
            return work()
        finally:
            self.spent[part] += time.process_time() - began


def _fork_milliseconds() -> float:
    """Return what a child costs that is forked and ends at once, from a process as large as the probe host."""
    import probes.child  # noqa: F401, PLC0415  # as large

    best = float("inf")
    for _ in range(30):
        began = time.process_time()
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        _, _, used = os.wait4(pid, 0)
        best = min(best, time.process_time() - began + used.ru_utime + used.ru_stime)
    return 1000 * best
