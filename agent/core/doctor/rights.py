"""What each account of ours needs to be allowed, rule by rule as the manifests grant it, against what it is allowed."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from agent.core.doctor.check import ADMINISTRATOR, Check, finding, ok, skipped

AGENT_ACCOUNT = "accelerator-agent"
INVENTORY_ACCOUNT = "accelerator-inventory"


@dataclass(frozen=True, slots=True, kw_only=True)
class Right:
    """One verb on one resource."""

    verb: str
    group: str
    """Empty for the core group."""
    resource: str
    subresource: str = ""
    namespace: str = ""
    """Empty: of the whole cluster."""
    name: str = ""
    """Empty: any."""

    def __str__(self) -> str:
        """Return the right as an administrator writes it: `patch acceleratorclasses.ome.io/status`."""
        group = f".{self.group}" if self.group else ""
        part = f"/{self.subresource}" if self.subresource else ""
        name = f" {self.name}" if self.name else ""
        where = f" in {self.namespace}" if self.namespace else ""
        return f"{self.verb} {self.resource}{group}{part}{name}{where}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reviewed:
    """What an account may do, as the server answered."""

    account: str
    allowed: Mapping[Right, bool]
    problem: str | None = None
    """Why the server was not asked, or would not say."""


def _rights(verbs: Iterable[str], group: str, resource: str, **rest: str) -> tuple[Right, ...]:
    return tuple(Right(verb=verb, group=group, resource=resource, **rest) for verb in verbs)


AGENT_RIGHTS: tuple[Right, ...] = (
    *_rights(("get", "patch"), "", "nodes"),
    *_rights(("get", "create", "patch"), "accelerators.ome.io", "acceleratornodes"),
)

_READ = ("list", "watch")


def inventory_rights(namespace: str) -> tuple[Right, ...]:
    """Return what the controller needs; its Lease lies in `namespace`."""
    leases = ("coordination.k8s.io", "leases")
    definitions = ("apiextensions.k8s.io", "customresourcedefinitions")
    return (
        *_rights(_READ, "", "nodes"),
        *_rights(_READ, "", "pods"),
        *_rights(_READ, "accelerators.ome.io", "acceleratornodes"),
        *_rights(("get", *_READ, "create", "patch"), "ome.io", "acceleratorclasses"),
        *_rights(("patch",), "ome.io", "acceleratorclasses", subresource="status"),
        *_rights(_READ, "inference.networking.k8s.io", "inferencepools"),
        *_rights(_READ, "", "namespaces"),
        *_rights(("get",), *definitions, name="acceleratorclasses.ome.io"),
        *_rights(("create",), *leases, namespace=namespace),
        *_rights(("get", "update"), *leases, namespace=namespace, name=INVENTORY_ACCOUNT),
        *_rights(("create",), "", "events", namespace="default"),
    )


def rights_checks(reviews: Iterable[Reviewed]) -> tuple[Check, ...]:
    """Return one check for each account."""
    return tuple(_rights_check(review) for review in reviews)


def _rights_check(review: Reviewed) -> Check:
    id_ = f"rights-{review.account.removeprefix('accelerator-')}"
    if review.problem is not None:
        return skipped(id_, review.problem)
    missing = [right for right, allowed in review.allowed.items() if not allowed]
    if not missing:
        return ok(id_, f"{review.account} is allowed all {len(review.allowed)} things that it does")
    return finding(
        id_,
        f"{review.account} may not: " + "; ".join(str(right) for right in missing),
        meaning="what hangs on such a right does not happen; everything else goes on",
        mend="apply the RBAC manifests of this version again (deploy/daemonset/base), or add these rules",
        who=ADMINISTRATOR,
    )
