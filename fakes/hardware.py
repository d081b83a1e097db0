"""What one fake device is, as data: every field is something that the driver, sysfs or a tool can be asked.

`None` means that this device has no such figure, so the driver answers NOT_SUPPORTED; a field left out has the default.
"""

from typing import Annotated, Literal

from msgspec import Meta, Struct

Hex4 = Annotated[str, Meta(pattern="^[0-9a-f]{4}$")]
Hex6 = Annotated[str, Meta(pattern="^[0-9a-f]{6}$")]
PciAddress = Annotated[str, Meta(pattern="^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\\.[0-7]$")]
Capability = Annotated[str, Meta(pattern="^[0-9]{1,2}\\.[0-9]$")]
UnsignedInt = Annotated[int, Meta(ge=0, le=2**32 - 1)]
UnsignedLong = Annotated[int, Meta(ge=0)]
NvLinkVersion = Literal["1.0", "2.0", "2.2", "3.0", "3.1", "4.0", "5.0", "6.0"]
ClockReason = Literal[
    "gpu-idle",
    "applications-clocks-setting",
    "sw-power-cap",
    "hw-slowdown",
    "sync-boost",
    "sw-thermal-slowdown",
    "hw-thermal-slowdown",
    "hw-power-brake",
    "display-clock-setting",
]


class Pci(Struct, frozen=True, kw_only=True):
    """The PCI function, as NVML and sysfs show it."""

    address: PciAddress
    device_id: Hex4
    vendor_id: Hex4 = "10de"
    subsystem_vendor_id: Hex4 = "10de"
    subsystem_id: Hex4 = "0000"
    class_code: Hex6 = "030200"
    numa_node: int | None = None
    """Of the slot; `None` prints -1 in sysfs."""
    driver: str | None = "nvidia"
    """Bound kernel driver: `vfio-pci` where passed through to a guest, `None` for unbound."""
    on_bus: bool = True
    """False: sysfs does not show the function."""


class Memory(Struct, frozen=True, kw_only=True):
    """Framebuffer; `used` is what workloads hold, the reservation of the driver is apart."""

    total_bytes: UnsignedLong
    reserved_bytes: UnsignedLong = 0
    used_bytes: UnsignedLong = 0


class Aperture(Struct, frozen=True, kw_only=True):
    """BAR1, the window through which the bus sees the memory."""

    total_bytes: UnsignedLong
    used_bytes: UnsignedLong = 0


class Clocks(Struct, frozen=True, kw_only=True):
    """One clock per domain, MHz."""

    graphics: UnsignedInt | None = None
    sm: UnsignedInt | None = None
    memory: UnsignedInt | None = None
    video: UnsignedInt | None = None


class Power(Struct, frozen=True, kw_only=True):
    """Power readings and limits, watts."""

    usage_watts: float | None = None
    limit_watts: float | None = None
    default_limit_watts: float | None = None
    min_limit_watts: float | None = None
    max_limit_watts: float | None = None


class Utilization(Struct, frozen=True, kw_only=True):
    """Share of the last sample period in which the engines were busy."""

    gpu_percent: UnsignedInt
    memory_percent: UnsignedInt


class Profile(Struct, frozen=True, kw_only=True):
    """One kind of GPU instance that the board can be cut into."""

    name: str
    """NVIDIA's own name without the word MIG: `1g.10gb+me`."""
    slot: UnsignedInt
    """`NVML_GPU_INSTANCE_PROFILE_*`, the number by which a program asks."""
    id: UnsignedInt
    """The number that `nvidia-smi mig -lgip` prints."""
    slices: UnsignedInt
    max_instances: UnsignedInt
    memory_mib: UnsignedInt
    multiprocessors: UnsignedInt
    copy_engines: UnsignedInt = 1
    decoders: UnsignedInt = 0
    encoders: UnsignedInt = 0
    jpegs: UnsignedInt = 0
    ofas: UnsignedInt = 0


class ComputeInstance(Struct, frozen=True, kw_only=True):
    """A compute instance, which is what a MIG device stands for."""

    slices: UnsignedInt | None = None
    """`None`: all of the GPU instance."""
    id: UnsignedInt | None = None
    uuid: str | None = None
    multiprocessors: UnsignedInt | None = None


class GpuInstance(Struct, frozen=True, kw_only=True):
    """A GPU instance; memory belongs to it and its compute instances share it."""

    profile: str
    id: UnsignedInt | None = None
    memory: Memory | None = None
    """`None`: what the profile says, nothing used."""
    compute_instances: tuple[ComputeInstance, ...] = (ComputeInstance(),)


