"""The fake library as seen through the unmodified binding."""

import ctypes

import pynvml
import pytest

from fakes import nodes, nvml
from fakes.functions import SINCE
from tests.fakes.bound import bound, h100, installed, machine, refusal

MIG = {
    "enabled": True,
    "instances": [{"profile": "3g.40gb", "compute_instances": [{"slices": 1}, {"slices": 2}]}],
}


def test_every_function_of_the_table_has_an_answer_and_no_other_has():
    assert set(nvml.ANSWERS) == set(SINCE)


def test_a_call_before_init_is_refused_as_uninitialised():
    with installed(machine(h100())):
        assert refusal(pynvml.nvmlDeviceGetCount) == 1


def test_versions_of_library_and_cuda_are_told_without_init():
    with installed(machine(h100(), driver={"version": "550.120", "cuda_version": "12.4"})):
        assert (pynvml.nvmlSystemGetNVMLVersion(), pynvml.nvmlSystemGetCudaDriverVersion_v2()) == (
            "12.550.120",
            12040,
        )


def test_sessions_are_counted_and_one_shutdown_too_many_is_refused():
    with installed(machine(h100())) as library:
        pynvml.nvmlInit()
        pynvml.nvmlInit()
        pynvml.nvmlShutdown()
        open_after_one = library.open_sessions
        pynvml.nvmlShutdown()
        assert (open_after_one, library.open_sessions, refusal(pynvml.nvmlShutdown)) == (1, 0, 1)


def test_a_handle_dies_with_the_session():
    with bound(machine(h100())):
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        pynvml.nvmlShutdown()
        pynvml.nvmlInit()
        assert refusal(pynvml.nvmlDeviceGetName, handle) == 2


@pytest.mark.parametrize(
    "handle",
    [
        pytest.param(pynvml.c_nvmlDevice_t(), id="null"),
        pytest.param(ctypes.cast(0x1234, pynvml.c_nvmlDevice_t), id="unknown"),
    ],
)
def test_a_bad_handle_is_an_invalid_argument(handle):
    with bound(machine(h100())):
        assert refusal(pynvml.nvmlDeviceGetName, handle) == 2


@pytest.mark.parametrize(
    ("driver", "code"),
    [
        pytest.param({"library": False}, 12, id="library not found"),
        pytest.param({"loaded": False}, 9, id="driver not loaded"),
        pytest.param({"kernel_module_version": "570.172.08"}, 18, id="driver and library differ"),
    ],
)
def test_init_fails_as_the_state_of_the_driver_demands(driver, code):
    with installed(machine(h100(), driver=driver)):
        assert refusal(pynvml.nvmlInit) == code


def test_the_error_text_comes_from_the_library_for_codes_that_the_binding_does_not_know():
    with bound(machine(h100(), failures=[{"function": "nvmlDeviceGetName", "code": 27}])):
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        with pytest.raises(pynvml.NVMLError, match="Not Ready"):
            pynvml.nvmlDeviceGetName(handle)


def test_a_device_is_found_by_index_uuid_and_bus_address_under_one_handle():
    with bound(machine(h100(), h100(pci={"address": "000f:01:00.0"}))):
        by_index = pynvml.nvmlDeviceGetHandleByIndex(1)
        uuid = pynvml.nvmlDeviceGetUUID(by_index)
        handles = [
            by_index,
            pynvml.nvmlDeviceGetHandleByUUID(uuid),
            pynvml.nvmlDeviceGetHandleByPciBusId("0000000F:01:00.0"),
            pynvml.nvmlDeviceGetHandleByPciBusId("f:1:0"),
        ]
        assert len({ctypes.cast(handle, ctypes.c_void_p).value for handle in handles}) == 1


@pytest.mark.parametrize(
    ("function", "argument", "code"),
    [
        pytest.param(pynvml.nvmlDeviceGetHandleByIndex, 1, 2, id="index past the end"),
        pytest.param(pynvml.nvmlDeviceGetHandleByUUID, "GPU-none", 6, id="unknown uuid"),
        pytest.param(pynvml.nvmlDeviceGetHandleByPciBusId, "0000:99:00.0", 6, id="empty slot"),
        pytest.param(pynvml.nvmlDeviceGetHandleByPciBusId, "nonsense", 2, id="no address"),
    ],
)
def test_a_device_that_is_not_there_is_refused(function, argument, code):
    with bound(machine(h100())):
        assert refusal(function, argument) == code


