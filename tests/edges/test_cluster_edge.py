"""The edge to the API server under faults, played by a proxy in front of the real one."""

import pytest
from kubernetes.client.configuration import Configuration
from kubernetes.config.config_exception import ConfigException

from agent.cluster import (
    ACCELERATOR_CLASSES,
    NODES,
    Conflict,
    Gone,
    ServerFault,
    Throttled,
    Unauthorized,
    Unreachable,
)
from agent.edges.cluster import KubernetesCluster, Patience, in_cluster, kubeconfig
from tests.cluster.faults import CutWatch, HalfAnswer, Reset, Silence, WatchError, refusal

LABELLED = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "labels": {"a": "b"}}}
QUICK = Patience(connect=1.0, read=0.4, attempts=3, watch_idle=0.6)


def make_node(control_plane, name="n1"):
    control_plane.admin.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})


@pytest.fixture
def waits():
    """The pauses between attempts, in place of making them."""
    return []


@pytest.fixture
def cluster(fresh_cluster, fault_proxy, waits):
    make_node(fresh_cluster)
    config = fresh_cluster.kubeconfig(fresh_cluster.admin_token, server=fault_proxy.url)
    connection = KubernetesCluster(kubeconfig(str(config)), patience=QUICK, wait=waits.append, page_size=2)
    yield connection
    connection.close()


def test_fr_106_a_patch_that_is_throttled_waits_as_it_is_told(cluster, fault_proxy, waits):
    fault_proxy.add(refusal(429, retry_after=2), method="PATCH", times=2)
    assert cluster.apply(NODES, LABELLED, manager="m")["metadata"]["labels"] == {"a": "b"}
    assert len(waits) == 2
    assert all(2.0 <= pause <= 2.5 for pause in waits)


def test_throttling_that_does_not_end_is_told_with_its_time(cluster, fault_proxy, waits):
    rule = fault_proxy.add(refusal(429, retry_after=2), method="PATCH")
    with pytest.raises(Throttled) as refused:
        cluster.apply(NODES, LABELLED, manager="m")
    assert (refused.value.retry_after_seconds, rule.hits, len(waits)) == (2.0, 3, 2)


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(refusal(503), id="503"),
        pytest.param(refusal(500), id="500"),
        pytest.param(Reset(), id="a reset before"),
        pytest.param(Reset(after_forwarding=True), id="a reset after the write"),
        pytest.param(Silence(), id="silence"),
        pytest.param(HalfAnswer(), id="half an answer"),
        pytest.param(refusal(409), id="a lost race"),
    ],
)
def test_fr_106_a_passing_fault_of_a_write_is_tried_again(cluster, fault_proxy, waits, fault):
    fault_proxy.add(fault, method="PATCH", times=2)
    assert cluster.apply(NODES, LABELLED, manager="m")["metadata"]["labels"] == {"a": "b"}
    assert len(waits) == 2


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        pytest.param(refusal(503), ServerFault, id="503"),
        pytest.param(Reset(), Unreachable, id="resets"),
        pytest.param(Silence(), Unreachable, id="silence"),
        pytest.param(HalfAnswer(), Unreachable, id="half answers"),
    ],
)
def test_fr_106_a_lasting_fault_ends_after_a_bounded_number_of_tries(cluster, fault_proxy, fault, error):
    rule = fault_proxy.add(fault, method="GET")
    with pytest.raises(error):
        cluster.get(NODES, "n1")
    assert rule.hits == 3


def test_a_write_bound_to_a_version_that_is_gone_is_not_repeated(cluster, fault_proxy):
    rule = fault_proxy.add(refusal(409), method="PATCH")
    body = {**LABELLED, "metadata": {**LABELLED["metadata"], "resourceVersion": "1"}}
    with pytest.raises(Conflict):
        cluster.apply(NODES, body, manager="m")
    assert rule.hits == 1


