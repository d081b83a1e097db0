"""One call of the fake NVML: which function, on which device, with which arguments, in which session."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from fakes import marshal
from fakes.hardware import Device
from fakes.partitions import GpuPart, MigDevice
from fakes.scenario import Scenario

FIRST_TOKEN = 0x7F0000001000


@dataclass(frozen=True, slots=True)
class Gpu:
    """What a handle of a GPU stands for."""

    index: int
    """Position in the enumeration."""
    number: int
    """Position in the scenario's `devices`."""
    device: Device


@dataclass(frozen=True, slots=True)
class MigHandle:
    """What a handle of a MIG device stands for."""

    gpu: Gpu
    mig: MigDevice


@dataclass(frozen=True, slots=True)
class PartHandle:
    """What a handle of a GPU instance stands for."""

    gpu: Gpu
    part: GpuPart


@dataclass(slots=True)
class EventSet:
    """An event set: devices with the types asked for and the time of registration, and how many events it gave."""

    registered: dict[int, tuple[int, float]] = field(default_factory=dict)
    delivered: set[int] = field(default_factory=set)


Handle = Gpu | MigHandle | PartHandle | EventSet


@dataclass(slots=True)
class Session:
    """What the library holds from the first `nvmlInit` to the last `nvmlShutdown`; handles die with it."""

    scenario: Scenario
    cycle: int
    open_count: int = 0
    handles: dict[int, Handle] = field(default_factory=dict)
    next_token: int = FIRST_TOKEN
    _gpus: tuple[Gpu, ...] | None = None

    def gpus(self) -> tuple[Gpu, ...]:
        """Return the GPUs in the order of enumeration."""
        if self._gpus is None:
            order = enumerate(self.scenario.order(self.cycle))
            self._gpus = tuple(Gpu(index, number, self.scenario.devices[number]) for index, number in order)
        return self._gpus

    def token(self, handle: Handle) -> int:
        """Return the number of a handle, the same for the same GPU, MIG device or GPU instance."""
        if not isinstance(handle, EventSet):
            for token, known in self.handles.items():
                if known == handle:
                    return token
        self.next_token += 0x100
        self.handles[self.next_token] = handle
        return self.next_token

    def resolve(self, argument: Any) -> Handle:  # noqa: ANN401 -- an opaque pointer
        """Return what a handle stands for; a null or unknown one is INVALID_ARGUMENT."""
        handle = self.handles.get(marshal.handle_token(argument))
        if handle is None:
            raise marshal.Refusal(marshal.INVALID_ARGUMENT)
        return handle


@dataclass(frozen=True, slots=True)
class Call:
    """One call, after its handle was resolved; `arguments` are those behind the handle."""

    session: Session
    arguments: tuple[Any, ...]
    handle: Handle | None = None

    @property
    def gpu(self) -> Gpu:
        """Return the GPU of the handle, for a MIG device its parent."""
        match self.handle:
            case Gpu() as gpu:
                return gpu
            case MigHandle(gpu=gpu) | PartHandle(gpu=gpu):
                return gpu
            case _:
                raise marshal.Refusal(marshal.INVALID_ARGUMENT)

    @property
    def device(self) -> Device:
        """Return the data of that GPU."""
        return self.gpu.device

    @property
    def mig(self) -> MigDevice | None:
        """Return the MIG device of the handle, `None` for another handle."""
        return self.handle.mig if isinstance(self.handle, MigHandle) else None

    @property
    def branch(self) -> int:
        """Return the driver branch."""
        return self.session.scenario.driver.branch


_KINDS: dict[str, tuple[type, ...]] = {
    "gpu": (Gpu,),
    "mig": (MigHandle,),
    "any-device": (Gpu, MigHandle),
    "part": (PartHandle,),
    "event-set": (EventSet,),
}


@dataclass(frozen=True, slots=True)
class Answer:
    """How a function answers, and what its first argument must be."""

    run: Callable[[Call], None]
    on: Literal["nothing", "gpu", "mig", "any-device", "part", "event-set"] = "gpu"
    needs_init: bool = True

    def accepts(self, handle: Handle | None) -> None:
        """Refuse an unknown handle and one of the wrong kind, as the library does."""
        if self.on == "nothing":
            return
        if self.on == "gpu" and isinstance(handle, MigHandle):
            raise marshal.Refusal(marshal.NOT_SUPPORTED)
        if not isinstance(handle, _KINDS[self.on]):
            raise marshal.Refusal(marshal.INVALID_ARGUMENT)
