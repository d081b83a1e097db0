"""The fields of `Node` and `AcceleratorNode` objects that matching reads; a value of another kind is refused."""

from typing import NamedTuple

import msgspec

USABLE_STATES = {"ok", "degraded"}


class PciView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Of a device's PCI identity what tells one product from another."""

    vendor_id: str | None = msgspec.field(default=None, name="vendorID")
    device_id: str | None = msgspec.field(default=None, name="deviceID")


class LinkView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """NVLink links of a device."""

    nvlink_active: int | None = None
    nvlink_total: int | None = None


class FabricView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The NVLink domain of a device."""

    state: str | None = None
    cluster_uuid: str | None = msgspec.field(default=None, name="clusterUUID")
    clique: int | None = None
    status: int | None = None


class MigView(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a device is cut."""

    mode: str | None = None


class DeviceKind(NamedTuple):
    """By what a device can be told from one of another class; a fleet has a few kinds and thousands of each."""

    vendor: str | None
    family: str | None
    product: str | None
    capability: str | None
    device_id: str | None
    memory_bytes: int | None
    """Measured, or nominal where only labels tell."""


class DeviceView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One device of a record, as far as matching needs it."""

    id: str | None = None
    index: int | None = None
    vendor: str | None = None
    product: str | None = None
    class_name: str | None = msgspec.field(default=None, name="class")
    family: str | None = None
    pci: PciView = PciView()
    compute_capability: str | None = None
    memory_bytes: int | None = None
    virtual: bool = False
    state: str = "ok"
    reasons: tuple[str, ...] = ()
    link: LinkView = LinkView()
    fabric: FabricView | None = None
    mig: MigView = MigView()

    @property
    def kind(self) -> DeviceKind:
        """Return what the device is, whatever its state."""
        return DeviceKind(
            self.vendor,
            self.family,
            self.product,
            self.compute_capability,
            self.pci.device_id,
            self.memory_bytes,
        )

    @property
    def usable(self) -> bool:
        """Tell whether a workload can be given the device as a whole."""
        return self.state in USABLE_STATES and self.mig.mode != "enabled"


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """What a node has of one class."""

    name: str
    resource: str | None = None
    total: int | None = None
    usable: int | None = None


class DriverView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Version of the driver, and of CUDA that it supports."""

    version: str | None = None
    cuda_version: str | None = None


class HostView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Memory of the machine."""

    memory_bytes: int | None = None


class RecordSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """`spec` of an AcceleratorNode."""

    simulated: bool = False
    observed_at: str | None = None
    driver: DriverView = DriverView()
    host: HostView = HostView()
    devices: tuple[DeviceView, ...] = ()
    classes: tuple[Offer, ...] = ()


class Named(msgspec.Struct, frozen=True, kw_only=True):
    """`metadata` of an object."""

    name: str
    labels: dict[str, str] = {}


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """An AcceleratorNode."""

    metadata: Named
    spec: RecordSpec = RecordSpec()


class TaintView(msgspec.Struct, frozen=True, kw_only=True):
    """A taint of a Node."""

    key: str
    value: str = ""
    effect: str = ""


class NodeSpec(msgspec.Struct, frozen=True, kw_only=True):
    """`spec` of a Node."""

    taints: tuple[TaintView, ...] = ()
    unschedulable: bool = False


class Condition(msgspec.Struct, frozen=True, kw_only=True):
    """A condition of a Node."""

    type: str
    status: str


class NodeStatus(msgspec.Struct, frozen=True, kw_only=True):
    """`status` of a Node."""

    allocatable: dict[str, str | int] = {}
    capacity: dict[str, str | int] = {}
    conditions: tuple[Condition, ...] = ()


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """A Node."""

    metadata: Named
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()
