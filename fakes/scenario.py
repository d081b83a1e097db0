"""The scenario format: a machine, its accelerators and what goes wrong when, strict in every field.

A name that the format does not know is an error that gives its path and the nearest known name. Text is YAML.
"""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from random import Random
from typing import Annotated, Any, Literal, Self

import msgspec
from msgspec import Meta, Struct

from fakes.expansion import by_index, merged, with_boards
from fakes.functions import SINCE
from fakes.hardware import Device, Pci, UnsignedInt, UnsignedLong
from fakes.strict import ScenarioError, refuse_unknown_names

Span = Annotated[str, Meta(pattern="^[0-9]+(-[0-9]*)?$")] | UnsignedInt
"""Numbers counted from 1: `3`, `"2-5"` with both ends, `"4-"` without end."""


class Driver(Struct, frozen=True, kw_only=True):
    """The NVIDIA kernel driver and its user-space library."""

    version: Annotated[str, Meta(pattern="^[0-9]+(\\.[0-9]+)*(-[a-z]+)?$")] = "580.95.05"
    """Of the library: what NVML answers."""
    cuda_version: Annotated[str, Meta(pattern="^[0-9]+\\.[0-9]+$")] = "13.0"
    nvml_version: str | None = None
    """`None`: the CUDA major version and the driver's version, as the library prints it."""
    kernel_module_version: str | None = None
    """From `/proc/driver/nvidia/version`; `None`: the same. A difference makes `nvmlInit` answer 18."""
    open_kernel_module: bool = False
    """Which of the two wordings the proc file has."""
    loaded: bool = True
    """False: no kernel module, so `nvmlInit` answers 9 and the proc file is absent."""
    library: bool = True
    """False: `libnvidia-ml.so.1` is not visible, so loading it answers 12."""

    @property
    def branch(self) -> int:
        """Return the driver branch, 580 for `580.95.05`."""
        return int(self.version.split(".")[0])


class Host(Struct, frozen=True, kw_only=True):
    """The machine around the devices; what is `None` has no file."""

    machine: str | None = None
    """DMI product name."""
    device_tree_model: str | None = None
    """On boards without DMI, such as Jetson."""
    kernel: str | None = None
    memory_bytes: UnsignedLong | None = None
    memory_free_bytes: UnsignedLong | None = None
    """`None`: three quarters of all memory."""
    cpus: UnsignedInt | None = None


class DeviceFiles(Struct, frozen=True, kw_only=True):
    """Device files in the container."""

    present: tuple[str, ...] | None = None
    """`None`: what the nvidia runtime would make for the devices."""
    denied: tuple[str, ...] = ()
    """Present with mode 000. A process of root opens them all the same."""


class ConfidentialComputing(Struct, frozen=True, kw_only=True):
    """`nvmlSystemGetConfComputeState`."""

    environment: UnsignedInt = 0
    feature: UnsignedInt = 0
    dev_tools_mode: UnsignedInt = 0
    multi_gpu_mode: UnsignedInt = 0


class Failure(Struct, frozen=True, kw_only=True):
    """What a call does in place of, or after, answering; the first entry that fits the call counts."""

    function: str
    """NVML name, or a pattern with `*`."""
    but_not: str | None = None
    """Pattern of names that `function` would also fit."""
    device: UnsignedInt | str | None = None
    """Index in `devices`, or a UUID (of a MIG device too); `None`: any."""
    cycle: Span | None = None
    """Probes; `None`: every."""
    call: Span | None = None
    """Calls of this function (on this device) within one process; `None`: every."""
    delay_seconds: float = 0.0
    """Sleep first, then do the rest."""
    code: UnsignedInt | None = None
    """Answer with this NVML return code."""
    value: int | str | list[int | str] | dict[str, int | str] | None = None
    """Answer with success and this: a number, a text, several in order, or fields of the structure."""
    bytes: Annotated[str, Meta(pattern="^([0-9a-f]{2})+$")] | None = None
    """Answer with success and these bytes, in hex, as the text or the first bytes of the structure."""
    hang: bool = False
    """Never return; the process then ignores every signal but SIGKILL."""
    abort: bool = False
    """End the process as a native crash does."""

    def fits(self, function: str) -> bool:
        """Tell whether a function is one that this entry is about."""
        left_out = self.but_not is not None and fnmatchcase(function, self.but_not)
        return fnmatchcase(function, self.function) and not left_out


class Event(Struct, frozen=True, kw_only=True):
    """An Xid error that the driver delivers to a listener."""

    device: UnsignedInt
    """Index in `devices`."""
    xid: UnsignedLong
    after_seconds: float = 0.0
    """After the listener registered for the device."""


class Change(Struct, frozen=True, kw_only=True):
    """Other values from one probe on; in `set`, `devices` may also be a mapping from index to fields."""

    cycle: Span
    set: dict[str, Any]


