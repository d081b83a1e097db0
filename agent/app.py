"""The composition root: the one place that picks real edges and wires a process."""

import random
import signal
import sys
import threading
import time
from datetime import UTC, datetime

from agent.core.health import Instant
from agent.settings import Settings, SettingsError
from agent.wiring import node_pass_options
from probes.facts import NodeFacts, ProbeVerdict
from probes.host_process import ProbeHost, probe_once

DESCRIPTION = (
    "Finds the accelerators of a Kubernetes node and publishes what they can do: labels, a record, metrics."
)

EXIT_BY_VERDICT: dict[ProbeVerdict, int] = {
    "complete": 0,
    "none": 0,
    "partial": 3,
    "no-driver": 4,
    "version-mismatch": 5,
    "not-in-container": 6,
    "no-answer": 7,
}


class InputError(Exception):
    """A file or argument that cannot be used; the message names it and says why."""


def probe_command(settings: Settings, fake: str | None) -> tuple[str, ...]:
    """Return the command of the probe host, the fake one where `fake` names a machine or a file.

    `-I` keeps the working directory and the user's packages out of a process that reads hardware; the fake host is a
    developer's and may come from a source tree.
    """
    if fake is not None:
        return (sys.executable, "-m", "fakes.child", fake)
    return (sys.executable, "-m", "probes.child", "--root", settings.host_root)


def probe_machine(settings: Settings, *, fake: str | None) -> NodeFacts:
    """Probe this machine (or a fake one) once."""
    _check_fake(fake)
    return probe_once(
        probe_command(settings, fake), timeout_seconds=settings.probe_timeout, simulated=fake is not None
    )


def now() -> Instant:
    """Return this moment by both clocks."""
    return Instant(wall=datetime.now(UTC), monotonic=time.monotonic())


def run_node(settings: Settings, *, fake: str | None, once: bool) -> int:
    """Run the agent's process until it is told to stop, and return its exit status."""
    _check_fake(fake)
    options = node_pass_options(settings)
    # Started before any thread: it forks, and a fork copies only the thread that calls it.
    host = ProbeHost(
        probe_command(settings, fake), timeout_seconds=settings.probe_timeout, simulated=fake is not None
    )
    host.start()
    # Imported late: a one-shot command needs neither the Kubernetes client nor a scheduler.
    from agent.edges.cluster import KubernetesCluster, usual_configuration  # noqa: PLC0415
    from agent.edges.logs import set_up_logs  # noqa: PLC0415
    from agent.node_pass import NodePass  # noqa: PLC0415
    from agent.node_process import NodeProcess  # noqa: PLC0415

    set_up_logs(settings.log_level, settings.log_format)
    cluster = KubernetesCluster(usual_configuration(settings.kubeconfig, context=settings.context))
    node_pass = NodePass(host.probe, cluster, options, now=now, jitter=lambda: random.uniform(0.9, 1.1))  # noqa: S311
    if once:
        report = node_pass.run()
        host.close()
        failed = any(published.failed for published in report.published)
        return 8 if failed else EXIT_BY_VERDICT[report.facts.verdict] if report.facts else 7
    stop = stop_on_signals()
    return NodeProcess(node_pass, host, settings, stop=stop, now=now).run()


def stop_on_signals() -> threading.Event:
    """Return an event that SIGTERM and SIGINT set."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    return stop


def _check_fake(fake: str | None) -> None:
    """Refuse a fake that cannot be loaded here, where its reason reaches the one who typed it."""
    if fake is None:
        return
    from fakes import nodes  # noqa: PLC0415  # only where fake hardware is asked for
    from fakes.strict import ScenarioError  # noqa: PLC0415

    try:
        nodes.load(fake)
    except ScenarioError as error:
        raise InputError(f"--fake {fake}: {error}") from error
    except OSError as error:
        raise SettingsError(f"--fake {fake}: {error}") from error
