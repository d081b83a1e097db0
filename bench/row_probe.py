"""`probe` of eight GPUs as a whole process: what a person waits for who types it."""

import sys
import tempfile
from pathlib import Path

from bench import fake_library, machine
from bench.figures import Figure, Result, limit

TIMES = 15
WALL_SECONDS = 0.25
MEMORY_MIB = 30.0


def measure() -> Result:
    return one_shot("probe", WALL_SECONDS, memory_mib=MEMORY_MIB)


def one_shot(command: str, wall_seconds: float, *, memory_mib: float | None = None) -> Result:
    """Measure one command that runs and ends, on the library that answers at once and on the fake one."""
    with tempfile.TemporaryDirectory() as name:
        environment = machine.compiled(Path(name))
        floor = machine.interpreter(environment)
        real = environment | fake_library.build(Path(name) / "library")
        line = [sys.executable, "-m", "agent", command, "-o", "json"]
        machine.spent(line, real, times=2)
        runs = machine.spent(line, real, times=TIMES)
        faked = [*line, "--fake", "h100x8"]
        machine.spent(faked, environment, times=2)
        fakes = machine.spent(faked, environment, times=TIMES)
        parts = peak_of(line, real)
        idle = sum(peak_of([sys.executable, "-c", "import time; time.sleep(0.1)"], environment))
        bound = _bound(parts, environment)
    best = min(runs, key=lambda run: run.wall)
    floor_text = f"{floor.wall:.3f} s, two interpreters one after the other {2 * floor.wall:.3f} s"
    figures = [
        limit(
            f"`{command}`, wall, least of {TIMES}", best.wall, wall_seconds, "s", floor=floor_text, digits=3
        )
    ]
    if memory_mib is not None:
        figures.append(
            limit(
                "memory at most, all processes (PSS)",
                sum(parts),
                memory_mib,
                "MiB",
                floor=f"an interpreter {idle:.0f} MiB",
                digits=1,
            )
        )
        figures.append(bound)
    quickest = min(fakes, key=lambda run: run.wall)
    median = sorted(run.wall for run in runs)[TIMES // 2]
    return Result(
        row=command,
        title=f"`accelerator-agent {command}`, one shot",
        figures=(
            *figures,
            Figure(what="median wall", figure=f"{median:.3f} s"),
            Figure(what="processor, both processes, least", figure=f"{min(run.cpu for run in runs):.3f} s"),
            Figure(
                what="the same on the fake library, which is Python: wall and processor, least",
                figure=f"{quickest.wall:.3f} s, {min(run.cpu for run in fakes):.3f} s",
            ),
        ),
        notes=(
            "Bytecode is there, as in an image. The library answers at once and is loaded by the real binding.",
            f"Load of the machine when measured: {machine.load():.1f}.",
        ),
    )


def peak_of(line: list[str], environment: dict[str, str]) -> list[float]:
    """Return what each of the command's processes had when all together had the most, in five runs."""
    import subprocess  # noqa: PLC0415  # only here

    most: list[float] = []
    for _ in range(5):
        process = subprocess.Popen(line, env=environment, cwd=machine.ROOT, stdout=subprocess.DEVNULL)
        with machine.peak_pss(process.pid) as parts:
            process.wait()
        most = max(most, parts, key=sum)
    return most


def _bound(parts: list[float], environment: dict[str, str]) -> Figure:
    """Return what the memory is made of."""
    bare = machine.private_mib("pass", environment)
    imports = {
        name: machine.private_mib(f"import {name}", environment) - bare
        for name in ("dataclasses", "msgspec", "pynvml")
    }
    agent, host, child = [*parts, 0.0, 0.0, 0.0][:3]
    return Figure(
        what="what bounds the memory",
        figure=f"agent {agent:.1f} MiB, probe host {host:.1f}, its child {child:.1f}; a bare interpreter has {bare:.1f} of "
        "its own, and imports add "
        + ", ".join(f"{name} {mib:.1f}" for name, mib in imports.items())
        + "; agent and host are two interpreters so that a call that never returns can be left behind",
    )
