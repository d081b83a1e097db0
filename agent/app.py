"""The composition root: the one place that picks real edges and wires a process."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.settings import Settings, SettingsError
from agent.version import agent_version, build_labels
from probes.spawned_host import SpawnedHost

if TYPE_CHECKING:
    from agent.commands.doctor import Patient
    from agent.commands.match_sources import LocalHardware
    from agent.core.health import Instant
    from agent.edges.cluster import KubernetesCluster
    from agent.inventory_process import InventoryProcess
    from agent.pools_process import PoolsProcess
    from probes.facts import NodeFacts, ProbeVerdict
    from probes.host_process import ProbeHost

TURN_LIMIT_SECONDS = 120.0

DESCRIPTION = (
    "Finds the accelerators of a Kubernetes node and publishes what they can do: labels, a record, metrics."
)

EXIT_BY_VERDICT: "dict[ProbeVerdict, int]" = {
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
    """Return the command of the probe host, the fake one where `fake` names a machine or a file."""
    if fake is not None:
        return (sys.executable, "-m", "fakes.child", fake, "--quiet")
    return (sys.executable, "-m", "probes.child", "--root", settings.host_root)


def probe_host(settings: Settings, *, fake: str | None) -> "ProbeHost":
    """Return the host that probes this machine, or a fake one; its process is started, its context ends it."""
    spawned = SpawnedHost(probe_command(settings, fake), timeout_seconds=settings.probe_timeout)
    spawned.start()
    # Imported while the process gets ready: what takes its answers apart takes as long to import as its binding.
    from probes.host_process import ProbeHost  # noqa: PLC0415

    if fake is None:
        return ProbeHost(spawned)
    # To load the machine here too before anything is known to be wrong with it would double the time of a command.
    return ProbeHost(spawned, simulated=True, stillborn=partial(_check_fake, fake))


def now() -> "Instant":
    """Return this moment by both clocks."""
    from agent.core.health import Instant  # noqa: PLC0415

    return Instant(wall=datetime.now(UTC), monotonic=time.monotonic())


def run_node(settings: Settings, *, fake: str | None, once: bool, with_inventory: bool = False) -> int:
    """Run the agent's process until it is told to stop, and return its exit status."""
    from agent.wiring import node_pass_options  # noqa: PLC0415

    options = node_pass_options(settings)
    if fake is not None:
        _check_fake(fake)
    # Before any thread: it forks, and a fork copies only the thread that calls it.
    host = probe_host(settings, fake=fake)
    # Imported late: a one-shot command needs neither the Kubernetes client nor a scheduler.
    from agent.edges.logs import set_up_logs  # noqa: PLC0415
    from agent.node_pass import NodePass  # noqa: PLC0415
    from agent.node_process import NodeProcess  # noqa: PLC0415

    set_up_logs(settings.log_level, settings.log_format)
    node_pass = NodePass(host.probe, open_cluster(settings), options, now=now, jitter=_jitter)
    if once:
        report = node_pass.run()
        host.close()
        failed = any(published.failed for published in report.published)
        return 8 if failed else EXIT_BY_VERDICT[report.facts.verdict] if report.facts else 7
    stop = stop_on_signals()
    inventory = inventory_process(settings) if with_inventory else None
    return NodeProcess(node_pass, host, settings, stop=stop, now=now, inventory=inventory).run()


def run_inventory(settings: Settings) -> int:
    """Run the controller's process until it is told to stop, and return its exit status."""
    import logging  # noqa: PLC0415  # not for the commands that run once

    from agent.edges.logs import set_up_logs  # noqa: PLC0415
    from agent.edges.web import Answers, WebServer  # noqa: PLC0415

    set_up_logs(settings.log_level, settings.log_format)
    stop = stop_on_signals()
    process = inventory_process(settings)
    web = WebServer(settings.listen, Answers(**inventory_answers(process, settings)))
    web.start()
    process.start()
    logging.getLogger(__name__).info("started", extra={"port": web.port, "version": agent_version()})
    stop.wait()
    process.stop()
    web.stop()
    return 0


def inventory_process(settings: Settings) -> "InventoryProcess":
    """Wire the controller to the cluster that the settings name."""
    from agent.class_settings import class_options  # noqa: PLC0415
    from agent.edges.lease import Election  # noqa: PLC0415
    from agent.inventory_process import LEASE_NAME, InventoryProcess  # noqa: PLC0415
    from agent.wiring import inventory_times  # noqa: PLC0415

    return InventoryProcess(
        open_cluster(settings, brief=True),
        watched=open_cluster(settings),
        options=class_options(settings),
        times=inventory_times(settings),
        now=lambda: datetime.now(UTC),
        clock=time.monotonic,
        elect=lambda changed: Election(
            open_cluster(settings, brief=True),
            name=LEASE_NAME,
            namespace=settings.lease_namespace,
            identity=replica_name(settings),
            now=lambda: datetime.now(UTC),
            clock=time.monotonic,
            changed=changed,
        ),
        pools=partial(_pools_process, settings),
    )


def _pools_process(settings: Settings, **given: Any) -> "PoolsProcess":  # noqa: ANN401  # as MakePools says
    from agent.core.pools.names import PoolKeys  # noqa: PLC0415
    from agent.edges.endpoints import Endpoints  # noqa: PLC0415
    from agent.pools_process import PoolsProcess  # noqa: PLC0415
    from agent.wiring import engines_of  # noqa: PLC0415

    return PoolsProcess(
        open_cluster(settings, brief=True),
        watched=open_cluster(settings),
        reader=Endpoints(),
        table=engines_of(settings),
        keys=PoolKeys(settings.label_domain),
        now=lambda: datetime.now(UTC),
        clock=time.monotonic,
        **given,
    )


