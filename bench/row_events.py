"""From something that happens to a GPU until Node label, record and class status say so, through real processes."""

import time
from collections.abc import Callable
from typing import Any

from agent.cluster import ACCELERATOR_CLASSES, ACCELERATOR_NODES, NODES
from bench import machine
from bench.figures import Figure, Result, limit
from bench.scene import NODE, Scene, agent, await_value, passes, scene

INTERVAL_SECONDS = 5.0
WITH_EVENTS_SECONDS = 2.0
TO_CLASS_SECONDS = 2.0
QUIET_SECONDS = 7.0
"""After which no class was written lately."""
AFTER_REGISTRATION_SECONDS = 12.0
EIGHT = "name: eight\ndevices:\n- {board: h100-sxm, count: 8}\n"
XID = EIGHT + f"events:\n- {{device: 3, xid: 79, after_seconds: {AFTER_REGISTRATION_SECONDS}}}\n"
LOST = EIGHT + "failures:\n- {function: nvmlDevice*, but_not: '*ByIndex*', device: 3, code: 15}\n"


def measure() -> Result:
    with scene() as on, agent(on, command="inventory", KUBECONFIG=str(on.plane.admin_kubeconfig)):
        xid = _xid(on)
        lost = _lost(on)
    trip = "one round trip to the server 2 ms and its fsync"
    return Result(
        row="events",
        title="from the hardware to the cluster",
        figures=(
            limit(
                "Xid event to Node label and record, with events",
                xid["node"],
                WITH_EVENTS_SECONDS,
                "s",
                floor=trip,
            ),
            limit(
                "from there to the class's status",
                xid["class"] - xid["node"],
                TO_CLASS_SECONDS,
                "s",
                floor=trip,
            ),
            limit(
                f"lost GPU without an event to Node label and record, interval {INTERVAL_SECONDS:.0f} s",
                lost["node"],
                INTERVAL_SECONDS + 2,
                "s",
                floor="up to one interval",
            ),
            limit(
                "from there to the class's status",
                lost["class"] - lost["node"],
                TO_CLASS_SECONDS,
                "s",
                floor=trip,
            ),
            Figure(
                what="and back, once the GPU is well: after three good probes", figure=f"{lost['back']:.1f} s"
            ),
        ),
        notes=(
            "An agent and a controller as real processes on fake hardware; what they wrote is looked at every 20 ms.",
            "The class was not written in the 5 s before; within these the limit is 6 s.",
            f"Load of the machine when measured: {machine.load():.1f}.",
        ),
    )


def _xid(on: Scene) -> dict[str, float]:
    """Measure from the moment at which the driver tells the listener of Xid 79 (fell off the bus)."""
    file = on.folder / "xid.yaml"
    file.write_text(XID)
    with agent(on, "--fake", str(file), "--allow-simulated", "--probe-interval", "60s") as process:
        pid = process.process.pid or 0
        await_value(lambda: passes(process) >= 1, what="the first pass")
        time.sleep(QUIET_SECONDS)
        # The listener is the one child of the probe host that stays; it registers as it starts.
        [listener] = machine.children_of(pid)[2:]
        happens = machine.started(listener) + AFTER_REGISTRATION_SECONDS
        healthy = _labels(on)
        return _until_told(on, happens, lambda: _labels(on) != healthy)


def _lost(on: Scene) -> dict[str, float]:
    """Measure from the moment at which every call about a GPU answers that it is lost."""
    file = on.folder / "lost.yaml"
    file.write_text(EIGHT)
    with agent(
        on, "--fake", str(file), "--allow-simulated", "--probe-interval", f"{INTERVAL_SECONDS:.0f}s"
    ) as process:
        await_value(lambda: passes(process) >= 4, what="the first passes")
        await_value(lambda: _usable(on) == 8, what="a class with eight usable")
        time.sleep(QUIET_SECONDS)
        healthy = _labels(on)
        file.write_text(LOST)
        told = _until_told(on, time.monotonic(), lambda: _labels(on) != healthy)
        file.write_text(EIGHT)
        began = time.monotonic()
        await_value(lambda: _labels(on) == healthy, every=0.02, what="the healthy labels")
        return {**told, "back": time.monotonic() - began}


def _until_told(on: Scene, happens: float, labelled: Callable[[], bool]) -> dict[str, float]:
    """Return the seconds until Node and record, and until the class, say it."""
    await_value(
        lambda: labelled() and set(_states(on)) != {"ok"}, every=0.02, what="the label and the record"
    )
    node = time.monotonic() - happens
    await_value(lambda: _usable(on) == 7, every=0.02, what="the class")
    return {"node": node, "class": time.monotonic() - happens}


def _labels(on: Scene) -> dict[str, str]:
    labels: dict[str, str] = on.plane.admin.get(NODES, NODE)["metadata"]["labels"]
    return labels


def _states(on: Scene) -> list[str]:
    record: dict[str, Any] = on.plane.admin.get(ACCELERATOR_NODES, NODE)
    return [device["state"] for device in record["spec"]["devices"]]


def _usable(on: Scene) -> int:
    items = on.plane.admin.items(ACCELERATOR_CLASSES)
    return sum(item.get("status", {}).get("availableAccelerators", 0) for item in items)
