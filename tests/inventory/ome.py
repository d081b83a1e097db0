"""A stand-in for OME's controller of classes: it writes what that writes, in the same way.

Its finalizer comes by a PUT of the whole object after a typed round trip, which spells quantities anew and drops what its
types do not know; its list of nodes by a merge patch of the changed keys, without a version.
"""

import copy
import threading
from contextlib import suppress

from agent.cluster import ACCELERATOR_CLASSES, NODES, ClusterError, Conflict, NotFound
from agent.core.class_status import OME_FINALIZER
from agent.core.conditions import timestamp
from agent.core.quantity import canonical_quantity, parse_quantity

MANAGER = "manager"
_QUANTITIES = ("memoryGB", "memoryBandwidthGBps")


class OmeController:
    """Reconciles every class whenever `reconcile` is called, as on an event."""

    def __init__(self, cluster, now):
        self._cluster = cluster
        self._now = now
        self.writes = 0
        self.conflicts = 0

    def reconcile(self):
        nodes, _ = self._cluster.list_all(NODES)
        classes, _ = self._cluster.list_all(ACCELERATOR_CLASSES)
        for live in classes:
            if OME_FINALIZER not in live["metadata"].get("finalizers", []):
                self._put_finalizer(live)
            self._patch_nodes(live, nodes)

    def _put_finalizer(self, live):
        body = typed(live)
        body["metadata"].setdefault("finalizers", []).append(OME_FINALIZER)
        try:
            self._cluster.replace(ACCELERATOR_CLASSES, body, manager=MANAGER)
            self.writes += 1
        except Conflict:  # the class changed since it was read: next event
            self.conflicts += 1

    def _patch_nodes(self, live, nodes):
        names = sorted(node["metadata"]["name"] for node in nodes if matches(live, node))
        status = live.get("status", {})
        if (status.get("nodes") or [], status.get("availableNodes") or 0) == (names, len(names)):
            return
        patch = {
            "status": {
                # Zero values are left out by the typed client, which makes them null in the patch.
                "nodes": names or None,
                "availableNodes": len(names) or None,
                "lastUpdated": timestamp(self._now()),
            }
        }
        name = live["metadata"]["name"]
        self._cluster.merge_patch(ACCELERATOR_CLASSES, name, patch, manager=MANAGER, subresource="status")
        self.writes += 1


class RunningOme:
    """The same controller as a thread that reconciles on every event of Nodes and classes, until it is stopped."""

    def __init__(self, connect, now):
        """`connect` makes a connection; each watch has its own."""
        self.controller = OmeController(connect(), now)
        self._event = threading.Event()
        self._stop = threading.Event()
        watches = [
            threading.Thread(target=self._watch, args=(connect(), resource), daemon=True)
            for resource in (NODES, ACCELERATOR_CLASSES)
        ]
        self._threads = [*watches, threading.Thread(target=self._reconcile, daemon=True)]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self.controller

    def __exit__(self, *_):
        self._stop.set()
        self._event.set()
        for thread in self._threads:
            thread.join(timeout=5)

    def _watch(self, cluster, resource):
        while not self._stop.is_set():
            version = cluster.list_all(resource)[1]
            self._event.set()
            with suppress(ClusterError):
                for _ in cluster.watch(resource, resource_version=version, timeout_seconds=2.0):
                    self._event.set()

    def _reconcile(self):
        while not self._stop.is_set():
            self._event.wait()
            self._event.clear()
            try:
                self.controller.reconcile()
            except Conflict:
                self.controller.conflicts += 1
            except NotFound:  # a class went meanwhile
                continue


def typed(live):
    """Return the object as a typed client writes it back."""
    body = copy.deepcopy(live)
    capabilities = body.get("spec", {}).get("capabilities", {})
    for field in _QUANTITIES:
        if field in capabilities:
            capabilities[field] = canonical_quantity(capabilities[field])
    for field, value in body.get("spec", {}).get("cost", {}).items():
        if field != "tier":
            body["spec"]["cost"][field] = canonical_quantity(value)
    return body


def matches(live, node):
    """Tell whether a node has the class's labels and as much memory as the class asks for."""
    selector = live.get("spec", {}).get("discovery", {}).get("nodeSelector", {})
    labels = node["metadata"].get("labels", {})
    memory = parse_quantity(node.get("status", {}).get("capacity", {}).get("memory", "0"))
    needed = parse_quantity(live.get("spec", {}).get("capabilities", {}).get("memoryGB", "0"))
    return all(labels.get(key, "") == value for key, value in selector.items()) and memory >= needed
