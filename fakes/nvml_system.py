"""Answers of the fake NVML about the library, the driver and the list of devices."""

import re

from fakes import marshal
from fakes.nvml_calls import Answer, Call, MigHandle
from fakes.partitions import mig_devices
from fakes.scenario import Driver

_ADDRESS = re.compile(r"(?:([0-9a-fA-F]{1,8}):)?([0-9a-fA-F]{1,2}):([0-9a-fA-F]{1,2})(?:\.([0-9a-fA-F]))?")


def _init(call: Call) -> None:
    driver = call.session.scenario.driver
    if not driver.library:
        raise marshal.Refusal(marshal.LIBRARY_NOT_FOUND)
    if not driver.loaded:
        raise marshal.Refusal(marshal.DRIVER_NOT_LOADED)
    if driver.kernel_module_version not in {None, driver.version}:
        raise marshal.Refusal(marshal.LIB_RM_VERSION_MISMATCH)
    call.session.open_count += 1


def _shutdown(call: Call) -> None:
    call.session.open_count -= 1
    if not call.session.open_count:
        call.session.handles.clear()


def _driver_version(call: Call) -> None:
    marshal.write_text(call.arguments, call.session.scenario.driver.version)


def _nvml_version(call: Call) -> None:
    marshal.write_text(call.arguments, nvml_version(call.session.scenario.driver))


def nvml_version(driver: Driver) -> str:
    """Return the version of the library: the CUDA major version before the driver's."""
    return driver.nvml_version or f"{driver.cuda_version.split('.')[0]}.{driver.version}"


def _cuda_version(call: Call) -> None:
    major, minor = call.session.scenario.driver.cuda_version.split(".")
    marshal.write(call.arguments[0], int(major) * 1000 + int(minor) * 10)


def _driver_branch(call: Call) -> None:
    marshal.require_version(call.arguments[0], 1)
    branch = f"r{call.session.scenario.driver.branch}_00".encode()
    marshal.fill(call.arguments[0], branch=branch)


def _conf_compute_state(call: Call) -> None:
    state = marshal.needed(call.session.scenario.confidential_computing)
    marshal.fill(
        call.arguments[0],
        environment=state.environment,
        ccFeature=state.feature,
        devToolsMode=state.dev_tools_mode,
    )


def _conf_compute_settings(call: Call) -> None:
    marshal.require_version(call.arguments[0], 1)
    _conf_compute_state(call)
    state = marshal.needed(call.session.scenario.confidential_computing)
    marshal.fill(call.arguments[0], multiGpuMode=state.multi_gpu_mode)


def _count(call: Call) -> None:
    marshal.write(call.arguments[0], len(call.session.gpus()))


def _handle_by_index(call: Call) -> None:
    index, out = call.arguments
    gpus = call.session.gpus()
    if marshal.integer(index) >= len(gpus):
        raise marshal.Refusal(marshal.INVALID_ARGUMENT)
    marshal.write_handle(out, call.session.token(gpus[marshal.integer(index)]))


def _handle_by_uuid(call: Call) -> None:
    argument, out = call.arguments
    uuid = marshal.text(argument)
    for gpu in call.session.gpus():
        if gpu.device.uuid == uuid:
            marshal.write_handle(out, call.session.token(gpu))
            return
        for mig in mig_devices(gpu.device):
            if mig.uuid == uuid:
                marshal.write_handle(out, call.session.token(MigHandle(gpu, mig)))
                return
    raise marshal.Refusal(marshal.NOT_FOUND)


def _handle_by_bus_id(call: Call) -> None:
    argument, out = call.arguments
    asked = _ADDRESS.fullmatch(marshal.text(argument))
    if asked is None:
        raise marshal.Refusal(marshal.INVALID_ARGUMENT)
    wanted = tuple(int(part or "0", 16) for part in asked.groups())
    for gpu in call.session.gpus():
        if gpu.device.pci and address_numbers(gpu.device.pci.address) == wanted:
            marshal.write_handle(out, call.session.token(gpu))
            return
    raise marshal.Refusal(marshal.NOT_FOUND)


def address_numbers(address: str) -> tuple[int, int, int, int]:
    """Return domain, bus, device and function of a PCI address."""
    domain, bus, rest = address.split(":")
    device, function = rest.split(".")
    return int(domain, 16), int(bus, 16), int(device, 16), int(function, 16)


SYSTEM_ANSWERS: dict[str, Answer] = {
    "nvmlInit_v2": Answer(_init, on="nothing", needs_init=False),
    "nvmlInitWithFlags": Answer(_init, on="nothing", needs_init=False),
    "nvmlShutdown": Answer(_shutdown, on="nothing"),
    "nvmlErrorString": Answer(lambda _: None, on="nothing", needs_init=False),
    "nvmlSystemGetDriverVersion": Answer(_driver_version, on="nothing"),
    # Header: these two work without initialisation.
    "nvmlSystemGetNVMLVersion": Answer(_nvml_version, on="nothing", needs_init=False),
    "nvmlSystemGetCudaDriverVersion": Answer(_cuda_version, on="nothing", needs_init=False),
    "nvmlSystemGetCudaDriverVersion_v2": Answer(_cuda_version, on="nothing", needs_init=False),
    "nvmlSystemGetDriverBranch": Answer(_driver_branch, on="nothing"),
    "nvmlSystemGetConfComputeState": Answer(_conf_compute_state, on="nothing"),
    "nvmlSystemGetConfComputeSettings": Answer(_conf_compute_settings, on="nothing"),
    "nvmlDeviceGetCount_v2": Answer(_count, on="nothing"),
    "nvmlDeviceGetHandleByIndex_v2": Answer(_handle_by_index, on="nothing"),
    "nvmlDeviceGetHandleByUUID": Answer(_handle_by_uuid, on="nothing"),
    "nvmlDeviceGetHandleByPciBusId_v2": Answer(_handle_by_bus_id, on="nothing"),
}
