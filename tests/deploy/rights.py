"""Rights in use and rights granted, both as (verb, group, resource)."""

from collections.abc import Iterable
from typing import Any

from tests.cluster.audit import AuditedRequest
from tests.cluster.control_plane import ControlPlane

Right = tuple[str, str, str]


def used_by(plane: ControlPlane, account: str) -> set[Right]:
    """Return what the account asked for since the installation; discovery apart."""
    return rights_of(plane.audit.since(user=f":{account}"))


def granted_to(plane: ControlPlane, account: str) -> set[Right]:
    """Return what the account's roles grant."""
    kinds = ("clusterroles", "roles")
    roles = [
        role for kind in kinds for role in plane.admin.items(f"/apis/rbac.authorization.k8s.io/v1/{kind}")
    ]
    return rights_in([role for role in roles if role["metadata"]["name"].startswith(account)])


def rights_of(requests: Iterable[AuditedRequest]) -> set[Right]:
    """Return the rights that requests need; discovery, which names no resource, needs none."""
    asked = [request for request in requests if request.resource]
    # An apply that creates is logged as a patch, and needs both rights.
    created = {("create", one.group, one.what) for one in asked if one.verb == "patch" and one.status == 201}
    return created | {(one.verb, one.group, one.what) for one in asked}


def rights_in(roles: Iterable[dict[str, Any]]) -> set[Right]:
    """Return what the rules of roles grant."""
    return {
        (verb, group, resource)
        for role in roles
        for rule in role["rules"]
        for verb in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
