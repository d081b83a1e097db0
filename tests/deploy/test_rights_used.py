"""No right that the manifests grant is spare: our processes use each in the tests, all of them together."""

from pathlib import Path

import pytest

import tests
from tests.cluster.audit import AuditLog
from tests.cluster.objects import DAEMONSET_FOLDER, documents
from tests.cluster.program import Program
from tests.deploy.rights import rights_in, rights_of

ACCOUNTS = (":accelerator-agent", ":accelerator-inventory")
USER_AGENT = "accelerator-discovery-agent"
REVIEWS = {"authentication.k8s.io", "authorization.k8s.io"}
"""Everybody may ask about himself; `doctor` does."""
FORBIDDEN = 403
FOR_PEOPLE = {"accelerators-view", "accelerators-edit"}
"""Roles for users of the cluster, bound to no account of ours."""


@pytest.mark.last
def test_every_right_that_is_granted_is_used_and_no_other(
    request: pytest.FixtureRequest,
    cluster_program: Program,  # noqa: ARG001 - without it there is no log
    audit_logs: list[AuditLog],
) -> None:
    ran = {item.path for item in request.session.items}
    left_out = set(Path(tests.__file__).parent.rglob("test_*.py")) - ran
    reporter = request.config.pluginmanager.getplugin("terminalreporter")
    if left_out or (reporter and reporter.stats.get("deselected")):
        pytest.skip("only all tests together use every right, and some were left out")
    asked = [
        one
        for log in audit_logs
        for one in log.since()
        if one.user.endswith(ACCOUNTS) and one.user_agent.startswith(USER_AGENT) and one.status != FORBIDDEN
    ]
    used = {right for right in rights_of(asked) if right[1] not in REVIEWS}
    roles = [
        one
        for path in sorted(DAEMONSET_FOLDER.rglob("*.yaml"))
        if "overlays" not in path.parts
        for one in documents(path)
        if one.get("kind") in {"Role", "ClusterRole"} and one["metadata"]["name"] not in FOR_PEOPLE
    ]
    assert used == rights_in(roles)