class Mig(Struct, frozen=True, kw_only=True):
    """Multi-instance state. A device without this part is not capable of it."""

    enabled: bool = False
    pending: bool | None = None
    """Mode after the next reset; `None`: the same as `enabled`."""
    max_devices: UnsignedInt = 7
    profiles: tuple[Profile, ...] = ()
    instances: tuple[GpuInstance, ...] = ()


class NvLink(Struct, frozen=True, kw_only=True):
    """NVLink of one GPU."""

    links: UnsignedInt
    version: NvLinkVersion
    inactive: tuple[UnsignedInt, ...] = ()
    """Links that are down."""


class Pcie(Struct, frozen=True, kw_only=True):
    """The PCIe link, current and greatest."""

    generation: UnsignedInt | None = None
    generation_max: UnsignedInt | None = None
    gpu_generation_max: UnsignedInt | None = None
    """Of the GPU alone, whatever slot it is in."""
    width: UnsignedInt | None = None
    width_max: UnsignedInt | None = None


class Fabric(Struct, frozen=True, kw_only=True):
    """Registration with the NVLink fabric."""

    state: Literal["not-supported", "not-started", "in-progress", "completed"]
    status: UnsignedInt = 0
    """NVML code of the registration, meaningful when it is completed."""
    cluster_uuid: str = "00000000-0000-0000-0000-000000000000"
    clique: UnsignedInt = 0
    health_mask: UnsignedInt = 0
    health_summary: Annotated[int, Meta(ge=0, le=255)] = 0


class Ecc(Struct, frozen=True, kw_only=True):
    """ECC mode and error counts."""

    enabled: bool
    pending: bool | None = None
    volatile_corrected: UnsignedLong = 0
    volatile_uncorrected: UnsignedLong = 0
    aggregate_corrected: UnsignedLong = 0
    aggregate_uncorrected: UnsignedLong = 0


class RemappedRows(Struct, frozen=True, kw_only=True):
    """Row remapper of Ampere and later."""

    corrected: UnsignedInt = 0
    uncorrectable: UnsignedInt = 0
    pending: bool = False
    failed: bool = False


class RetiredPages(Struct, frozen=True, kw_only=True):
    """Page retirement of Turing and earlier: addresses by cause."""

    single_bit: tuple[UnsignedLong, ...] = ()
    double_bit: tuple[UnsignedLong, ...] = ()
    pending: bool = False


class Device(Struct, frozen=True, kw_only=True):
    """One accelerator behind NVML."""

    name: str
    uuid: str
    pci: Pci | None = None
    """`None`: the GPU is no PCI function (Jetson Orin)."""
    board: str | None = None
    """Which file of `fakes/boards` the figures come from."""
    minimum_driver: UnsignedInt | None = None
    """First driver branch that knows the board; an older driver in the scenario is an error."""
    enumerated: bool = True
    """False: the driver does not show the device although the bus may."""
    serial: str | None = None
    brand: UnsignedInt | None = None
    architecture: UnsignedInt | None = None
    compute_capability: Capability | None = None
    minor_number: UnsignedInt | None = None
    module_id: UnsignedInt | None = None
    board_part_number: str | None = None
    vbios_version: str | None = None
    gsp_firmware_version: str | None = None
    cores: UnsignedInt | None = None
    memory: Memory | None = None
    bar1: Aperture | None = None
    memory_bus_bits: UnsignedInt | None = None
    clocks_mhz: Clocks = Clocks()
    max_clocks_mhz: Clocks = Clocks()
    boost_clock_mhz: UnsignedInt | None = None
    power: Power = Power()
    temperature_celsius: UnsignedInt | None = None
    utilization: Utilization | None = None
    virtualization: Literal["none", "passthrough", "vgpu", "host-vgpu", "host-vsga"] | None = "none"
    display_mode: bool | None = None
    display_active: bool | None = None
    compute_mode: Literal["default", "exclusive-thread", "prohibited", "exclusive-process"] | None = "default"
    persistence_mode: bool | None = None
    memory_numa_node: int | None = None
    addressing_mode: Literal["none", "hmm", "ats"] | None = None
    c2c: bool | None = None
    mig: Mig | None = None
    nvlink: NvLink | None = None
    pcie: Pcie = Pcie()
    fabric: Fabric | None = None
    ecc: Ecc | None = None
    remapped_rows: RemappedRows | None = None
    retired_pages: RetiredPages | None = None
    clock_event_reasons: tuple[ClockReason, ...] | None = None
    recovery_action: Literal["none", "reset", "reboot", "drain-p2p", "drain-and-reset"] | None = None
    field_values: dict[int, UnsignedLong] = {}
    """Answers of `nvmlDeviceGetFieldValues` by field id, before those that other fields imply."""
