"""Twenty thousand probes and a hundred thousand scrapes of one agent: memory, threads and descriptors must stay flat."""

import select
import socket
import threading
import time
from pathlib import Path
from typing import Any

from bench import machine
from bench.figures import Figure, Result
from bench.row_scrape import REQUEST, whole
from bench.scene import agent, await_value, passes, scene

PROBES = 20_000
SCRAPES = 100_000
SCRAPERS = 8
SAMPLES = 40
WARM_UP = 0.1
"""Share of the probes after which memory must not grow any more."""
FLAT_SHARE = 0.02
LIMIT_SECONDS = 780.0


def measure() -> Result:
    with scene() as on, agent(on, "--probe-interval", "2ms") as process:
        await_value(lambda: passes(process) >= 20, what="the first passes")
        pid = process.process.pid or 0
        scraped = Scraped(process.port or 0)
        samples = _watched(process, pid, scraped)
        scraped.stop()
    warm = [sample for sample in samples if sample["probes"] >= WARM_UP * PROBES]
    early, late = _mean(warm[: len(warm) // 3]), _mean(warm[-(len(warm) // 3) :])
    made = samples[-1]["probes"]
    steady = {name: (warm[0][name], warm[-1][name]) for name in ("threads", "descriptors")}
    return Result(
        row="soak",
        title="flat over many probes and scrapes",
        figures=(
            Figure(
                what=f"memory (PSS, all processes) over {made:,.0f} probes and {scraped.count:,} scrapes",
                figure=f"{early:.1f} MiB in the first third after warming up, {late:.1f} MiB in the last",
                budget=f"flat: ≤ {FLAT_SHARE:.0%} more, and as many probes and scrapes",
                floor="a Python of 5 MiB three times, and what it imports",
                holds=late <= early * (1 + FLAT_SHARE) and made >= PROBES and scraped.count >= SCRAPES,
            ),
            *(
                Figure(
                    what=f"{name} of the agent",
                    figure=f"{first:.0f} after warming up, {last:.0f} at the end",
                    budget="no more at the end",
                    holds=last <= first + 2,
                )
                for name, (first, last) in steady.items()
            ),
        ),
        notes=(
            "Passes follow each other without a pause, on a real API server, while eight scrapers ask all the time.",
        ),
    )


def _watched(process: Any, pid: int, scraped: "Scraped") -> list[dict[str, float]]:  # noqa: ANN401
    """Sample the agent until it made all probes and answered all scrapes."""
    samples: list[dict[str, float]] = []
    deadline = time.monotonic() + LIMIT_SECONDS
    due = 0.0
    while time.monotonic() < deadline:
        made = passes(process)
        if made >= due:
            samples.append(_sample(pid) | {"probes": float(made)})
            due = made + PROBES / SAMPLES
        if made >= PROBES and scraped.count >= SCRAPES:
            break
        time.sleep(0.5)
    return [*samples, _sample(pid) | {"probes": float(passes(process))}]


def _sample(pid: int) -> dict[str, float]:
    """Return the memory of agent, host and listener, without the child that happens to probe."""
    tree = machine.children_of(pid)
    listener = min(tree[2:], key=machine.started, default=None)
    kept = [*tree[:2], *([listener] if listener else [])]
    return {
        "mib": sum(machine.own_pss_mib(one) for one in kept),
        "threads": float(len(list(Path(f"/proc/{pid}/task").iterdir()))),
        "descriptors": float(len(list(Path(f"/proc/{pid}/fd").iterdir()))),
    }


def _mean(samples: list[dict[str, float]]) -> float:
    return sum(sample["mib"] for sample in samples) / max(1, len(samples))


class Scraped:
    """Scrapes over and over, on kept connections, until stopped or enough."""

    def __init__(self, port: int) -> None:
        self.count = 0
        self._done = threading.Event()
        self._sockets = [socket.create_connection(("127.0.0.1", port)) for _ in range(SCRAPERS)]
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ask no more."""
        self._done.set()
        self._thread.join()
        for one in self._sockets:
            one.close()

    def _run(self) -> None:
        poll = select.poll()
        waiting = {one.fileno(): (one, bytearray()) for one in self._sockets}
        for one in self._sockets:
            poll.register(one, select.POLLIN)
            one.sendall(REQUEST)
        while not self._done.is_set() and self.count < SCRAPES:
            for number, _ in poll.poll(1000):
                one, got = waiting[number]
                got += one.recv(1 << 18)
                if whole(got):
                    self.count += 1
                    got.clear()
                    one.sendall(REQUEST)