def test_a_body_that_cannot_be_typed_is_sent_once(cluster, fault_proxy):
    body = {
        "apiVersion": ACCELERATOR_CLASSES.api_version,
        "kind": "AcceleratorClass",
        "metadata": {"name": "c"},
        "spec": {"capabilities": {}, "discovery": {}, "unknown": 1},
    }
    with pytest.raises(ServerFault) as refused:
        cluster.apply(ACCELERATOR_CLASSES, body, manager="m")
    assert refused.value.permanent
    assert [request.method for request in fault_proxy.seen] == ["PATCH"]


def test_no_attempt_starts_after_the_patience_is_over(cluster, fault_proxy, waits):
    fault_proxy.add(refusal(429, retry_after=60), method="GET")
    with pytest.raises(Throttled):
        cluster.get(NODES, "n1")
    assert waits == []


def test_no_server_at_all_is_unreachable(fresh_cluster, waits):
    config = fresh_cluster.kubeconfig(fresh_cluster.admin_token, server="https://127.0.0.1:1")
    connection = KubernetesCluster(kubeconfig(str(config)), patience=QUICK, wait=waits.append)
    with pytest.raises(Unreachable):
        connection.get(NODES, "n1")


# Credentials


def test_fr_094_a_401_reads_the_credentials_again_once(fresh_cluster, fault_proxy, waits):
    make_node(fresh_cluster)
    tokens = ["a token of yesterday", fresh_cluster.admin_token]
    reads = []

    def source():
        reads.append(len(reads))
        token = tokens[min(len(reads) - 1, 1)]
        return kubeconfig(str(fresh_cluster.kubeconfig(token, server=fault_proxy.url)))()

    connection = KubernetesCluster(source, patience=QUICK, wait=waits.append)
    assert connection.get(NODES, "n1") is not None
    assert (len(reads), waits) == (2, [])


def test_a_401_that_stays_is_told_after_one_more_try(cluster, fault_proxy):
    rule = fault_proxy.add(refusal(401))
    with pytest.raises(Unauthorized):
        cluster.get(NODES, "n1")
    assert rule.hits == 2


def test_fr_094_a_configuration_that_cannot_be_read_for_a_moment_passes(fresh_cluster, waits):
    make_node(fresh_cluster)
    good = kubeconfig(str(fresh_cluster.admin_kubeconfig))
    troubles = [ConfigException("token file exists but empty"), OSError("no such file")]

    def source() -> Configuration:
        if troubles:
            raise troubles.pop()
        return good()

    connection = KubernetesCluster(source, patience=QUICK, wait=waits.append)
    assert connection.get(NODES, "n1") is not None
    assert len(waits) == 2


def test_fr_094_a_pod_finds_its_server_and_reads_its_token_anew(fresh_cluster, tmp_path, waits):
    make_node(fresh_cluster)
    (tmp_path / "ca.crt").write_bytes(fresh_cluster.certificates.authority.read_bytes())
    token = tmp_path / "token"
    token.write_text("a token of yesterday")
    host, port = fresh_cluster.server.removeprefix("https://").split(":")
    environment = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}
    connection = KubernetesCluster(
        in_cluster(environment, service_account=tmp_path), patience=QUICK, wait=waits.append
    )
    with pytest.raises(Unauthorized):
        connection.get(NODES, "n1")
    # An ordinary rotation: the file is empty for a moment, then holds the next token.
    token.write_text("")
    with pytest.raises(Unreachable, match="no usable cluster configuration"):
        connection.get(NODES, "n1")
    token.write_text(fresh_cluster.admin_token)
    assert connection.get(NODES, "n1") is not None


