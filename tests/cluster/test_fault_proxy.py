"""The proxy's faults, as a client sees them."""

import http.client
import time
from collections.abc import Iterator
from typing import Any

import pytest

from agent.cluster import NODES
from tests.cluster.client import ApiClient
from tests.cluster.control_plane import ControlPlane
from tests.cluster.fault_proxy import FaultProxy
from tests.cluster.faults import CutWatch, Delay, HalfAnswer, Reset, Silence, WatchError, refusal
from tests.cluster.objects import ready_node


@pytest.fixture
def client(fresh_cluster: ControlPlane, fault_proxy: FaultProxy) -> ApiClient:
    return fresh_cluster.client(fresh_cluster.admin_token, server=fault_proxy.url)


def names(client: ApiClient) -> list[str]:
    return [item["metadata"]["name"] for item in client.items(NODES)]


def test_without_a_fault_everything_passes(fault_proxy: FaultProxy, client: ApiClient) -> None:
    ready_node(client, "gpu-1")
    client.patch(NODES, "gpu-1", {"metadata": {"labels": {"a": "b"}}})
    assert client.get(NODES, "gpu-1")["metadata"]["labels"]["a"] == "b"
    assert [(one.method, one.path, one.fault) for one in fault_proxy.seen] == [
        ("POST", "/api/v1/nodes", None),
        ("PATCH", "/api/v1/nodes/gpu-1", None),
        ("GET", "/api/v1/nodes/gpu-1", None),
    ]


@pytest.mark.parametrize("status", [401, 403, 409, 410, 429, 500, 503])
def test_a_refusal_looks_like_the_servers_and_is_used_up(
    fault_proxy: FaultProxy, client: ApiClient, status: int
) -> None:
    rule = fault_proxy.add(refusal(status), method="GET", path="/nodes", times=1)
    answer = client.request("GET", "/api/v1/nodes")
    assert (answer.status, answer.body["kind"], answer.body["code"]) == (status, "Status", status)
    assert "retry-after" not in answer.headers
    assert client.request("GET", "/api/v1/nodes").status == 200
    assert rule.hits == 1


def test_a_refusal_can_say_when_to_come_back(fault_proxy: FaultProxy, client: ApiClient) -> None:
    fault_proxy.add(refusal(429, retry_after=7))
    assert client.request("GET", "/api/v1/nodes").headers["retry-after"] == "7"


def test_a_list_can_fail_on_its_second_page(fault_proxy: FaultProxy, client: ApiClient) -> None:
    for number in range(3):
        ready_node(client, f"gpu-{number}")
    fault_proxy.add(refusal(500), path="/nodes$", query="continue=")
    first = client.request("GET", "/api/v1/nodes", query={"limit": 2})
    token = first.body["metadata"]["continue"]
    assert client.request("GET", "/api/v1/nodes", query={"limit": 2, "continue": token}).status == 500


def test_a_rule_can_let_the_first_requests_pass(fault_proxy: FaultProxy, client: ApiClient) -> None:
    fault_proxy.add(refusal(503), after=2, times=1)
    assert [client.request("GET", "/api/v1/nodes").status for _ in range(4)] == [200, 200, 503, 200]


def test_a_connection_is_reset_before_anything_is_done(fault_proxy: FaultProxy, client: ApiClient) -> None:
    fault_proxy.add(Reset(), method="POST", times=2)
    with pytest.raises(ConnectionResetError):
        ready_node(client, "gpu-1")
    assert names(client) == []


def test_an_answer_is_lost_after_the_write_was_done(fault_proxy: FaultProxy, client: ApiClient) -> None:
    fault_proxy.add(Reset(after_forwarding=True), method="POST", times=1)
    with pytest.raises(ConnectionResetError):
        ready_node(client, "gpu-1")
    assert names(client) == ["gpu-1"]


def test_a_silent_connection_ends_by_the_clients_patience(fault_proxy: FaultProxy, client: ApiClient) -> None:
    fault_proxy.add(Silence(), times=1)
    client._timeout = 0.2
    with pytest.raises(TimeoutError):
        client.get(NODES)
    client._timeout = 10
    assert names(client) == []


def test_a_delayed_request_still_arrives(fault_proxy: FaultProxy, client: ApiClient) -> None:
    fault_proxy.add(Delay(seconds=0.3))
    began = time.monotonic()
    assert names(client) == []
    assert time.monotonic() - began >= 0.3


def test_an_answer_can_break_off_in_its_middle(fault_proxy: FaultProxy, client: ApiClient) -> None:
    fault_proxy.add(HalfAnswer(), times=2)
    with pytest.raises((http.client.IncompleteRead, ConnectionResetError)):
        client.get(NODES)


def watched(events: Iterator[dict[str, Any]]) -> list[str]:
    return [event["object"]["metadata"]["name"] for event in events if event["type"] == "ADDED"]


def test_a_watch_is_closed_in_order_after_its_time(fault_proxy: FaultProxy, client: ApiClient) -> None:
    ready_node(client, "gpu-1")
    fault_proxy.add(CutWatch(seconds=0.3), watch=True)
    began = time.monotonic()
    assert watched(client.watch(NODES)) == ["gpu-1"]
    assert 0.3 <= time.monotonic() - began < 5
    assert names(client) == ["gpu-1"]


@pytest.mark.parametrize(
    ("abruptly", "ends_in_order"), [(False, True), (True, False)], ids=["closed", "broken"]
)
def test_a_watch_that_is_broken_has_no_last_chunk(
    fault_proxy: FaultProxy, client: ApiClient, abruptly: bool, ends_in_order: bool
) -> None:
    ready_node(client, "gpu-1")
    fault_proxy.add(CutWatch(seconds=0.3, abruptly=abruptly), watch=True)
    # Read below HTTP: Python's client takes a stream that is broken between two chunks for one that ended.
    connection = client._connect()
    connection.connect()
    head = f"GET /api/v1/nodes?watch=true HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {client.token}\r\n\r\n"
    connection.sock.sendall(head.encode())
    received = b""
    while not received.endswith(b"\r\n0\r\n\r\n") and (data := connection.sock.recv(65536)):
        received += data
    assert b'"name":"gpu-1"' in received
    assert received.endswith(b"\r\n0\r\n\r\n") is ends_in_order
    connection.close()


def test_a_watch_can_begin_with_an_expired_version(fault_proxy: FaultProxy, client: ApiClient) -> None:
    fault_proxy.add(WatchError(status=410), watch=True)
    (event,) = client.watch(NODES)
    assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")


def test_a_server_that_is_down_is_a_reset_for_the_proxys_client(
    fresh_cluster: ControlPlane, client: ApiClient
) -> None:
    fresh_cluster.stop_apiserver()
    try:
        with pytest.raises(ConnectionResetError):
            client.get(NODES)
    finally:
        fresh_cluster.start_apiserver()
    assert names(client) == []


def test_closing_ends_a_client_that_waits_in_silence(
    fresh_cluster: ControlPlane, fault_proxy: FaultProxy
) -> None:
    fault_proxy.add(Silence())
    client = fresh_cluster.client(fresh_cluster.admin_token, server=fault_proxy.url)
    client._timeout = 0.2
    with pytest.raises(TimeoutError):
        client.get(NODES)
    began = time.monotonic()
    fault_proxy.close()
    assert time.monotonic() - began < 2
