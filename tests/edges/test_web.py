"""The port: both exposition formats as Prometheus' own parsers read them, and answers while much is asked at once."""

import http.client
import logging
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as plain_text

from agent.core.families import Family, counter, gauge, one
from agent.core.inventory import inventory_of
from agent.core.metrics import build_family, node_families
from agent.core.outcomes import NodeReport, PublishTally
from agent.edges import web
from agent.edges.web import Answers, WebServer, exposition, parse_listen
from agent.settings import SettingsError
from tests.hardware import START, could_not_ask, facts, fake_facts, h100, mig, readable_nodes

OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


def families_of(facts_):
    report = NodeReport(
        facts=facts_,
        inventory=inventory_of(facts_),
        inventory_monotonic=0.0,
        inventory_wall=START,
        passes=1,
        tallies={"labels": PublishTally(writes=1, failures={"Forbidden": 2}, last_success=START)},
        xid_errors={("GPU-1", 79): 1},
    )
    return (
        *node_families(report, monotonic=1.0, stale_after_seconds=300.0),
        build_family("0.1.0", "abc", "3.11", "13"),
    )


def read(families, parse, accept):
    """The samples as Prometheus' own parser reads them: (name, labels) → value."""
    body, content_type = exposition(families, accept)
    found = {}
    for family in parse(body.decode()):
        for sample in family.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            assert key not in found, key
            found[key] = sample.value
    return found, content_type


def meant(families):
    """The samples that the exposition should hold, counters with their suffix."""
    found = {}
    for family in families:
        names = {name for sample in family.samples for name in sample.labels}
        for sample in family.samples:
            name = family.name + ("_total" if family.kind == "counter" else "")
            labels = {name: sample.labels.get(name, "") for name in names}
            found[name, tuple(sorted(labels.items()))] = sample.value
    return found


@pytest.mark.parametrize("name", readable_nodes())
def test_openmetrics_parser_reads_what_every_fake_machine_gives(name):
    families = families_of(fake_facts(name))
    found, content_type = read(families, openmetrics, OPENMETRICS)
    assert found == meant(families)
    assert content_type.startswith("application/openmetrics-text; version=1.0.0")


@pytest.mark.parametrize("name", ["h100x8", "a100-80-mig", "no-driver"])
def test_the_plain_format_is_given_where_the_other_is_not_asked_for(name):
    families = families_of(fake_facts(name))
    found, content_type = read(families, plain_text, "")
    assert found == meant(families)
    assert content_type.startswith("text/plain")


def test_before_the_first_probe_the_exposition_is_whole():
    families = node_families(NodeReport(), monotonic=0.0, stale_after_seconds=300.0)
    assert read(families, openmetrics, OPENMETRICS)[0] == meant(families)


def test_awkward_text_survives_both_formats():
    nasty = 'a"b\\c\nd é 🚀'
    families = (gauge("x", f"help {nasty}", [one(1, text=nasty)]), counter("y", "h", [one(2, text=nasty)]))
    assert read(families, openmetrics, OPENMETRICS)[0] == meant(families)
    assert read(families, plain_text, "")[0] == meant(families)


def test_every_family_has_a_help_text_and_a_name_of_ours():
    families = families_of(fake_facts("a100-80-mig"))
    assert [family.name for family in families if not family.help.endswith(".")] == []
    assert [family.name for family in families if not family.name.startswith("accelerator_")] == []
    assert len({family.name for family in families}) == len(families)


# --- the port


def answers(**changed):
    told = {
        "families": lambda: families_of(facts(h100())),
        "alive": lambda: (True, "well"),
        "ready": lambda: (True, "1 passes"),
        "page": lambda: "<!doctype html>é",
    }
    return Answers(**{**told, **changed})


@contextmanager
def serving(listen="127.0.0.1:0", **changed):
    server = WebServer(listen, answers(**changed))
    server.start()
    try:
        yield server
    finally:
        server.stop()


