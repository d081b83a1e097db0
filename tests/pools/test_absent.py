"""The controller on a cluster without InferencePool: it looks for the definition now and then, and says nothing."""

from agent.cluster import NAMESPACES, PODS
from tests.cluster.objects import INVENTORY_ACCOUNT, account_token, eventually
from tests.main_path.agent_process import AgentProcess


def test_a_cluster_without_pools_is_silent(fresh_cluster, tmp_path):
    token = account_token(fresh_cluster.admin, INVENTORY_ACCOUNT)
    fresh_cluster.admin.delete("/apis/coordination.k8s.io/v1/namespaces/accelerator-system/leases")
    served = "/apis/inference.networking.k8s.io/v1/inferencepools"
    eventually(lambda: fresh_cluster.admin.request("GET", served).status == 404)
    mark = fresh_cluster.audit.mark()
    environment = {
        "KUBECONFIG": str(fresh_cluster.kubeconfig(token)),
        "ACCELERATOR_IDENTITY": "a",
        "ACCELERATOR_LISTEN": "127.0.0.1:0",
    }
    with AgentProcess("inventory", log=tmp_path / "controller.log", environment=environment) as process:
        eventually(lambda: process.metric("accelerator_inventory_leader") == 1.0)
        eventually(lambda: fresh_cluster.audit.since(mark, user=INVENTORY_ACCOUNT, resource="inferencepools"))
        assert "pool" not in process.log.lower()
    requests = fresh_cluster.audit.since(mark, user=INVENTORY_ACCOUNT)
    assert {one.status for one in requests if one.resource == "inferencepools"} == {404}
    assert not [one for one in requests if one.resource == NAMESPACES.plural]
    assert len({one.uri for one in requests if one.resource == PODS.plural}) <= 2
