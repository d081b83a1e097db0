"""Metric families: from the last report, none for what is not known, and a trace of what is broken."""

from dataclasses import replace

import pytest

from agent.core.families import Family, Kept, Sample, gauge, one
from agent.core.health import STATES
from agent.core.inventory import history_after, inventory_of
from agent.core.metrics import build_family, node_families
from agent.core.outcomes import NodeReport, Published, PublishTally
from agent.core.past import remembered
from probes.facts import Health, RowRemapping
from tests.hardware import (
    DOMAIN,
    MIB,
    START,
    ManualClock,
    could_not_ask,
    facts,
    failed,
    fake_facts,
    h100,
    mig,
    on_the_bus,
    readable_nodes,
    t4,
    unread,
)

NOW = 1000.0


def report(facts_, **fields):
    told = {
        "facts": facts_,
        "inventory": inventory_of(facts_) if facts_.asked else None,
        "inventory_monotonic": NOW if facts_.asked else None,
        "inventory_wall": START if facts_.asked else None,
        "passes": 1,
    }
    return NodeReport(**{**told, **fields})


def families(report_, *, monotonic=NOW, **counts):
    found = node_families(report_, monotonic=monotonic, stale_after_seconds=300.0, **counts)
    return {family.name: family for family in found}


def series(report_, name, **options):
    """The samples of one family as {(label values by name): value}."""
    return {
        tuple(sorted(sample.labels.items())): sample.value
        for sample in families(report_, **options)[name].samples
    }


def values(report_, name, label, **options):
    """The samples of one family by one of their labels."""
    return {sample.labels[label]: sample.value for sample in families(report_, **options)[name].samples}


H100 = report(facts(h100()))


def test_what_a_device_is():
    [sample] = families(H100)["accelerator_device_info"].samples
    assert sample == Sample(
        value=1,
        labels={
            "id": "GPU-h100-0",
            "index": "0",
            "pci_address": "0000:10:00.0",
            "vendor": "nvidia",
            "product": "NVIDIA H100 80GB HBM3",
            "class": "nvidia-h100-80gb",
            "family": "hopper",
            "compute_capability": "9.0",
            "driver_version": "580.95.05",
            "uuid_weak": "false",
        },
    )


def test_fr_033_figures_are_in_base_units():
    assert values(H100, "accelerator_device_memory_bytes", "id") == {"GPU-h100-0": 85520809984}
    assert values(H100, "accelerator_device_memory_bandwidth_bytes_per_second", "id") == {
        "GPU-h100-0": 3350 * 10**9
    }
    peaks = series(H100, "accelerator_device_peak_ops_per_second")
    fp16 = ("id", "GPU-h100-0"), ("precision", "fp16"), ("source", "datasheet")
    assert peaks[fp16] == pytest.approx(989.4e12)


def test_fr_113_a_broken_device_keeps_a_state_and_the_sum_stays():
    broken = report(facts(h100(0), failed(h100(1)), unread(2), h100(3)))
    by_state = series(broken, "accelerator_node_devices")
    assert sum(by_state.values()) == 4
    assert by_state == {
        (("class", "nvidia-h100-80gb"), ("state", "lost")): 1,
        (("class", "nvidia-h100-80gb"), ("state", "ok")): 2,
        (("class", "unknown"), ("state", "lost")): 1,
    }
    states = series(broken, "accelerator_device_state")
    assert len(states) == 4 * len(STATES)
    assert states[("id", "GPU-h100-1"), ("state", "lost")] == 1
    assert states[("id", "GPU-h100-1"), ("state", "ok")] == 0
    assert values(broken, "accelerator_device_info", "id").keys() == {
        "GPU-h100-0",
        "GPU-h100-1",
        "GPU-h100-3",
        "index-2",
    }


def test_fr_113_a_device_that_the_driver_dropped_stays_as_lost():
    before = facts(h100(0), h100(1))
    after = remembered(facts(h100(0), verdict="partial", pci=before.pci), before)
    gone = report(after)
    assert series(gone, "accelerator_device_state")[("id", "GPU-h100-1"), ("state", "lost")] == 1
    assert sum(series(gone, "accelerator_node_devices").values()) == 2


def test_fr_107_a_device_that_is_gone_leaves_no_series():
    before, after = report(facts(h100(0), h100(1))), report(facts(h100(0)))
    gone = {
        family.name
        for family in node_families(after, monotonic=NOW, stale_after_seconds=300.0)
        for sample in family.samples
        if sample.labels.get("id") == "GPU-h100-1"
    }
    assert gone == set()
    assert "GPU-h100-1" in values(before, "accelerator_device_info", "id")


