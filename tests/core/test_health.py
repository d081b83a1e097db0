"""The state of a device: bad news at once, good news after three probes, and no more than four changes in ten minutes."""

from dataclasses import replace

import pytest

from agent.core.health import (
    STATES,
    USABLE_STATES,
    Assessment,
    Track,
    judged,
    reading_of,
    severity,
    with_xid,
    xid_states,
)
from probes.facts import Fabric, Health, Link, RowRemapping
from tests.hardware import ManualClock, failed, h100, pci, t4


def rows(**fields):
    told = {"corrected": 0, "uncorrectable": 4, "pending": False, "failed": False, **fields}
    return Health(row_remapping=RowRemapping(**told))


def links(active, total, **fields):
    return Link(nvlink_active=active, nvlink_total=total, **fields)


READINGS = [
    ("nothing is known", h100(), "ok", ()),
    ("FR-021 remap pending", h100(health=rows(pending=True)), "degraded", ("row-remap-pending",)),
    ("FR-021 remap failed", h100(health=rows(failed=True)), "failed", ("row-remap-failed",)),
    ("FR-021 remapped and settled", h100(health=rows()), "ok", ()),
    (
        "FR-021 pending and failed",
        h100(health=rows(pending=True, failed=True)),
        "failed",
        ("row-remap-failed", "row-remap-pending"),
    ),
    (
        "a page waits",
        h100(health=Health(retired_pages_pending=True)),
        "degraded",
        ("page-retirement-pending",),
    ),
    ("pages were retired", h100(health=Health(retired_pages=3, retired_pages_pending=False)), "ok", ()),
    (
        "the table of retired pages is full",
        h100(health=Health(retired_pages=64)),
        "failed",
        ("page-retirement-failed",),
    ),
    ("FR-022 a card without such figures", t4(health=Health()), "ok", ()),
    (
        "heat",
        h100(health=Health(clock_event_reasons=("hw-slowdown", "hw-thermal-slowdown"))),
        "degraded",
        ("hw-slowdown", "hw-thermal-slowdown"),
    ),
    ("idle, capped", h100(health=Health(clock_event_reasons=("gpu-idle", "sw-power-cap"))), "ok", ()),
    ("one link down", h100(link=links(17, 18)), "degraded", ("nvlink-down",)),
    ("all links up", h100(link=links(18, 18)), "ok", ()),
    ("no link in use", h100(link=links(0, 18)), "ok", ()),
    ("no link", h100(link=Link(pcie_width=16)), "ok", ()),
    ("FR-025 fabric starts", h100(fabric=Fabric(state="in-progress")), "failed", ("fabric-in-progress",)),
    ("FR-025 fabric off", h100(fabric=Fabric(state="not-started")), "failed", ("fabric-not-started",)),
    ("FR-025 fabric error", h100(fabric=Fabric(state="completed", status=999)), "failed", ("fabric-error",)),
    ("FR-025 fabric up", h100(fabric=Fabric(state="completed", status=0)), "ok", ()),
    (
        "FR-025 fabric narrowed",
        h100(fabric=Fabric(state="completed", status=0, health_mask=0b10_10_01_01)),
        "degraded",
        ("fabric-degraded-bandwidth", "fabric-route-recovery"),
    ),
    (
        "FR-025 fabric well",
        h100(fabric=Fabric(state="completed", status=0, health_mask=0b10_10_10_10)),
        "ok",
        (),
    ),
    ("FR-025 no fabric", h100(fabric=Fabric(state="not-supported")), "ok", ()),
    (
        "a reset is asked for",
        h100(health=Health(recovery_action="reset")),
        "needs-reset",
        ("recovery-reset",),
    ),
    (
        "a reboot is asked for",
        h100(health=Health(recovery_action="reboot")),
        "needs-reset",
        ("recovery-reboot",),
    ),
    (
        "draining is asked for",
        h100(health=Health(recovery_action="drain-p2p")),
        "degraded",
        ("recovery-drain-p2p",),
    ),
    ("nothing is asked for", h100(health=Health(recovery_action="none")), "ok", ()),
    ("FR-015 lost", failed(h100()), "lost", ("gpu-lost",)),
    ("FR-019 wants a reset", failed(h100(), "needs-reset"), "needs-reset", ("reset-required",)),
    ("FR-008 silent", failed(h100(), "no-answer"), "unreadable", ("no-answer",)),
    ("unreadable", failed(h100(), "unreadable"), "unreadable", ("unreadable",)),
    ("a fault beside other findings", failed(h100(health=rows(failed=True))), "lost", ("gpu-lost",)),
]


@pytest.mark.parametrize(
    ("accelerator", "state", "reasons"), [row[1:] for row in READINGS], ids=[row[0] for row in READINGS]
)
def test_one_reading_says_a_state_and_why(accelerator, state, reasons):
    assert reading_of(accelerator) == Assessment(state=state, reasons=reasons)


def test_states_are_ordered_and_two_of_them_are_usable():
    assert [severity(state) for state in STATES] == list(range(len(STATES)))
    assert [state for state in STATES if state in USABLE_STATES] == ["ok", "degraded"]


SICK = h100(health=rows(pending=True))
WELL = h100()