class Scenario(Struct, frozen=True, kw_only=True):
    """Everything that the fakes play."""

    name: str
    driver: Driver = Driver()
    host: Host = Host()
    devices: tuple[Device, ...] = ()
    other_pci: tuple[Pci, ...] = ()
    """PCI functions without NVML: network cards, bridges, GPUs given to a guest."""
    device_files: DeviceFiles = DeviceFiles()
    enumeration: tuple[UnsignedInt, ...] | Literal["shuffled"] | None = None
    """Order in which NVML shows `devices`; `shuffled` differs from probe to probe."""
    confidential_computing: ConfidentialComputing | None = None
    failures: tuple[Failure, ...] = ()
    events: tuple[Event, ...] = ()
    changes: tuple[Change, ...] = ()

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Self:
        """Return the scenario that plain values describe; `ScenarioError` names what is wrong with them."""
        raw = with_boards(data)
        refuse_unknown_names(raw, cls)
        try:
            scenario = msgspec.convert(raw, cls)
        except msgspec.ValidationError as error:
            raise ScenarioError(str(error)) from error
        _check(scenario)
        for change in scenario.changes:
            scenario.at(_first(change.cycle))
        return scenario

    @classmethod
    def from_yaml(cls, text: str) -> Self:
        """Return the scenario of a YAML document."""
        from fakes.yaml_text import mapping_from_yaml  # noqa: PLC0415 -- named machines need no YAML

        return cls.from_data(mapping_from_yaml(text))

    def at(self, cycle: int) -> "Scenario":
        """Return the scenario of one probe, counted from 1, with its changes made."""
        changes = [change for change in self.changes if within(change.cycle, cycle)]
        if not changes:
            return self
        raw = msgspec.to_builtins(self)
        raw["changes"] = []
        for change in changes:
            raw = merged(raw, by_index(raw, change.set))
        return Scenario.from_data(raw)

    def order(self, cycle: int) -> tuple[int, ...]:
        """Return the indices in `devices` in the order in which NVML shows them; hidden devices are left out."""
        shown = [index for index, device in enumerate(self.devices) if device.enumerated]
        if self.enumeration == "shuffled":
            Random(f"{self.name}/{cycle}").shuffle(shown)  # noqa: S311 -- an order, not a secret
            return tuple(shown)
        if self.enumeration is not None:
            return tuple(index for index in self.enumeration if index in shown)
        return tuple(shown)


def within(span: int | str | None, number: int) -> bool:
    """Tell whether a number lies in a span; `None` holds every number."""
    if span is None:
        return True
    first, dash, last = str(span).partition("-")
    if not dash:
        return number == int(first)
    return int(first) <= number and (not last or number <= int(last))


def _first(span: int | str) -> int:
    return int(str(span).partition("-")[0])


def _check(scenario: Scenario) -> None:
    """Refuse what no machine can be."""
    count = len(scenario.devices)
    for index, device in enumerate(scenario.devices):
        _check_device(device, f"$.devices[{index}]", scenario.driver)
    for kind, values in (
        ("uuid", [device.uuid for device in scenario.devices if device.uuid]),
        ("pci.address", [device.pci.address for device in scenario.devices if device.pci]),
    ):
        if twice := sorted({value for value in values if values.count(value) > 1}):
            raise ScenarioError(f"$.devices: two devices have {kind} {twice[0]}")
    if isinstance(scenario.enumeration, tuple) and sorted(scenario.enumeration) != list(range(count)):
        raise ScenarioError(
            f"$.enumeration: expected each of 0 to {count - 1} once, got {scenario.enumeration}"
        )
    for index, failure in enumerate(scenario.failures):
        _check_failure(failure, f"$.failures[{index}]", scenario)
    for index, event in enumerate(scenario.events):
        if event.device >= count:
            raise ScenarioError(f"$.events[{index}].device: there are {count} devices, got {event.device}")


def _check_device(device: Device, path: str, driver: Driver) -> None:
    if device.minimum_driver is not None and driver.branch < device.minimum_driver and driver.loaded:
        raise ScenarioError(
            f"{path}: {device.name} needs driver {device.minimum_driver} or later, the scenario has "
            f"{driver.version}; set minimum_driver to null to play it all the same"
        )
    if device.mig is None:
        return
    known = {profile.name for profile in device.mig.profiles}
    for index, instance in enumerate(device.mig.instances):
        if instance.profile not in known:
            raise ScenarioError(
                f"{path}.mig.instances[{index}].profile: the board has no {instance.profile!r}, "
                f"only {', '.join(sorted(known)) or 'none'}"
            )


def _check_failure(failure: Failure, path: str, scenario: Scenario) -> None:
    if not any(failure.fits(function) for function in SINCE):
        raise ScenarioError(f"{path}.function: no function of the fake fits {failure.function!r}")
    if isinstance(failure.device, int) and failure.device >= len(scenario.devices):
        raise ScenarioError(f"{path}.device: there are {len(scenario.devices)} devices, got {failure.device}")
    outcomes = [failure.code is not None, failure.value is not None, failure.bytes is not None]
    ends = [failure.hang, failure.abort]
    if sum([*outcomes, *ends]) > 1:
        raise ScenarioError(f"{path}: code, value, bytes, hang and abort exclude each other")
    if not any([*outcomes, *ends, failure.delay_seconds]):
        raise ScenarioError(f"{path}: needs one of code, value, bytes, hang, abort or delay_seconds")
