"""Groups of readings of one device: second ways to ask, and answers that mean something other than they say."""

import pytest

from fakes.functions import SINCE
from probes.facts import DeviceFault, Fabric, FieldProblem, Health, RowRemapping
from probes.findings import Opened, Refused
from probes.nvml import probe_nvml
from tests.probes.probing import device, devices, gather, h100, installed, machine, unheard


def test_fr_030_the_old_memory_call_gives_the_same_total_and_no_use(monkeypatch):
    """FR-030: it counts the driver's reservation as used, so what workloads use is not known from it."""
    memory = {"total_bytes": 42949672960, "reserved_bytes": 948122419, "used_bytes": 8178893}
    new = device(machine(h100(memory=memory)))
    monkeypatch.setitem(SINCE, "nvmlDeviceGetMemoryInfo_v2", 9999)
    old = device(machine(h100(memory=memory)))
    assert (new.memory_bytes, new.memory_reserved_bytes, new.memory_used_bytes) == tuple(memory.values())
    assert (old.memory_bytes, old.memory_reserved_bytes, old.memory_used_bytes) == (42949672960, None, None)


def test_fr_037_bus_aperture_memory_is_never_counted():
    """FR-037."""
    memory = {"total_bytes": 24576 << 20}
    with_bar1 = device(machine(h100(memory=memory, bar1={"total_bytes": 32768 << 20})))
    without = device(machine(h100(memory=memory, bar1=None)))
    assert with_bar1.memory_bytes == without.memory_bytes == 24576 << 20
    assert without.problems == ()


@pytest.mark.parametrize("capability", ["12.1", "11.0", "10.1", "8.7", "7.2"])
@pytest.mark.parametrize("memory", [None, {"total_bytes": 127600748 << 10}, {"total_bytes": 0}])
def test_fr_026_fr_027_fr_029_a_system_on_chip_has_unified_memory_however_the_driver_answers(
    capability, memory
):
    """FR-026, FR-027, FR-029."""
    found = device(machine({"name": "x", "compute_capability": capability, "memory": memory}))
    assert (found.unified_memory, found.memory_bytes, found.problems) == (True, None, ())


def test_a_discrete_card_as_large_as_the_host_memory_stays_discrete():
    found = device(machine(h100(), host={"memory_bytes": 85520809984}))
    assert (found.unified_memory, found.memory_bytes) == (False, 85520809984)


@pytest.mark.parametrize(
    ("links", "inactive", "version", "expected"),
    [
        (18, (), "4.0", (18, 18, 4)),
        (18, (0, 17), "4.0", (16, 18, 4)),
        (12, tuple(range(12)), "3.1", (0, 12, 3)),
        (6, (), "2.2", (6, 6, 2)),
        (18, (), "5.0", (18, 18, 5)),
    ],
)
def test_links_are_counted_with_those_that_are_down(links, inactive, version, expected):
    found = device(machine(h100(nvlink={"links": links, "version": version, "inactive": list(inactive)})))
    assert found.link is not None
    assert (found.link.nvlink_active, found.link.nvlink_total, found.link.nvlink_version) == expected


def test_a_gpu_without_nvlink_has_no_count_of_it():
    found = device(machine(h100(nvlink=None)))
    assert found.link is not None
    assert (found.link.nvlink_active, found.link.nvlink_total, found.problems) == (None, None, ())


def test_a_link_that_will_not_tell_makes_the_counts_unknown_rather_than_down():
    failures = [{"function": "nvmlDeviceGetNvLinkState", "call": 4, "code": 999}]
    found = device(machine(h100(), failures=failures))
    assert found.link is not None
    assert (found.link.nvlink_active, found.link.nvlink_total) == (None, None)
    assert found.problems == (FieldProblem(field="nvlink", error="unknown"),)


UUID = "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0"
ZERO = "00000000-0000-0000-0000-000000000000"


@pytest.mark.parametrize(
    ("fabric", "expected"),
    [
        pytest.param(None, None, id="not supported"),
        pytest.param(
            {"state": "completed", "cluster_uuid": UUID, "clique": 7, "health_mask": 2},
            Fabric(state="completed", cluster_uuid=UUID, clique=7, status=0, health_mask=2),
            id="in a domain",
        ),
        pytest.param(
            {"state": "completed", "cluster_uuid": ZERO},
            Fabric(state="completed", cluster_uuid=None, clique=0, status=0, health_mask=0),
            id="zero uuid",
        ),
        pytest.param(
            {"state": "completed", "cluster_uuid": UUID, "status": 999},
            Fabric(state="completed", cluster_uuid=UUID, clique=0, status=999, health_mask=0),
            id="failed",
        ),
        pytest.param({"state": "in-progress"}, Fabric(state="in-progress", health_mask=0), id="in progress"),
        pytest.param({"state": "not-started"}, Fabric(state="not-started", health_mask=0), id="not started"),
    ],
)
def test_the_fabric_is_told_by_its_state_domain_and_status(fabric, expected):
    """FR-025."""
    found = device(machine(h100(fabric=fabric)))
    assert (found.fabric, found.problems) == (expected, ())


