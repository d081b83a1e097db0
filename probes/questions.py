"""How the answers of one device are taken: what fails costs one fact, never the device and never the probe.

Knows NVML's return codes and figures that cannot be true, and calls nothing itself.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from probes.facts import DeviceFault, FaultKind, FieldProblem

UNDECODABLE = -1
"""Code of our own for text that is not UTF-8 (drivers under WSL gave some): the binding raises no NVML error for it."""
NOT_ASKED = -2
"""Code of our own for a call that was not made, because the device is known to be gone."""

NOT_SUPPORTED = 3
NO_PERMISSION = 4
NOT_FOUND = 6
DRIVER_NOT_LOADED = 9
LIBRARY_NOT_FOUND = 12
FUNCTION_NOT_FOUND = 13
GPU_IS_LOST = 15
RESET_REQUIRED = 16
LIB_RM_VERSION_MISMATCH = 18
ARGUMENT_VERSION_MISMATCH = 25
GPU_NOT_FOUND = 28

UNKNOWN_TO_DRIVER = frozenset({NOT_SUPPORTED, FUNCTION_NOT_FOUND, ARGUMENT_VERSION_MISMATCH})
"""Answers that say "this board or driver does not have it": the fact is absent and that is no problem."""

WORDS: Mapping[int, str] = {
    UNDECODABLE: "undecodable",
    NO_PERMISSION: "no-permission",
    NOT_FOUND: "not-found",
    10: "timeout",
    GPU_IS_LOST: "gpu-lost",
    RESET_REQUIRED: "reset-required",
    19: "in-use",
    999: "unknown",
}

SENTINELS = frozenset({0x7FFFFFFFFFFFFFF0, 2**63 - 1, 2**63, 2**64 - 1, 2**32 - 1})
"""Figures with which drivers say "no value"."""

_GIVE_UP_AFTER = 3

T = TypeVar("T")

Question = tuple[str, tuple[object, ...]]
"""A function and the arguments behind the handle."""

Handle = object
"""Of a device or a MIG device: the binding's own, passed back to it and never looked into."""


_MEMORY_LIMIT = 1 << 48


class MemoryReading(NamedTuple):
    """Bytes; `reserved` is `None` from the old call, which counts the reservation as used."""

    total: int
    free: int
    used: int
    reserved: int | None

    @property
    def possible(self) -> bool:
        """Tell whether a device can have answered so: some memory, no sentinel, and no part above the whole."""
        parts = (self.free, self.used, self.reserved or 0)
        return 0 < self.total < _MEMORY_LIMIT and max(parts) <= self.total and SENTINELS.isdisjoint(self)


@dataclass(frozen=True, slots=True)
class Refusal:
    """An NVML call that answered with a code other than success."""

    code: int

    @property
    def word(self) -> str:
        """Name the error as `FieldProblem.error` does."""
        return WORDS.get(self.code, f"nvml-{self.code}")


Invoke = Callable[..., Any]
"""Calls an NVML function by name; answers with its value or a `Refusal`, and raises nothing."""


