"""What Prometheus would have scraped, minute by minute, as the input of promtool's rule tests.

The samples are the agent's and the controller's own metric families, made by a real pass on fake machines or from the
controller's report; only time and the scrape are played.
"""

from collections.abc import Callable, Iterable
from typing import Any

from agent.core.families import Family
from agent.core.fleet_metrics import fleet_families
from agent.core.fleet_report import InventoryReport
from agent.core.metrics import node_families
from probes.facts import NodeFacts
from tests.world import World

JOB = "accelerator-discovery-agent"
STALE_AFTER_SECONDS = 300.0

Series = dict[str, list[float | None]]
"""A series in the exposition's notation → its value at each minute, `None` where a scrape did not show it."""


def series_of(scrapes: Iterable[Iterable[Family] | None], *, instance: str, **labels: str) -> Series:
    """Return the series of one target; a scrape that is `None` was not answered."""
    found: Series = {}
    target = {"job": JOB, "instance": instance, **labels}
    for minute, families in enumerate(scrapes):
        samples = {_named("up", target): 0.0 if families is None else 1.0}
        for family in families or ():
            name = family.name + ("_total" if family.kind == "counter" else "")
            samples |= {_named(name, target | dict(one.labels)): one.value for one in family.samples}
        for name in samples.keys() - found.keys():
            found[name] = [None] * minute
        for name, values in found.items():
            values.append(samples.get(name))
    return found


def _named(name: str, labels: dict[str, str]) -> str:
    inner = ",".join(f'{key}="{value}"' for key, value in sorted(labels.items()))
    return f"{name}{{{inner}}}"


def values_text(values: list[float | None]) -> str:
    """Return values in promtool's notation; a series that a scrape no longer shows is marked stale, as Prometheus does."""
    words = []
    for before, value in zip([None, *values], values, strict=False):
        if value is None:
            words.append("_" if before is None else "stale")
        else:
            words.append(f"{value:.17g}")
    return " ".join(words)


def rule_test(series: Series, *, rules: str, minute: int, firing: dict[str, int]) -> dict[str, Any]:
    """Return a document for `promtool test rules`: exactly these alerts fire at a minute, each so many times."""
    expected = [
        {"labels": f'{{alertname="{name}"}}', "value": count} for name, count in sorted(firing.items())
    ]
    return {
        "rule_files": [rules],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [
                    {"series": name, "values": values_text(values)} for name, values in series.items()
                ],
                "promql_expr_test": [
                    {
                        "expr": 'sort(count by (alertname) (ALERTS{alertstate="firing"}))',
                        "eval_time": f"{minute}m",
                        "exp_samples": expected,
                    }
                ],
            }
        ],
    }


class NodeTimeline:
    """An agent on one Node of a cluster in memory, scraped once a minute after its pass."""

    def __init__(self, name: str = "gpu-1") -> None:
        self.world = World()
        self.world.new_agent(allow_simulated=True)
        self.scrapes: list[Iterable[Family] | None] = []
        self.name = name
        self.stuck_children = 0
        self.overruns = 0

    def minutes(self, count: int, found: Callable[[int], NodeFacts] | NodeFacts) -> "NodeTimeline":
        """Let minutes pass in which a probe finds this; a callable is given the cycle."""
        for _ in range(count):
            self.world.run(found)
            self._scrape()
        return self

    def silent(self, count: int) -> "NodeTimeline":
        """Let minutes pass in which the Pod does not answer."""
        for _ in range(count):
            self.world.clock.advance(60.0)
            self.scrapes.append(None)
        return self

    def restart(self) -> "NodeTimeline":
        """Start the process anew, and be scraped before its first pass ended."""
        self.world.new_agent(allow_simulated=True)
        self._scrape()
        self.world.clock.advance(60.0)
        return self

    def series(self) -> Series:
        return series_of(self.scrapes, instance=f"{self.name}:9478", node=self.name)

    def _scrape(self) -> None:
        self.scrapes.append(
            node_families(
                self.world.agent.report,
                monotonic=self.world.clock().monotonic,
                stale_after_seconds=STALE_AFTER_SECONDS,
                stuck_children=self.stuck_children,
                overruns=self.overruns,
            )
        )


def controllers(*replicas: list[InventoryReport | None]) -> Series:
    """Return the series of controllers' replicas, each with one report a minute; `None` is a scrape without an answer."""
    found: Series = {}
    for number, reports in enumerate(replicas):
        scrapes = [None if report is None else fleet_families(report) for report in reports]
        found |= series_of(scrapes, instance=f"inventory-{number}:9478", pod=f"inventory-{number}")
    return found