def test_memory_version_one_counts_the_reservation_as_used_and_the_totals_agree():
    with bound(machine({"board": "a100-40"})):
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        old = pynvml.nvmlDeviceGetMemoryInfo(handle)
        new = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
        assert (old.total, old.used, new.total, new.reserved, new.used) == (
            42949672960,
            956301312,
            42949672960,
            948122419,
            8178893,
        )
        assert (old.used + old.free, new.used + new.reserved + new.free) == (old.total, new.total)


def test_a_structure_of_another_version_is_refused():
    with bound(machine(h100())):
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        assert refusal(lambda: pynvml.nvmlDeviceGetMemoryInfo(handle, version=2)) == 25


@pytest.mark.parametrize(
    ("version", "code"),
    [pytest.param("565.57.01", 25, id="R565"), pytest.param("570.86.15", None, id="R570")],
)
def test_a_new_structure_is_refused_by_a_driver_that_has_the_symbol_but_not_the_version(version, code):
    with bound(machine(h100(), driver={"version": version})):
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        info = pynvml.c_nvmlGpuFabricInfo_v3_t()
        assert refusal(pynvml.nvmlDeviceGetGpuFabricInfoV, handle, ctypes.byref(info)) == code


@pytest.mark.parametrize(
    ("function", "first_branch"),
    [(name, branch) for name, branch in SINCE.items() if branch > 450],
)
def test_an_older_library_lacks_the_symbol_and_the_first_that_has_it_does_not(function, first_branch):
    def code(branch: int) -> int | None:
        with installed(machine({"board": "t4", "minimum_driver": None}, driver={"version": f"{branch}.1"})):
            return refusal(pynvml._nvmlGetFunctionPointer, function)

    assert (code(first_branch - 5), code(first_branch)) == (13, None)


def test_a_symbol_that_no_library_has_is_function_not_found():
    with installed(machine(h100())) as library:
        assert refusal(pynvml._nvmlGetFunctionPointer, "nvmlDeviceGetDreams") == 13
        assert library.missing == {"nvmlDeviceGetDreams"}


def test_too_small_a_buffer_is_insufficient_size_and_stays_empty():
    with bound(machine(h100())):
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        buffer = ctypes.create_string_buffer(8)
        function = pynvml._nvmlGetFunctionPointer("nvmlDeviceGetName")
        assert (function(handle, buffer, ctypes.c_uint(8)), buffer.value) == (7, b"")


def test_a_null_pointer_is_an_invalid_argument():
    with bound(machine(h100())):
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        assert pynvml._nvmlGetFunctionPointer("nvmlDeviceGetNumGpuCores")(handle, None) == 2


def test_what_a_device_lacks_is_not_supported_and_leaves_the_output_alone():
    with bound(machine(h100(cores=None))):
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        out = ctypes.c_uint(7)
        code = pynvml._nvmlGetFunctionPointer("nvmlDeviceGetNumGpuCores")(handle, ctypes.byref(out))
        assert (code, out.value) == (3, 7)


def test_retired_pages_are_asked_for_twice_and_come_with_their_addresses():
    with bound(machine({"board": "v100-16", "retired_pages": {"single_bit": [4096, 8192], "pending": True}})):
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        pages = pynvml.nvmlDeviceGetRetiredPages_v2(
            handle, pynvml.NVML_PAGE_RETIREMENT_CAUSE_MULTIPLE_SINGLE_BIT_ECC_ERRORS
        )
        assert [page["address"] for page in pages] == [4096, 8192]
        assert pynvml.nvmlDeviceGetRetiredPages_v2(handle, 1) == []
        assert pynvml.nvmlDeviceGetRetiredPagesPendingStatus(handle) == 1


def test_fields_answer_one_by_one():
    with bound(machine(h100(recovery_action="drain-p2p", field_values={150: 7}))):
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        answers = pynvml.nvmlDeviceGetFieldValues(handle, [230, 150, 250])
        assert [(value.nvmlReturn, value.value.uiVal) for value in answers] == [(0, 3), (0, 7), (3, 0)]


def test_the_recovery_action_is_unknown_to_a_driver_before_it():
    with bound(machine(h100(), driver={"version": "550.120"})):
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        assert pynvml.nvmlDeviceGetFieldValues(handle, [230])[0].nvmlReturn == 3


