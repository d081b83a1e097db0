"""The same hardware gives the same labels, whatever order it is enumerated in and whatever total its driver reports."""

from dataclasses import replace
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core.classes import content_of
from agent.core.inventory import device_key, inventory_of
from agent.core.label_text import is_label_key, is_label_value
from agent.core.labels import labels_for
from probes.facts import Accelerator, NodeFacts
from tests.hardware import (
    DOMAIN,
    MIB,
    board_names,
    board_scenario,
    facts,
    fake_facts,
    readable_nodes,
    scenario_facts,
)

# Measured totals in MiB by board: what drivers report for one and the same card, ECC on and off among them.
TOTALS = {
    "h100-sxm": (81559,),
    "h100-pcie": (81559,),
    "a100-80": (81251, 81920),
    "a100-40": (40536, 40960),
    "t4": (15360, 15109),
    "l4": (23034, 22491),
    "rtx-pro-6000-server": (97887, 97871),
    "rtx-pro-6000-ws": (97887, 97871),
    "v100-16": (16384, 16160),
    "v100-32": (32768, 32510),
}


@pytest.fixture(scope="module")
def boards() -> dict[str, tuple[Accelerator, ...]]:
    """Each board as the real probe reads it, twice: the second in a slot of its own."""
    return {name: _twice(*scenario_facts(board_scenario(name)).accelerators) for name in board_names()}


def _twice(first: Accelerator) -> tuple[Accelerator, Accelerator]:
    slot = first.pci and replace(first.pci, address="00ff:ff:00.0")
    return first, replace(first, index=1, id="GPU-second", pci=slot)


def without_measured(labels: dict[str, str]) -> dict[str, str]:
    """The labels but for the one that states the raw figure."""
    return {key: value for key, value in labels.items() if key != f"{DOMAIN}/memory-mib"}


def enumerated(facts_: NodeFacts, order: tuple[int, ...]) -> NodeFacts:
    """The same machine with its devices under other indices."""
    devices = tuple(replace(facts_.accelerators[old], index=new) for new, old in enumerate(order))
    return replace(facts_, accelerators=devices)


@pytest.mark.parametrize("name", board_names())
def test_two_equal_boards_give_one_class_and_labels_that_kubernetes_takes(boards, name):
    devices = boards[name]
    labels = labels_for(inventory_of(facts(*devices)))
    if any(device.display_only for device in devices):
        assert labels == {}
        return
    assert all(is_label_key(key) and is_label_value(value) for key, value in labels.items())
    content = content_of(devices[0])
    assert content is not None
    assert labels[f"class.{DOMAIN}/{content.name}"] == "true"
    assert labels[f"count.{DOMAIN}/{content.name}"] == "2"


@pytest.mark.parametrize("name", board_names())
def test_fr_032_each_total_that_a_driver_reports_gives_the_same_labels_and_class(boards, name):
    devices = boards[name]
    machines = [devices] + [
        tuple(replace(device, memory_bytes=total * MIB) for device in devices)
        for total in TOTALS.get(name, ())
    ]
    found = [without_measured(labels_for(inventory_of(facts(*machine)))) for machine in machines]
    specs = [content.spec for machine in machines if (content := content_of(machine[0]))]
    assert all(labels == found[0] for labels in found)
    assert all(spec == specs[0] for spec in specs)


@given(st.data())
def test_fr_077_any_order_of_any_boards_gives_the_same_labels(boards, data):
    names = data.draw(st.lists(st.sampled_from(board_names()), min_size=1, max_size=5))
    devices = [replace(boards[name][0], id=f"GPU-{slot}", index=slot) for slot, name in enumerate(names)]
    order = data.draw(st.permutations(devices))
    shuffled = [replace(device, index=index) for index, device in enumerate(order)]
    assert labels_for(inventory_of(facts(*shuffled))) == labels_for(inventory_of(facts(*devices)))


@given(st.data())
def test_any_boards_with_any_totals_that_drivers_report_keep_their_class(boards, data):
    name = data.draw(st.sampled_from(sorted(TOTALS)))
    total = data.draw(st.sampled_from(TOTALS[name]))
    device = replace(boards[name][0], memory_bytes=total * MIB)
    assert without_measured(labels_for(inventory_of(facts(device)))) == without_measured(
        labels_for(inventory_of(facts(boards[name][0])))
    )


@pytest.mark.parametrize("name", readable_nodes())
def test_every_fake_machine_gives_labels_that_kubernetes_takes_in_any_order(name):
    facts_ = fake_facts(name)
    count = len(facts_.accelerators)
    orders = list(permutations(range(count))) if count <= 4 else [tuple(reversed(range(count)))]
    expected = labels_for(inventory_of(facts_))
    assert all(is_label_key(key) and is_label_value(value) for key, value in expected.items())
    for order in orders:
        shuffled = enumerated(facts_, order)
        keys = [device_key(device) for device in shuffled.accelerators]
        if any(key.startswith("index-") for key in keys):
            continue  # a device with neither UUID nor address is known by its index alone
        assert labels_for(inventory_of(shuffled)) == expected
