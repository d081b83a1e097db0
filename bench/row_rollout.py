"""Thousands of agents on one real API server: rollout, storm, steady minute, upgrade, churn, and the server's restart."""

import json
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent.cluster import ACCELERATOR_CLASSES, ACCELERATOR_NODES, NODES
from bench import machine
from bench.figures import Figure, Result, limit
from bench.fleet import Counts, Simulation, named, simulation, since
from bench.fleet_worker import Done, Order
from bench.growth import SIZES, line_through
from bench.scene import await_value
from tests.cluster.client import ApiError, path_of
from tests.main_path.agent_process import AgentProcess

ROLLOUT_SECONDS = 60.0
STORM_SECONDS = 5.0
TROUBLES_AT = 1000
OBJECT_KIB = 256.0
DOWN_SECONDS = 5.0
LABEL = "accelerators.ome.io/present"
KINDS = ("nodes", "acceleratornodes")
METHOD = (
    "The real passes with the real client, each agent with its own connection and its own Pod's token, under the real "
    "policies; two processes play them all on the server's own two processors. Counted by the server."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """What rolling out to so many nodes came to."""

    nodes: int
    done: Done
    counts: Counts
    labelled: int
    steady: Counts
    steady_done: Done
    largest: dict[str, float]
    """Kind → KiB of its largest object."""
    class_seconds: float
    """From the controller's start until its classes counted all."""


def measure() -> Result:
    troubles: list[Figure] = []
    rollouts = []
    for size in SIZES:
        with tempfile.TemporaryDirectory() as folder, simulation(size, Path(folder)) as fleet:
            rollouts.append(_rollout(fleet, size))
            print(f"{size}: {rollouts[-1].done}", flush=True)
            if size == TROUBLES_AT:
                troubles = _troubles(fleet)
    last = rollouts[-1]
    refused = sum(one.counts.refused for one in rollouts)
    largest = max(last.largest.values())
    agent_cpu = line_through(SIZES, [1000 * one.done.cpu / one.nodes for one in rollouts])
    steady_cpu = line_through(SIZES, [1000 * one.steady_done.cpu / one.nodes for one in rollouts])
    return Result(
        row="rollout",
        title=f"{SIZES[-1]:,} agents on one API server",
        figures=(
            Figure(
                what=f"nodes labelled of {last.nodes:,}, rolled out over {ROLLOUT_SECONDS:.0f} s",
                figure=f"{last.labelled:,} after {last.done.seconds:.0f} s, {last.done.failed} passes failed",
                budget="every node",
                floor=f"{last.done.passes * 4:,} requests; this server answers about {_rate(last):.0f} a second here",
                holds=last.labelled == last.nodes and not last.done.failed,
            ),
            limit("requests refused with 429, all sizes together", refused, 0, "", digits=0),
            limit(
                "largest object",
                largest,
                OBJECT_KIB,
                "KiB",
                floor="a class names 1,000 nodes at most, 13 KiB",
                digits=0,
            ),
            *(_converged(one) for one in rollouts),
            Figure(what="largest objects at 5,000", figure=_sizes(last.largest)),
            Figure(what="agents' processor for the first pass, each", figure=agent_cpu.text("ms", 1)),
            Figure(
                what="agents' processor for a steady pass without its probe, each",
                figure=steady_cpu.text("ms", 2),
            ),
            *(_per_agent(one) for one in (rollouts[0], last)),
            *troubles,
        ),
        notes=(
            METHOD,
            _bound(last),
            f"Load of the machine when measured: {machine.load():.1f}.",
        ),
    )


def _rollout(fleet: Simulation, size: int) -> Rollout:
    before = fleet.counts()
    done = fleet.do(Order(names=(), over_seconds=ROLLOUT_SECONDS, until_well=True))
    after = fleet.counts()
    steady_done = fleet.do(Order(names=(), over_seconds=min(ROLLOUT_SECONDS, size / 100)))
    steady = since(after, fleet.counts())
    seconds, classes = _controller(fleet, size)
    return Rollout(
        nodes=size,
        done=done,
        counts=since(before, after),
        labelled=_labelled(fleet),
        steady=steady,
        steady_done=steady_done,
        largest={
            "Node": _kib(fleet.plane.admin.get(NODES, "node-00000")),
            "AcceleratorNode": _kib(fleet.plane.admin.get(ACCELERATOR_NODES, "node-00000")),
            "AcceleratorClass": max(map(_kib, classes)),
        },
        class_seconds=seconds,
    )


def _controller(fleet: Simulation, size: int) -> tuple[float, list[dict[str, Any]]]:
    """Run the controller until its classes count all devices; return how long that took, and the classes."""
    environment = {"KUBECONFIG": str(fleet.plane.admin_kubeconfig), "ACCELERATOR_LISTEN": "127.0.0.1:0"}
    process = AgentProcess("inventory", log=fleet.folder / "inventory.log", environment=environment)

    def counted() -> list[dict[str, Any]]:
        try:
            items = fleet.plane.admin.items(ACCELERATOR_CLASSES)
        except ApiError as error:
            if error.status != 429:  # the server's store of a kind that nobody asked for yet is being filled
                raise
            return []
        total = sum(item.get("status", {}).get("totalAccelerators", 0) for item in items)
        return items if total == 8 * size else []

    began = time.monotonic()
    with process:
        await_value(counted, seconds=120, what="all devices in the classes")
        took = time.monotonic() - began
        # Conditions and names follow within the 5 s between two writes of a class.
        time.sleep(10)
        return took, await_value(counted, seconds=60, what="all devices in the classes, still")


def _troubles(fleet: Simulation) -> list[Figure]:
    """Do to a fleet that is at rest what clusters do to theirs."""
    found = [
        _told(
            fleet,
            "storm: all start anew within 5 s",
            Order(names=(), over_seconds=STORM_SECONDS, restart=True),
        ),
        _told(
            fleet,
            "upgrade: all start anew with another version, over 60 s",
            Order(names=(), over_seconds=ROLLOUT_SECONDS, restart=True, version="2"),
        ),
        _told(
            fleet,
            "churn: a GPU is lost on one node in ten",
            Order(names=(), over_seconds=10, lost=3),
            share=0.1,
        ),
        _told(
            fleet,
            "the server restarts under a minute's passes",
            Order(names=(), over_seconds=20, until_well=True),
            restart=True,
        ),
    ]
    mark = fleet.counts()
    fleet.do(Order(names=(), over_seconds=20))
    quiet = {key: number for key, number in since(mark, fleet.counts()).requests.items() if _writes(key)}
    return [*found, Figure(what="writes in the passes after that", figure=str(sum(quiet.values())))]


def _told(fleet: Simulation, what: str, order: Order, *, share: float = 1.0, restart: bool = False) -> Figure:
    before = fleet.counts()
    fleet.begin(order, share=share)
    if restart:
        time.sleep(5)
        fleet.plane.stop_apiserver()
        time.sleep(DOWN_SECONDS)
        fleet.plane.start_apiserver()
    done = fleet.end()
    after = fleet.counts()
    # A server that started anew counts from nothing.
    counted = after if restart else since(before, after)
    return Figure(
        what=f"{what} ({done.passes:,} agents)",
        figure=(
            f"all well after {done.seconds:.0f} s, {done.failed} failed; {named(KINDS, counted.requests)}; "
            f"429: {counted.refused}; longest pass {done.slowest_passes[-1]:.1f} s"
        ),
    )


def _converged(one: Rollout) -> Figure:
    return Figure(
        what=f"{one.nodes:,} agents over {ROLLOUT_SECONDS:.0f} s",
        figure=(
            f"all labelled after {one.done.seconds:.0f} s (pass p50 {one.done.slowest_passes[0]:.2f} s, p99 "
            f"{one.done.slowest_passes[1]:.2f} s); {named(KINDS, one.counts.requests)}; 429: {one.counts.refused}; "
            f"{one.counts.bytes_out / 2**20:.0f} MiB answered; server {one.counts.cpu:.0f} s of processor, "
            f"{one.counts.resident_mib:.0f} MiB; agents {one.done.cpu:.0f} s; etcd {one.counts.storage_mib:.0f} MiB; "
            f"classes right {one.class_seconds:.0f} s after the controller's start"
        ),
    )


def _per_agent(one: Rollout) -> Figure:
    requests = Counter(
        {key: number for key, number in one.steady.requests.items() if key.split(" ")[1] in KINDS}
    )
    return Figure(
        what=f"a steady pass at {one.nodes:,}, per agent, on the server",
        figure=(
            f"{sum(requests.values()) / one.nodes:.2f} requests, {1000 * one.steady.cpu / one.nodes:.1f} ms of processor, "
            f"{one.steady.bytes_out / one.nodes / 1024:.1f} KiB"
        ),
    )


def _bound(one: Rollout) -> str:
    used = one.counts.cpu + one.done.cpu
    return (
        f"What bounds it: {one.nodes:,} first passes take {one.counts.cpu:.0f} s of the API server's processor and "
        f"{one.done.cpu:.0f} s of the simulated agents' (in a cluster each has its own), etcd apart: {used:.0f} s on two "
        f"processors are {used / 2:.0f} s at least."
    )


def _rate(one: Rollout) -> float:
    return float(4 * one.done.passes / one.done.seconds)


def _writes(key: str) -> bool:
    verb, resource, _ = key.split(" ")
    return resource in KINDS and verb not in {"GET", "LIST", "WATCH"}


def _labelled(fleet: Simulation) -> int:
    path, count, token = path_of(NODES), 0, ""
    while True:
        query = {"labelSelector": f"{LABEL}=true", "limit": "500"} | ({"continue": token} if token else {})
        body = fleet.plane.admin.ask("GET", path, query=query)
        count += len(body["items"])
        token = body["metadata"].get("continue", "")
        if not token:
            return count


def _kib(item: dict[str, Any]) -> float:
    return len(json.dumps(item, separators=(",", ":")).encode()) / 1024


def _sizes(largest: dict[str, float]) -> str:
    return ", ".join(f"{kind} {size:.0f} KiB" for kind, size in largest.items())
