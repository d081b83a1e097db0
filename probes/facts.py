"""What can be known about a node: frozen values only, with `None` for "not known" and for nothing else.

Numbers are in base units or carry their unit in their name. Text is as the hardware gave it; making it fit for a label
is the core's business. The JSON form of these values is the protocol between a probe's child process and its parent.
"""

from dataclasses import dataclass
from typing import Literal

Vendor = Literal["nvidia", "amd", "intel", "google", "aws"]

FaultKind = Literal["lost", "needs-reset", "unreadable", "no-answer"]
"""Why a device as a whole gave no facts: off the bus (NVML 15), waits for a reset (16), answers errors, or no answer."""

Virtualization = Literal["none", "passthrough", "vgpu", "host-vgpu", "host-vsga"]
"""`nvmlDeviceGetVirtualizationMode`: only `vgpu` (a guest's share of a GPU) makes a device virtual; passthrough not."""

FabricState = Literal["not-supported", "not-started", "in-progress", "completed"]

ProbeVerdict = Literal[
    "complete", "none", "partial", "no-driver", "version-mismatch", "not-in-container", "no-answer"
]
"""The outcome of asking: `complete` and `none` (asked: there are none) are full answers, `partial` lacks a device or a
partition, and the other four say that the hardware could not be asked, so nothing may be concluded from silence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """The machine around the accelerators."""

    machine: str | None = None
    """Vendor's product name from DMI, such as `DGX H100`, or the device tree's model on boards without DMI."""
    kernel: str | None = None
    memory_bytes: int | None = None
    cpus: int | None = None
    """Logical processors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Driver:
    """The kernel driver and the user-space library of one vendor, as far as they could be asked."""

    name: str
    version: str | None = None
    """As the driver prints it, leading zeros included: `580.95.05`, `378.09`."""
    cuda_version: str | None = None
    """Highest CUDA version that the driver supports, `major.minor`."""
    kernel_module_version: str | None = None
    """From `/proc/driver/nvidia/version`; differs from `version` after an upgrade without a reboot."""
    library_path: str | None = None
    """Where the loaded library lies, evidence for `doctor`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PciIdentity:
    """Who made a PCI function and where it sits. Ids are four lower-case hex digits."""

    address: str
    """`domain:bus:device.function` in lower case with a four-digit domain (more digits where the domain needs them)."""
    vendor_id: str
    device_id: str
    subsystem_vendor_id: str | None = None
    subsystem_id: str | None = None
    numa_node: int | None = None
    """NUMA node of the slot; `None` where the platform names none (sysfs prints -1)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PciFunction:
    """One accelerator-like function of the PCI census (class 0300, 0302, 0b40 or 1200), found without any library."""

    identity: PciIdentity
    class_code: str
    """Six lower-case hex digits, such as `030200`."""
    driver: str | None = None
    """The bound kernel driver (`nvidia`, `vfio-pci` where passed through to a guest), `None` when unbound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """One MIG device: a compute instance inside a GPU instance."""

    id: str | None = None
    """The MIG UUID."""
    profile: str | None = None
    """NVIDIA's own name, `1g.10gb`, `1c.3g.71gb`, `1g.24gb+me`; `None` when it could not be told."""
    gpu_instance_id: int | None = None
    compute_instance_id: int | None = None
    memory_bytes: int | None = None
    """Of the GPU instance: compute instances inside one share it."""
    multiprocessors: int | None = None
    gpu_instance_slices: int | None = None
    compute_instance_slices: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Mig:
    """Multi-instance state of a GPU that is capable of it; a GPU that is not has no `Mig` at all."""

    enabled: bool
    pending_enabled: bool
    """What the mode becomes after the next reset; differs from `enabled` while a change is pending."""
    partitions: tuple[Partition, ...] | None = ()
    """`None`: there may be some, but they may not be read (permission, or no answer)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """How the device is attached. Widths are lanes."""

    pcie_generation: int | None = None
    """Current generation; drops at idle, so compare `pcie_generation_max` for capability."""
    pcie_generation_max: int | None = None
    pcie_width: int | None = None
    pcie_width_max: int | None = None
    nvlink_active: int | None = None
    nvlink_total: int | None = None
    """NVLink links that the GPU has; `None` for a GPU without NVLink."""
    nvlink_version: int | None = None
    """Major version of the link (4 on Hopper)."""
    c2c: bool | None = None
    """Whether the chip-to-chip link to a CPU (Grace) is on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fabric:
    """The NVLink domain that a fabric manager assigned."""

    state: FabricState
    cluster_uuid: str | None = None
    """`None` for the zero UUID, which names no domain even where the state says completed."""
    clique: int | None = None
    status: int | None = None
    """NVML return code of the registration, 0 when it succeeded."""
    health_mask: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RowRemapping:
    """Row remapper of HBM parts (Ampere and later)."""

    corrected: int
    uncorrectable: int
    pending: bool
    failed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """Readings from which the core decides a device's state; each is absent where the board has no such figure."""

    ecc_enabled: bool | None = None
    ecc_uncorrected_errors: int | None = None
    """Since the driver was loaded (volatile counter)."""
    ecc_uncorrected_errors_lifetime: int | None = None
    row_remapping: RowRemapping | None = None
    retired_pages: int | None = None
    retired_pages_pending: bool | None = None
    clock_event_reasons: tuple[str, ...] | None = None
    """Words for the set bits that are set: `hw-thermal-slowdown`, `hw-power-brake`, `sw-thermal-slowdown`, `hw-slowdown`,
    `sw-power-cap`, `gpu-idle` … in that spelling."""
    persistence_mode: bool | None = None
    recovery_action: str | None = None
    """`none`, `reset`, `reboot`, `drain-p2p`, `drain-and-reset` (NVML field 230; drivers from R570 on)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldProblem:
    """One reading that failed for a reason other than "this board or driver does not have it"."""

    field: str
    """Name of the fact, such as `memory` or `mig.partitions`."""
    error: str
    """`no-permission`, `timeout`, `undecodable`, `implausible`, `unknown`, `gpu-lost`, `reset-required`, `in-use`,
    `not-found`, `no-answer` or `nvml-<code>`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFault:
    """Why a device as a whole could not be read."""

    kind: FaultKind
    call: str | None = None
    """The call that failed or did not return."""
    error: str | None = None
    """The word of `FieldProblem.error`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator:
    """One physical accelerator, or one virtual share of it that a guest was given."""

    index: int
    """Position in the library's enumeration; changes over reboots, so it never identifies."""
    vendor: Vendor
    id: str | None = None
    """UUID; `None` when the device has none or could not say."""
    product: str | None = None
    pci: PciIdentity | None = None
    fault: DeviceFault | None = None
    """Set when the device as a whole failed; facts learned before the failure stay."""
    problems: tuple[FieldProblem, ...] = ()
    compute_capability: tuple[int, int] | None = None
    """(major, minor): integers until printed."""
    cores: int | None = None
    """CUDA cores."""
    memory_bytes: int | None = None
    """Total that the driver reports; below the nominal size."""
    memory_reserved_bytes: int | None = None
    memory_used_bytes: int | None = None
    """In use by workloads; the driver's reservation is apart (`used + reserved + free = total`)."""
    unified_memory: bool = False
    """The memory is the host's own (GB10, Jetson); `memory_bytes` is then absent: drivers disagree about it."""
    memory_bus_bits: int | None = None
    memory_clock_max_mhz: int | None = None
    sm_clock_max_mhz: int | None = None
    boost_clock_mhz: int | None = None
    """`nvmlDeviceGetMaxCustomerBoostClock` of the SM domain."""
    power_limit_watts: float | None = None
    virtualization: Virtualization | None = None
    display_only: bool = False
    """A display adapter that no workload is given, such as the DGX Station's."""
    numa_node: int | None = None
    """CPU-side NUMA node of the device's slot."""
    memory_numa_node: int | None = None
    """NUMA node that the GPU's own memory forms (GH200, GB200), where it does."""
    mig: Mig | None = None
    link: Link | None = None
    fabric: Fabric | None = None
    health: Health | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class XidEvent:
    """An error that the driver told of a device while it happened."""

    device: str | None
    """UUID; `None` when the driver did not say which."""
    xid: int | None
    """`None`: a GPU went away and the driver gave no code."""
    gpu_instance_id: int | None = None
    compute_instance_id: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFiles:
    """Device files of the driver inside this container, evidence for why a library cannot reach the hardware."""

    present: tuple[str, ...] = ()
    denied: tuple[str, ...] = ()
    """Those of `present` that this process may not open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """All that one probe found."""

    verdict: ProbeVerdict
    reason: str
    """One CamelCase word for conditions and metrics, such as `AllDevicesRead` or `LibraryNotVisible`."""
    message: str
    """What is wrong, the value, and who can mend it."""
    host: Host = Host()
    drivers: tuple[Driver, ...] = ()
    pci: tuple[PciFunction, ...] | None = None
    """The census; `None` where sysfs could not be read."""
    device_files: DeviceFiles = DeviceFiles()
    accelerators: tuple[Accelerator, ...] = ()
    simulated: bool = False
    duration_seconds: float | None = None

    @property
    def asked(self) -> bool:
        """Tell whether the hardware answered, so that what is absent here is truly absent."""
        return self.verdict in {"complete", "none", "partial"}
