"""What the code publishes over all fake machines, to hold the documents to."""

import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest

from agent.core.families import Family, merged
from agent.core.fleet_metrics import fleet_families
from agent.core.fleet_report import InventoryReport
from agent.core.fold import ClassState
from agent.core.inventory import inventory_of
from agent.core.labels import labels_for
from agent.core.metrics import build_family, node_families
from agent.core.outcomes import NodeReport, Published, PublishTally
from agent.core.pools.metrics import PoolsReport, pool_families
from agent.core.pools.report import PoolReport
from agent.core.pools.views import OptIn, PoolView
from fakes import nodes
from probes.facts import NodeFacts
from probes.host_process import probe_once

# Those that by design never answer, or whose first probe is like another's.
_SILENT = {"no-answer", "device-hangs", "crash"}


def facts_of(name: str) -> NodeFacts:
    return probe_once((sys.executable, "-m", "fakes.child", name), simulated=True)


@pytest.fixture(scope="session")
def fleet_facts() -> list[NodeFacts]:
    """The facts of every fake machine that answers."""
    names = [name for name in nodes.names() if name not in _SILENT]
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(facts_of, names))


@pytest.fixture(scope="session")
def published_labels(fleet_facts: list[NodeFacts]) -> set[str]:
    """Every label key that any fake machine gets."""
    return {key for facts in fleet_facts if facts.asked for key in labels_for(inventory_of(facts))}


@pytest.fixture(scope="session")
def all_families(fleet_facts: list[NodeFacts]) -> list[Family]:
    """Every metric family of agent and controller, each with at least one sample."""
    moment = datetime(2026, 11, 30, tzinfo=UTC)
    families: list[Family] = []
    for facts in fleet_facts:
        report = NodeReport(
            facts=facts,
            inventory=inventory_of(facts) if facts.asked else None,
            inventory_monotonic=0.0,
            inventory_wall=moment,
            passes=1,
            published=(Published(target="labels", rivals={"accelerators.ome.io/class": "kubectl"}),),
            tallies={"labels": PublishTally(writes=1, failures={"Forbidden": 1}, last_success=moment)},
            xid_errors={("GPU-1", 79): 1},
        )
        families += node_families(report, monotonic=1.0, stale_after_seconds=300.0)
    fleet = InventoryReport(
        leading=True,
        complete=True,
        classes=(ClassState(name="nvidia-h100-80gb", content=None),),
        foreign=("nvidia-t4-16gb",),
        writes={"class": 1},
        failures={("class", "Forbidden"): 1},
        last_success=moment,
    )
    build = build_family(version="0", revision="0", python="3", nvml_binding="13")
    pools = PoolsReport(installed=True, leading=True, pools=(_a_pool(),), asked={"ok": 1})
    return list(merged((*families, *fleet_families(fleet), *pool_families(pools), build)))


def _a_pool() -> PoolReport:
    pool = PoolView(namespace="team", name="llama", selector={"app": "llama"}, ports=(8000,))
    return PoolReport(
        pool=pool,
        opt_in=OptIn(),
        endpoints=(),
        homogeneous=True,
        counts={("nvidia-h100-80gb", "vllm", "off"): 1},
        contradictions=0,
        odd=(),
        findings=(),
    )
