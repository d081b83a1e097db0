"""Brings together what the children of one probe told, into the facts of a node; pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from probes.facts import Accelerator, DeviceFault, DeviceFiles, Driver, NodeFacts, PciFunction, PciIdentity
from probes.findings import Answer, Attempt, Finding, Identity, Opened, Refused, Surroundings
from probes.verdict import judge

CONTROL_DEVICE = "/dev/nvidiactl"


@dataclass(slots=True, kw_only=True)
class Evidence:
    """What one probe brought together, filled while its children work."""

    surroundings: Surroundings = field(default_factory=Surroundings)
    opened: Opened | None = None
    refused: Refused | None = None
    devices: dict[int, Accelerator] = field(default_factory=dict)
    """Fully read."""
    identities: dict[int, Accelerator] = field(default_factory=dict)
    """Of which at least the identity is known."""
    attempts: tuple[Attempt, ...] = ()
    left_out: Mapping[int, Accelerator] = field(default_factory=dict)
    """Devices that were not asked because they did not answer before, as they were last known."""
    answers: list[Answer] = field(default_factory=list)
    """Of every call, where everything was asked for."""

    def take(self, finding: Finding) -> None:
        """Add what a child told."""
        match finding:
            case Surroundings():
                self.surroundings = finding
            case Opened():
                self.opened = finding
            case Refused():
                self.refused = finding
            case Identity(device):
                self.identities[device.index] = device
            case Accelerator():
                self.devices[finding.index] = finding
            case Answer():
                self.answers.append(finding)
            case _:
                pass


def node_facts(evidence: Evidence, *, simulated: bool = False) -> NodeFacts:
    """Return all facts of the node with their verdict."""
    surroundings = evidence.surroundings
    accelerators = _accelerators(evidence)
    files = _device_files(surroundings.device_files, evidence.refused)
    judged = judge(
        replace(surroundings, device_files=files),
        opened=evidence.opened,
        refused=evidence.refused,
        attempts=evidence.attempts,
        accelerators=accelerators,
    )
    return NodeFacts(
        verdict=judged.verdict,
        reason=judged.reason,
        message=judged.message,
        host=surroundings.host,
        drivers=_drivers(evidence),
        pci=surroundings.pci,
        device_files=files,
        accelerators=accelerators,
        simulated=simulated,
    )


def _device_files(files: DeviceFiles, refused: Refused | None) -> DeviceFiles:
    """Count the control device among the denied where its mode would allow what the device cgroup does not."""
    if refused is None or refused.control_device_opens or CONTROL_DEVICE in files.denied:
        return files
    return replace(files, denied=(*files.denied, CONTROL_DEVICE))


def _drivers(evidence: Evidence) -> tuple[Driver, ...]:
    module = evidence.surroundings.kernel_module_version
    if evidence.opened is not None:
        return (replace(evidence.opened.driver, kernel_module_version=module),)
    library = evidence.refused.library_path if evidence.refused else None
    if module is None and library is None:
        return ()
    return (Driver(name="nvidia", kernel_module_version=module, library_path=library),)


def _accelerators(evidence: Evidence) -> tuple[Accelerator, ...]:
    if evidence.opened is None:
        return ()
    indices = range(evidence.opened.count or 0)
    census = {function.identity.address: function for function in evidence.surroundings.pci or ()}
    devices = [_placed(_device(index, evidence), census) for index in indices]
    return tuple(_identified_by_elimination(devices, census))


def _device(index: int, evidence: Evidence) -> Accelerator:
    """Return the device as read, or what is known of it with the fault that kept it from being read."""
    read = evidence.devices.get(index)
    if read is not None:
        return read
    unread = Accelerator(index=index, vendor="nvidia")
    known = evidence.identities.get(index) or evidence.left_out.get(index) or unread
    fault = next((_fault(attempt) for attempt in evidence.attempts if attempt.device == index), None)
    # Neither asked in vain nor left out: its turn never came.
    return replace(known, fault=fault or known.fault or DeviceFault(kind="no-answer"))


def _fault(attempt: Attempt) -> DeviceFault:
    error = "crash" if attempt.ended == "crash" else "no-answer"
    return DeviceFault(kind="no-answer", call=attempt.call, error=error)


def _placed(device: Accelerator, census: Mapping[str, PciFunction]) -> Accelerator:
    """Add what sysfs knows of the device's slot."""
    function = census.get(device.pci.address) if device.pci else None
    if device.pci is None or function is None:
        return device
    seen = function.identity
    pci = replace(
        device.pci,
        subsystem_vendor_id=device.pci.subsystem_vendor_id or seen.subsystem_vendor_id,
        subsystem_id=device.pci.subsystem_id or seen.subsystem_id,
        numa_node=seen.numa_node,
    )
    return replace(device, pci=pci, numa_node=seen.numa_node)


def _identified_by_elimination(
    devices: Sequence[Accelerator], census: Mapping[str, PciFunction]
) -> list[Accelerator]:
    """Give the one device that could not say where it sits the one slot of the driver that no other device has."""
    nameless = [device for device in devices if device.pci is None and device.fault is not None]
    taken = {device.pci.address for device in devices if device.pci}
    free: list[PciIdentity] = [
        function.identity
        for address, function in census.items()
        if function.driver == "nvidia" and address not in taken
    ]
    if len(nameless) != 1 or len(free) != 1:
        return list(devices)
    found = replace(nameless[0], pci=free[0], numa_node=free[0].numa_node)
    return [found if device is nameless[0] else device for device in devices]
