"""Answers that stand for as long as a driver does: what a probe need not ask anew, and when it must.

A third of all questions are about what a board is. Their answers are kept between probes by the probe host, as data, and
believed only of a device that has just said who it is: the same driver, the same number of devices, and at the same index
the same UUID, bus address, name and MIG mode. They are asked anew every tenth probe, and after any trouble.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from probes.questions import FUNCTION_NOT_FOUND, NOT_SUPPORTED, Question, Questions, Refusal

ASKED_ANEW_AFTER = 10
"""Probes, so that even a fact that no driver changes is never older than that."""

VALUES = frozenset(
    {
        "nvmlDeviceGetCudaComputeCapability",
        "nvmlDeviceGetNumGpuCores",
        "nvmlDeviceGetMemoryBusWidth",
        "nvmlDeviceGetMaxClockInfo",
        "nvmlDeviceGetMaxCustomerBoostClock",
        "nvmlDeviceGetPowerManagementDefaultLimit",
        "nvmlDeviceGetVirtualizationMode",
        "nvmlDeviceGetMaxPcieLinkGeneration",
        "nvmlDeviceGetMaxPcieLinkWidth",
        "nvmlDeviceGetNvLinkVersion",
    }
)
"""Calls whose answer is the board's: figures of its making, none of its state."""

REFUSALS = VALUES | {
    "nvmlDeviceGetNumaNodeId",
    "nvmlDeviceGetC2cModeInfoV",
    "nvmlDeviceGetEccMode",
    "nvmlDeviceGetRemappedRows",
    "nvmlDeviceGetRetiredPages_v2",
    "nvmlDeviceGetRetiredPagesPendingStatus",
}
"""Calls that a board knows or does not know: that it does not stands, what it answers does not."""

BEYOND_THE_LAST_LINK = ("nvmlDeviceGetNvLinkState", 2)
"""INVALID_ARGUMENT for the link after a board's last one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """Who answers: while this is the same, the driver was not changed."""

    driver: str | None
    cuda: str | None
    count: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """Who a device says it is, asked at each probe."""

    id: str | None
    address: str | None
    product: str | None
    mig: tuple[bool, bool] | None
    """Current and pending mode."""


class Stood(NamedTuple):
    """One answer: the value, or the code of the refusal where that is not 0."""

    call: str
    arguments: tuple[Any, ...]
    """Numbers behind the handle."""
    code: int
    value: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What one device answered once."""

    session: Session
    named: Named
    answers: tuple[Stood, ...]

    def by_question(self) -> dict[Question, Any]:
        """Return (function, arguments behind the handle) → what the conversation was answered."""
        return {
            (stood.call, stood.arguments): Refusal(stood.code) if stood.code else stood.value
            for stood in self.answers
        }


@dataclass(frozen=True, slots=True)
class Learned:
    """What the device of an index answered that will stand."""

    index: int
    standing: Standing


def stands(call: str, answer: object) -> bool:
    """Tell whether an answer need not be asked for again while the driver and the device are the same."""
    if not isinstance(answer, Refusal):
        return call in VALUES
    unknown = answer.code in {NOT_SUPPORTED, FUNCTION_NOT_FOUND}
    return (unknown and call in REFUSALS) or (call, answer.code) == BEYOND_THE_LAST_LINK


def of_session(known: Mapping[int, Standing], session: Session) -> Mapping[int, Standing]:
    """Return what is known from this very session, nothing from another one."""
    return {index: standing for index, standing in known.items() if standing.session == session}


class Memory:
    """What is known of one device before it is asked, and what is known after."""

    def __init__(self, session: Session, known: Standing | None) -> None:
        self._session = session
        self._known = known
        self._named: Named | None = None

    def recall(self, ask: Questions, named: Named) -> None:
        """Let the conversation use what is known of the device, if it is the one that it was."""
        if named.id is None or named.address is None:
            return
        self._named = named
        if self._known is not None and self._known.named != named:
            self._known = None
        ask.keep(stands, self._known.by_question() if self._known else {})

    def learned(self, index: int, ask: Questions) -> Iterator[Learned]:
        """Yield what will stand, where the device is sound and told anything new."""
        if self._named is None or not ask.kept or ask.fault is not None or ask.problems:
            return
        answers = self._known.answers if self._known else ()
        new = tuple(
            Stood(call, arguments, answer.code, None)
            if isinstance(answer, Refusal)
            else Stood(call, arguments, 0, answer)
            for (call, arguments), answer in ask.kept.items()
        )
        yield Learned(index, Standing(session=self._session, named=self._named, answers=answers + new))
