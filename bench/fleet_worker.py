"""A few thousand agents in one process: the real passes with the real client, each with its own connection and token.

`python -m bench.fleet_worker` reads one order a line from standard input and answers each with one line. Only the hardware
is left out: every agent has the facts of eight H100 with identities of its own.
"""

import logging
import resource
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import msgspec
from kubernetes.client.configuration import Configuration

from agent.core.health import Instant
from agent.edges.cluster import KubernetesCluster
from agent.node_pass import NodePass, NodePassOptions
from probes.facts import DeviceFault, NodeFacts

THREADS = 48


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """The first line: where the server is, who the agents are, and what hardware they find."""

    server: str
    authority: str
    tokens: dict[str, str]
    facts: str
    """File with the facts of one machine, as JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """One pass of some agents."""

    names: tuple[str, ...]
    over_seconds: float
    """The passes begin spread over so long; a storm is 5 s, the most that an agent's start is put off."""
    restart: bool = False
    """As new processes: with a connection and a memory of their own."""
    version: str = "1"
    lost: int | None = None
    """Index of a device that is lost from now on, -1 for none."""
    until_well: bool = False
    """Agents whose pass failed make another one after a second, until it does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What came of an order."""

    passes: int
    failed: int
    seconds: float
    """From the order to the last agent's good pass."""
    cpu: float
    mib: float
    requests: dict[str, int]
    """`verb resource status` → how many; status 0 is no answer."""
    slowest_passes: tuple[float, ...]
    """p50, p99 and longest, seconds."""


class Agents:
    """The agents of this process."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._facts = msgspec.json.decode(Path(fleet.facts).read_bytes(), type=NodeFacts)
        self._passes: dict[str, NodePass] = {}
        self._lost: dict[str, int] = {}
        self._versions: dict[str, str] = {}
        self._requests: Counter[str] = Counter()
        self._lock = threading.Lock()

    def do(self, order: Order) -> Done:
        """Make the passes of an order and return when the last is done."""
        self._requests.clear()
        began, cpu = time.monotonic(), time.process_time()
        random = Random(len(order.names))
        starts = sorted((random.uniform(0, order.over_seconds), name) for name in order.names)
        with ThreadPoolExecutor(THREADS) as pool:
            waiting = []
            for offset, name in starts:
                time.sleep(max(0.0, began + offset - time.monotonic()))
                waiting.append(pool.submit(self._one, name, order))
            took = sorted(one.result() for one in waiting)
        good = [seconds for seconds in took if seconds >= 0]
        return Done(
            passes=len(took),
            failed=len(took) - len(good),
            seconds=time.monotonic() - began,
            cpu=time.process_time() - cpu,
            mib=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            requests=dict(self._requests),
            slowest_passes=tuple(_quantiles(good)),
        )

    def _one(self, name: str, order: Order) -> float:
        """Make the pass of one agent, or passes until one is good; return its seconds, negative when it failed."""
        if order.lost is not None:
            self._lost[name] = order.lost
        if order.restart or name not in self._passes:
            self._versions[name] = order.version
            self._passes[name] = self._new(name)
        while True:
            began = time.monotonic()
            report = self._passes[name].run()
            seconds = time.monotonic() - began
            if len(report.published) == 2 and not any(one.failed for one in report.published):
                return seconds
            if not order.until_well:
                return -seconds
            time.sleep(1.0)

    def _new(self, name: str) -> NodePass:
        options = NodePassOptions(node_name=name, agent_version=self._versions[name])
        return NodePass(
            lambda _cycle: self._facts_of(name),
            KubernetesCluster(self._source(name), observe=self._observe),
            options,
            now=lambda: Instant(wall=datetime.now(UTC), monotonic=time.monotonic()),
            jitter=lambda: 1.0,
        )

    def _source(self, name: str) -> Callable[[], Configuration]:
        def read() -> Configuration:
            configuration = Configuration()
            configuration.host = self._fleet.server
            configuration.ssl_ca_cert = self._fleet.authority
            configuration.api_key["BearerToken"] = f"Bearer {self._fleet.tokens[name]}"
            return configuration

        return read

    def _observe(self, *, verb: str, resource: str, status: int) -> None:
        with self._lock:
            self._requests[f"{verb} {resource} {status}"] += 1

    def _facts_of(self, name: str) -> NodeFacts:
        """Return the machine's facts with identities of this node's own."""
        lost = self._lost.get(name, -1)
        devices = (
            replace(
                device,
                id=f"GPU-{name}-{device.index:012d}",
                fault=DeviceFault(kind="lost", call="nvmlDeviceGetMemoryInfo_v2", error="gpu-lost")
                if device.index == lost
                else None,
            )
            for device in self._facts.accelerators
        )
        return replace(self._facts, accelerators=tuple(devices), simulated=False)


def _quantiles(values: list[float]) -> Iterator[float]:
    for share in (0.5, 0.99, 1.0):
        yield values[min(len(values) - 1, int(share * len(values)))] if values else 0.0


def main() -> None:
    """Serve orders until standard input ends."""
    # What thousands of agents log is not looked at.
    logging.disable(logging.CRITICAL)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    lines: Iterator[Any] = iter(sys.stdin.buffer)
    agents = Agents(msgspec.json.decode(next(lines), type=Fleet))
    for line in lines:
        done = agents.do(msgspec.json.decode(line, type=Order))
        sys.stdout.buffer.write(msgspec.json.encode(done) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
