"""What is remembered of a node's devices: readings that failed once, and devices that went away."""

from dataclasses import replace
from datetime import timedelta

import pytest

from agent.core.conditions import conditions_of
from agent.core.inventory import history_after, inventory_of
from agent.core.past import GONE_FOR, Gone, gone_after, remembered
from agent.core.record import NodeIdentity, record_for
from agent.core.recorded import gone_of, history_of
from probes.facts import Driver, Fabric, FieldProblem, Health, Link
from tests.hardware import START, ManualClock, facts, h100, mig, on_the_bus, pci, t4


def unsure(accelerator, *fields, **without):
    """Return the device with readings that failed, and without the facts that they are for."""
    problems = tuple(FieldProblem(field=field, error="timeout") for field in fields)
    return replace(accelerator, problems=problems, **without)


READINGS = [
    ("its name", unsure(h100(), "product", product=None), h100()),
    ("its memory", unsure(h100(), "memory", memory_bytes=None), h100()),
    ("its capability", unsure(h100(), "compute_capability", compute_capability=None), h100()),
    ("its UUID", unsure(h100(), "id", id=None), h100()),
    (
        "its fabric",
        unsure(h100(), "fabric"),
        h100(fabric=Fabric(state="completed", status=0)),
    ),
    (
        "its links",
        unsure(h100(link=Link(pcie_width=16)), "nvlink"),
        h100(link=Link(pcie_width=16, nvlink_active=18, nvlink_total=18, nvlink_version=4)),
    ),
    (
        "whether ECC is on",
        unsure(h100(health=Health(retired_pages=0)), "ecc_enabled"),
        h100(health=Health(retired_pages=0, ecc_enabled=True)),
    ),
]


@pytest.mark.parametrize(("now", "before"), [row[1:] for row in READINGS], ids=[row[0] for row in READINGS])
def test_fr_048_a_reading_that_fails_once_leaves_the_fact_as_it_was(now, before):
    [device] = remembered(facts(now), facts(before)).accelerators
    assert replace(device, problems=()) == before
    assert device.problems == now.problems


def test_a_mode_that_cannot_be_read_for_once_leaves_the_partitions():
    cut = h100(mig=mig("1g.10gb", "2g.20gb"))
    [device] = remembered(facts(unsure(cut, "mig", mig=None)), facts(cut)).accelerators
    assert device.mig == cut.mig


SAME = Driver(name="nvidia", version="580.95.05", cuda_version="13.0")


@pytest.mark.parametrize(
    ("told", "known"),
    [
        pytest.param(
            Driver(name="nvidia", kernel_module_version="580.95.05"),
            replace(SAME, kernel_module_version="580.95.05"),
            id="nothing, and the module is the same",
        ),
        pytest.param(Driver(name="nvidia", version="580.95.05"), SAME, id="no version of CUDA"),
        pytest.param(
            Driver(name="nvidia", version="590.1"),
            Driver(name="nvidia", version="590.1"),
            id="another driver",
        ),
        pytest.param(Driver(name="nvidia"), Driver(name="nvidia"), id="nothing at all"),
    ],
)
def test_fr_061_versions_that_are_not_told_for_once_are_those_of_the_same_driver(told, known):
    before = facts(h100(), drivers=(SAME,))
    assert remembered(facts(h100(), drivers=(told,)), before).drivers == (known,)


OTHERS = [
    ("the board has no such figure any more", h100(memory_bytes=None), h100()),
    ("another card sits there", unsure(t4(id=None), "memory", memory_bytes=None), h100()),
    ("another of its kind sits there", unsure(h100(id="GPU-new"), "memory", memory_bytes=None), h100()),
    ("nothing was known", unsure(h100(), "memory", memory_bytes=None), h100(memory_bytes=None)),
]


@pytest.mark.parametrize(("now", "before"), [row[1:] for row in OTHERS], ids=[row[0] for row in OTHERS])
def test_nothing_is_filled_in_from_another_device_or_for_a_fact_that_is_absent(now, before):
    assert remembered(facts(now), facts(before)) == facts(now)


EIGHT = facts(*(h100(number) for number in range(8)))
SEVEN = facts(*(h100(number) for number in range(7)))
LAST = Gone(id="GPU-h100-7", since=START, product="NVIDIA H100 80GB HBM3", address="0000:17:00.0")


def test_fr_017_a_device_that_left_the_bus_is_missed():
    assert gone_after(SEVEN, EIGHT, (), START) == (LAST,)


def test_it_is_missed_over_further_probes_until_it_is_back():
    later = START + timedelta(hours=1)
    assert gone_after(SEVEN, SEVEN, (LAST,), later) == (LAST,)
    assert gone_after(EIGHT, SEVEN, (LAST,), later) == ()


NOT_MISSED = [
    ("the first probe", SEVEN, None, START),
    ("nothing changed", EIGHT, EIGHT, START),
    (
        "it is on the bus and has failed",
        replace(SEVEN, pci=on_the_bus(*EIGHT.accelerators)),
        EIGHT,
        START,
    ),
    ("nobody could look", replace(SEVEN, pci=None), EIGHT, START),
    (
        "another card replaced it elsewhere",
        facts(*SEVEN.accelerators, t4(9, pci=pci("1eb8", slot=9))),
        EIGHT,
        START,
    ),
]


@pytest.mark.parametrize(
    ("now", "before", "at"), [row[1:] for row in NOT_MISSED], ids=[row[0] for row in NOT_MISSED]
)
def test_a_device_is_not_missed_where(now, before, at):
    assert gone_after(now, before, (), at) == ()


def test_a_device_is_missed_for_a_week_at_most_and_not_when_its_place_is_taken():
    assert gone_after(SEVEN, SEVEN, (LAST,), START + GONE_FOR) == ()
    replaced = facts(*SEVEN.accelerators, t4(7))
    assert gone_after(replaced, SEVEN, (LAST,), START + timedelta(days=1)) == ()


def test_what_is_missed_stands_in_the_condition_and_over_restarts_in_the_record():
    inventory = inventory_of(SEVEN, gone=(LAST,))
    [complete] = [one for one in conditions_of(inventory) if one["type"] == "InventoryComplete"]
    assert (complete["status"], complete["reason"]) == ("False", "DeviceGone")
    assert "GPU-h100-7 at 0000:17:00.0" in complete["message"]
    record = record_for(inventory, NodeIdentity(name="gpu-1"), now=START, agent_version="0.1.0")
    assert gone_of(record) == (LAST,)


def test_the_widest_link_stands_in_the_record_where_it_runs_narrower():
    clock = ManualClock()
    wide, narrow = (facts(h100(link=Link(pcie_width=width, pcie_width_max=16))) for width in (16, 8))
    history = history_after(narrow, history_after(wide, {}, clock()), clock())
    record = record_for(
        inventory_of(narrow, history=history), NodeIdentity(name="gpu-1"), now=START, agent_version="0.1.0"
    )
    assert record["spec"]["devices"][0]["link"]["pcieWidthSeen"] == 16
    again = history_after(narrow, history_of(record), clock())
    assert again["GPU-h100-0"].assessment.reasons == ("pcie-narrow",)
