"""One scrape of a node with 56 partitions while twenty scrapers ask at once."""

import http.client
import select
import socket
import time
import timeit
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from random import Random

from agent.core.families import Family, merged
from agent.core.metrics import node_families
from agent.core.outcomes import NodeReport
from agent.edges.web import exposition
from bench import machine
from bench.figures import Figure, Result, limit
from bench.scene import agent, await_value, passes, scene
from fakes import nodes
from tests.hardware import inventory_of, scenario_facts

SCRAPERS = 20
ROUNDS = 100
SECONDS = 45.0
REQUEST = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"
P99_MILLISECONDS = 10.0
MACHINE = """
name: eight-cut
devices:
- board: h100-sxm
  count: 8
  mig: {enabled: true, instances: [{profile: 1g.10gb}, {profile: 1g.10gb}, {profile: 1g.10gb}, {profile: 1g.10gb},
    {profile: 1g.10gb}, {profile: 1g.10gb}, {profile: 1g.10gb}]}
"""


METHOD = (
    f"{SCRAPERS} kept connections, {SECONDS} s. Then all of them ask in the same moment, {ROUNDS} times, 0.2 s apart: they "
    "share an exposition, and wait for each other's request to be read, since one Python runs at a time."
)
BOUND = "What bounds it: one Python runs at a time. Values and their text are made anew only where something is another."


def measure() -> Result:
    with scene() as on:
        file = on.folder / "machine.yaml"
        file.write_text(MACHINE)
        with agent(on, "--fake", str(file), "--allow-simulated", "--probe-interval", "10m") as process:
            await_value(lambda: passes(process) >= 1, what="the first pass")
            time.sleep(1)
            port, pid = process.port or 0, process.process.pid or 0
            body = process.get("/metrics")[1]
            alone = _alone(port)
            before = machine.cpu_seconds(pid)
            spread = _spread(port)
            cpu = machine.cpu_seconds(pid) - before
            plain = sorted(_spread(port, "/healthz"))
            together = _together(port)
            floor = 1000 * min(_alone(port, "/healthz"))
        parts = _parts(file)
    spread.sort()
    together.sort()
    return Result(
        row="scrape",
        title="the metrics of eight GPUs and 56 partitions",
        figures=(
            limit(
                f"p99 of {len(spread)} scrapes, {SCRAPERS} scrapers, each once a second in its own time",
                1000 * spread[int(0.99 * len(spread))],
                P99_MILLISECONDS,
                "ms",
                floor=f"one round trip {floor:.2f} ms, {len(body) / 1024:.0f} KiB of text",
                digits=1,
            ),
            Figure(what="median of these", figure=f"{1000 * spread[len(spread) // 2]:.1f} ms"),
            Figure(
                what="the same of `/healthz`, which makes nothing: median and p99",
                figure=f"{1000 * plain[len(plain) // 2]:.1f} ms, {1000 * plain[int(0.99 * len(plain))]:.1f} ms",
            ),
            Figure(what="processor a scrape", figure=f"{1000 * cpu / len(spread):.2f} ms"),
            Figure(
                what=f"all {SCRAPERS} in the very same moment, median and p99 of {len(together)}",
                figure=f"{1000 * together[len(together) // 2]:.1f} ms, {1000 * together[int(0.99 * len(together))]:.1f} ms",
            ),
            Figure(
                what="one scraper alone, least and median",
                figure=f"{1000 * min(alone):.1f} ms, {1000 * sorted(alone)[len(alone) // 2]:.1f} ms",
            ),
            *(Figure(what=f"part: {name}", figure=f"{ms:.2f} ms") for name, ms in parts.items()),
        ),
        notes=(METHOD, BOUND, f"Load of the machine when measured: {machine.load():.1f}."),
    )


def _parts(file: Path) -> dict[str, float]:
    """Return milliseconds of what an answer is made of: the values each time, their text where one has changed."""
    facts = scenario_facts(nodes.load(str(file)))
    report = NodeReport(
        facts=facts,
        inventory=inventory_of(facts),
        inventory_monotonic=0.0,
        inventory_wall=datetime.now(UTC),
        passes=1,
    )

    def take() -> tuple[Family, ...]:
        return merged(node_families(report, monotonic=1.0, stale_after_seconds=300.0))

    families = take()
    parts = {
        "take the values": take,
        "compare them": lambda: families == take(),
        "format them": lambda: exposition(families),
    }
    least = {name: 1000 * min(timeit.repeat(work, number=20, repeat=10)) / 20 for name, work in parts.items()}
    return least | {"compare them": least["compare them"] - least["take the values"]}


def _alone(port: int, path: str = "/metrics") -> list[float]:
    connection = http.client.HTTPConnection("127.0.0.1", port)
    return [_scrape(connection, path) for _ in range(100)]


def _together(port: int) -> list[float]:
    """Return how long each scrape took, of scrapers that all ask in the same moment; one thread plays them all."""
    scrapers = [socket.create_connection(("127.0.0.1", port)) for _ in range(SCRAPERS)]
    for scraper in scrapers:
        scraper.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    _round(scrapers)
    waited: list[float] = []
    for _ in range(ROUNDS):
        time.sleep(0.2)
        waited += _round(scrapers)
    for scraper in scrapers:
        scraper.close()
    return waited


def _spread(port: int, path: str = "/metrics") -> list[float]:
    """Return how long each scrape took, of scrapers that ask once a second, each at its own point of it."""
    random = Random(20)
    connections = [http.client.HTTPConnection("127.0.0.1", port) for _ in range(SCRAPERS)]
    for connection in connections:
        _scrape(connection)
    start = time.monotonic()
    turns = sorted(
        (second + phase, number)
        for number, phase in enumerate([random.random() for _ in connections])
        for second in range(int(SECONDS))
    )
    with ThreadPoolExecutor(SCRAPERS) as pool:
        waiting = []
        for due, number in turns:
            time.sleep(max(0.0, start + due - time.monotonic()))
            waiting.append(pool.submit(_scrape, connections[number], path))
        return [one.result() for one in waiting]


def _round(scrapers: list[socket.socket]) -> list[float]:
    """Ask with every scraper, then read whatever comes first; return how long each waited from its own question."""
    asked, poll, open_ones = {}, select.poll(), {}
    for scraper in scrapers:
        asked[scraper.fileno()] = time.perf_counter()
        scraper.sendall(REQUEST)
        open_ones[scraper.fileno()] = (scraper, bytearray())
        poll.register(scraper, select.POLLIN)
    waited = []
    while open_ones:
        for number, _ in poll.poll():
            scraper, got = open_ones[number]
            got += scraper.recv(1 << 18)
            if whole(got):
                waited.append(time.perf_counter() - asked[number])
                poll.unregister(number)
                del open_ones[number]
    return waited


def whole(got: bytearray) -> bool:
    """Tell whether an answer has come to its end."""
    head, end, body = bytes(got).partition(b"\r\n\r\n")
    length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
    return bool(end) and len(body) >= int(length)


def _scrape(connection: http.client.HTTPConnection, path: str = "/metrics") -> float:
    began = time.perf_counter()
    connection.request("GET", path)
    connection.getresponse().read()
    return time.perf_counter() - began
