"""Readings and history → the state of each device.

Pure: the history goes in and comes out, and so does the time. Bad news counts at once; good news after three probes.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from importlib.resources import files
from typing import Literal

from probes.facts import Accelerator, DeviceFault, Fabric, Health, Link

State = Literal["ok", "degraded", "needs-reset", "failed", "unreadable", "lost"]

STATES: tuple[State, ...] = ("ok", "degraded", "needs-reset", "failed", "unreadable", "lost")
"""From the best to the worst."""

USABLE_STATES: frozenset[State] = frozenset({"ok", "degraded"})

GOOD_PROBES_TO_RECOVER = 3
MAX_CHANGES = 4
CHANGES_WINDOW_SECONDS = 600.0

MOST_RETIRED_PAGES = 64
"""Pages that a board without a row remapper can retire; a bad page beyond them stays in use."""

_FAULT_STATES: dict[str, State] = {
    "lost": "lost",
    "needs-reset": "needs-reset",
    "unreadable": "unreadable",
    "no-answer": "unreadable",
}
# Each of these is two bits of NVML's health mask: 0 not known, 1 yes, 2 no.
_TRUE = 1
_FABRIC_TROUBLES = (
    (0, "fabric-degraded-bandwidth"),
    (2, "fabric-route-recovery"),
    (4, "fabric-route-unhealthy"),
    (6, "fabric-access-timeout-recovery"),
)
# Clock event reasons that throttle a device below what it promises; power capping and idling are ordinary.
_THROTTLING_REASONS = ("hw-thermal-slowdown", "hw-power-brake", "hw-slowdown", "sw-thermal-slowdown")


@dataclass(frozen=True, slots=True, kw_only=True)
class Instant:
    """One moment by both clocks: durations are measured on the monotonic one, people are told the other."""

    wall: datetime
    monotonic: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Assessment:
    """The state of one device and why."""

    state: State = "ok"
    reasons: tuple[str, ...] = ()
    """Machine words, sorted; empty when all is well."""
    since: datetime | None = None
    """When the device came into this state, as far as this process saw it."""

    @property
    def usable(self) -> bool:
        """Tell whether a workload may be promised this device."""
        return self.state in USABLE_STATES


@dataclass(frozen=True, slots=True, kw_only=True)
class Track:
    """What the history keeps of one device."""

    assessment: Assessment
    good_probes: int = 0
    """Probes in a row that were better than the state that holds."""
    changes: tuple[float, ...] = ()
    """Monotonic times of the last changes of state."""
    widest_pcie: int | None = None
    """Most lanes that this device was ever seen to run in its slot."""
    slot: str | None = None
    """PCI address."""
    judged: bool = True
    """False where all that is known comes from before this process: then the first probe decides the state."""


History = Mapping[str, Track]
"""Device key → track."""


def severity(state: State) -> int:
    """Return how bad a state is, 0 for ok."""
    return STATES.index(state)


def reading_of(accelerator: Accelerator, track: Track | None = None) -> Assessment:
    """Return what one probe's readings say by themselves, without hysteresis."""
    if accelerator.fault is not None:
        return _fault_reading(accelerator.fault)
    found: list[tuple[State, str]] = [
        *_memory_findings(accelerator.health),
        *_link_findings(accelerator.link, track),
        *_fabric_findings(accelerator.fabric),
        *_action_findings(accelerator.health),
    ]
    state: State = max((state for state, _ in found), key=severity, default="ok")
    return Assessment(state=state, reasons=tuple(sorted({reason for _, reason in found})))


def judged(accelerator: Accelerator, track: Track | None, now: Instant) -> Track:
    """Return the track after one more probe.

    Worse readings hold at once. Better ones hold after three probes in a row, and not at all while the state has changed
    more than four times in ten minutes (reason `flapping`).
    """
    slot = accelerator.pci.address if accelerator.pci else None
    if track is not None and slot != track.slot and None not in {slot, track.slot}:
        # In another slot other widths are the rule.
        track = replace(track, widest_pcie=None)
    width = _widest(accelerator.link, track)
    reading = reading_of(accelerator, track)
    if track is None or not track.judged:
        return Track(assessment=replace(reading, since=now.wall), widest_pcie=width, slot=slot)
    held = track.assessment
    if _unchanged(track, reading, width, slot):
        return track
    track = replace(track, widest_pcie=width, slot=slot or track.slot)
    if reading.state == held.state:
        return replace(track, assessment=replace(reading, since=held.since), good_probes=0)
    if severity(reading.state) > severity(held.state):
        return _changed(track, reading, now)
    if track.good_probes + 1 < GOOD_PROBES_TO_RECOVER:
        return replace(track, good_probes=track.good_probes + 1)
    if len(_recent(track.changes, now)) >= MAX_CHANGES:
        flapping = tuple(sorted({*held.reasons, "flapping"}))
        return replace(track, assessment=replace(held, reasons=flapping))
    return _changed(track, reading, now)


