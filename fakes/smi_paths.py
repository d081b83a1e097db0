"""Where each reading stands in a report of `nvidia-smi -q`: paths in the XML form, then in the text form.

Several paths for one reading are those of several versions; the first that is there counts.
"""

Places = tuple[tuple[str, ...], tuple[str, ...]]


def _place(xml: str | tuple[str, ...], text: str | tuple[str, ...]) -> Places:
    return (xml,) if isinstance(xml, str) else xml, (text,) if isinstance(text, str) else text


def _power(xml: str, text: str, *older: str) -> Places:
    names = (xml, *older)
    return (
        tuple(f"{group}/{name}" for group in ("gpu_power_readings", "power_readings") for name in names),
        tuple(f"{group}/{text}" for group in ("GPU Power Readings", "Power Readings")),
    )


def _reason(xml: str, text: str) -> Places:
    return (
        tuple(f"clocks_{word}_reasons/clocks_{word}_reason_{xml}" for word in ("event", "throttle")),
        tuple(f"Clocks {word} Reasons/{text}" for word in ("Event", "Throttle")),
    )


def _rows(xml: str, text: str) -> Places:
    return (f"remapped_rows/remapped_row_{xml}",), (f"Remapped Rows/{text}",)


def _clocks(prefix: str, xml: str, text: str) -> dict[str, Places]:
    return {
        f"{prefix}_{ours}": _place(f"{xml}/{theirs}_clock", f"{text}/{words}")
        for ours, theirs, words in (
            ("graphics", "graphics", "Graphics"),
            ("sm", "sm", "SM"),
            ("memory", "mem", "Memory"),
            ("video", "video", "Video"),
        )
    }


def _ecc(span: str, kind: str, rows: tuple[tuple[str, str], ...]) -> dict[str, Places]:
    return {
        f"ecc_{span}_{kind}_{number}": _place(f"ecc_errors/{span}/{xml}", f"ECC Errors/{span.title()}/{text}")
        for number, (xml, text) in enumerate(rows)
    }


_CORRECTED = (
    ("sram_correctable", "SRAM Correctable"),
    ("dram_correctable", "DRAM Correctable"),
    ("-", "-"),
    ("-", "-"),
)
_UNCORRECTED = (
    ("sram_uncorrectable", "SRAM Uncorrectable"),
    ("sram_uncorrectable_parity", "SRAM Uncorrectable Parity"),
    ("sram_uncorrectable_secded", "SRAM Uncorrectable SEC-DED"),
    ("dram_uncorrectable", "DRAM Uncorrectable"),
)

