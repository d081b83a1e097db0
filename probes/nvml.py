"""GPUs through NVML, opened and closed within one probe; with `xid` and `capture` the only importer of `pynvml`."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, Protocol

import pynvml

from probes.facts import Accelerator, Driver
from probes.findings import Identity, Opened, Refused
from probes.nvml_readings import FabricReading, PciReading, read_accelerator
from probes.questions import UNDECODABLE, Handle, Invoke, MemoryReading, Questions, Refusal, device_fault
from probes.standing import Learned, Memory, Session, Standing, of_session

NEEDED = (
    "NVMLError",
    "nvmlInit",
    "nvmlDeviceGetHandleByIndex",
    "nvmlMemory_v2",
    "nvmlDeviceGetC2cModeInfoV",
    "nvmlDeviceGetCurrentClocksEventReasons",
    "nvmlDeviceGetNumaNodeId",
    "c_nvmlGpuFabricInfo_v2_t",
    "nvmlDeviceGetGpuInstanceProfileInfo",
    "nvmlEventSetWait_v2",
)
"""What this program uses of the binding and older or other ones lack; the official one has all from 12.550 on."""

MAX_DEVICES = 64
"""More than any machine has; a count above it is not believed."""

OnCall = Callable[[int | None, str], None]
"""Told the device (`None`: the whole library) and the function before each call."""


class Listener(Protocol):
    """Hears every answer, and may ask further questions."""

    def hear(self, device: int | None, call: str, arguments: Sequence[object], answer: object) -> None:
        """Take what a call answered."""
        ...

    def ask_more(self, handle: Handle | None, invoke: Invoke) -> None:
        """Ask what facts need not; `handle` is that of a sound device, `None` stands for the library."""
        ...


def binding_problem() -> str | None:
    """Tell what is wrong with the module that `import pynvml` found, `None` when it will do.

    The unrelated distribution `pynvml` installs a module of the same name, and whichever came last wins.
    """
    missing = [name for name in NEEDED if not hasattr(pynvml, name)]
    if not missing:
        return None
    return (
        f"the module pynvml at {pynvml.__file__} is not a recent nvidia-ml-py: it lacks {', '.join(missing)}; "
        "whoever builds the image: uninstall the distribution 'pynvml' and reinstall nvidia-ml-py>=13.615.71"
    )


def probe_nvml(
    *,
    leave_out: Collection[int] = (),
    last: Sequence[int] = (),
    on_call: OnCall,
    listener: Listener | None = None,
    known: Mapping[int, Standing] = MappingProxyType({}),
) -> Iterator[Opened | Refused | Identity | Accelerator | Learned]:
    """Read everything, yielding each device twice: its identity before the calls that may block, then all of it.

    Devices in `leave_out` are not touched at all; those in `last` are read after the others. `listener` hears all.
    What is `known` of a device that is still the same is not asked again; what was asked and will stand is yielded last.
    """
    invoke = _asking(on_call, None, listener)
    answer = invoke("nvmlInit")
    if isinstance(answer, Refusal):
        yield Refused(code=answer.code, library_path=library_path(), library_version=_library_version(invoke))
        return
    try:
        opened = _read_driver(invoke)
        yield opened
        session = Session(driver=opened.driver.version, cuda=opened.driver.cuda_version, count=opened.count)
        known = of_session(known, session)
        if listener is not None:
            listener.ask_more(None, invoke)
        indices = [index for index in range(opened.count or 0) if index not in {*leave_out, *last}]
        for index in indices + [
            index for index in last if index < (opened.count or 0) and index not in leave_out
        ]:
            memory = Memory(session, known.get(index))
            yield from _probe_device(index, _asking(on_call, index, listener), listener, memory)
    finally:
        invoke("nvmlShutdown")


def library_path() -> str | None:
    """Return the path from which this process loaded `libnvidia-ml`, `None` when it did not."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:  # noqa: PTH123 - one open, no Path
            return next(
                (line.split(maxsplit=5)[5].strip() for line in maps if "/libnvidia-ml.so" in line), None
            )
    except OSError:
        return None


def _library_version(invoke: Callable[..., Any]) -> str | None:
    """Return the driver version that the library is of; it tells that without being open."""
    answer = invoke("nvmlSystemGetNVMLVersion")
    # NVML's own version stands before the driver's: 13.580.95.05.
    return None if isinstance(answer, Refusal) else answer.partition(".")[2] or None


def _read_driver(invoke: Callable[..., Any]) -> Opened:
    version, cuda, count = (
        invoke(call)
        for call in ("nvmlSystemGetDriverVersion", "nvmlSystemGetCudaDriverVersion_v2", "nvmlDeviceGetCount")
    )
    driver = Driver(
        name="nvidia",
        version=None if isinstance(version, Refusal) else version or None,
        cuda_version=f"{cuda // 1000}.{cuda % 1000 // 10}"
        if isinstance(cuda, int) and 1000 <= cuda < 10**6
        else None,
        library_path=library_path(),
    )
    if isinstance(count, Refusal):
        return Opened(driver=driver, count=None, error=count.code)
    return Opened(driver=driver, count=count if count <= MAX_DEVICES else None)