def ask(port, path="/metrics", method="GET", host="127.0.0.1", **headers):
    connection = http.client.HTTPConnection(host, port, timeout=5)
    try:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.getheader("Content-Type"), answer.read()
    finally:
        connection.close()


@pytest.fixture
def port():
    with serving() as server:
        yield server.port


PATHS = [
    ("/healthz", 200, b"well\n"),
    ("/readyz", 200, b"1 passes\n"),
    ("/readyz?verbose", 200, b"1 passes\n"),
    ("/", 200, "<!doctype html>é".encode()),
    ("/nothing", 404, b"try /, /metrics, /healthz or /readyz\n"),
    ("/../etc/passwd", 404, b"try /, /metrics, /healthz or /readyz\n"),
    ("/" + "x" * 3000, 414, b"the address is too long\n"),
]


@pytest.mark.parametrize(("path", "status", "body"), PATHS, ids=[path[:20] for path, _, _ in PATHS])
def test_each_path_answers(port, path, status, body):
    found = ask(port, path)
    assert (found[0], found[2]) == (status, body)


def test_a_scraper_gets_the_format_that_it_asks_for(port):
    assert ask(port, Accept=OPENMETRICS)[1].startswith("application/openmetrics-text")
    assert ask(port)[1].startswith("text/plain")
    assert b"# EOF" in ask(port, Accept=OPENMETRICS)[2]


def test_health_and_readiness_are_503_when_they_are_not():
    with serving(alive=lambda: (False, "stuck"), ready=lambda: (False, "not yet")) as server:
        assert ask(server.port, "/healthz")[0::2] == (503, b"stuck\n")
        assert ask(server.port, "/readyz")[0::2] == (503, b"not yet\n")


def test_head_has_the_length_and_no_body(port):
    status, _, body = ask(port, "/", method="HEAD")
    assert (status, body) == (200, b"")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_nothing_can_be_written(port, method):
    assert ask(port, "/", method=method)[0] == 501


def test_fr_110_health_answers_at_once_while_twenty_scrape():
    release = threading.Event()

    def slow():
        release.wait(5)
        return ()

    with serving(families=slow) as server, ThreadPoolExecutor(20) as scrapers:
        scrapes = [scrapers.submit(ask, server.port) for _ in range(20)]
        started = time.monotonic()
        assert ask(server.port, "/healthz")[0] == 200
        assert time.monotonic() - started < 1.0
        release.set()
        assert [scrape.result()[0] for scrape in scrapes] == [200] * 20


def test_twenty_scrapers_at_once_each_get_a_whole_exposition():
    cut = [h100(n, id=f"GPU-{n}", mig=mig(*["1g.10gb"] * 7)) for n in range(8)]
    families = families_of(facts(*cut))
    with serving(families=lambda: families) as server, ThreadPoolExecutor(20) as scrapers:
        found = list(scrapers.map(lambda _: ask(server.port, Accept=OPENMETRICS), range(200)))
    assert {status for status, _, _ in found} == {200}
    assert len({body for _, _, body in found}) == 1
    assert found[0][2].endswith(b"# EOF\n")


def test_a_connection_can_be_used_again(port):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    for _ in range(3):
        connection.request("GET", "/healthz")
        assert connection.getresponse().read() == b"well\n"
    connection.close()


def test_connections_are_bounded_and_come_free_again(monkeypatch):
    monkeypatch.setattr(web, "MAX_CONNECTIONS", 3)
    with serving() as server:
        held = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(3)]
        with pytest.raises((http.client.HTTPException, OSError)):
            ask(server.port, "/healthz")
        for connection in held:
            connection.close()
        assert _eventually(lambda: ask(server.port, "/healthz")[0]) == 200


def test_a_client_that_says_nothing_is_let_go(monkeypatch):
    monkeypatch.setattr(web._Handler, "timeout", 0.05)
    with serving() as server, socket.create_connection(("127.0.0.1", server.port), timeout=5) as idle:
        assert idle.recv(1) == b""