def test_an_older_driver_tells_the_fabric_without_its_health():
    driver = {"version": "535.183.01", "cuda_version": "12.2"}
    fabric = {"state": "completed", "cluster_uuid": UUID}
    found = device(machine(h100(fabric=fabric), driver=driver))
    assert found.fabric == Fabric(state="completed", cluster_uuid=UUID, clique=0, status=0, health_mask=None)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ({}, RowRemapping(corrected=0, uncorrectable=0, pending=False, failed=False)),
        (
            {"uncorrectable": 4, "pending": True},
            RowRemapping(corrected=0, uncorrectable=4, pending=True, failed=False),
        ),
        (
            {"uncorrectable": 4, "failed": True},
            RowRemapping(corrected=0, uncorrectable=4, pending=False, failed=True),
        ),
        (None, None),
    ],
)
def test_remapped_rows_are_told_as_they_are(rows, expected):
    """FR-021."""
    found = device(machine(h100(remapped_rows=rows)))
    assert found.health is not None
    assert found.health.row_remapping == expected


def test_a_consumer_card_has_no_ecc_figures_and_no_problem():
    """FR-022."""
    found = device(machine({"board": "rtx-3080"}))
    assert found.problems == ()
    assert found.health is not None
    health = found.health
    assert (health.ecc_enabled, health.ecc_uncorrected_errors, health.row_remapping) == (None, None, None)


def test_an_old_card_tells_its_retired_pages_of_both_causes():
    pages = {"single_bit": [4096, 8192], "double_bit": [12288], "pending": True}
    found = device(machine({"board": "v100-16", "retired_pages": pages}))
    assert found.health is not None
    assert (found.health.retired_pages, found.health.retired_pages_pending) == (3, True)


@pytest.mark.parametrize("version", ["580.95.05", "525.60.13"], ids=["event reasons", "throttle reasons"])
def test_reasons_for_lower_clocks_are_words(version):
    reasons = ["hw-thermal-slowdown", "gpu-idle", "hw-power-brake", "sw-power-cap"]
    found = device(
        machine(h100(clock_event_reasons=reasons), driver={"version": version, "cuda_version": "12.0"})
    )
    assert found.health is not None
    assert found.health.clock_event_reasons == (
        "gpu-idle",
        "sw-power-cap",
        "hw-thermal-slowdown",
        "hw-power-brake",
    )


@pytest.mark.parametrize("action", ["none", "reset", "reboot", "drain-p2p", "drain-and-reset"])
def test_the_recovery_action_is_a_word(action):
    found = device(machine(h100(recovery_action=action)))
    assert found.health is not None
    assert found.health.recovery_action == action


def test_an_enumeration_value_of_the_future_is_doubted():
    found = device(machine(h100(field_values={230: 77})))
    assert found.health is not None
    assert found.health.recovery_action is None
    assert found.problems == (FieldProblem(field="recovery_action", error="implausible"),)


@pytest.mark.parametrize(
    ("failure", "fault"),
    [
        pytest.param(
            {"function": "nvmlDeviceGetHandleByIndex_v2", "code": 15},
            DeviceFault(kind="lost", call="nvmlDeviceGetHandleByIndex", error="gpu-lost"),
            id="FR-015 lost at the handle",
        ),
        pytest.param(
            {"function": "nvmlDeviceGetHandleByIndex_v2", "code": 999},
            DeviceFault(kind="unreadable", call="nvmlDeviceGetHandleByIndex", error="unknown"),
            id="FR-015 unknown at the handle",
        ),
        pytest.param(
            {"function": "nvmlDevice*", "but_not": "nvmlDeviceGetHandleByIndex_v2", "code": 15},
            DeviceFault(kind="lost", call="nvmlDeviceGetUUID", error="gpu-lost"),
            id="FR-015 lost after the handle",
        ),
        pytest.param(
            {"function": "nvmlDevice*", "but_not": "nvmlDeviceGetHandleByIndex_v2", "code": 16},
            DeviceFault(kind="needs-reset", call="nvmlDeviceGetUUID", error="reset-required"),
            id="FR-019",
        ),
        pytest.param(
            {"function": "nvmlDevice*", "but_not": "nvmlDeviceGetHandleByIndex_v2", "code": 999},
            DeviceFault(kind="unreadable", call="nvmlDeviceGetUUID", error="unknown"),
            id="FR-113",
        ),
    ],
)
def test_a_device_that_fails_as_a_whole_is_a_fault_and_hides_no_other(failure, fault):
    sound = devices(machine(h100(), h100(), h100()))
    found = devices(machine(h100(), h100(), h100(), failures=[{"device": 1, **failure}]))
    assert (found[0], found[2]) == (sound[0], sound[2])
    assert (found[1].index, found[1].fault) == (1, fault)


