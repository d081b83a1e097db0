"""What people write in a scenario, spelled out: boards, counts, changes by index, identities that were left out."""

import uuid
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from fakes import boards
from fakes.strict import ScenarioError

_BUSES = ("1b", "43", "52", "61", "9d", "c3", "d1", "df")


def with_boards(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the data with every device spelled out: board, count, and identities that were left out."""
    raw = deepcopy(dict(data))
    entries = raw.get("devices", [])
    if not isinstance(entries, list | tuple):
        return raw
    devices: list[Any] = []
    for position, entry in enumerate(entries):
        if not isinstance(entry, Mapping):
            raise ScenarioError(f"$.devices[{position}]: expected a mapping, got {entry!r}")
        copies = {**entry}.pop("count", 1)
        if not isinstance(copies, int) or not 1 <= copies <= 64:
            raise ScenarioError(f"$.devices[{position}].count: expected 1 to 64, got {copies!r}")
        fields = {key: value for key, value in entry.items() if key != "count"}
        devices += [_device(fields, position, len(devices) + n, str(raw.get("name"))) for n in range(copies)]
    raw["devices"] = devices
    return raw


def _device(entry: Mapping[str, Any], position: int, index: int, scenario: str) -> dict[str, Any]:
    name = entry.get("board")
    base: dict[str, Any] = {}
    # A device that says its own name and UUID is spelled out already: its board is only where it came from.
    if name is not None and not ("uuid" in entry and "name" in entry):
        try:
            base = boards.board(name)
        except KeyError:
            known = ", ".join(boards.names())
            raise ScenarioError(
                f"$.devices[{position}].board: no board {name!r}; there are {known}"
            ) from None
        if base.get("serial") and "serial" not in entry:
            base["serial"] = str(int(base["serial"]) + index)
    device = merged(base, entry)
    device.setdefault("uuid", f"GPU-{uuid.uuid5(uuid.NAMESPACE_OID, f'{scenario}/{index}')}")
    device.setdefault("minor_number", index)
    if isinstance(device.get("pci"), Mapping):
        device["pci"] = {"address": _address(index), **device["pci"]}
    return device


def _address(index: int) -> str:
    bus = _BUSES[index] if index < len(_BUSES) else f"{0xE0 + index:02x}"
    return f"0000:{bus}:00.0"


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return `base` with the values of `over`; mappings are merged, everything else is replaced."""
    result = dict(base)
    for key, value in over.items():
        known = result.get(key)
        if isinstance(known, Mapping) and isinstance(value, Mapping):
            result[key] = merged(known, value)
        else:
            result[key] = value
    return result


def by_index(raw: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """Return a change whose `devices` is a list, with those named by index merged into the present ones."""
    devices = patch.get("devices")
    if not isinstance(devices, Mapping):
        return dict(patch)
    present = [dict(device) for device in raw["devices"]]
    for index, fields in devices.items():
        if not 0 <= int(index) < len(present):
            raise ScenarioError(f"$.changes: devices.{index}: there are {len(present)} devices")
        present[int(index)] = merged(present[int(index)], fields)
    return {**patch, "devices": present}