PATHS: dict[str, Places] = {
    "driver_version": _place("driver_version", "Driver Version"),
    "cuda_version": _place("cuda_version", "CUDA Version"),
    "name": _place("product_name", "Product Name"),
    "uuid": _place("uuid", "GPU UUID"),
    "serial": _place("serial", "Serial Number"),
    "brand": _place("product_brand", "Product Brand"),
    "architecture": _place("product_architecture", "Product Architecture"),
    "minor_number": _place("minor_number", "Minor Number"),
    "module_id": _place(
        ("gpu_module_id", "platformInfo/module_id"), ("Platform Info/Module Id", "Module ID")
    ),
    "board_part_number": _place("board_part_number", "Board Part Number"),
    "vbios_version": _place("vbios_version", "VBIOS Version"),
    "gsp_firmware_version": _place("gsp_firmware_version", "GSP Firmware Version"),
    "virtualization": _place(
        "gpu_virtualization_mode/virtualization_mode", "GPU Virtualization Mode/Virtualization Mode"
    ),
    "display_mode": _place("display_mode", "Display Mode"),
    "display_active": _place("display_active", "Display Active"),
    "persistence_mode": _place("persistence_mode", "Persistence Mode"),
    "compute_mode": _place("compute_mode", "Compute Mode"),
    "addressing_mode": _place("addressing_mode", "Addressing Mode"),
    "c2c": _place("c2c_mode", "GPU C2C Mode"),
    "recovery_action": _place("gpu_recovery_action", "GPU Recovery Action"),
    "pci_bus_id": _place("pci/pci_bus_id", "PCI/Bus Id"),
    "pci_device_id": _place("pci/pci_device_id", "PCI/Device Id"),
    "pci_subsystem_id": _place("pci/pci_sub_system_id", "PCI/Sub System Id"),
    "pci_base_class": _place("pci/pci_base_class", "PCI/Base Classcode"),
    "pci_sub_class": _place("pci/pci_sub_class", "PCI/Sub Classcode"),
    "pcie_generation": _place(
        "pci/pci_gpu_link_info/pcie_gen/current_link_gen", "PCI/GPU Link Info/PCIe Generation/Current"
    ),
    "pcie_generation_max": _place(
        "pci/pci_gpu_link_info/pcie_gen/max_link_gen", "PCI/GPU Link Info/PCIe Generation/Max"
    ),
    "pcie_gpu_generation_max": _place(
        "pci/pci_gpu_link_info/pcie_gen/max_device_link_gen", "PCI/GPU Link Info/PCIe Generation/Device Max"
    ),
    "pcie_width": _place(
        "pci/pci_gpu_link_info/link_widths/current_link_width", "PCI/GPU Link Info/Link Width/Current"
    ),
    "pcie_width_max": _place(
        "pci/pci_gpu_link_info/link_widths/max_link_width", "PCI/GPU Link Info/Link Width/Max"
    ),
    "memory_total": _place("fb_memory_usage/total", "FB Memory Usage/Total"),
    "memory_reserved": _place("fb_memory_usage/reserved", "FB Memory Usage/Reserved"),
    "memory_used": _place("fb_memory_usage/used", "FB Memory Usage/Used"),
    "bar1_total": _place("bar1_memory_usage/total", "BAR1 Memory Usage/Total"),
    "bar1_used": _place("bar1_memory_usage/used", "BAR1 Memory Usage/Used"),
    "utilization_gpu": _place("utilization/gpu_util", "Utilization/GPU"),
    "utilization_memory": _place("utilization/memory_util", "Utilization/Memory"),
    "temperature": _place("temperature/gpu_temp", "Temperature/GPU Current Temp"),
    "power_usage": _power("power_draw", "Average Power Draw", "average_power_draw", "instant_power_draw"),
    "power_limit": _power("current_power_limit", "Current Power Limit", "power_limit"),
    "power_default": _power("default_power_limit", "Default Power Limit"),
    "power_min": _power("min_power_limit", "Min Power Limit"),
    "power_max": _power("max_power_limit", "Max Power Limit"),
    **_clocks("clock", "clocks", "Clocks"),
    **_clocks("max_clock", "max_clocks", "Max Clocks"),
    "boost_clock": _place("max_customer_boost_clocks/graphics_clock", "Max Customer Boost Clocks/Graphics"),
    "mig_current": _place("mig_mode/current_mig", "MIG Mode/Current"),
    "mig_pending": _place("mig_mode/pending_mig", "MIG Mode/Pending"),
    "ecc_current": _place("ecc_mode/current_ecc", "ECC Mode/Current"),
    "ecc_pending": _place("ecc_mode/pending_ecc", "ECC Mode/Pending"),
    **_ecc("volatile", "corrected", _CORRECTED),
    **_ecc("volatile", "uncorrected", _UNCORRECTED),
    **_ecc("aggregate", "corrected", _CORRECTED),
    **_ecc("aggregate", "uncorrected", _UNCORRECTED),
    "rows_corrected": _rows("corr", "Correctable Error"),
    "rows_uncorrectable": _rows("unc", "Uncorrectable Error"),
    "rows_pending": _rows("pending", "Pending"),
    "rows_failed": _rows("failure", "Remapping Failure Occurred"),
    "retired_single": _place(
        "retired_pages/multiple_single_bit_retirement/retired_count", "Retired Pages/Single Bit ECC"
    ),
    "retired_double": _place(
        "retired_pages/double_bit_retirement/retired_count", "Retired Pages/Double Bit ECC"
    ),
    "retired_pending": _place(
        ("retired_pages/pending_blacklist", "retired_pages/pending_retirement"),
        ("Retired Pages/Pending Page Blacklist", "Retired Pages/Pending"),
    ),
    "reason_gpu-idle": _reason("gpu_idle", "Idle"),
    "reason_applications-clocks-setting": _reason(
        "applications_clocks_setting", "Applications Clocks Setting"
    ),
    "reason_sw-power-cap": _reason("sw_power_cap", "SW Power Cap"),
    "reason_hw-slowdown": _reason("hw_slowdown", "HW Slowdown"),
    "reason_sync-boost": _reason("sync_boost", "Sync Boost"),
    "reason_sw-thermal-slowdown": _reason("sw_thermal_slowdown", "SW Thermal Slowdown"),
    "reason_hw-thermal-slowdown": _reason("hw_thermal_slowdown", "HW Slowdown/HW Thermal Slowdown"),
    "reason_hw-power-brake": _reason("hw_power_brake_slowdown", "HW Slowdown/HW Power Brake Slowdown"),
    "reason_display-clock-setting": _reason("display_clocks_setting", "Display Clock Setting"),
    "fabric_state": _place("fabric/state", "Fabric/State"),
    "fabric_status": _place("fabric/status", "Fabric/Status"),
    "fabric_cluster": _place("fabric/clusterUuid", "Fabric/ClusterUUID"),
    "fabric_clique": _place("fabric/cliqueId", "Fabric/CliqueId"),
    "part_instance": _place("gpu_instance_id", "GPU Instance ID"),
    "part_compute": _place("compute_instance_id", "Compute Instance ID"),
    "part_multiprocessors": _place(
        "device_attributes/shared/multiprocessor_count", "Device Attributes/Shared/Multiprocessor count"
    ),
    "part_copy_engines": _place(
        "device_attributes/shared/copy_engine_count", "Device Attributes/Shared/Copy Engine count"
    ),
    "part_encoders": _place(
        "device_attributes/shared/encoder_count", "Device Attributes/Shared/Encoder count"
    ),
    "part_decoders": _place(
        "device_attributes/shared/decoder_count", "Device Attributes/Shared/Decoder count"
    ),
    "part_jpegs": _place("device_attributes/shared/jpg_count", "Device Attributes/Shared/JPG count"),
    "part_ofas": _place("device_attributes/shared/ofa_count", "Device Attributes/Shared/OFA count"),
    "part_total": _place("fb_memory_usage/total", ("Shared FB Memory Usage/Total", "FB Memory Usage/Total")),
    "part_reserved": _place(
        "fb_memory_usage/reserved", ("Shared FB Memory Usage/Reserved", "FB Memory Usage/Reserved")
    ),
    "part_used": _place("fb_memory_usage/used", ("Shared FB Memory Usage/Used", "FB Memory Usage/Used")),
}
"""Readings by our name. `part_…` stand under a MIG device, the first two under the report, the others under a GPU."""

PART_LISTS: tuple[str, str] = ("mig_devices/mig_device", "MIG Device")
"""Where the MIG devices of a GPU stand in each form."""