class Patient:
    """A device over probes a minute apart."""

    def __init__(self, first=WELL):
        self.clock = ManualClock()
        self.track = judged(first, None, self.clock())

    def probed(self, *accelerators, seconds=60.0):
        for accelerator in accelerators:
            self.clock.advance(seconds)
            self.track = judged(accelerator, self.track, self.clock())
        return self.track.assessment

    def xid(self, code):
        self.track = with_xid(self.track, code, self.clock())
        return self.track.assessment


def test_bad_news_holds_at_once():
    patient = Patient()
    assert patient.probed(SICK) == Assessment(
        state="degraded", reasons=("row-remap-pending",), since=patient.clock().wall
    )


def test_good_news_holds_after_three_probes():
    patient = Patient(failed(WELL))
    assert [patient.probed(WELL).state for _ in range(3)] == ["lost", "lost", "ok"]
    assert patient.track.assessment == Assessment(since=patient.clock().wall)


def test_one_bad_probe_starts_the_count_anew():
    patient = Patient(failed(WELL))
    states = [patient.probed(reading).state for reading in (WELL, WELL, failed(WELL), WELL, WELL, WELL)]
    assert states == ["lost"] * 5 + ["ok"]


def test_since_is_when_the_state_began():
    patient = Patient()
    began = patient.clock().wall
    assert patient.probed(WELL, WELL, WELL).since == began
    patient.probed(SICK)
    changed = patient.clock().wall
    assert patient.probed(SICK, SICK).since == changed


def test_reasons_follow_the_readings_while_the_state_holds():
    patient = Patient(SICK)
    hot = h100(health=Health(clock_event_reasons=("hw-slowdown",)))
    assert patient.probed(hot).reasons == ("hw-slowdown",)


def cycle(patient):
    """Fall ill and recover: two changes of state."""
    patient.probed(SICK, WELL, WELL, WELL, seconds=15.0)


def test_a_state_that_flaps_is_held_at_the_worse_one_and_says_so():
    patient = Patient()
    cycle(patient)
    cycle(patient)
    assert patient.track.assessment.state == "ok"
    cycle(patient)
    assert patient.track.assessment.state == "degraded"
    assert patient.track.assessment.reasons == ("flapping", "row-remap-pending")


def test_a_held_state_is_let_go_when_the_changes_are_old():
    patient = Patient()
    for _ in range(3):
        cycle(patient)
    assert patient.probed(WELL, seconds=300.0).state == "degraded"
    assert patient.probed(WELL, seconds=600.0).state == "ok"


def test_worse_news_is_never_held_back():
    patient = Patient()
    for _ in range(3):
        cycle(patient)
    assert patient.probed(failed(WELL)).state == "lost"


def test_a_narrower_bus_than_was_ever_seen_degrades():
    wide, narrow = (h100(link=Link(pcie_width=width)) for width in (16, 8))
    assert Patient(narrow).probed(narrow).state == "ok"
    assert Patient(wide).probed(narrow).reasons == ("pcie-narrow",)
    patient = Patient(narrow)
    patient.probed(wide)
    assert patient.probed(narrow).state == "degraded"


def test_the_widest_bus_is_remembered_over_probes_that_do_not_tell():
    patient = Patient(h100(link=Link(pcie_width=16)))
    patient.probed(WELL, failed(WELL))
    assert patient.track.widest_pcie == 16


XIDS = [
    (13, "ok"),
    (31, "ok"),
    (43, "ok"),
    (45, "ok"),
    (68, "ok"),
    (999999, "ok"),
    (79, "lost"),
    (48, "needs-reset"),
]


@pytest.mark.parametrize(("code", "state"), XIDS)
def test_an_xid_says_what_becomes_of_the_device(code, state):
    assert Patient().xid(code).state == state


def test_application_errors_never_make_a_device_bad():
    assert not {13, 31, 43, 45, 68} & xid_states().keys()
    assert set(xid_states().values()) <= set(STATES)


def test_an_xid_holds_at_once_and_until_three_good_probes():
    patient = Patient()
    assert patient.xid(79).reasons == ("xid-79",)
    assert [patient.probed(WELL).state for _ in range(3)] == ["lost", "lost", "ok"]


def test_an_xid_of_a_device_that_is_worse_adds_its_reason_only():
    patient = Patient(failed(WELL))
    before = patient.track.assessment
    assert patient.xid(48) == replace(before, reasons=("gpu-lost", "xid-48"))


def test_a_first_look_holds_whatever_it_is():
    clock = ManualClock()
    assert judged(failed(WELL), None, clock()) == Track(
        assessment=Assessment(state="lost", reasons=("gpu-lost",), since=clock().wall), slot=WELL.pci.address
    )


def test_in_another_slot_a_narrower_bus_is_no_fault():
    patient = Patient(h100(link=Link(pcie_width=16)))
    moved = h100(pci=pci(slot=5), link=Link(pcie_width=8))
    assert patient.probed(moved).state == "ok"


def test_what_was_known_before_the_process_decides_no_state_but_the_width():
    narrow = h100(link=Link(pcie_width=8))
    known = Track(assessment=Assessment(), widest_pcie=16, slot=WELL.pci.address, judged=False)
    clock = ManualClock()
    assert judged(narrow, known, clock()).assessment == Assessment(
        state="degraded", reasons=("pcie-narrow",), since=clock().wall
    )
