"""`doctor`: gathers evidence through what it is handed, has the core judge it, and prints. Writes nothing anywhere."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TextIO

from agent.cluster import (
    ACCELERATOR_CLASSES,
    ACCELERATOR_NODES,
    ACCESS_REVIEWS,
    CRDS,
    NODES,
    SELF_ACCESS_REVIEWS,
    SELF_REVIEWS,
    Cluster,
    ClusterError,
    Forbidden,
    NotFound,
    Object,
    Resource,
)
from agent.commands.dumping import dump
from agent.core.compat import gfd_labels
from agent.core.doctor.check import ADMINISTRATOR, Check, finding, findings, ok, plain, skipped
from agent.core.doctor.cluster import cluster_checks
from agent.core.doctor.devices import device_checks
from agent.core.doctor.evidence import ClusterEvidence, Definition, Expected
from agent.core.doctor.machine import Surroundings, machine_checks
from agent.core.doctor.report import report
from agent.core.doctor.rights import (
    AGENT_ACCOUNT,
    AGENT_RIGHTS,
    INVENTORY_ACCOUNT,
    Reviewed,
    Right,
    inventory_rights,
)
from agent.core.inventory import Inventory, inventory_of
from agent.core.keys import AGENT_MANAGER
from agent.core.labels import labels_for
from agent.core.pools.finding import pools_check
from agent.core.pools.names import PoolKeys
from agent.naming import naming_options
from agent.pools_reading import read_pools, reports_of
from agent.settings import Settings
from agent.wiring import engines_of
from probes.facts import NodeFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class Patient:
    """What is looked at."""

    facts: NodeFacts | None
    """Of this machine; `None` where only the cluster is asked about."""
    surroundings: Surroundings | None
    cluster: Cluster | None
    """`None` where none is looked at."""
    no_cluster: str = "no cluster is configured (no kubeconfig, and not in a pod)"
    """Why none is."""


def run_doctor(
    patient: Patient, settings: Settings, *, now: datetime, output: str, width: int, stdout: TextIO
) -> int:
    """Make every check and print; 1 when one found something."""
    checks = doctor_checks(patient, settings, now=now)
    text = report(checks, width=width) if output == "table" else dump(plain(checks), output)
    print(text, file=stdout)
    return 1 if findings(checks) else 0


def doctor_checks(patient: Patient, settings: Settings, *, now: datetime) -> tuple[Check, ...]:
    """Return every check that can be made."""
    checks: list[Check] = []
    inventory: Inventory | None = None
    if patient.facts is None:
        checks.append(
            skipped(
                "machine", "only the cluster is looked at; run this on the node, or in the agent's pod there"
            )
        )
    else:
        inventory = inventory_of(patient.facts, options=naming_options(settings))
        checks += machine_checks(patient.facts, patient.surroundings)
        checks += device_checks(inventory)
    if patient.cluster is None:
        checks.append(skipped("cluster", patient.no_cluster))
        return tuple(checks)
    return (*checks, *_checks_of(patient.cluster, inventory, settings, now))


def _checks_of(
    cluster: Cluster, inventory: Inventory | None, settings: Settings, now: datetime
) -> tuple[Check, ...]:
    try:
        evidence = gather(cluster, settings)
    except ClusterError as error:
        reached = finding(
            "cluster",
            f"{type(error).__name__}: {error}",
            meaning="nothing can be published, and nothing of the cluster can be checked",
            mend="look at the address and credentials in use (--kubeconfig, --context), and at the network to the server",
            who=ADMINISTRATOR,
        )
        return (reached,)
    return (
        ok("cluster", "the API server answers"),
        *cluster_checks(evidence, _expected(inventory, settings, now)),
        _pools(cluster, settings),
    )


def _pools(cluster: Cluster, settings: Settings) -> Check:
    """Look at pools by what the cluster tells; no endpoint is asked."""
    keys, table = PoolKeys(settings.label_domain), engines_of(settings)
    try:
        reading = read_pools(cluster, keys=keys, table=table)
    except ClusterError as error:
        return skipped("pools", f"pools and what belongs to them may not be read: {error}")
    return pools_check(None if reading is None else reports_of(reading, {}, keys=keys, table=table))


def _expected(inventory: Inventory | None, settings: Settings, now: datetime) -> Expected:
    labels: Mapping[str, str] | None = None
    why = ""
    if inventory is None:
        why = "the hardware of the Node is not looked at"
    elif not inventory.facts.asked:
        why = "the hardware could not be asked, so labels stay as they are"
    elif inventory.facts.simulated and not settings.allow_simulated:
        why = "facts of fake hardware are not published without --allow-simulated"
    else:
        labels = labels_for(inventory, domain=settings.label_domain)
        labels |= gfd_labels(inventory) if "gfd" in settings.compat_labels else {}
    return Expected(
        domains=(settings.label_domain, *settings.former_domains),
        labels=labels,
        labels_not_known=why,
        stale_after_seconds=settings.record_stale_after,
        now=now,
    )


def gather(cluster: Cluster, settings: Settings) -> ClusterEvidence:
    """Ask the cluster for all that the checks need; what this caller may not see is told as that.

    Raises `ClusterError` where the server does not answer at all.
    """
    name = settings.node_name
    # In this order: a Node is labelled before its record is written, and a class comes of records.
    classes = _objects(cluster, ACCELERATOR_CLASSES, None)
    records = _objects(cluster, ACCELERATOR_NODES, name)
    return ClusterEvidence(
        reviews=_reviews(cluster, settings.lease_namespace),
        records_definition=_definition(cluster, ACCELERATOR_NODES),
        classes_definition=_definition(cluster, ACCELERATOR_CLASSES),
        node_name=name,
        nodes=_objects(cluster, NODES, name),
        records=records,
        classes=classes,
    )


def _reviews(cluster: Cluster, namespace: str) -> tuple[Reviewed, ...]:
    """Return what our accounts may do: one of them asks for itself, anybody else for both of them."""
    user = _user(cluster)
    prefix = f"system:serviceaccount:{namespace}:"
    needed = {AGENT_ACCOUNT: AGENT_RIGHTS, INVENTORY_ACCOUNT: inventory_rights(namespace)}
    own = user.removeprefix(prefix) if user is not None else None
    if own in needed:
        return (_review(cluster, own, needed[own], user=None),)
    return tuple(
        _review(cluster, account, rights, user=prefix + account) for account, rights in needed.items()
    )


def _user(cluster: Cluster) -> str | None:
    body = {"apiVersion": SELF_REVIEWS.api_version, "kind": SELF_REVIEWS.kind, "metadata": {}}
    try:
        answer = cluster.create(SELF_REVIEWS, body, manager=AGENT_MANAGER)
    except (NotFound, Forbidden):
        return None  # before Kubernetes 1.28, or a cluster that took this right away
    name: str | None = ((answer.get("status") or {}).get("userInfo") or {}).get("username")
    return name


def _review(cluster: Cluster, account: str, rights: tuple[Right, ...], *, user: str | None) -> Reviewed:
    try:
        return Reviewed(account=account, allowed={right: _allowed(cluster, right, user) for right in rights})
    except Forbidden:
        why = f"this caller may not ask what {account} may do (create subjectaccessreviews.authorization.k8s.io)"
        return Reviewed(account=account, allowed={}, problem=why)


def _allowed(cluster: Cluster, right: Right, user: str | None) -> bool:
    resource = SELF_ACCESS_REVIEWS if user is None else ACCESS_REVIEWS
    attributes = {
        "verb": right.verb,
        "group": right.group,
        "resource": right.resource,
        "subresource": right.subresource,
        "namespace": right.namespace,
        "name": right.name,
    }
    subject = {} if user is None else {"user": user, "groups": _groups(user)}
    body = {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {},
        "spec": {**subject, "resourceAttributes": {key: value for key, value in attributes.items() if value}},
    }
    answer = cluster.create(resource, body, manager=AGENT_MANAGER)
    return bool((answer.get("status") or {}).get("allowed"))


def _groups(user: str) -> list[str]:
    namespace = user.split(":")[2]
    return ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"]


def _definition(cluster: Cluster, resource: Resource) -> Object | Definition:
    """Return the definition of a resource; where definitions may not be read, whether it is served."""
    try:
        return cluster.get(CRDS, f"{resource.plural}.{resource.group}") or "absent"
    except Forbidden:
        pass
    try:
        cluster.get(resource, "any")
    except NotFound:
        return "absent"
    except Forbidden:
        # Rights are looked at before the type: this says nothing of whether it is there.
        return "not-readable"
    return "not-readable"


def _objects(cluster: Cluster, resource: Resource, name: str | None) -> tuple[Object, ...] | str:
    try:
        if name is not None:
            found = cluster.get(resource, name)
            return () if found is None else (found,)
        return tuple(cluster.list_all(resource)[0])
    except Forbidden as error:
        return f"this caller may not read {resource.plural}: {error}"
    except NotFound:
        return f"{resource.plural} are not installed"
