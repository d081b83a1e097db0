"""What an agent asks of the API server in its steady state, as the server's audit log has it."""

import time
from collections import Counter

from bench.figures import Figure, Result, limit
from bench.scene import NODE, Scene, agent, await_value, passes, scene
from tests.cluster.objects import AGENT_ACCOUNT

SECONDS = 60.0
READS_A_PASS = 2
WATCHED_VERBS = ("list", "watch")


def measure() -> Result:
    with scene() as on:
        counted, made = _counted(on)
        sizes = {
            "Node": _bytes(on, f"/api/v1/nodes/{NODE}"),
            "record": _bytes(on, f"/apis/accelerators.ome.io/v1alpha1/acceleratornodes/{NODE}"),
        }
    reads = counted["get"] / made
    writes = sum(number for verb, number in counted.items() if verb not in {"get", *WATCHED_VERBS})
    others = sum(counted[verb] for verb in WATCHED_VERBS)
    return Result(
        row="calls",
        title="requests of one agent in its steady state",
        figures=(
            limit(
                "reads a pass, one pass a minute",
                reads,
                READS_A_PASS,
                "requests",
                floor="one GET of the Node, one of the record",
            ),
            limit(f"writes in {made} passes without a heartbeat due", writes, 0, "requests", digits=0),
            limit("lists and watches", others, 0, "requests", digits=0),
            Figure(
                what="what a pass reads",
                figure=", ".join(f"{name} {size} bytes" for name, size in sizes.items()),
            ),
        ),
        notes=(
            f"The real agent at one pass a second for {SECONDS:.0f} s; counted by the server's audit log.",
        ),
    )


def _counted(on: Scene) -> tuple[Counter[str], int]:
    with agent(on, "--probe-interval", "1s") as process:
        await_value(lambda: passes(process) >= 5, what="the first passes")
        mark, first = on.plane.audit.mark(), passes(process)
        time.sleep(SECONDS)
        made = passes(process) - first
        requests = on.plane.audit.since(mark, user=AGENT_ACCOUNT)
    return Counter(request.verb for request in requests), made


def _bytes(on: Scene, path: str) -> int:
    answer = on.plane.admin.request("GET", path)
    import json  # noqa: PLC0415  # only here

    return len(json.dumps(answer.body, separators=(",", ":")).encode())