def test_mig_devices_have_names_ids_and_the_memory_of_their_gpu_instance():
    with bound(machine(h100(mig=MIG))):
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        parts = [pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index) for index in range(2)]
        assert [
            (
                pynvml.nvmlDeviceGetName(part),
                pynvml.nvmlDeviceGetGpuInstanceId(part),
                pynvml.nvmlDeviceGetComputeInstanceId(part),
                pynvml.nvmlDeviceGetMemoryInfo(part).total >> 20,
                pynvml.nvmlDeviceGetAttributes_v2(part).multiprocessorCount,
                pynvml.nvmlDeviceGetUUID(part)[:4],
            )
            for part in parts
        ] == [
            ("NVIDIA H100 80GB HBM3 MIG 1c.3g.40gb", 1, 0, 40448, 20, "MIG-"),
            ("NVIDIA H100 80GB HBM3 MIG 2c.3g.40gb", 1, 1, 40448, 40, "MIG-"),
        ]
        assert refusal(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, 2) == 6
        assert refusal(pynvml.nvmlDeviceGetNumGpuCores, parts[0]) == 3
        assert refusal(pynvml.nvmlDeviceGetRemappedRows, handle) == 3
        assert refusal(pynvml.nvmlDeviceGetUtilizationRates, handle) == 3


def test_the_profile_of_a_gpu_instance_is_found_by_its_id_among_the_slots():
    with bound(machine(h100(mig=MIG))):
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        instance = pynvml.nvmlDeviceGetGpuInstanceById(handle, 1)
        wanted = pynvml.nvmlGpuInstanceGetInfo(instance).profileId
        names = []
        for slot in range(pynvml.NVML_GPU_INSTANCE_PROFILE_COUNT):
            try:
                info = pynvml.nvmlDeviceGetGpuInstanceProfileInfo(handle, slot)
            except pynvml.NVMLError_NotSupported:
                continue
            if info.id == wanted:
                names.append(info.name)
        assert names == ["MIG 3g.40gb"]
        assert refusal(pynvml.nvmlDeviceGetGpuInstanceProfileInfo, handle, 0x12) == 2


@pytest.mark.parametrize(
    ("device", "mode", "most"),
    [
        pytest.param(h100(), [0, 0], 0, id="off"),
        pytest.param(h100(mig={"pending": True}), [0, 1], 0, id="pending"),
        pytest.param(h100(mig={"enabled": True}), [1, 1], 7, id="on without instances"),
        pytest.param({"board": "l4"}, None, 0, id="not capable"),
    ],
)
def test_mig_mode_and_the_greatest_count(device, mode, most):
    with bound(machine(device)):
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        assert pynvml.nvmlDeviceGetMaxMigDeviceCount(handle) == most
        assert refusal(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, 0) == 6
        assert refusal(pynvml.nvmlDeviceGetGpuInstanceId, handle) == 2
        if mode is None:
            assert refusal(pynvml.nvmlDeviceGetMigMode, handle) == 3
        else:
            assert pynvml.nvmlDeviceGetMigMode(handle) == mode


def test_an_xid_reaches_a_listener_of_that_device_once():
    scenario = machine(h100(count=2), events=[{"device": 1, "xid": 79}])
    with bound(scenario):
        events = pynvml.nvmlEventSetCreate()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(2)]
        pynvml.nvmlDeviceRegisterEvents(handles[0], pynvml.nvmlEventTypeXidCriticalError, events)
        assert refusal(pynvml.nvmlEventSetWait_v2, events, 0) == 10
        pynvml.nvmlDeviceRegisterEvents(handles[1], pynvml.nvmlEventTypeXidCriticalError, events)
        event = pynvml.nvmlEventSetWait_v2(events, 0)
        assert (event.eventType, event.eventData) == (8, 79)
        assert pynvml.nvmlDeviceGetUUID(event.device) == pynvml.nvmlDeviceGetUUID(handles[1])
        assert refusal(pynvml.nvmlEventSetWait_v2, events, 0) == 10
        pynvml.nvmlEventSetFree(events)
        assert refusal(pynvml.nvmlEventSetWait_v2, events, 0) == 2


def test_shuffled_enumeration_changes_with_the_probe_and_keeps_every_device():
    scenario = nodes.node("dgx-station")

    def order(cycle: int) -> list[str]:
        with bound(scenario, cycle):
            handles = [pynvml.nvmlDeviceGetHandleByIndex(n) for n in range(pynvml.nvmlDeviceGetCount())]
            return [pynvml.nvmlDeviceGetUUID(handle) for handle in handles]

    orders = [order(cycle) for cycle in range(1, 6)]
    assert len({tuple(uuids) for uuids in orders}) > 1
    assert len({frozenset(uuids) for uuids in orders}) == 1