def _unchanged(track: Track, reading: Assessment, width: int | None, slot: str | None) -> bool:
    """Tell whether a probe said just what the track does: so do nearly all, and each new track costs."""
    held = track.assessment
    same = reading.state == held.state and reading.reasons == held.reasons
    return same and not track.good_probes and width == track.widest_pcie and slot in {None, track.slot}


def with_xid(track: Track, code: int, now: Instant) -> Track:
    """Return the track after an Xid event: the state holds at once, and until three good probes have followed."""
    state = xid_states().get(code)
    held = track.assessment
    if state is None:
        return track
    reasons = tuple(sorted({*held.reasons, f"xid-{code}"}))
    if severity(state) <= severity(held.state):
        return replace(track, assessment=replace(held, reasons=reasons), good_probes=0)
    return _changed(track, Assessment(state=state, reasons=reasons), now)


@lru_cache(maxsize=1)
def xid_states() -> Mapping[int, State]:
    """Return the codes that say something about the device; application errors are not among them."""
    import tomllib  # noqa: PLC0415  # most machines never have an Xid

    document = tomllib.loads((files("agent.core.data") / "xid.toml").read_text(encoding="utf-8"))
    return {entry["code"]: entry["state"] for entry in document["xid"] if entry["state"]}


def _changed(track: Track, reading: Assessment, now: Instant) -> Track:
    return replace(
        track,
        assessment=replace(reading, since=now.wall),
        good_probes=0,
        changes=(*_recent(track.changes, now), now.monotonic),
    )


def _recent(changes: Iterable[float], now: Instant) -> tuple[float, ...]:
    return tuple(at for at in changes if now.monotonic - at <= CHANGES_WINDOW_SECONDS)


def _fault_reading(fault: DeviceFault) -> Assessment:
    reason = {"lost": "gpu-lost", "needs-reset": "reset-required"}.get(fault.kind, fault.kind)
    return Assessment(state=_FAULT_STATES[fault.kind], reasons=(reason,))


def _memory_findings(health: Health | None) -> Iterable[tuple[State, str]]:
    if health is None:
        return
    rows = health.row_remapping
    if rows is not None and rows.failed:
        yield "failed", "row-remap-failed"
    if rows is not None and rows.pending:
        yield "degraded", "row-remap-pending"
    if health.retired_pages_pending:
        yield "degraded", "page-retirement-pending"
    if (health.retired_pages or 0) >= MOST_RETIRED_PAGES:
        yield "failed", "page-retirement-failed"
    for reason in _THROTTLING_REASONS:
        if reason in (health.clock_event_reasons or ()):
            yield "degraded", reason


def _link_findings(link: Link | None, track: Track | None) -> Iterable[tuple[State, str]]:
    if link is None:
        return
    # All links down is a card without a bridge, or a machine that does not use them; some down is a fault.
    if link.nvlink_active and link.nvlink_total and link.nvlink_active < link.nvlink_total:
        yield "degraded", "nvlink-down"
    widest = track.widest_pcie if track else None
    if link.pcie_width and widest and link.pcie_width < widest:
        yield "degraded", "pcie-narrow"


def _fabric_findings(fabric: Fabric | None) -> Iterable[tuple[State, str]]:
    """Yield a fabric that is not up: the driver looks well, but no CUDA program can start."""
    if fabric is None or fabric.state == "not-supported":
        return
    if fabric.state != "completed":
        yield "failed", f"fabric-{fabric.state}"
    elif fabric.status:
        yield "failed", "fabric-error"
    for shift, reason in _FABRIC_TROUBLES:
        if fabric.health_mask is not None and fabric.health_mask >> shift & 0b11 == _TRUE:
            yield "degraded", reason


def _action_findings(health: Health | None) -> Iterable[tuple[State, str]]:
    action = health.recovery_action if health else None
    if action in {"reset", "reboot", "drain-and-reset"}:
        yield "needs-reset", f"recovery-{action}"
    elif action == "drain-p2p":
        yield "degraded", "recovery-drain-p2p"


def _widest(link: Link | None, track: Track | None) -> int | None:
    seen = [
        width for width in (link.pcie_width if link else None, track.widest_pcie if track else None) if width
    ]
    return max(seen, default=None)
