"""What one device answered → fields of a fake device, and what must be scripted because no field can say it; pure.

A reading is taken into a field where a fake with that field answers the same, else it becomes a failure of the script.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from probes.captured_fields import TAKERS, Values
from probes.findings import Answer
from probes.questions import UNDECODABLE, UNKNOWN_TO_DRIVER

C_NAMES: Mapping[str, str] = {
    "nvmlInit": "nvmlInitWithFlags",
    "nvmlDeviceGetCount": "nvmlDeviceGetCount_v2",
    "nvmlDeviceGetHandleByIndex": "nvmlDeviceGetHandleByIndex_v2",
    "nvmlDeviceGetGpuInstanceProfileInfo": "nvmlDeviceGetGpuInstanceProfileInfoV",
    "nvmlGpuInstanceGetInfo": "nvmlDeviceGetGpuInstanceById",
}
"""The library's function under a function of the binding, where the names differ."""

_TWO_WAYS = frozenset(
    {
        "nvmlDeviceGetMemoryInfo_v2",
        "nvmlDeviceGetGpuFabricInfoV",
        "nvmlDeviceGetCurrentClocksEventReasons",
    }
)
"""Functions with an older one behind them: that one of the two refuses says nothing about the field."""


@dataclass(slots=True)
class Playback:
    """One device in the making: its fields, and what each of its calls must be made to answer, in order."""

    index: int
    fields: Values = field(default_factory=dict)
    outcomes: dict[str, list[Values | None]] = field(default_factory=dict)
    """By function of the library: one entry a call, `None` where the fields answer."""

    def play(self, answer: Answer, scripted: Values | None) -> None:
        """Have a call answer from the fields, or as scripted."""
        # The binding asks for retired pages twice: for their number, then for them.
        times = 2 if answer.call == "nvmlDeviceGetRetiredPages_v2" and not answer.code else 1
        self.outcomes.setdefault(C_NAMES.get(answer.call, answer.call), []).extend([scripted] * times)

    def script(self) -> list[Values]:
        """Return the failures that make this device's calls answer as they did."""
        found: list[Values] = []
        for function, calls in self.outcomes.items():
            first = calls[0]
            if first is not None and all(scripted == first for scripted in calls):
                found.append({"function": function, "device": self.index, **first})
                continue
            for number, scripted in enumerate(calls, start=1):
                if scripted is not None:
                    found.append({"function": function, "device": self.index, "call": number, **scripted})
        return found


def refused(answer: Answer) -> Values | None:
    """Return what to script for a call that was refused; nothing where the absent field says the same."""
    if answer.code == UNDECODABLE:
        return {"bytes": "f8ff"}
    if answer.code in UNKNOWN_TO_DRIVER and answer.call not in _TWO_WAYS:
        return None
    return {"code": answer.code}


def refused_always(answer: Answer) -> Values:
    """Return what to script for a refused call whose field a fake cannot do without."""
    return {"bytes": "f8ff"} if answer.code < 0 else {"code": answer.code}


def take_reading(playback: Playback, answer: Answer) -> None:
    """Take an answer of the GPU itself that one field, or a part of one, can hold."""
    take = TAKERS.get((answer.call, answer.arguments)) or TAKERS.get((answer.call, None))
    if take is None:
        return
    if answer.code:
        said = _SAID_BY.get(answer.call, "")
        known = said in playback.fields and answer.code in UNKNOWN_TO_DRIVER
        playback.play(answer, {"code": answer.code} if known else refused(answer))
    elif take(playback.fields, answer.value):
        playback.play(answer, None)
    else:
        playback.play(answer, {"value": as_scripted(answer)})


_SAID_BY: Mapping[str, str] = {
    "nvmlDeviceGetTotalEccErrors": "ecc",
    "nvmlDeviceGetRetiredPages_v2": "retired_pages",
    "nvmlDeviceGetRetiredPagesPendingStatus": "retired_pages",
}
"""Functions that share a field with another: that field makes them answer, whatever they themselves said."""

_STRUCTURES: Mapping[str, tuple[str, ...]] = {
    "nvmlDeviceGetMemoryInfo_v2": ("total", "free", "used", "reserved"),
    "nvmlDeviceGetMemoryInfo": ("total", "free", "used"),
    "nvmlDeviceGetGpuFabricInfoV": ("", "status", "cliqueId", "state", "healthMask"),
    "nvmlDeviceGetGpuFabricInfo": ("", "status", "cliqueId", "state"),
    "nvmlDeviceGetC2cModeInfoV": ("isC2cEnabled",),
    "nvmlDeviceGetPciInfo_v3": ("domain", "bus", "device", "pciDeviceId", "pciSubSystemId"),
}
"""Fields of the library's structures, in the order in which a reading has them; one without a name is left out."""


def as_scripted(answer: Answer) -> object:
    """Return a reading as a script writes it: a number, a text, several in order, or fields of a structure."""
    names = _STRUCTURES.get(answer.call)
    if names is None:
        return answer.value
    values = answer.value if isinstance(answer.value, list | tuple) else [answer.value]
    return {
        name: value for name, value in zip(names, values, strict=False) if name and isinstance(value, int)
    }
