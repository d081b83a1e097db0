"""Machines that are as they should be, as values: which boards they hold, and what is around them."""

from collections.abc import Callable
from typing import Any

Data = dict[str, Any]

_GIB = 1 << 30
_BUSES = ("1b", "43", "52", "61", "9d", "c3", "d1", "df")


def eight(board: str, **fields: Any) -> list[Data]:  # noqa: ANN401 -- fields of a device
    """Return eight devices of one board, the first four on NUMA node 0."""
    return [
        {
            "board": board,
            "pci": {"address": f"0000:{bus}:00.0", "numa_node": n // 4},
            "module_id": n,
            **fields,
        }
        for n, bus in enumerate(_BUSES)
    ]


def _cut(*profiles: str) -> Data:
    """Return MIG switched on, with one GPU instance for each profile."""
    return {"enabled": True, "instances": [{"profile": profile} for profile in profiles]}


def h100x8(**fields: Any) -> Data:  # noqa: ANN401 -- fields of a scenario
    """Return a DGX H100."""
    return {
        "host": {"machine": "DGXH100", "memory_bytes": 2164195123200, "cpus": 224},
        "devices": eight("h100-sxm"),
        **fields,
    }


def _h200x8() -> Data:
    host = {"machine": "PowerEdge XE9680", "memory_bytes": 2164195123200, "cpus": 224}
    return {"host": host, "devices": eight("h200")}


def _a100_40x8() -> Data:
    host = {"machine": "DGXA100 920-23687-2530-000", "memory_bytes": 1082130432000, "cpus": 256}
    return {
        "host": host,
        "driver": {"version": "570.172.08", "cuda_version": "12.8"},
        "devices": eight("a100-40"),
    }


def a100_80_mig() -> Data:
    """Return four GPUs: two whole, one cut unevenly, one cut into seven."""
    uneven, seven = _cut("1g.10gb", "1g.10gb", "2g.20gb", "3g.40gb"), _cut(*["1g.10gb"] * 7)
    return {
        "driver": {"version": "535.54.03", "cuda_version": "12.2"},
        "host": {"machine": "AS -2124GQ-NART", "memory_bytes": 512 * _GIB, "cpus": 128},
        "devices": [
            {"board": "a100-80", "count": 2},
            {"board": "a100-80", "mig": uneven},
            {"board": "a100-80", "mig": seven},
        ],
    }


def _b200x8() -> Data:
    host = {"machine": "DGXB200", "memory_bytes": 4329327034368, "cpus": 224}
    return {"host": host, "driver": {"open_kernel_module": True}, "devices": eight("b200")}


def _gb200() -> Data:
    """One compute tray of an NVL72 rack: four GPUs of one NVLink domain, with two bus widths."""
    fabric = {"cluster_uuid": "5f1c9b2e-7d34-4a51-9e0b-3c8d6a2f4e17", "clique": 32766}
    buses = ("0008:01:00.0", "0009:01:00.0", "0018:01:00.0", "0019:01:00.0")
    return {
        "driver": {"open_kernel_module": True},
        "host": {
            "machine": "GB200 NVL",
            "memory_bytes": 960 * _GIB,
            "cpus": 144,
            "kernel": "6.8.0-1013-nvidia-64k",
        },
        "devices": [
            {
                "board": "gb200",
                "pci": {"address": bus, "numa_node": n // 2},
                "memory_numa_node": 2 + 8 * n,
                "memory_bus_bits": 7936 + 128 * (n % 2),
                "fabric": fabric,
                "module_id": n,
            }
            for n, bus in enumerate(buses)
        ],
    }


def _gb10(**fields: Any) -> Data:  # noqa: ANN401 -- fields of a device
    return {
        "driver": {"open_kernel_module": True},
        "host": {
            "machine": "NVIDIA_DGX_Spark",
            "memory_bytes": 127600748 * 1024,
            "cpus": 20,
            "kernel": "6.11.0-1016-nvidia",
        },
        "devices": [{"board": "gb10", **fields}],
    }


def _gb10_host_memory() -> Data:
    """Return the same machine under a driver that answers the memory query with the host's memory."""
    return _gb10(memory={"total_bytes": 127600748 * 1024, "used_bytes": 12 * _GIB})


def _thor() -> Data:
    return {
        "driver": {"version": "580.00", "open_kernel_module": True},
        "host": {
            "device_tree_model": "NVIDIA Jetson AGX Thor Developer Kit",
            "memory_bytes": 125772 << 20,
            "cpus": 14,
            "kernel": "6.8.12-tegra",
        },
        "devices": [{"board": "thor"}],
    }


def _orin() -> Data:
    return {
        "driver": {"version": "540.4.0", "cuda_version": "12.6", "open_kernel_module": True},
        "host": {
            "device_tree_model": "NVIDIA Jetson AGX Orin Developer Kit",
            "memory_bytes": 62826 << 20,
            "cpus": 12,
            "kernel": "5.15.148-tegra",
        },
        "devices": [{"board": "orin"}],
        "device_files": {"present": ["/dev/nvmap", "/dev/nvidiactl", "/dev/nvidia0"]},
    }


def _v100_mixed() -> Data:
    return {
        "driver": {"version": "570.172.08", "cuda_version": "12.8"},
        "host": {"machine": "PowerEdge C4140", "memory_bytes": 384 * _GIB, "cpus": 80},
        "devices": [{"board": "v100-16", "count": 2}, {"board": "v100-32", "count": 2}],
    }


def _rtx_pro_6000_mig() -> Data:
    """Four cards whose partitions differ only in the attribute behind the size."""
    layouts = (
        _cut("1g.24gb+me", "1g.24gb-me", "1g.24gb-me", "1g.24gb-me"),
        _cut("1g.24gb+gfx", "1g.24gb+gfx", "2g.48gb+gfx"),
        _cut("2g.48gb+me.all", "2g.48gb-me"),
        _cut("1g.24gb+me.all", "1g.24gb", "2g.48gb"),
    )
    devices = [{"board": "rtx-pro-6000-server", "mig": mig} for mig in layouts]
    return {
        "host": {"machine": "PRO 6000 Server", "memory_bytes": 1024 * _GIB, "cpus": 128},
        "devices": devices,
    }


def _vgpu() -> Data:
    return {
        "driver": {"version": "570.86.10", "cuda_version": "12.8"},
        "host": {"machine": "VMware20,1", "memory_bytes": 64 * _GIB, "cpus": 16},
        "devices": [{"board": "a40-48q", "pci": {"address": "0000:02:00.0"}}],
    }


def _gh200() -> Data:
    return {
        "driver": {"open_kernel_module": True},
        "host": {
            "machine": "ARS-111GL-NHR",
            "memory_bytes": 574 * _GIB,
            "cpus": 72,
            "kernel": "6.8.0-1013-nvidia-64k",
        },
        "devices": [{"board": "gh200"}],
    }


def _mixed_geforce() -> Data:
    host = {"machine": "X570 Taichi", "memory_bytes": 128 * _GIB, "cpus": 32}
    return {"host": host, "devices": [{"board": board} for board in ("rtx-3080", "rtx-3090", "rtx-4090")]}


def _dgx_station() -> Data:
    """Four A100 and the adapter for the screen, in an order that changes from probe to probe."""
    return {
        "driver": {"version": "570.172.08", "cuda_version": "12.8"},
        "host": {"machine": "DGX Station A100 920-23487-2530-000", "memory_bytes": 512 * _GIB, "cpus": 128},
        "devices": [{"board": "a100-80", "count": 4}, {"board": "dgx-display"}],
        "enumeration": "shuffled",
    }


def _no_gpu() -> Data:
    return {
        "driver": {"loaded": False, "library": False},
        "host": {"machine": "PowerEdge R650", "memory_bytes": 256 * _GIB, "cpus": 64},
        "other_pci": [
            {
                "address": "0000:03:00.0",
                "vendor_id": "102b",
                "device_id": "0536",
                "class_code": "030000",
                "driver": "mgag200",
            }
        ],
    }


MACHINES: dict[str, Callable[[], Data]] = {
    "h100x8": h100x8,
    "h200x8": _h200x8,
    "a100-40x8": _a100_40x8,
    "a100-80-mig": a100_80_mig,
    "b200x8": _b200x8,
    "gb200": _gb200,
    "gb10": _gb10,
    "gb10-host-memory": _gb10_host_memory,
    "thor": _thor,
    "orin": _orin,
    "l4x4": lambda: {
        "host": {"machine": "Google Compute Engine", "memory_bytes": 192 * _GIB, "cpus": 48},
        "devices": [{"board": "l4", "count": 4}],
    },
    "l40s": lambda: {
        "host": {"machine": "AS -4125GS-TNRT", "memory_bytes": 512 * _GIB, "cpus": 128},
        "devices": [{"board": "l40s", "count": 2}],
    },
    "t4": lambda: {
        "host": {"machine": "g4dn.xlarge", "memory_bytes": 16 * _GIB, "cpus": 4},
        "devices": [{"board": "t4"}],
    },
    "v100-mixed": _v100_mixed,
    "rtx-pro-6000-mig": _rtx_pro_6000_mig,
    "vgpu": _vgpu,
    "gh200": _gh200,
    "mixed-3080-3090-4090": _mixed_geforce,
    "dgx-station": _dgx_station,
    "no-gpu": _no_gpu,
    "driver-no-gpu": lambda: {"host": {"machine": "PowerEdge R650", "memory_bytes": 256 * _GIB}},
}