def test_fr_107_another_cut_leaves_no_series_of_the_old_one():
    def partitions(*profiles):
        return values(report(facts(h100(mig=mig(*profiles)))), "accelerator_node_partitions", "class")

    assert partitions("1g.10gb", "1g.10gb") == {"nvidia-h100-80gb-mig-1g.10gb": 2}
    assert partitions("2g.20gb") == {"nvidia-h100-80gb-mig-2g.20gb": 1}
    assert partitions() == {}


def test_fr_114_series_are_keyed_by_uuid_and_the_index_is_on_the_info_alone():
    one = report(facts(h100(0, id="GPU-a"), t4(1, id="GPU-b")))
    swapped = report(facts(t4(0, id="GPU-b"), h100(1, id="GPU-a")))
    differ = {
        name
        for name, family in families(one).items()
        if set(map(str, family.samples)) != set(map(str, families(swapped)[name].samples))
    }
    assert differ == {"accelerator_device_info"}


FR_022 = (
    "accelerator_device_rows_remapped",
    "accelerator_device_row_remap_pending",
    "accelerator_device_ecc_uncorrected_errors",
)


@pytest.mark.parametrize("name", FR_022)
def test_fr_022_a_card_without_the_figure_has_no_series(name):
    health = Health(
        ecc_uncorrected_errors=0,
        row_remapping=RowRemapping(corrected=1, uncorrectable=2, pending=False, failed=False),
    )
    both = report(facts(h100(0, health=health), t4(1, health=Health()), t4(2)))
    assert values(both, name, "id").keys() == {"GPU-h100-0"}


def test_fr_021_remapped_rows_are_counted_together():
    rows = RowRemapping(corrected=1, uncorrectable=2, pending=True, failed=False)
    sick = report(facts(h100(health=Health(row_remapping=rows))))
    assert values(sick, "accelerator_device_rows_remapped", "id") == {"GPU-h100-0": 3}
    assert values(sick, "accelerator_device_row_remap_pending", "id") == {"GPU-h100-0": 1}


def test_fr_029_memory_that_is_not_known_has_no_series():
    assert series(report(fake_facts("orin")), "accelerator_device_memory_bytes") == {}
    assert series(report(fake_facts("gb10")), "accelerator_device_memory_bytes") == {}


def test_fr_017_the_bus_is_counted_beside_the_driver():
    seven = facts(*(h100(n) for n in range(7)), pci=on_the_bus(*(h100(n) for n in range(8))))
    assert series(report(seven), "accelerator_pci_devices") == {(("driver", "nvidia"), ("vendor", "10de")): 8}
    assert len(series(report(seven), "accelerator_device_info")) == 7


def test_a_function_without_a_driver_is_counted_as_such():
    found = report(facts(pci=on_the_bus(h100(), driver="")))
    assert series(found, "accelerator_pci_devices") == {(("driver", "none"), ("vendor", "10de")): 1}


# --- freshness

DEVICE_FAMILIES = ("accelerator_device_info", "accelerator_device_state", "accelerator_node_devices")


def test_fr_109_old_numbers_are_withdrawn_and_the_time_of_the_last_good_ones_stays():
    stale = replace(H100, facts=could_not_ask())
    for age, shown in ((0.0, True), (300.0, True), (300.1, False), (3600.0, False)):
        found = families(stale, monotonic=NOW + age)
        assert [bool(found[name].samples) for name in DEVICE_FAMILIES] == [shown] * 3
        assert values(stale, "accelerator_probe_success", "probe", monotonic=NOW + age) == {"nvidia": 0}
        assert values(
            stale, "accelerator_probe_last_success_timestamp_seconds", "probe", monotonic=NOW + age
        ) == {"nvidia": START.timestamp()}


def test_fr_109_a_pass_that_hangs_makes_a_good_probe_stale_too():
    assert values(H100, "accelerator_probe_success", "probe") == {"nvidia": 1}
    assert values(H100, "accelerator_probe_success", "probe", monotonic=NOW + 301.0) == {"nvidia": 0}


def test_before_the_first_probe_nothing_is_claimed():
    first = families(NodeReport())
    assert first["accelerator_probe_success"].samples == ()
    assert first["accelerator_device_info"].samples == ()
    assert [sample.value for sample in first["accelerator_simulated"].samples] == [0]


