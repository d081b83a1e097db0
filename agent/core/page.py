"""The small page that an agent shows a person who opens its port."""

from collections.abc import Iterable, Mapping
from html import escape

from agent.core.catalogue import MIB
from agent.core.devices import capability_text
from agent.core.fleet_report import InventoryReport
from agent.core.fold import ClassState
from agent.core.health import severity
from agent.core.inventory import Device, class_counts
from agent.core.outcomes import NodeReport

_STYLE = """
:root{color-scheme:light dark;--line:#8884;--ok:#18794e;--warn:#ad5700;--bad:#c62a2f}
@media (prefers-color-scheme:dark){:root{--ok:#4cc38a;--warn:#f1a10d;--bad:#ff9592}}
body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:72rem;padding:0 1rem}
h1{font-size:1.4rem;margin:0}h2{font-size:1.05rem;margin:2rem 0 .5rem}p{margin:.2rem 0}
.scroll{overflow-x:auto}table{border-collapse:collapse;width:100%}
th,td{text-align:left;padding:.35rem .8rem .35rem 0;border-bottom:1px solid var(--line);white-space:nowrap}
th{font-weight:600;font-size:.85rem}code{font:13px/1.4 ui-monospace,monospace}
.ok{color:var(--ok)}.warn{color:var(--warn)}.bad{color:var(--bad)}
"""

_LINKS = (
    '<p style="margin-top:2rem"><a href="/metrics">metrics</a> · <a href="/healthz">healthz</a> · '
    '<a href="/readyz">readyz</a></p>'
)


def node_page(
    report: NodeReport, *, node_name: str, version: str, labels: Mapping[str, str], age: float | None
) -> str:
    """Return the page as HTML; `age` is that of the last good probe in seconds."""
    facts = report.facts
    simulated = " · simulated hardware" if facts and facts.simulated else ""
    verdict = f"{facts.verdict}: {facts.message}" if facts else "the first probe has not ended yet"
    tone = (
        "ok"
        if facts and facts.verdict in {"complete", "none"}
        else "warn"
        if facts and facts.asked
        else "bad"
    )
    aged = "no probe has succeeded yet" if age is None else f"last good probe {age:.0f} s ago"
    body = [
        f"<h1>{escape(node_name)}</h1>",
        f"<p>accelerator-agent {escape(version)}{escape(simulated)} · {escape(aged)}</p>",
        f'<p class="{tone}">{escape(verdict)}</p>',
        *_devices(report),
        *_classes(report),
        *_publishing(report),
        *_labels(labels),
        _LINKS,
    ]
    return _document(node_name, body)


def fleet_page(report: InventoryReport, *, identity: str, version: str) -> str:
    """Return the controller's page as HTML."""
    role = "leads" if report.leading else "stands by"
    tone = "ok" if report.complete and not report.problems else "warn"
    said = "; ".join(report.problems) or (
        "nothing hinders the controller" if report.complete else "still listening for the first time"
    )
    records = f"{report.records} records, {report.stale_records} stale"
    body = [
        "<h1>Accelerator classes</h1>",
        f"<p>accelerator-inventory {escape(version)} · {escape(identity)} {role} · {records}</p>",
        f'<p class="{tone}">{escape(said)}</p>',
        *_fleet(report),
        _LINKS,
    ]
    return _document("Accelerator classes", body)


def _fleet(report: InventoryReport) -> list[str]:
    rows = (
        (
            escape(state.name),
            str(len(state.nodes)),
            str(state.total),
            str(state.usable),
            "not known" if state.available is None else str(state.available),
            _troubles(state),
        )
        for state in report.classes
    )
    headers = ("Class", "Nodes", "Total", "Usable", "Available", "Trouble")
    return ["<h2>Classes</h2>", _table(headers, rows)] if report.classes else []


def _troubles(state: ClassState) -> str:
    """Return what a person should look at, in few words."""
    counts = {
        "with unusable devices": len(state.unusable),
        "not ready": len(state.not_ready),
        "cordoned": len(state.cordoned),
        "stale": len(state.stale),
        "without the resource": len(state.unknown),
    }
    found = [f"{count} node{'s' * (count != 1)} {what}" for what, count in counts.items() if count]
    found += [f"nodes disagree on {disagreement.field}" for disagreement in state.disagreements]
    if not state.nodes:
        found.append("no node has it any more")
    return f'<span class="bad">{escape("; ".join(found))}</span>' if found else "–"


def _document(title: str, body: Iterable[str]) -> str:
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)} · accelerators</title><style>{_STYLE}</style></head>"
        f"<body>{''.join(body)}</body></html>"
    )


def _devices(report: NodeReport) -> list[str]:
    if report.inventory is None or not report.inventory.devices:
        return []
    headers = ("Index", "Product", "Class", "Memory", "Capability", "State", "Id")
    return [
        "<h2>Devices</h2>",
        _table(headers, (_device(device) for device in _by_index(report.inventory.devices))),
    ]


def _by_index(devices: Iterable[Device]) -> list[Device]:
    """Return the devices in the order in which `nvidia-smi` lists them."""
    return sorted(devices, key=lambda device: device.facts.index)


def _device(device: Device) -> tuple[str, ...]:
    facts, description = device.facts, device.description
    capability = description.compute_capability if description else None
    memory = "unified" if facts.unified_memory else f"{(facts.memory_bytes or 0) // MIB} MiB"
    tone = (
        "ok"
        if device.assessment.state == "ok"
        else "warn"
        if severity(device.assessment.state) == 1
        else "bad"
    )
    words = ", ".join((device.assessment.state, *device.assessment.reasons))
    return (
        str(facts.index),
        escape(facts.product or "not known"),
        escape(description.class_name if description else "not known"),
        "not known" if facts.memory_bytes is None and not facts.unified_memory else memory,
        capability_text(capability) if capability else "–",
        f'<span class="{tone}">{escape(words)}</span>',
        f"<code>{escape(device.key)}</code>",
    )


def _classes(report: NodeReport) -> list[str]:
    if report.inventory is None or not report.inventory.devices:
        return []
    rows = (
        (escape(count.name), f"<code>{escape(count.resource)}</code>", str(count.total), str(count.usable))
        for count in class_counts(report.inventory)
    )
    return ["<h2>Classes</h2>", _table(("Class", "Resource", "Total", "Usable"), rows)]


def _publishing(report: NodeReport) -> list[str]:
    if not report.published:
        return []
    rows = (
        (
            escape(published.target),
            f'<span class="{"bad" if published.failed else "ok"}">{escape(published.reason)}</span>',
            escape(published.message or "–"),
        )
        for published in report.published
    )
    return ["<h2>Published</h2>", _table(("What", "Outcome", "Why"), rows)]


def _labels(labels: Mapping[str, str]) -> list[str]:
    if not labels:
        return []
    rows = ((f"<code>{escape(key)}</code>", f"<code>{escape(value)}</code>") for key, value in labels.items())
    return ["<h2>Labels</h2>", _table(("Key", "Value"), rows)]


def _table(headers: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = "".join(f"<th>{header}</th>" for header in headers)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