def test_an_endless_header_is_refused(port):
    with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\n" + b"X: " + b"a" * 70000 + b"\r\n\r\n")
        assert connection.recv(64).startswith(b"HTTP/1.1 431")


def test_a_bug_in_an_answer_is_logged_and_ends_that_request_alone(caplog):
    def broken():
        raise KeyError("a bug")

    with serving(families=broken) as server:
        with pytest.raises((http.client.HTTPException, OSError)):
            ask(server.port)
        assert ask(server.port, "/healthz")[0] == 200
    [record] = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert record.exc_info is not None
    assert record.exc_info[0] is KeyError


def test_a_client_that_hangs_up_is_no_error(port, caplog):
    caplog.set_level(logging.INFO)
    for _ in range(5):
        connection = socket.create_connection(("127.0.0.1", port))
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        connection.sendall(b"GET /metrics HTTP/1.1\r\n")
        connection.close()
    assert ask(port, "/healthz")[0] == 200
    assert caplog.records == []


def test_it_says_no_more_of_itself_than_its_name(port):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    connection.request("GET", "/")
    headers = connection.getresponse().headers
    connection.close()
    assert headers["Server"].strip() == "accelerator-agent"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Content-Security-Policy"].startswith("default-src 'none'")


def _eventually(found, seconds=2.0):
    deadline = time.monotonic() + seconds
    while True:
        try:
            return found()
        except (http.client.HTTPException, OSError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)


# --- where it listens

LISTENS = [
    ("[::]:9478", ("::", 9478)),
    (":9478", ("::", 9478)),
    ("127.0.0.1:0", ("127.0.0.1", 0)),
    ("[::1]:65535", ("::1", 65535)),
    ("localhost:80", ("localhost", 80)),
]


@pytest.mark.parametrize(("text", "address"), LISTENS, ids=[text for text, _ in LISTENS])
def test_an_address_is_read(text, address):
    assert parse_listen(text) == address


@pytest.mark.parametrize(
    "text", ["9478", "", "127.0.0.1", "127.0.0.1:", "127.0.0.1:http", "[::]:65536", ":-1"]
)
def test_any_other_address_is_refused_with_an_example(text):
    with pytest.raises(SettingsError, match=r"must be written ADDRESS:PORT, such as \[::\]:9478"):
        parse_listen(text)


def test_one_port_answers_on_ipv4_and_ipv6():
    with serving("[::]:0") as server:
        assert ask(server.port, "/healthz", host="127.0.0.1")[0] == 200
        assert ask(server.port, "/healthz", host="::1")[0] == 200


def test_a_machine_without_ipv6_listens_on_ipv4(monkeypatch):
    real = socket.socket.__init__

    def without_ipv6(self, family=-1, *rest, **options):
        if family == socket.AF_INET6:
            raise OSError(97, "Address family not supported by protocol")
        real(self, family, *rest, **options)

    monkeypatch.setattr(socket.socket, "__init__", without_ipv6)
    with serving("[::]:0") as server:
        assert ask(server.port, "/healthz")[0] == 200


def test_a_port_in_use_is_told_and_is_no_bug():
    with serving() as server, pytest.raises(SettingsError, match=r"listen .*in use"):
        WebServer(f"127.0.0.1:{server.port}", answers())


def test_the_start_looks_up_no_name(monkeypatch):
    def refuse(*_):
        raise AssertionError("looked up")

    monkeypatch.setattr(socket, "getfqdn", refuse)
    monkeypatch.setattr(socket, "gethostbyaddr", refuse)
    with serving() as server:
        assert ask(server.port, "/healthz")[0] == 200


def test_a_thread_that_cannot_be_started_costs_no_slot(monkeypatch, caplog):
    monkeypatch.setattr(web, "MAX_CONNECTIONS", 2)
    real = threading.Thread.start
    refused = []

    def few(self):
        if "process_request_thread" in self.name and len(refused) < 5:
            refused.append(self)
            raise RuntimeError("can't start new thread")
        real(self)

    monkeypatch.setattr(threading.Thread, "start", few)
    with serving() as server:
        for _ in range(5):
            with pytest.raises((http.client.HTTPException, OSError)):
                ask(server.port, "/healthz")
        assert ask(server.port, "/healthz")[0] == 200
    assert len(caplog.records) == 5