class Questions:
    """The conversation with one device.

    Each `ask` names the fact that it is for, gives `None` for what was not told, and notes why. After three different
    functions in a row said "lost" or "reset required" nothing more is asked: each further call could block.
    """

    def __init__(self, invoke: Invoke) -> None:
        self._invoke = invoke
        self._known: Mapping[Question, Any] = {}
        self._keeps: Callable[[str, object], bool] | None = None
        self._kept: dict[Question, Any] = {}
        self._problems: dict[FieldProblem, None] = {}
        self._fault: DeviceFault | None = None
        self._first_failure: DeviceFault | None = None
        self._answers = 0
        self._gone: set[str] = set()

    @property
    def problems(self) -> tuple[FieldProblem, ...]:
        """Return the readings that failed, in the order in which they did."""
        return tuple(self._problems)

    @property
    def fault(self) -> DeviceFault | None:
        """Return why the device as a whole counts as failed: lost, waits for a reset, or answered nothing at all."""
        return self._fault or (None if self._answers else self._first_failure)

    @property
    def kept(self) -> Mapping[Question, Any]:
        """Return the answers worth keeping that this conversation was given."""
        return self._kept

    def keep(self, keeps: Callable[[str, object], bool], known: Mapping[Question, Any]) -> None:
        """From here on take answers from `known` where they are there, and note those of which `keeps` is true.

        Both are about the device itself: a question about a part of it is always asked.
        """
        self._keeps, self._known = keeps, known

    def ask(self, field: str, call: str, *arguments: object) -> Any:  # noqa: ANN401 - the binding has no types
        """Call a function for a fact; `None` when it refused."""
        answer = self.try_to_ask(call, *arguments)
        if isinstance(answer, Refusal):
            self.note(field, call, answer)
            return None
        return answer

    def try_to_ask(self, call: str, *arguments: object) -> Any:  # noqa: ANN401 - the binding has no types
        """Call a function and return its value or the refusal, noting nothing, for callers with another way to ask."""
        if len(self._gone) >= _GIVE_UP_AFTER:
            return Refusal(NOT_ASKED)
        question = (call, arguments[1:])
        if question in self._known:
            return self._known[question]
        answer = self._invoke(call, *arguments)
        if self._keeps is not None and self._keeps(call, answer):
            self._kept[question] = answer
        if not isinstance(answer, Refusal):
            self._answers += 1
            self._gone.clear()
        elif answer.code in {GPU_IS_LOST, RESET_REQUIRED}:
            self._gone.add(call)
        return answer

    def note(self, field: str, call: str, refusal: Refusal) -> None:
        """Note a refusal as what it means: nothing, a problem of the fact, or a fault of the device."""
        if refusal.code in UNKNOWN_TO_DRIVER or refusal.code == NOT_ASKED:
            return
        self._problems[FieldProblem(field=field, error=refusal.word)] = None
        fault = device_fault(call, refusal)
        self._first_failure = self._first_failure or fault
        if fault.kind == "lost" and (self._fault is None or self._fault.kind != "lost"):
            self._fault = fault
        # A pending change of MIG mode makes MIG calls say "reset required" on a GPU that works.
        if fault.kind == "needs-reset" and not field.startswith("mig"):
            self._fault = self._fault or fault

    def doubt(self, field: str) -> None:
        """Note that a figure cannot be true."""
        self._problems[FieldProblem(field=field, error="implausible")] = None

    def number(self, field: str, call: str, *arguments: object, below: int, least: int = 0) -> int | None:
        """Ask for a whole number in `least <= number < below`; anything else is a sentinel or nonsense."""
        answer = self.ask(field, call, *arguments)
        return None if answer is None else self.plausible(field, answer, below=below, least=least)

    def positive(self, field: str, call: str, *arguments: object, below: int) -> int | None:
        """Ask for a number for which 0 means that the board does not say (GB10's bus width)."""
        return self.number(field, call, *arguments, below=below) or None

    def text(self, field: str, call: str, *arguments: object) -> str | None:
        """Ask for text as the hardware gives it; empty text is none."""
        return self.ask(field, call, *arguments) or None

    def switch(self, field: str, call: str, *arguments: object) -> bool | None:
        """Ask for a state that is 0 or 1."""
        answer = self.number(field, call, *arguments, below=2)
        return None if answer is None else bool(answer)

    def word(self, field: str, call: str, words: Mapping[int, T], *arguments: object) -> T | None:
        """Ask for an enumeration value and translate it; one without a translation is newer than this program."""
        answer = self.ask(field, call, *arguments)
        if answer is not None and answer not in words:
            self.doubt(field)
        return words.get(answer)

    def plausible(self, field: str, number: int, *, below: int, least: int = 0) -> int | None:
        """Return the number, or note that it cannot be true."""
        if least <= number < below and number not in SENTINELS:
            return number
        self.doubt(field)
        return None


def device_fault(call: str, refusal: Refusal) -> DeviceFault:
    """Return the fault that a device has for which this refusal is all that is known."""
    kinds: dict[int, FaultKind] = {GPU_IS_LOST: "lost", GPU_NOT_FOUND: "lost", RESET_REQUIRED: "needs-reset"}
    return DeviceFault(kind=kinds.get(refusal.code, "unreadable"), call=call, error=refusal.word)