def test_a_lost_device_is_soon_left_alone():
    failure = {"function": "nvmlDevice*", "but_not": "nvmlDeviceGetHandleByIndex_v2", "device": 0, "code": 15}
    with installed(machine(h100(), failures=[failure])) as library:
        list(probe_nvml(on_call=unheard))
        assert {name: number for name, number in library.calls.items() if name.startswith("nvmlDevice")} == {
            "nvmlDeviceGetCount_v2": 1,
            "nvmlDeviceGetHandleByIndex_v2": 1,
            "nvmlDeviceGetUUID": 1,
            "nvmlDeviceGetPciInfo_v3": 1,
            "nvmlDeviceGetName": 1,
        }


def test_a_device_lost_while_it_is_read_keeps_what_was_learned():
    failures = [
        {"function": "nvmlDevice*Ecc*", "code": 15},
        {"function": "nvmlDeviceGetRemappedRows", "code": 15},
    ]
    found = device(machine(h100(), failures=failures))
    assert found.fault == DeviceFault(kind="lost", call="nvmlDeviceGetEccMode", error="gpu-lost")
    assert (found.product, found.memory_bytes) == ("NVIDIA H100 80GB HBM3", 85520809984)


def test_names_and_versions_are_kept_as_they_are_given():
    """FR-041, FR-061."""
    found = gather(
        machine(h100(name="NVIDIA  A10  (R) é"), driver={"version": "570.86.10-grid", "cuda_version": "12.8"})
    )
    assert [device.product for device in found.devices.values()] == ["NVIDIA  A10  (R) é"]
    assert isinstance(found.opened, Opened)
    assert (found.opened.driver.version, found.opened.driver.cuda_version) == ("570.86.10-grid", "12.8")


@pytest.mark.parametrize(
    "failure",
    [
        {"function": "nvmlSystemGetDriverVersion", "bytes": "f8ff"},
        {"function": "nvmlSystemGetDriverVersion", "value": ""},
        {"function": "nvmlSystemGetDriverVersion", "code": 999},
    ],
    ids=["undecodable", "empty", "unknown"],
)
def test_fr_061_a_driver_version_that_is_not_told_is_not_known(failure):
    """FR-048, FR-061."""
    found = gather(machine(h100(), failures=[failure]))
    assert found.opened is not None
    assert found.opened.driver.version is None
    assert len(found.devices) == 1


@pytest.mark.parametrize("value", [0, 2**31 - 1, 999])
def test_a_cuda_version_that_cannot_be_is_not_known(value):
    failures = [{"function": "nvmlSystemGetCudaDriverVersion_v2", "value": value}]
    opened = gather(machine(h100(), failures=failures)).opened
    assert opened is not None
    assert opened.driver.cuda_version is None


def test_a_refused_init_tells_its_code_and_the_librarys_version():
    found = gather(machine(h100(), failures=[{"function": "nvmlInitWithFlags", "code": 999}]))
    assert found.refused == Refused(code=999, library_version="580.95.05")
    assert found.devices == {}


@pytest.mark.parametrize(("failure", "error"), [({"code": 999}, 999), ({"value": 2**32 - 1}, None)])
def test_a_count_that_fails_is_not_zero(failure, error):
    """FR-004."""
    found = gather(machine(h100(), failures=[{"function": "nvmlDeviceGetCount_v2", **failure}]))
    assert found.opened is not None
    assert (found.opened.count, found.opened.error) == (None, error)


def test_the_order_of_enumeration_is_the_index():
    found = devices(machine(h100(), {"board": "t4"}, enumeration=[1, 0]))
    assert [(device.index, device.product) for device in found] == [
        (0, "Tesla T4"),
        (1, "NVIDIA H100 80GB HBM3"),
    ]


def test_a_display_adapter_is_recognised_by_both_its_id_and_its_name():
    """FR-077."""
    display = {"name": "NVIDIA DGX Display", "pci": {"device_id": "1fb0"}}
    assert device(machine(display)).display_only
    assert not device(machine({**display, "name": "Quadro T1000"})).display_only
    assert not device(machine({**display, "pci": {"device_id": "1fb1"}})).display_only


def test_a_device_without_any_reading_has_none_and_no_problem():
    found = device(machine({"name": "bare"}))
    assert (found.product, found.pci, found.mig, found.problems, found.fault) == (
        "bare",
        None,
        None,
        (),
        None,
    )
    assert found.health == Health()
