"""The fake NVML library: stands where the loaded library stands under the real, unmodified `pynvml`.

It fills the binding's structures and returns NVML codes, so marshalling, struct versions, text decoding and the mapping of
errors are the binding's own. Data: `fakes.boards`; composition: `fakes.nodes`; failures: the scenario's script.
"""

import os
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any, NoReturn

import pynvml

from fakes import marshal
from fakes.functions import SINCE
from fakes.nvml_calls import Answer, Call, Gpu, Handle, MigHandle, PartHandle, Session
from fakes.nvml_devices import DEVICE_ANSWERS
from fakes.nvml_events import EVENT_ANSWERS
from fakes.nvml_health import HEALTH_ANSWERS
from fakes.nvml_partitions import PARTITION_ANSWERS
from fakes.nvml_system import SYSTEM_ANSWERS
from fakes.scenario import Failure, Scenario, within

ANSWERS: dict[str, Answer] = {
    **SYSTEM_ANSWERS,
    **DEVICE_ANSWERS,
    **HEALTH_ANSWERS,
    **PARTITION_ANSWERS,
    **EVENT_ANSWERS,
}
"""How each function answers; the keys are those of `fakes.functions.SINCE`."""

_NEVER = 1_000_000


class FakeNvml:
    """One loaded library, playing one probe of a scenario."""

    def __init__(self, scenario: Scenario, cycle: int = 1, *, journal: Path | None = None) -> None:
        """`cycle` is the number of the probe, from 1; each call is appended to `journal` as one line."""
        self.scenario = scenario.at(cycle)
        self.cycle = cycle
        self.journal = journal
        self.session = Session(self.scenario, cycle)
        self.calls: Counter[str] = Counter()
        self.device_calls: Counter[tuple[str, int | None]] = Counter()
        self.missing: set[str] = set()
        """Symbols that were looked up and are not there."""
        self._functions: dict[str, FakeFunction] = {}

    @property
    def open_sessions(self) -> int:
        """Return how many `nvmlInit` have not been answered by an `nvmlShutdown`."""
        return self.session.open_count

    def __getattr__(self, name: str) -> "FakeFunction":
        if name.startswith("__") or SINCE.get(name, _NEVER) > self.scenario.driver.branch:
            self.__dict__.setdefault("missing", set()).add(name)
            raise AttributeError(f"{name}: symbol not found in driver {self.scenario.driver.version}")
        return self._functions.setdefault(name, FakeFunction(self, name, ANSWERS[name]))