@pytest.mark.parametrize(
    "case", [pytest.param(str.upper, id="upper case"), pytest.param(str.lower, id="lower case")]
)
def test_fr_097_the_cluster_is_reached_past_a_proxy_that_it_is_exempt_from(
    fresh_cluster, monkeypatch, waits, case
):
    """FR-097."""
    make_node(fresh_cluster)
    monkeypatch.setenv(case("https_proxy"), "http://127.0.0.1:1")
    connection = KubernetesCluster(
        kubeconfig(str(fresh_cluster.admin_kubeconfig)), patience=QUICK, wait=waits.append
    )
    with pytest.raises(Unreachable):
        connection.get(NODES, "n1")
    monkeypatch.setenv(case("no_proxy"), "10.0.0.0/8,.svc,127.0.0.0/8")
    connection = KubernetesCluster(kubeconfig(str(fresh_cluster.admin_kubeconfig)), patience=QUICK)
    assert connection.get(NODES, "n1") is not None


# Lists and watches


def fill(control_plane):
    for name in ("n2", "n3", "n4", "n5"):
        make_node(control_plane, name)


def test_fr_082_a_list_that_fails_on_page_two_is_an_error_and_never_half_a_list(
    cluster, fresh_cluster, fault_proxy
):
    fill(fresh_cluster)
    fault_proxy.add(refusal(500), query="continue=")
    with pytest.raises(ServerFault):
        cluster.list_all(NODES)


def test_fr_082_a_list_whose_token_expires_starts_again_and_is_whole(cluster, fresh_cluster, fault_proxy):
    fill(fresh_cluster)
    fault_proxy.add(refusal(410), query="continue=", times=1)
    items, _ = cluster.list_all(NODES)
    assert [item["metadata"]["name"] for item in items] == ["n1", "n2", "n3", "n4", "n5"]


def test_fr_082_a_page_without_items_is_no_page(cluster, fault_proxy):
    from tests.cluster.faults import Reply

    fault_proxy.add(Reply(status=200, body=b"{}", headers=(("Content-Type", "application/json"),)))
    with pytest.raises(ServerFault, match="half a list"):
        cluster.list_all(NODES)


def test_a_watch_that_is_closed_ends_in_order(cluster, fault_proxy):
    fault_proxy.add(CutWatch(seconds=0.2), watch=True)
    _, version = cluster.list_all(NODES)
    assert list(cluster.watch(NODES, resource_version=version)) == []


def test_a_watch_that_is_reset_is_unreachable(cluster, fault_proxy):
    fault_proxy.add(CutWatch(seconds=0.2, abruptly=True), watch=True)
    _, version = cluster.list_all(NODES)
    with pytest.raises(Unreachable):
        list(cluster.watch(NODES, resource_version=version))


def test_fr_096_a_watch_that_falls_silent_is_given_up(cluster, fresh_cluster):
    _, version = cluster.list_all(NODES)
    fresh_cluster.pause_apiserver()
    try:
        with pytest.raises(Unreachable):
            list(cluster.watch(NODES, resource_version=version, timeout_seconds=60))
    finally:
        fresh_cluster.resume_apiserver()


@pytest.mark.parametrize(
    "fault",
    [pytest.param(WatchError(status=410), id="as an event"), pytest.param(refusal(410), id="as an answer")],
)
def test_fr_095_a_version_that_has_expired_is_gone(cluster, fault_proxy, fault):
    fault_proxy.add(fault, watch=True)
    with pytest.raises(Gone):
        list(cluster.watch(NODES, resource_version="5", timeout_seconds=5))


def test_every_request_is_counted_with_its_answer(fresh_cluster, fault_proxy, waits):
    make_node(fresh_cluster)
    seen = []
    config = fresh_cluster.kubeconfig(fresh_cluster.admin_token, server=fault_proxy.url)
    connection = KubernetesCluster(
        kubeconfig(str(config)), patience=QUICK, wait=waits.append, observe=lambda **told: seen.append(told)
    )
    fault_proxy.add(refusal(503), times=1)
    fault_proxy.add(Silence(), times=1)
    connection.get(NODES, "n1")
    assert seen == [{"verb": "get", "resource": "nodes", "status": status} for status in (503, 0, 200)]
