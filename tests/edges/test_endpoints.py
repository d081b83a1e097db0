"""How pods are asked: every server answers in its way, and no stranger costs more than two seconds and a megabyte."""

import threading
import time
import tracemalloc

import pytest

from agent.core.pools.engines import engine_table, family_names
from agent.core.pools.lora import Model
from agent.core.pools.serving import Reading, Refusal
from agent.edges.endpoints import Endpoints
from tests.pools import expositions
from tests.pools.servers import (
    Servers,
    answer,
    close,
    endless_stream,
    free_port,
    gigabyte,
    hang,
    trickle,
    trickle_of_headers,
)

NAMES = family_names(engine_table())


@pytest.fixture
def servers():
    with Servers() as running:
        yield running


def readings(server, endpoints=None):
    return (endpoints or Endpoints()).readings(server.address, server.port, NAMES)


def test_the_series_of_known_families_are_read_and_no_others(servers):
    server = servers.model_server(expositions.trtllm_serve() + 'python_info{version="3"} 1\n')
    assert readings(server) == (
        Reading("trtllm_num_requests_waiting", {}, 0.0),
        Reading("trtllm_num_requests_running", {}, 1.0),
        Reading("trtllm_kv_cache_utilization", {}, 0.2),
        Reading("trtllm_kv_cache_tokens_per_block", {}, 32.0),
    )


def test_a_request_carries_no_credentials_and_nothing_but_what_it_needs(servers):
    server = servers.model_server(expositions.sglang())
    readings(server)
    ((path, headers),) = server.requests
    assert (path, headers) == (
        "/metrics",
        {
            "Host": f"{server.address}:{server.port}",
            "Accept-Encoding": "identity",
            "Accept": "text/plain;version=0.0.4, */*;q=0.1",
            "User-Agent": "accelerator-discovery-agent",
        },
    )


BROKEN = 'vllm:num_requests_waiting{model_name="m\n' + "vllm:num_requests_running} 1 2 3 4 5\n"
STRANGERS = [
    ("hangs", hang, "no-answer", "it did not answer within 2 s"),
    ("trickles a body", trickle, "no-answer", "it did not answer within 2 s"),
    ("trickles headers", trickle_of_headers, "no-answer", "it did not answer within 2 s"),
    ("streams without end", endless_stream, "too-large", "/metrics is larger than 1024 KiB"),
    ("answers 1 GB", gigabyte, "too-large", "/metrics is larger than 1024 KiB"),
    ("says nothing", close, "no-answer", "no answer: Remote end closed connection without response"),
    ("speaks no HTTP", answer("", status="nonsense"), "no-answer", None),
    (
        "redirects",
        answer("", status="302 Found", headers=("Location: http://169.254.169.254/",)),
        "redirect",
        "/metrics redirects (302), which is not followed",
    ),
    ("wants credentials", answer("", status="401 Unauthorized"), "status", "/metrics answers 401"),
    ("fails", answer("oops", status="500 Oops"), "status", "/metrics answers 500"),
    ("has no metrics", answer("", status="404 Not Found"), "status", "/metrics answers 404"),
    (
        "answers HTML",
        answer("<!doctype html><title>hello</title>", headers=("Content-Type: text/html",)),
        "not-metrics",
        "/metrics is a page (HTML), no metrics",
    ),
    ("answers a broken exposition", answer(BROKEN), "not-metrics", None),
    ("answers JSON", answer('{"error": {"message": "no"}}'), "not-metrics", None),
    ("answers bytes", answer(b"\xff\xfe\x00\x01"), "not-metrics", "/metrics is no text"),
    (
        "answers compressed",
        answer(b"\x1f\x8b", headers=("Content-Encoding: gzip",)),
        "not-metrics",
        "/metrics is compressed, which was not asked for",
    ),
]


@pytest.mark.parametrize(
    ("behave", "word", "message"), [row[1:] for row in STRANGERS], ids=[row[0] for row in STRANGERS]
)
def test_a_stranger_costs_two_seconds_and_a_megabyte_at_most(servers, behave, word, message):
    server = servers.stranger(behave)
    tracemalloc.start()
    began = time.monotonic()
    refusal = readings(server)
    seconds = time.monotonic() - began
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert isinstance(refusal, Refusal)
    assert refusal.word == word
    assert message is None or refusal.message == message
    assert len(refusal.message) < 300
    assert seconds < 2.6
    assert peak < 8 * 1024 * 1024


def test_a_port_on_which_nobody_listens_is_told_at_once():
    began = time.monotonic()
    refusal = Endpoints().readings("127.77.0.1", free_port(), NAMES)
    assert refusal == Refusal(word="no-answer", message="no answer: Connection refused")
    assert time.monotonic() - began < 1


NO_PODS = ["169.254.169.254", "fe80::1", "224.0.0.1", "0.0.0.0", "example.com", ""]


@pytest.mark.parametrize("address", NO_PODS)
def test_an_address_that_is_no_pods_is_never_asked(address):
    refusal = Endpoints().readings(address, 80, NAMES)
    assert refusal.word == "no-answer"
    assert refusal.message in {f"{address} is no address of a pod", f"{address} is no IP address"}


def test_an_exposition_of_a_megabyte_of_histograms_is_read_in_well_under_a_second(servers):
    line = 'vllm:request_prompt_tokens_bucket{{le="{}.0",model_name="m"}} 1.0\n'
    bulk = "".join(line.format(number) for number in range(15000))
    server = servers.model_server(bulk[: 1000 * 1024].rpartition("\n")[0] + "\n" + expositions.vllm())
    began = time.monotonic()
    found = readings(server)
    assert len(found) == 4
    assert time.monotonic() - began < 0.8


def test_an_exposition_without_any_known_family_is_empty_and_no_refusal(servers):
    assert readings(servers.model_server('go_info{version="1"} 1\n')) == ()


def test_models_tell_their_parents(servers):
    server = servers.model_server("", models=[("base", None), ("adapter", "base")])
    assert Endpoints().models(server.address, server.port) == (Model("base"), Model("adapter", "base"))


MODELS = [
    ("no list", answer("{}"), "not-models"),
    ("no JSON", answer("<html>"), "not-models"),
    ("deeply nested", answer("[" * 100_000), "not-models"),
    ("wants credentials", answer("", status="401 Unauthorized"), "status"),
    ("1 GB", gigabyte, "too-large"),
]


@pytest.mark.parametrize(("behave", "word"), [row[1:] for row in MODELS], ids=[row[0] for row in MODELS])
def test_what_is_no_list_of_models_is_refused(servers, behave, word):
    server = servers.stranger(behave)
    assert Endpoints().models(server.address, server.port).word == word


def test_a_few_are_asked_at_a_time():
    lock, now, most = threading.Lock(), [0], [0]

    def count(item):
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        time.sleep(0.02)
        with lock:
            now[0] -= 1
        return item

    assert list(Endpoints(at_once=3).each(count, range(20))) == list(range(20))
    assert most == [3]