@pytest.mark.parametrize(
    ("facts_", "success"),
    [(facts(), 1), (could_not_ask(), 0), (could_not_ask("no-driver", "DriverNotLoaded"), 0)],
    ids=["asked, none", "no answer", "no driver"],
)
def test_fr_004_asked_and_none_is_a_success_and_not_asked_is_none(facts_, success):
    assert values(report(facts_), "accelerator_probe_success", "probe") == {"nvidia": success}
    assert values(report(facts_), "accelerator_probe_verdict", "reason") == {facts_.reason: 1}


def test_fr_137_fake_hardware_is_told():
    [sample] = families(report(facts(h100(), simulated=True)))["accelerator_simulated"].samples
    assert sample == Sample(value=1)


def test_the_host_and_the_timer_are_counted():
    found = families(H100, stuck_children=2, overruns=3)
    assert [sample.value for sample in found["accelerator_probe_stuck_children"].samples] == [2]
    assert [sample.value for sample in found["accelerator_probe_overruns"].samples] == [3]


def test_what_was_published_is_counted_by_target_and_reason():
    tallies = {
        "labels": PublishTally(writes=2, failures={"Forbidden": 3}, last_success=START),
        "record": PublishTally(writes=1),
    }
    rival = Published(target="labels", rivals={f"{DOMAIN}/a": "gfd", f"{DOMAIN}/b": "gfd"})
    found = replace(H100, tallies=tallies, published=(rival,))
    assert values(found, "accelerator_publish_writes", "target") == {"labels": 2, "record": 1}
    assert series(found, "accelerator_publish_failures") == {
        (("reason", "Forbidden"), ("target", "labels")): 3
    }
    assert values(found, "accelerator_publish_last_success_timestamp_seconds", "target") == {
        "labels": START.timestamp()
    }
    assert values(found, "accelerator_publish_rival_keys", "manager") == {"gfd": 2}


def test_xid_events_are_counted_by_device_and_code():
    found = replace(H100, xid_errors={("GPU-h100-0", 79): 1, ("GPU-h100-0", 13): 5})
    assert series(found, "accelerator_device_xid_errors") == {
        (("id", "GPU-h100-0"), ("xid", "79")): 1,
        (("id", "GPU-h100-0"), ("xid", "13")): 5,
    }


def test_what_is_running_is_told():
    assert build_family("0.1.0", "abc", "3.11.2", "13.615.71") == Family(
        name="accelerator_build_info",
        kind="gauge",
        help="Versions of the running program, always 1.",
        samples=(
            Sample(
                value=1,
                labels={
                    "version": "0.1.0",
                    "revision": "abc",
                    "python": "3.11.2",
                    "nvml_binding": "13.615.71",
                },
            ),
        ),
    )


@pytest.mark.parametrize("name", readable_nodes())
def test_no_fake_machine_gives_a_series_twice_or_an_absurd_figure(name):
    for family in node_families(report(fake_facts(name)), monotonic=NOW, stale_after_seconds=300.0):
        keys = [tuple(sorted(sample.labels.items())) for sample in family.samples]
        assert len(set(keys)) == len(keys), family.name
        assert all(0 <= sample.value < 2**62 for sample in family.samples), family.name


def test_two_devices_of_one_uuid_give_two_series():
    twins = report(facts(h100(0, id="GPU-same"), h100(1, id="GPU-same", memory_bytes=MIB)))
    assert len(series(twins, "accelerator_device_info")) == 2
    assert set(values(twins, "accelerator_device_info", "uuid_weak")) == {"true"}


def test_a_state_held_by_history_is_the_one_that_is_shown():
    clock = ManualClock()
    bad, good = facts(failed(h100())), facts(h100())
    history = history_after(good, history_after(bad, {}, clock()), clock())
    held = replace(report(good), inventory=inventory_of(good, history=history))
    assert series(held, "accelerator_node_devices") == {(("class", "nvidia-h100-80gb"), ("state", "lost")): 1}


def test_families_are_made_anew_where_a_part_is_another():
    kept, made = Kept(), []

    def make():
        made.append(gauge("x", "h", [one(len(made))]))
        return (made[-1],)

    first = report(fake_facts("t4"))
    told = [
        kept.of(parts, make)
        for parts in (
            (first, True, 300),
            (first, True, 300),
            (first, False, 300),
            (replace(first), False, 300),
        )
    ]
    assert [families[0].samples[0].value for families in told] == [0, 0, 1, 1]
    assert told[0] is told[1]
    assert kept.of((replace(first, passes=9), False, 300), make)[0].samples[0].value == 2