class FakeFunction:
    """A function pointer. An object and not a method, since the binding sets attributes such as `restype` on it."""

    def __init__(self, library: FakeNvml, name: str, answer: Answer) -> None:
        self.library = library
        self.name = name
        self.answer = answer
        self.restype: Any = None

    def __call__(self, *arguments: Any) -> Any:  # noqa: ANN401 -- what the C header says
        """Answer as the C function would, with a return code."""
        if self.name == "nvmlErrorString":
            return marshal.MESSAGES.get(marshal.integer(arguments[0]), "Unknown Error").encode()
        self.library.calls[self.name] += 1
        try:
            code = self._answer(arguments)
        except marshal.Refusal as refusal:
            code = refusal.code
        self._note(code)
        return code

    def _answer(self, arguments: tuple[Any, ...]) -> int:
        handle = self._handle(arguments)
        number = _number(handle, self.name, arguments, self.library.session)
        failure = self._failure(handle, number)
        if failure is not None:
            if failure.delay_seconds:
                time.sleep(failure.delay_seconds)
            if failure.hang:
                hang()
            if failure.abort:
                os.abort()
            if failure.code is not None:
                return failure.code
        return self._play(arguments, handle, failure)

    def _play(self, arguments: tuple[Any, ...], handle: Handle | None, failure: Failure | None) -> int:
        scripted = failure is not None and (failure.value is not None or failure.bytes is not None)
        rest = arguments if self.answer.on == "nothing" else arguments[1:]
        try:
            self._require_init()
            self.answer.accepts(handle)
            self.answer.run(Call(self.library.session, rest, handle))
        except marshal.Refusal:
            if not scripted:
                raise
        if failure is not None and failure.value is not None:
            marshal.override(rest, failure.value)
        if failure is not None and failure.bytes is not None:
            marshal.override_bytes(rest, bytes.fromhex(failure.bytes))
        return marshal.SUCCESS

    def _require_init(self) -> None:
        if self.answer.needs_init and not self.library.session.open_count:
            raise marshal.Refusal(marshal.UNINITIALIZED)

    def _handle(self, arguments: tuple[Any, ...]) -> Handle | None:
        if self.answer.on == "nothing" or not arguments:
            return None
        return self.library.session.handles.get(marshal.handle_token(arguments[0]))

    def _failure(self, handle: Handle | None, number: int | None) -> Failure | None:
        self.library.device_calls[self.name, number] += 1
        for failure in self.library.scenario.failures:
            if not failure.fits(self.name) or not within(failure.cycle, self.library.cycle):
                continue
            asked = failure.device
            if isinstance(asked, int) and asked != number:
                continue
            if isinstance(asked, str) and asked != _uuid(handle, number, self.library.scenario):
                continue
            made = (
                self.library.device_calls[self.name, number]
                if asked is not None
                else self.library.calls[self.name]
            )
            if within(failure.call, made):
                return failure
        return None

    def _note(self, code: int) -> None:
        if self.library.journal is not None:
            line = f"{self.library.cycle} {os.getpid()} {self.name} {code}\n"
            with self.library.journal.open("a", encoding="utf-8") as file:
                file.write(line)


def _number(handle: Handle | None, function: str, arguments: tuple[Any, ...], session: Session) -> int | None:
    """Return the position in `devices` of the device that a call is about, `None` where it is about none."""
    match handle:
        case Gpu(number=number) | MigHandle(gpu=Gpu(number=number)) | PartHandle(gpu=Gpu(number=number)):
            return number
        case _ if function == "nvmlDeviceGetHandleByIndex_v2":
            index = marshal.integer(arguments[0])
            return next((gpu.number for gpu in session.gpus() if gpu.index == index), None)
        case _ if function == "nvmlDeviceGetHandleByUUID":
            uuid = marshal.text(arguments[0])
            return next((gpu.number for gpu in session.gpus() if gpu.device.uuid == uuid), None)
        case _:
            return None


def _uuid(handle: Handle | None, number: int | None, scenario: Scenario) -> str | None:
    if isinstance(handle, MigHandle):
        return handle.mig.uuid
    return None if number is None else scenario.devices[number].uuid


def hang() -> NoReturn:
    """Never return, deaf to signals, as a call that the driver does not answer; end only with the parent process.

    A real one outlives its parent. A fake that did so would litter a developer's machine.
    """
    parent = os.getppid()
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    while os.getppid() == parent:
        time.sleep(0.2)
    os._exit(1)


def install(scenario: Scenario, cycle: int = 1, *, journal: Path | None = None) -> None:
    """Set the fake library under the binding for one probe of a scenario."""
    _set(FakeNvml(scenario, cycle, journal=journal))


def uninstall() -> None:
    """Take the fake away: the binding then loads a real driver's library."""
    _set(None)


def installed() -> FakeNvml | None:
    """Return the fake that stands under the binding."""
    return pynvml.nvmlLib if isinstance(pynvml.nvmlLib, FakeNvml) else None


def _set(library: FakeNvml | None) -> None:
    pynvml.nvmlLib = library
    # The binding keeps function pointers for ever; those of the former library must not be called.
    pynvml._nvmlGetFunctionPointer_cache.clear()  # noqa: SLF001 -- the one patch of a third-party module
