"""Devices in an order that no driver decides, remembered over failures, and counted by class."""

from dataclasses import replace

import pytest

from agent.core.inventory import (
    ClassCount,
    Options,
    class_counts,
    history_after,
    inventory_of,
)
from agent.core.past import device_key, remembered
from probes.facts import DeviceFault, FieldProblem, Mig
from tests.hardware import (
    ManualClock,
    could_not_ask,
    facts,
    failed,
    h100,
    inventory,
    mig,
    on_the_bus,
    pci,
    t4,
    unread,
)


def keys(facts_):
    return [device.key for device in inventory_of(facts_).devices]


KEYS = [
    ("its UUID", h100(), "GPU-h100-0"),
    ("its place on the bus", h100(id=None), "0000:10:00.0"),
    ("its index", h100(3, id=None, pci=None), "index-3"),
]


@pytest.mark.parametrize(("accelerator", "key"), [row[1:] for row in KEYS], ids=[row[0] for row in KEYS])
def test_a_device_is_known_by_what_is_most_its_own(accelerator, key):
    assert device_key(accelerator) == key


def test_two_devices_of_one_uuid_are_told_apart_by_their_places():
    twins = facts(h100(0, id="GPU-same"), h100(1, id="GPU-same"), h100(2))
    assert keys(twins) == ["0000:10:00.0", "0000:11:00.0", "GPU-h100-2"]
    history = history_after(twins, {}, ManualClock()())
    assert sorted(history) == keys(twins)


def test_fr_114_order_and_key_do_not_follow_the_index():
    one = facts(h100(0, id="GPU-a"), h100(1, id="GPU-b"))
    swapped = facts(h100(0, id="GPU-b"), h100(1, id="GPU-a"))
    assert keys(one) == keys(swapped) == ["GPU-a", "GPU-b"]


def test_a_display_adapter_is_left_out():
    assert keys(facts(h100(), t4(1, display_only=True))) == ["GPU-h100-0"]


def test_a_device_that_told_nothing_has_no_description():
    [device] = inventory(unread(0)).devices
    assert (device.description, device.assessment.state) == (None, "lost")
    assert inventory(unread(0)).described == ()


COUNTS = [
    ("equal devices", [h100(0), h100(1)], [("nvidia-h100-80gb", "nvidia.com/gpu", 2, 2)]),
    (
        "two models",
        [h100(0), t4(1)],
        [("nvidia-h100-80gb", "nvidia.com/gpu", 1, 1), ("nvidia-t4-16gb", "nvidia.com/gpu", 1, 1)],
    ),
    ("one lost", [h100(0), failed(h100(1))], [("nvidia-h100-80gb", "nvidia.com/gpu", 2, 1)]),
    (
        "one cut",
        [h100(0, mig=mig("1g.10gb", "1g.10gb")), h100(1)],
        [
            ("nvidia-h100-80gb", "nvidia.com/gpu", 1, 1),
            ("nvidia-h100-80gb-mig-1g.10gb", "nvidia.com/mig-1g.10gb", 2, 2),
        ],
    ),
    (
        "one cut and lost",
        [failed(h100(0, mig=mig("1g.10gb")))],
        [("nvidia-h100-80gb-mig-1g.10gb", "nvidia.com/mig-1g.10gb", 1, 0)],
    ),
    ("cut into nothing", [h100(0, mig=mig())], []),
    ("cut, and not readable", [h100(0, mig=Mig(enabled=True, pending_enabled=True, partitions=None))], []),
    ("a partition of unknown profile", [h100(0, mig=mig(None))], []),
    ("one that told nothing", [h100(0), unread(1)], [("nvidia-h100-80gb", "nvidia.com/gpu", 1, 1)]),
]


@pytest.mark.parametrize(("devices", "counts"), [row[1:] for row in COUNTS], ids=[row[0] for row in COUNTS])
def test_devices_are_counted_by_class(devices, counts):
    assert class_counts(inventory(*devices)) == tuple(
        ClassCount(name=name, resource=resource, total=total, usable=usable)
        for name, resource, total, usable in counts
    )


def test_options_decide_names_and_resources():
    options = Options(class_names=(("nvidia-h100-80gb", "big"),), mig_shared_resource=True)
    found = class_counts(inventory_of(facts(h100(0), h100(1, mig=mig("1g.10gb"))), options=options))
    assert [(count.name, count.resource) for count in found] == [
        ("big", "nvidia.com/gpu"),
        ("nvidia-h100-80gb-mig-1g.10gb", "nvidia.com/gpu"),
    ]