def inventory_answers(process: "InventoryProcess", settings: Settings) -> dict[str, Callable[[], Any]]:
    """Return what the controller's port tells."""
    from agent.core.families import merged  # noqa: PLC0415
    from agent.core.fleet_metrics import fleet_families  # noqa: PLC0415
    from agent.core.metrics import build_family  # noqa: PLC0415
    from agent.core.page import fleet_page  # noqa: PLC0415
    from agent.core.pools.metrics import pool_families  # noqa: PLC0415

    def alive() -> tuple[bool, str]:
        age = process.seconds_since_turn()
        return (
            age <= TURN_LIMIT_SECONDS,
            f"the last turn ended {age:.0f} s ago (limit {TURN_LIMIT_SECONDS:.0f} s)",
        )

    return {
        "families": lambda: merged(
            (
                *fleet_families(process.report()),
                *pool_families(process.pools_report()),
                build_family(**build_labels()),
            )
        ),
        "alive": alive,
        "ready": lambda: (True, "listening"),
        "page": lambda: fleet_page(
            process.report(), identity=replica_name(settings), version=agent_version()
        ),
    }


def open_cluster(settings: Settings, *, brief: bool = False) -> "KubernetesCluster":
    """Return the cluster that the settings name; `brief` requests end before a Lease could be lost over them."""
    from agent.edges.cluster import KubernetesCluster, Patience, usual_configuration  # noqa: PLC0415

    patience = Patience(connect=2.0, read=4.0, attempts=1, total=4.0) if brief else Patience()
    configuration = usual_configuration(settings.kubeconfig, context=settings.context)
    return KubernetesCluster(configuration, patience=patience)


def configured_cluster(settings: Settings) -> "KubernetesCluster | None":
    """Return the cluster that the settings or the environment name, `None` where none is configured."""
    named = settings.kubeconfig or settings.context or os.environ.get("KUBECONFIG")
    inside = os.environ.get("KUBERNETES_SERVICE_HOST")
    usual = Path.home() / ".kube" / "config"
    return open_cluster(settings) if named or inside or usual.exists() else None


def local_hardware(settings: Settings, *, fake: str | None) -> "LocalHardware":
    """Return the classes and the record that this machine's accelerators make, or why it could not be asked."""
    from agent.commands.machine_classes import class_objects  # noqa: PLC0415
    from agent.commands.machine_record import record_object  # noqa: PLC0415
    from agent.commands.match_sources import LocalHardware  # noqa: PLC0415
    from agent.core.inventory import inventory_of  # noqa: PLC0415
    from agent.naming import naming_options  # noqa: PLC0415

    with probe_host(settings, fake=fake) as host:
        facts = host.probe(1)
    if not facts.asked:
        return LocalHardware(not_asked=f"{facts.verdict}: {facts.message}")
    inventory = inventory_of(facts, options=naming_options(settings))
    classes = class_objects(inventory, settings)
    return LocalHardware(objects=[*classes, record_object(inventory, settings)])


def capture_machine(settings: Settings, *, fake: str | None) -> "tuple[NodeFacts, dict[str, Any]]":
    """Probe everything of this machine, or a fake one, and return its facts and the scenario that plays it back."""
    from probes.captured import scenario_of  # noqa: PLC0415

    with probe_host(settings, fake=fake) as host:
        facts, evidence = host.probe_everything(1)
    return facts, scenario_of(facts, evidence)


def patient(settings: Settings, *, fake: str | None, only_cluster: bool) -> "Patient":
    """Return what `doctor` looks at: this machine, or a fake one, or none; and the cluster, where one is configured."""
    from agent.commands.doctor import Patient  # noqa: PLC0415
    from agent.edges.surroundings import own_surroundings  # noqa: PLC0415

    facts = None
    if fake is not None or not only_cluster:
        with probe_host(settings, fake=fake) as host:
            facts = host.probe(1)
    if fake is not None and not settings.allow_simulated:
        why = "fake hardware is not compared with a cluster without --allow-simulated"
        return Patient(facts=facts, surroundings=None, cluster=None, no_cluster=why)
    surroundings = None if fake is not None else own_surroundings()
    return Patient(facts=facts, surroundings=surroundings, cluster=configured_cluster(settings))


def replica_name(settings: Settings) -> str:
    """Return the name under which this replica holds the Lease."""
    return settings.identity or os.uname().nodename


def stop_on_signals() -> threading.Event:
    """Return an event that SIGTERM and SIGINT set."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    return stop


def _jitter() -> float:
    import random  # noqa: PLC0415  # not for the commands that run once

    return random.uniform(0.9, 1.1)  # noqa: S311  # spreads load, guards nothing


def _check_fake(fake: str) -> None:
    """Refuse a fake that cannot be loaded here, where its reason reaches the one who typed it."""
    from fakes import nodes  # noqa: PLC0415  # only where fake hardware is asked for
    from fakes.strict import ScenarioError  # noqa: PLC0415

    try:
        nodes.load(fake)
    except ScenarioError as error:
        raise InputError(f"--fake {fake}: {error}") from error
    except OSError as error:
        raise SettingsError(f"--fake {fake}: {error}") from error