def _probe_device(
    index: int, invoke: Invoke, listener: Listener | None, memory: Memory
) -> Iterator[Identity | Accelerator | Learned]:
    handle = invoke("nvmlDeviceGetHandleByIndex", index)
    if isinstance(handle, Refusal):
        yield Accelerator(
            index=index, vendor="nvidia", fault=device_fault("nvmlDeviceGetHandleByIndex", handle)
        )
        return
    questions = Questions(invoke)
    yield from read_accelerator(index, handle, questions, recall=partial(memory.recall, questions))
    yield from memory.learned(index, questions)
    if listener is not None and questions.fault is None:
        listener.ask_more(handle, invoke)


def _asking(on_call: OnCall, index: int | None, listener: Listener | None) -> Invoke:
    """Return what calls functions about one device, heard by the listener."""
    invoke = partial(_invoke, on_call, index)
    if listener is None:
        return invoke

    def ask(call: str, *arguments: object) -> Any:  # noqa: ANN401 - the binding has no types
        answer = invoke(call, *arguments)
        listener.hear(index, call, arguments, answer)
        return answer

    return ask


def _invoke(on_call: OnCall, index: int | None, call: str, *arguments: object) -> Any:  # noqa: ANN401 - the binding has no types
    on_call(index, call)
    try:
        return _FUNCTIONS[call](*arguments)
    except pynvml.NVMLError as error:
        return Refusal(error.value)
    except UnicodeDecodeError:
        # The binding decodes text strictly, and some drivers answered bytes that are not UTF-8.
        return Refusal(UNDECODABLE)


# The binding gives some answers as ctypes structures, whose text fields decode only when they are looked at. They are
# taken apart here, inside the guard of `_invoke`.


def _pci(handle: Handle) -> PciReading:
    info = pynvml.nvmlDeviceGetPciInfo_v3(handle)
    return PciReading(info.domain, info.bus, info.device, info.pciDeviceId, info.pciSubSystemId)


def _memory_v2(handle: Handle) -> MemoryReading:
    memory = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
    return MemoryReading(memory.total, memory.free, memory.used, memory.reserved)


def _memory_v1(handle: Handle) -> MemoryReading:
    memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    return MemoryReading(memory.total, memory.free, memory.used, None)


def _fabric_v2(handle: Handle) -> FabricReading:
    info = pynvml.c_nvmlGpuFabricInfo_v2_t()
    pynvml.nvmlDeviceGetGpuFabricInfoV(handle, pynvml.byref(info))
    return FabricReading(bytes(info.clusterUuid), info.status, info.cliqueId, info.state, info.healthMask)


def _fabric_v1(handle: Handle) -> FabricReading:
    info = pynvml.c_nvmlGpuFabricInfo_t()
    pynvml.nvmlDeviceGetGpuFabricInfo(handle, pynvml.byref(info))
    return FabricReading(bytes(info.clusterUuid), info.status, info.cliqueId, info.state, None)


def _c2c(handle: Handle) -> int:
    return int(pynvml.nvmlDeviceGetC2cModeInfoV(handle).isC2cEnabled)


def _attributes(handle: Handle) -> tuple[int, int, int, int]:
    attributes = pynvml.nvmlDeviceGetAttributes_v2(handle)
    return (
        attributes.multiprocessorCount,
        attributes.gpuInstanceSliceCount,
        attributes.computeInstanceSliceCount,
        attributes.memorySizeMB,
    )


def _instance_profile(handle: Handle, instance_id: int) -> int:
    instance = pynvml.nvmlDeviceGetGpuInstanceById(handle, instance_id)
    return int(pynvml.nvmlGpuInstanceGetInfo(instance).profileId)


def _profile_name(handle: Handle, slot: int) -> tuple[int, str]:
    info = pynvml.nvmlDeviceGetGpuInstanceProfileInfo(handle, slot, version=2)
    return info.id, info.name


def _retired_pages(handle: Handle, cause: int) -> int:
    return len(pynvml.nvmlDeviceGetRetiredPages_v2(handle, cause))


def _field(handle: Handle, field_id: int) -> int:
    value = pynvml.nvmlDeviceGetFieldValues(handle, [field_id])[0]
    if value.nvmlReturn:
        raise pynvml.NVMLError(value.nvmlReturn)
    return int(value.value.ullVal if value.valueType in _LONG_VALUES else value.value.uiVal)


_LONG_VALUES = frozenset({2, 3, 4})
"""`NVML_VALUE_TYPE_UNSIGNED_LONG`, `…_UNSIGNED_LONG_LONG` and `…_SIGNED_LONG_LONG`."""

_ADAPTED: Mapping[str, Callable[..., Any]] = {
    "nvmlDeviceGetPciInfo_v3": _pci,
    "nvmlDeviceGetMemoryInfo_v2": _memory_v2,
    "nvmlDeviceGetMemoryInfo": _memory_v1,
    "nvmlDeviceGetGpuFabricInfoV": _fabric_v2,
    "nvmlDeviceGetGpuFabricInfo": _fabric_v1,
    "nvmlDeviceGetC2cModeInfoV": _c2c,
    "nvmlDeviceGetAttributes_v2": _attributes,
    "nvmlGpuInstanceGetInfo": _instance_profile,
    "nvmlDeviceGetGpuInstanceProfileInfoV": _profile_name,
    "nvmlDeviceGetRetiredPages_v2": _retired_pages,
    "nvmlDeviceGetFieldValues": _field,
}


class _Functions(dict[str, Callable[..., Any]]):
    """What is called for a name, looked up once."""

    def __missing__(self, call: str) -> Callable[..., Any]:
        function = self[call] = _ADAPTED.get(call) or getattr(pynvml, call)
        return function


_FUNCTIONS = _Functions()
