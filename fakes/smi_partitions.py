"""MIG devices of a report: which profile each GPU instance has, from `nvidia-smi -L` or from its sizes.

The report prints ids and sizes and no names. A size alone does not tell: `2g.20gb` and `1g.20gb` are equally large, so
copy engines and multiprocessors decide, against the board's own list.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fakes.report import Entry
from fakes.smi_paths import PART_LISTS, PATHS
from fakes.strict import ScenarioError

Data = dict[str, Any]

_GPU_LINE = re.compile(r"GPU \d+: .*\(UUID: ([^)]*)\)")
_MIG_LINE = re.compile(r"\s+MIG (\S+)\s+Device\s+\d+: \(UUID: ([^)]*)\)")
_PROFILE = re.compile(r"(?:(?P<compute>\d+)c\.)?(?P<profile>(?P<slices>\d+)g\..+)")
_ENGINES = ("copy_engines", "encoders", "decoders", "jpegs", "ofas")
_FIRST_FREE_ID = 100


@dataclass(frozen=True, slots=True)
class Listed:
    """One MIG device as `nvidia-smi -L` prints it."""

    name: str
    uuid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One MIG device as the report prints it."""

    instance: int
    compute: int
    multiprocessors: int
    engines: dict[str, int]
    memory: Data
    listed: Listed | None


def read_list(text: str) -> list[tuple[Listed, ...]]:
    """Return the MIG devices of each GPU, in the order of `nvidia-smi -L`."""
    gpus: list[list[Listed]] = []
    for line in text.splitlines():
        if _GPU_LINE.match(line):
            gpus.append([])
        elif (match := _MIG_LINE.match(line)) and gpus:
            gpus[-1].append(Listed(match[1], match[2]))
    return [tuple(devices) for devices in gpus]


def layout_of(
    gpu: Entry, profiles: list[Data], listed: Sequence[Listed], *, xml: bool
) -> tuple[list[Data], list[Data]]:
    """Return the board's profiles, with those added that only the report shows, and the GPU instances in order."""
    entries = gpu.all(PART_LISTS[0 if xml else 1])
    parts = [_part(entry, listed[n] if n < len(listed) else None, xml=xml) for n, entry in enumerate(entries)]
    instances: list[Data] = []
    known = list(profiles)
    for identifier in dict.fromkeys(part.instance for part in parts):
        members = [part for part in parts if part.instance == identifier]
        profile = _profile_of(members, known)
        if profile not in known:
            known.append(profile)
        instances.append(
            {
                "profile": profile["name"],
                "id": identifier,
                "memory": members[0].memory,
                "compute_instances": [_compute(part, profile) for part in members],
            }
        )
    return known, instances


def _part(entry: Entry, listed: Listed | None, *, xml: bool) -> Part:
    def number(name: str) -> int:
        for path in PATHS[name][0 if xml else 1]:
            found = entry.find(path)
            if found is not None and (match := re.match(r"\d+", found.value)):
                return int(match[0])
        return 0

    return Part(
        instance=number("part_instance"),
        compute=number("part_compute"),
        multiprocessors=number("part_multiprocessors"),
        engines={name: number(f"part_{name}") for name in _ENGINES},
        memory={f"{name}_bytes": number(f"part_{name}") << 20 for name in ("total", "reserved", "used")},
        listed=listed,
    )


def _profile_of(members: Sequence[Part], known: Sequence[Data]) -> Data:
    first = members[0]
    if first.listed is not None and (match := _PROFILE.fullmatch(first.listed.name)):
        by_name = next((profile for profile in known if profile["name"] == match["profile"]), None)
        return by_name or _unlisted_profile(match["profile"], int(match["slices"]), members, known)
    sizes = [profile for profile in known if _could_be(profile, members)]
    if not sizes:
        raise ScenarioError(
            f"GPU instance {first.instance}: its profile cannot be told from its sizes; "
            "put what `nvidia-smi -L` printed beside the report, in a file that ends in .L.txt"
        )
    return min(sizes, key=lambda profile: _distance(profile, members))


def _could_be(profile: Data, members: Sequence[Part]) -> bool:
    same_engines: bool = profile.get("copy_engines", 1) == members[0].engines["copy_engines"]
    total: int = members[0].memory["total_bytes"] >> 20
    room: bool = sum(part.multiprocessors for part in members) <= profile["multiprocessors"]
    near: bool = abs(profile["memory_mib"] - total) * 20 <= total
    return same_engines and room and near


def _distance(profile: Data, members: Sequence[Part]) -> tuple[int, int]:
    engines = sum(abs(profile.get(name, 0) - members[0].engines[name]) for name in _ENGINES[1:])
    return engines, profile["multiprocessors"] - sum(part.multiprocessors for part in members)


def _unlisted_profile(name: str, slices: int, members: Sequence[Part], known: Sequence[Data]) -> Data:
    """Return a profile that the report names and the board does not list, in a slot that is free."""
    taken = {profile["slot"] for profile in known}
    slot = next(slot for slot in range(0x12) if slot not in taken)
    return {
        "name": name,
        "slot": slot,
        "id": _FIRST_FREE_ID + slot,
        "slices": slices,
        "max_instances": 1,
        "memory_mib": members[0].memory["total_bytes"] >> 20,
        "multiprocessors": sum(part.multiprocessors for part in members),
        **members[0].engines,
    }


def _compute(part: Part, profile: Data) -> Data:
    named = _PROFILE.fullmatch(part.listed.name) if part.listed else None
    if named is not None:
        slices = int(named["compute"] or named["slices"])
    else:
        slices = max(1, round(part.multiprocessors * profile["slices"] / profile["multiprocessors"]))
    return {
        "slices": min(slices, profile["slices"]),
        "id": part.compute,
        "multiprocessors": part.multiprocessors,
        **({"uuid": part.listed.uuid} if part.listed else {}),
    }
