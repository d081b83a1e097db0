"""Leader election by a Lease: who holds it writes, and stops before anyone else could hold it.

Deadlines are by the monotonic clock, from before a request was sent: neither a clock step nor a hanging server lets two
replicas lead. The holder's times in the Lease are for people; a challenger trusts only what it sees change.
"""

import logging
import random
import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from agent.cluster import LEASES, Cluster, ClusterError, Conflict, Object

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTimes:
    """Seconds."""

    duration: float = 15.0
    """A Lease that does not change for so long is free."""
    renewal: float = 4.0
    margin: float = 6.0
    """The holder stops so long before the end: a write that it began must be over by then. Set the time limit of the
    requests that write below it."""


class Election:
    """One replica's part in the election. `run` belongs to one thread; `leads` may be called from any."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        name: str,
        namespace: str,
        identity: str,
        now: Callable[[], datetime],
        clock: Callable[[], float],
        times: LeaseTimes = LeaseTimes(),
        changed: Callable[[], object] = lambda: None,
    ) -> None:
        """`identity` names this replica to people; `changed` is called when it begins or ceases to lead."""
        self._cluster = cluster
        self._name = name
        self._namespace = namespace
        # Two processes of one name, such as a container that was restarted beside its former self, are not one.
        self._identity = f"{identity}_{secrets.token_hex(4)}"
        self._now = now
        self._clock = clock
        self._times = times
        self._changed = changed
        self._held_until = float("-inf")
        self._seen: tuple[str, str, str] | None = None
        self._seen_at = 0.0
        self._told_leading = False
        self._problem: ClusterError | None = None

    @property
    def identity(self) -> str:
        """Return what stands in the Lease while this replica holds it."""
        return self._identity

    @property
    def problem(self) -> ClusterError | None:
        """Return why the Lease could not be asked for, `None` when it could."""
        return self._problem

    def leads(self) -> bool:
        """Tell whether a write that begins now ends before anyone else could lead."""
        return self._clock() < self._held_until - self._times.margin

    def run(self, stop: threading.Event) -> None:
        """Take part until `stop` is set, then give the Lease back."""
        while not stop.is_set():
            self.step()
            stop.wait(self._times.renewal * random.uniform(0.8, 1.0))  # noqa: S311 - no secret
        self.release()

    def step(self) -> None:
        """Renew the Lease, or take it when it is free."""
        asked_at = self._clock()
        try:
            self._step(asked_at)
            self._problem = None
        except Conflict:
            _log.debug("another replica wrote the lease first")
        except ClusterError as error:
            if self._problem is None:
                _log.warning("the lease %s/%s cannot be renewed: %s", self._namespace, self._name, error)
            self._problem = error
        self._tell()

    def release(self) -> None:
        """Give the Lease back, so that another replica need not wait for its end."""
        if self._clock() >= self._held_until:
            return
        self._held_until = float("-inf")
        try:
            lease = self._cluster.get(LEASES, self._name, namespace=self._namespace)
            if lease is not None and _holder(lease) == self._identity:
                spec = {**lease["spec"], "holderIdentity": "", "leaseDurationSeconds": 1}
                self._write(lease, spec)
        except ClusterError as error:
            _log.info("the lease was not given back, it ends by itself: %s", error)
        self._tell()

    def _step(self, asked_at: float) -> None:
        lease = self._cluster.get(LEASES, self._name, namespace=self._namespace)
        if lease is None:
            self._cluster.create(LEASES, self._new_lease(), manager=self._name)
            self._held_until = asked_at + self._times.duration
            return
        mine = _holder(lease) == self._identity
        if not mine:
            self._held_until = float("-inf")
            if not self._is_free(lease, asked_at):
                return
        stamp = _micro_time(self._now())
        spec = {
            **lease.get("spec", {}),
            "renewTime": stamp,
            "leaseDurationSeconds": round(self._times.duration),
        }
        if not mine:
            transitions = int(lease.get("spec", {}).get("leaseTransitions") or 0)
            spec |= {
                "holderIdentity": self._identity,
                "acquireTime": stamp,
                "leaseTransitions": transitions + 1,
            }
        self._write(lease, spec)
        self._held_until = asked_at + self._times.duration

    def _is_free(self, lease: Object, asked_at: float) -> bool:
        """Tell whether the Lease has no holder, or did not change for its whole duration while we looked."""
        if not _holder(lease):
            return True
        spec = lease.get("spec", {})
        seen = (_holder(lease), str(spec.get("renewTime")), lease["metadata"]["resourceVersion"])
        if seen != self._seen:
            self._seen, self._seen_at = seen, self._clock()
            return False
        # The holder may have been configured with a longer one than ours.
        duration = max(float(spec.get("leaseDurationSeconds") or 0), self._times.duration)
        return asked_at - self._seen_at > duration

    def _write(self, lease: Object, spec: Object) -> None:
        metadata = {
            "name": self._name,
            "namespace": self._namespace,
            "resourceVersion": lease["metadata"]["resourceVersion"],
        }
        head = {"apiVersion": LEASES.api_version, "kind": LEASES.kind}
        self._cluster.replace(LEASES, {**head, "metadata": metadata, "spec": spec}, manager=self._name)

    def _new_lease(self) -> Object:
        stamp = _micro_time(self._now())
        return {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": {"name": self._name, "namespace": self._namespace},
            "spec": {
                "holderIdentity": self._identity,
                "leaseDurationSeconds": round(self._times.duration),
                "acquireTime": stamp,
                "renewTime": stamp,
                "leaseTransitions": 0,
            },
        }

    def _tell(self) -> None:
        leading = self.leads()
        if leading != self._told_leading:
            self._told_leading = leading
            _log.info("this replica %s", "leads" if leading else "does not lead any more")
            self._changed()


def _holder(lease: Object) -> str:
    return str(lease.get("spec", {}).get("holderIdentity") or "")


def _micro_time(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