def test_the_port_is_free_after_a_stop():
    with serving() as server:
        port = server.port
    with serving(f"127.0.0.1:{port}") as again:
        assert again.port == port


def test_families_of_a_failed_probe_are_served():
    families = node_families(
        NodeReport(facts=could_not_ask(), passes=1), monotonic=0.0, stale_after_seconds=300.0
    )
    found = read(families, openmetrics, OPENMETRICS)[0]
    assert found["accelerator_probe_success", (("probe", "nvidia"),)] == 0


def test_a_family_without_samples_is_still_announced():
    body, _ = exposition((Family(name="x", kind="gauge", help="Help."),))
    assert b"# TYPE x gauge" in body


# --- many scrapers


class Announced:
    """Numbers, each of which says that somebody took it."""

    def __init__(self, numbers):
        self.numbers, self.by_another = numbers, threading.Semaphore(0)

    def __next__(self):
        number = next(self.numbers)
        self.by_another.release()
        return number


def test_scrapers_who_ask_while_one_is_answered_share_the_next_exposition():
    begun, go_on = threading.Semaphore(0), threading.Event()
    values = iter(range(1, 10))

    def families():
        value = next(values)
        begun.release()
        assert go_on.wait(10)
        return (gauge("x", "h", [one(value)]),)

    expositions = web.Expositions(families)
    with ThreadPoolExecutor(6) as pool:
        first = pool.submit(expositions.render, "")
        assert begun.acquire(timeout=10)
        expositions._asked = Announced(expositions._asked)
        others = [pool.submit(expositions.render, "") for _ in range(5)]
        for _ in others:
            assert expositions._asked.by_another.acquire(timeout=10)
        go_on.set()
        told = [one.result(10)[0].split(b"x ")[-1] for one in (first, *others)]
    assert told == [b"1.0\n", *[b"2.0\n"] * 5]


def test_each_exposition_is_begun_after_it_was_asked_for():
    values = iter(range(1, 10))
    expositions = web.Expositions(lambda: (gauge("x", "h", [one(next(values))]),))
    told = [expositions.render("")[0].split(b"x ")[-1] for _ in range(3)]
    assert told == [b"1.0\n", b"2.0\n", b"3.0\n"]


def test_the_text_is_made_anew_only_where_a_value_is_another(monkeypatch):
    made = []
    monkeypatch.setattr(
        web, "exposition", lambda families, accept: made.append(accept) or exposition(families, accept)
    )
    values = iter([1, 1, 2, 2, float("nan"), float("nan")])
    expositions = web.Expositions(lambda: (gauge("x", "h", [one(next(values), id="a")]),))
    told = [expositions.render("")[0].split(b"} ")[-1] for _ in range(6)]
    assert told == [b"1.0\n", b"1.0\n", b"2.0\n", b"2.0\n", b"NaN\n", b"NaN\n"]
    assert len(made) == 4


def test_formats_are_kept_apart_and_never_more_than_a_few():
    expositions = web.Expositions(lambda: (gauge("x", "h", [one(1)]),))
    assert expositions.render(OPENMETRICS)[1] != expositions.render("")[1]
    for number in range(100):
        expositions.render(f"text/plain;q={number}")
    assert len(expositions._rendered) <= web.MAX_FORMATS


def test_a_second_answer_on_a_connection_comes_at_once():
    """In two pieces the second would wait 40 ms for the first to be acknowledged."""
    with serving() as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
        times = []
        for _ in range(5):
            began = time.monotonic()
            connection.request("GET", "/metrics")
            connection.getresponse().read()
            times.append(time.monotonic() - began)
        connection.close()
    assert min(times[1:]) < 0.03