# --- memory over probes

PROBLEM = (FieldProblem(field="name", error="gpu-lost"),)


def test_fr_015_a_device_that_fails_at_its_handle_is_the_one_in_that_place():
    before = facts(h100(0), h100(1))
    after = facts(h100(0), unread(1, pci=pci("2330", slot=1), problems=PROBLEM))
    assert remembered(after, before).accelerators == (
        h100(0),
        h100(1, fault=DeviceFault(kind="lost"), problems=PROBLEM),
    )


def test_fr_015_a_device_without_a_place_is_the_one_of_its_index_while_the_others_stand_still():
    before = facts(h100(0), h100(1), h100(2))
    assert remembered(facts(h100(0), unread(1), h100(2)), before).accelerators[1] == failed(h100(1))
    moved = facts(h100(1, id="GPU-h100-2"), unread(0))
    assert remembered(moved, before) == moved


def test_another_card_in_the_same_place_is_another_device():
    after = facts(unread(0, pci=pci("1eb8")))
    assert remembered(after, facts(h100(0))) == after


def test_a_sound_device_is_taken_as_it_is():
    after = facts(h100(0, memory_bytes=None))
    assert remembered(after, facts(h100(0))) == after


def test_the_first_probe_has_nothing_to_remember():
    after = facts(unread(0))
    assert remembered(after, None) == after


def shrunk(**fields):
    """Two of three are shown; the bus shows all three."""
    told = {"verdict": "partial", "reason": "DeviceMissing", "pci": on_the_bus(h100(0), h100(1), h100(2))}
    return facts(h100(0), h100(1), **{**told, **fields})


ALL_THREE = facts(h100(0), h100(1), h100(2))
MISSING = replace(h100(2), fault=DeviceFault(kind="lost", error="not-found"))


def test_fr_017_a_device_that_the_driver_drops_stays_as_lost():
    assert remembered(shrunk(), ALL_THREE).accelerators == (h100(0), h100(1), MISSING)


def test_fr_017_it_stays_over_many_probes_and_comes_back_whole():
    past = ALL_THREE
    for _ in range(3):
        past = remembered(shrunk(), past)
    assert past.accelerators[2] == MISSING
    assert remembered(ALL_THREE, past) == ALL_THREE


GONE = [
    ("a complete probe finds two", facts(h100(0), h100(1))),
    ("it is not on the bus", shrunk(pci=on_the_bus(h100(0), h100(1)))),
    (
        "a guest was given it",
        shrunk(pci=(*on_the_bus(h100(0), h100(1)), *on_the_bus(h100(2), driver="vfio-pci"))),
    ),
    ("another card is in its place", shrunk(pci=(*on_the_bus(h100(0), h100(1)), *on_the_bus(t4(2))))),
    ("the bus cannot be read", shrunk(pci=None)),
]


@pytest.mark.parametrize("after", [row[1] for row in GONE], ids=[row[0] for row in GONE])
def test_fr_086_a_device_that_is_truly_gone_is_not_held(after):
    assert remembered(after, ALL_THREE).accelerators == (h100(0), h100(1))


def test_a_failed_device_without_a_place_is_not_counted_twice():
    after = shrunk()
    after = replace(after, accelerators=(h100(0, id="GPU-h100-1", pci=pci(slot=1)), unread(1)))
    assert len(remembered(after, ALL_THREE).accelerators) == 2


def test_history_forgets_a_device_only_after_a_complete_probe():
    clock = ManualClock()
    history = history_after(ALL_THREE, {}, clock())
    assert history_after(shrunk(), history, clock()).keys() == history.keys()
    assert history_after(facts(h100(0)), history, clock()).keys() == {"GPU-h100-0"}
    assert history_after(facts(), history, clock()) == {}


def test_history_takes_the_events_of_known_devices():
    clock = ManualClock()
    events = [("GPU-h100-0", 79), ("GPU-none", 79)]
    history = history_after(facts(h100(0)), {}, clock(), events)
    assert {key: track.assessment.state for key, track in history.items()} == {"GPU-h100-0": "lost"}


def test_a_probe_that_could_not_ask_has_no_devices():
    assert inventory_of(could_not_ask()).devices == ()
