"""The machine that figures are of: its name and versions, and what a process of ours costs on it."""

import os
import platform
import re
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).parents[1]
_ENTRIES = (
    "agent.cli",
    "agent.commands.show",
    "agent.node_process",
    "agent.edges.cluster",
    "agent.edges.lease",
    "probes.child",
    "fakes.child",
)
"""Modules that bring everything that a process of ours runs."""

_TICK = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What a process and its children took, in seconds, and MiB at their largest."""

    wall: float
    cpu: float
    peak_mib: float


def description() -> str:
    """Return processor, number of processors and kernel."""
    found = re.search(r"^model name\s*:\s*(.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    name = found[1] if found else platform.machine()
    return f"{name}, {os.cpu_count()} processors, Linux {platform.release()}"


def versions() -> str:
    """Return the versions that a figure depends on."""
    named = ("kubernetes", "msgspec", "nvidia-ml-py", "prometheus-client", "urllib3")
    return ", ".join([f"Python {platform.python_version()}", *(f"{name} {version(name)}" for name in named)])


def load() -> float:
    """Return how many processes wanted a processor in the last minute."""
    return os.getloadavg()[0]


def compiled(folder: Path) -> dict[str, str]:
    """Return an environment in which all modules are compiled in `folder`, as an image holds them."""
    environment = {
        **os.environ,
        "PYTHONPYCACHEPREFIX": str(folder / "bytecode"),
        "PYTHONDONTWRITEBYTECODE": "",
    }
    command = [sys.executable, "-c", f"import {', '.join(_ENTRIES)}"]
    subprocess.run(command, env=environment, cwd=ROOT, check=True)
    return environment


def spent(command: Sequence[str], environment: Mapping[str, str], *, times: int) -> list[Spent]:
    """Run a command so many times and return what each run took; one that fails ends the benchmark."""
    found = []
    for _ in range(times):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        began = time.perf_counter()
        result = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, check=False)
        wall = time.perf_counter() - began
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if result.returncode:
            raise SystemExit(f"{' '.join(command)}: status {result.returncode}\n{result.stderr.decode()}")
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        found.append(Spent(wall=wall, cpu=cpu, peak_mib=after.ru_maxrss / 1024))
    return found


def interpreter(environment: Mapping[str, str]) -> Spent:
    """Return the least that starting and ending an interpreter takes: no command of ours can be below it."""
    return min(spent([sys.executable, "-c", "pass"], environment, times=10), key=lambda one: one.wall)


def children_of(pid: int) -> list[int]:
    """Return the processes below one, itself first."""
    found = [pid]
    try:
        threads = list(Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return []
    for thread in threads:
        try:
            text = (thread / "children").read_text()
        except OSError:
            continue
        for child in text.split():
            found += children_of(int(child))
    return found


def cpu_seconds(pid: int) -> float:
    """Return the processor time of a process and of all below it, those that ended included."""
    total = 0.0
    for process in children_of(pid):
        try:
            stat = Path(f"/proc/{process}/stat").read_text()
        except OSError:
            continue
        total += sum(int(field) for field in stat.rpartition(")")[2].split()[11:15]) / _TICK
    return total


def started(pid: int) -> float:
    """Return when a process started, on the monotonic clock, to a tick."""
    stat = Path(f"/proc/{pid}/stat").read_text()
    return int(stat.rpartition(")")[2].split()[19]) / _TICK


def pss_mib(pid: int) -> float:
    """Return the memory of a process and of all below it; what they share counts once."""
    return sum(own_pss_mib(process) for process in children_of(pid))


def own_pss_mib(pid: int) -> float:
    """Return the memory of one process; of what it shares with others it bears its part."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0.0
    found = re.search(r"^Pss:\s+(\d+) kB", text, re.MULTILINE)
    return int(found[1]) / 1024 if found else 0.0


@contextmanager
def peak_pss(pid: int, *, every: float = 0.005) -> Iterator[list[float]]:
    """Sample the memory of a process tree while the body runs; the list is each process's part when it was the most.

    A look during which a process began or ended counts for nothing: what both shared may have been counted twice.
    """
    import threading  # noqa: PLC0415  # only here

    most: list[float] = []
    done = threading.Event()

    def sample() -> None:
        while not done.wait(every):
            before = children_of(pid)
            found = [own_pss_mib(process) for process in before]
            if children_of(pid) == before and sum(found) > sum(most):
                most[:] = found

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield most
    finally:
        done.set()
        thread.join()


def private_mib(program: str, environment: Mapping[str, str]) -> float:
    """Return the memory that an interpreter shares with nobody after it ran `program`."""
    told = "print(open('/proc/self/smaps_rollup').read())"
    command = [sys.executable, "-c", f"{program}\n{told}"]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=True)
    return sum(int(kb) for kb in re.findall(r"^Private_\w+:\s+(\d+) kB", done.stdout, re.MULTILINE)) / 1024
