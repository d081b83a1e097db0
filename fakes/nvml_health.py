"""Answers of the fake NVML about a device's links and health: NVLink, fabric, ECC, rows, pages, fields."""

import ctypes
from typing import Any

from fakes import marshal
from fakes.functions import FABRIC_INFO_V3_SINCE
from fakes.hardware import Fabric, NvLink
from fakes.nvml_calls import Answer, Call
from fakes.nvml_fields import answer_field_values

FABRIC_STATE = {"not-supported": 0, "not-started": 1, "in-progress": 2, "completed": 3}
NVLINK_VERSION = {"1.0": 1, "2.0": 2, "2.2": 3, "3.0": 4, "3.1": 5, "4.0": 6, "5.0": 7, "6.0": 8}
_ECC_ERROR_TYPES = ("corrected", "uncorrected")
_ECC_COUNTERS = ("volatile", "aggregate")


def _link(call: Call) -> tuple[NvLink, int]:
    nvlink: NvLink = marshal.needed(call.device.nvlink)
    number = marshal.integer(call.arguments[0])
    if number >= nvlink.links:
        raise marshal.Refusal(marshal.INVALID_ARGUMENT)
    return nvlink, number


def _nvlink_state(call: Call) -> None:
    nvlink, number = _link(call)
    marshal.write(call.arguments[1], int(number not in nvlink.inactive))


def _nvlink_version(call: Call) -> None:
    nvlink, _ = _link(call)
    marshal.write(call.arguments[1], NVLINK_VERSION[nvlink.version])


def _fabric_fields(fabric: Fabric) -> dict[str, Any]:
    raw = bytes.fromhex(fabric.cluster_uuid.replace("-", ""))
    return {
        "clusterUuid": (ctypes.c_uint8 * 16)(*raw),
        "status": fabric.status,
        "cliqueId": fabric.clique,
        "state": FABRIC_STATE[fabric.state],
    }


def _fabric_info(call: Call) -> None:
    marshal.fill(call.arguments[0], **_fabric_fields(marshal.needed(call.device.fabric)))


def _fabric_info_v(call: Call) -> None:
    known = (2, 3) if call.branch >= FABRIC_INFO_V3_SINCE else (2,)
    version = marshal.require_version(call.arguments[0], *known)
    fabric = marshal.needed(call.device.fabric)
    marshal.fill(call.arguments[0], **_fabric_fields(fabric), healthMask=fabric.health_mask)
    if version == 3:
        marshal.fill(call.arguments[0], healthSummary=fabric.health_summary)


def _ecc_mode(call: Call) -> None:
    ecc = marshal.needed(call.device.ecc)
    marshal.write(call.arguments[0], ecc.enabled)
    marshal.write(call.arguments[1], ecc.enabled if ecc.pending is None else ecc.pending)


def _ecc_errors(call: Call) -> None:
    ecc = marshal.needed(call.device.ecc)
    kind, counter = marshal.integer(call.arguments[0]), marshal.integer(call.arguments[1])
    if kind >= len(_ECC_ERROR_TYPES) or counter >= len(_ECC_COUNTERS):
        raise marshal.Refusal(marshal.INVALID_ARGUMENT)
    if not ecc.enabled:
        raise marshal.Refusal(marshal.NOT_SUPPORTED)
    marshal.write(call.arguments[2], getattr(ecc, f"{_ECC_COUNTERS[counter]}_{_ECC_ERROR_TYPES[kind]}"))


def _remapped_rows(call: Call) -> None:
    rows = marshal.needed(call.device.remapped_rows)
    if call.device.mig is not None and call.device.mig.enabled and call.device.mig.instances:
        # Not to be had while GPU instances exist.
        raise marshal.Refusal(marshal.NOT_SUPPORTED)
    values = (rows.corrected, rows.uncorrectable, rows.pending, rows.failed)
    for argument, value in zip(call.arguments, values, strict=True):
        marshal.write(argument, int(value))


def _retired_pages(call: Call) -> None:
    retired = marshal.needed(call.device.retired_pages)
    cause, count, addresses, *times = call.arguments
    pages = (retired.single_bit, retired.double_bit)
    if marshal.integer(cause) >= len(pages):
        raise marshal.Refusal(marshal.INVALID_ARGUMENT)
    wanted = pages[marshal.integer(cause)]
    room = marshal.pointee(count).value
    marshal.write(count, len(wanted))
    if not wanted:
        return
    if addresses is None or room < len(wanted):
        raise marshal.Refusal(marshal.INSUFFICIENT_SIZE)
    for position, address in enumerate(wanted):
        addresses[position] = address
        for stamps in times:
            stamps[position] = 0


def _pages_pending(call: Call) -> None:
    marshal.write(call.arguments[0], int(marshal.needed(call.device.retired_pages).pending))


HEALTH_ANSWERS: dict[str, Answer] = {
    "nvmlDeviceGetNvLinkState": Answer(_nvlink_state),
    "nvmlDeviceGetNvLinkVersion": Answer(_nvlink_version),
    "nvmlDeviceGetGpuFabricInfo": Answer(_fabric_info),
    "nvmlDeviceGetGpuFabricInfoV": Answer(_fabric_info_v),
    "nvmlDeviceGetEccMode": Answer(_ecc_mode),
    "nvmlDeviceGetTotalEccErrors": Answer(_ecc_errors),
    "nvmlDeviceGetRemappedRows": Answer(_remapped_rows),
    "nvmlDeviceGetRetiredPages": Answer(_retired_pages),
    "nvmlDeviceGetRetiredPages_v2": Answer(_retired_pages),
    "nvmlDeviceGetRetiredPagesPendingStatus": Answer(_pages_pending),
    "nvmlDeviceGetFieldValues": Answer(answer_field_values),
}
