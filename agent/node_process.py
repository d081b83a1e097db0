"""The agent's process around its passes: timer, port, signals, and when to give up."""

import logging
import random
import threading
from collections.abc import Callable

from agent.core.families import Family, Kept, merged
from agent.core.fleet_metrics import fleet_families
from agent.core.health import Instant
from agent.core.labels import labels_for
from agent.core.metrics import build_family, node_families
from agent.core.page import node_page
from agent.core.pools.metrics import pool_families
from agent.edges.scheduling import Timer
from agent.edges.web import Answers, WebServer
from agent.inventory_process import InventoryProcess
from agent.node_pass import NodePass
from agent.settings import Settings
from agent.version import agent_version, build_labels
from probes.host_process import ProbeHost

LOG = logging.getLogger(__name__)

TICK_SECONDS = 15.0
STOP_SECONDS = 3.0
FIRST_RETRY_SECONDS = 1.0
LISTEN_SECONDS = 30.0
LONGEST_FIRST_DELAY_SECONDS = 5.0

EXIT_FOR_NEW_CONTAINER = {"not-in-container": 6, "no-answer": 7}
"""Verdicts that only a new container can end, with the status to exit with."""

NO_NEW_CONTAINER_HELPS = frozenset({"ProbesStuck", "BusNotReadable", "BindingUnsuitable"})
"""Reasons of those verdicts that would be the same in the next one: it would be started again for ever."""


class NodeProcess:
    """Runs passes until `stop` is set or only a new container can help."""

    def __init__(
        self,
        node_pass: NodePass,
        host: ProbeHost,
        settings: Settings,
        *,
        stop: threading.Event,
        now: Callable[[], Instant],
        inventory: InventoryProcess | None = None,
    ) -> None:
        """`inventory` is the controller where this process also stands for election."""
        self._pass = node_pass
        self._host = host
        self._settings = settings
        self._stop = stop
        self._now = now
        self._inventory = inventory
        self._families = Kept()
        self._failing_since: float | None = None
        self._failures = 0
        self._last_run = now().monotonic
        self._exit_status = 0
        self._timer = Timer(
            self._run_once,
            interval_seconds=settings.probe_interval,
            # A thousand agents started in the same second do not call in the same second.
            first_delay_seconds=_first_delay(settings.probe_interval),
            jitter_seconds=0.1 * settings.probe_interval,
            failed=self._failed,
        )
        self._listener = threading.Thread(target=self._listen, name="xid", daemon=True)
        self._web = WebServer(
            settings.listen,
            Answers(families=self.families, alive=self.alive, ready=self.ready, page=self.page),
        )

    @property
    def port(self) -> int:
        """Return the port of metrics, health and the page."""
        return self._web.port

    def run(self) -> int:
        """Run until stopped and return the exit status."""
        self._web.start()
        self._timer.start()
        self._listener.start()
        if self._inventory:
            self._inventory.start()
        LOG.info(
            "started", extra={"node": self._settings.node_name, "port": self.port, "version": agent_version()}
        )
        while not self._stop.wait(TICK_SECONDS):
            self._timer.tend()
        self._timer.stop()
        # Ends a probe that hangs, so that the running pass comes to its end too.
        self._host.close()
        if self._inventory:
            self._inventory.stop()
        self._timer.wait(STOP_SECONDS)
        self._web.stop()
        LOG.info("stopped", extra={"status": self._exit_status})
        return self._exit_status

    def families(self) -> tuple[Family, ...]:
        """Return all metric families as of now."""
        own, inventory = self._own_families(), self._inventory
        if inventory is None:
            return own
        return merged((*own, *fleet_families(inventory.report()), *pool_families(inventory.pools_report())))

    def _own_families(self) -> tuple[Family, ...]:
        report, monotonic = self._pass.report, self._now().monotonic
        stale_after = self._settings.stale_after
        counts = self._host.stuck_children, self._timer.overruns, self._timer.gaps
        stuck_children, overruns, gaps = counts

        def make() -> tuple[Family, ...]:
            families = node_families(
                report,
                monotonic=monotonic,
                stale_after_seconds=stale_after,
                stuck_children=stuck_children,
                overruns=overruns,
                gaps=gaps,
            )
            return merged((*families, build_family(**build_labels())))

        return self._families.of((report, report.is_fresh(monotonic, stale_after), *counts), make)

    def alive(self) -> tuple[bool, str]:
        """Tell whether passes still end; a slow or broken GPU does not count against it."""
        age = self._now().monotonic - self._last_run
        limit = 3 * self._settings.probe_interval + 4 * self._settings.probe_timeout + 120
        return age <= limit, f"the last pass ended {age:.0f} s ago (limit {limit:.0f} s)"

    def ready(self) -> tuple[bool, str]:
        """Tell whether the first pass was tried: a node with broken hardware is still a ready pod."""
        passes = self._pass.report.passes
        return passes > 0, f"{passes} passes" if passes else "the first pass has not ended yet"

    def page(self) -> str:
        """Return the page for people."""
        report = self._pass.report
        labels = labels_for(report.inventory, domain=self._settings.label_domain) if report.inventory else {}
        return node_page(
            report,
            node_name=self._settings.node_name or "this node",
            version=agent_version(),
            labels=labels,
            age=report.age_seconds(self._now().monotonic),
        )

    def _listen(self) -> None:
        """Take Xid events as they come; each asks for a pass at once."""
        while not self._stop.is_set():
            events = self._host.events(LISTEN_SECONDS)
            for event in events:
                LOG.warning("xid event", extra={"device": event.device or "unknown", "xid": event.xid})
                if event.device is not None and event.xid is not None:
                    self._pass.hear(event.device, event.xid)
            if events:
                self._timer.run_soon()

    def _run_once(self) -> None:
        report = self._pass.run()
        self._last_run = self._now().monotonic
        # A listener holds the device open, which a driver upgrade would wait for.
        has_devices = report.inventory is not None and bool(report.inventory.devices)
        self._host.listen(on=has_devices and not self._pass.release_announced)
        if self._stop.is_set() or report.facts is None:
            return
        if report.facts.asked:
            self._failing_since, self._failures = None, 0
            return
        self._failures += 1
        self._give_up_or_retry(report.facts.verdict, report.facts.reason)

    def _give_up_or_retry(self, verdict: str, reason: str) -> None:
        """Try again soon, later each time; exit when the verdict is one that only a new container can change."""
        monotonic = self._now().monotonic
        if verdict not in EXIT_FOR_NEW_CONTAINER or reason in NO_NEW_CONTAINER_HELPS:
            self._failing_since = None
        elif self._failing_since is None:
            self._failing_since = monotonic
        elif monotonic - self._failing_since >= self._settings.exit_after:
            LOG.error("exiting so that a new container gets the devices", extra={"verdict": verdict})
            self._exit_status = EXIT_FOR_NEW_CONTAINER[verdict]
            self._stop.set()
            return
        delay = min(self._settings.probe_interval, FIRST_RETRY_SECONDS * 2 ** min(self._failures - 1, 16))
        self._timer.run_in(delay * random.uniform(0.8, 1.2))  # noqa: S311  # spreads load, guards nothing

    def _failed(self, error: Exception) -> None:
        self._last_run = self._now().monotonic
        LOG.error("a pass failed by a bug", exc_info=error)


def _first_delay(interval_seconds: float) -> float:
    """Return when to probe first: spread, but soon, since a new node's work waits for its labels."""
    return random.uniform(0.0, min(0.1 * interval_seconds, LONGEST_FIRST_DELAY_SECONDS))  # noqa: S311  # spreads load
