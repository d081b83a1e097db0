"""The commands that look at a whole cluster once: `classes --from-cluster`, `inventory --once`, `prune`."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, TextIO

from agent.class_settings import class_options
from agent.class_writer import Difference
from agent.cluster import Cluster
from agent.commands.dumping import dump
from agent.core.class_plan import Override
from agent.core.text_table import text_table
from agent.inventory_reading import (
    OncePlan,
    class_states,
    difference_lines,
    fleet_rows,
    plan_once,
    read_cluster,
)
from agent.prune_pass import Pruned, prune_classes, prune_nodes
from agent.settings import Settings

_FLEET = (
    "class",
    "nodes",
    "total",
    "usable",
    "available",
    "memory",
    "capability",
    "precisions",
    "conditions",
)


def print_fleet(cluster: Cluster, settings: Settings, *, output: str, width: int, stdout: TextIO) -> int:
    """Print the fleet, one class a row."""
    reading = read_cluster(cluster, domain=settings.label_domain)
    stale_after = timedelta(seconds=settings.record_stale_after)
    states = class_states(reading, now=datetime.now(UTC), stale_after=stale_after)
    rows = fleet_rows(states, reading.classes, class_options(settings))
    if output == "table":
        cells = [["?" if cell is None else str(cell) for cell in row] for row in rows]
        text = text_table(_FLEET, cells, width=width) if rows else "No class: no node has an accelerator."
    else:
        text = dump([dict(zip(_FLEET, row, strict=True)) for row in rows], output)
    print(text, file=stdout)
    return 0


def print_inventory(cluster: Cluster, settings: Settings, *, output: str, stdout: TextIO) -> int:
    """Print what the controller would write and how the cluster differs; 1 when it does."""
    plan = plan_once(
        cluster,
        class_options(settings),
        now=datetime.now(UTC),
        stale_after=timedelta(seconds=settings.record_stale_after),
    )
    if output == "table":
        print("\n\n".join(_once_lines(plan)), file=stdout)
    else:
        changes = [_change(difference, plan.live.get(difference.name)) for difference in plan.differences]
        overridden = {
            name: [_override_line(override) for override in overrides]
            for name, overrides in plan.overridden.items()
        }
        report = {"differences": changes, "overridden": overridden, "leftAlone": list(plan.foreign)}
        print(dump(report, output), file=stdout)
    return 1 if plan.differences else 0


def run_prune(
    cluster: Cluster, settings: Settings, *, classes: bool, dry_run: bool, output: str, stdout: TextIO
) -> int:
    """Remove what is ours; 1 when a class was kept because somebody names it."""
    domains = (settings.label_domain, *settings.former_domains)
    pruned = prune_nodes(cluster, domains=domains, dry_run=dry_run)
    of_classes = prune_classes(cluster, class_options(settings), dry_run=dry_run) if classes else Pruned()
    if output == "table":
        print("\n".join(_prune_lines(pruned, of_classes, dry_run=dry_run)), file=stdout)
    else:
        report = {
            "dryRun": dry_run,
            "labels": {node: list(keys) for node, keys in pruned.labels.items()},
            "records": list(pruned.records),
            "classes": list(of_classes.classes),
            "kept": {name: list(users) for name, users in of_classes.kept.items()},
        }
        print(dump(report, output), file=stdout)
    return 1 if of_classes.kept else 0


def _once_lines(plan: OncePlan) -> list[str]:
    blocks = []
    for difference in plan.differences:
        held = plan.live.get(difference.name)
        lines = difference_lines(difference, held)
        what = "would be made" if held is None else "would change"
        blocks.append("\n".join([f"{difference.name} {what}:", *(f"  {line}" for line in lines)]))
    for name, overrides in plan.overridden.items():
        kept = (f"  {_override_line(override)}" for override in overrides)
        blocks.append("\n".join([f"{name} keeps what others decided:", *kept]))
    blocks += [f"{name} is somebody else's and is left alone" for name in plan.foreign]
    return blocks or ["No difference."]


def _override_line(override: Override) -> str:
    by = f" by {override.manager}" if override.manager else ""
    return f"{override.field}: {override.theirs}{by}; ours would be {override.ours}"


def _change(difference: Difference, live: Mapping[str, Any] | None) -> dict[str, Any]:
    return {
        "name": difference.name,
        "exists": live is not None,
        "apply": difference.spec,
        "status": difference.status,
        "changes": list(difference_lines(difference, dict(live) if live is not None else None)),
    }


def _prune_lines(pruned: Pruned, classes: Pruned, *, dry_run: bool) -> list[str]:
    verb = "would remove" if dry_run else "removed"
    lines = [f"{verb} {len(keys)} labels of {node}" for node, keys in pruned.labels.items()]
    lines += [f"{verb} the record {name}" for name in pruned.records]
    lines += [f"{verb} the class {name}" for name in classes.classes]
    lines += [f"kept the class {name}: named by {', '.join(users)}" for name, users in classes.kept.items()]
    if (pruned.labels or pruned.records) and not dry_run:
        lines.append(
            "An agent that still runs writes its labels again: stop the DaemonSet first, then prune."
        )
    return lines or ["There was nothing of ours."]
