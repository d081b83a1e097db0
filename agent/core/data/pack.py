"""Makes `catalogue.json`, which programs read, of the tables that people write: `make catalogue`.

A test holds the file equal to what this makes.
"""

import tomllib
from collections.abc import Iterable, Mapping
from importlib.resources import files
from typing import Any

import msgspec

from agent.core.catalogue import PRECISIONS, Architecture, Packed, Peak, Product, parse_capability

_OTHER_VENDORS = (("amd.toml", "1002"), ("intel.toml", "8086"))

# An fp64 rate below a quarter of fp32 serves correctness, not work.
FP64_SHARE_THAT_COUNTS = 0.25


def packed() -> Packed:
    """Return the catalogue that the tables describe."""
    nvidia, more = _document("nvidia.toml"), _document("nvidia-more.toml")
    profiles = {
        entry["id"]: frozenset(profile["name"] for profile in entry["profiles"])
        for entry in nvidia["mig_profile_set"]
    }
    return Packed(
        products=tuple(
            _product(entry, profiles) for document in (nvidia, more) for entry in document["product"]
        ),
        architectures=tuple(_architecture(entry) for entry in nvidia["compute_capability"]),
        others_on_the_bus=tuple(
            (vendor_id, device_id, entry["product_name"])
            for name, vendor_id in _OTHER_VENDORS
            for entry in _document(name)["product"]
            for device_id in entry["pci_device_ids"]
        ),
    )


def text_of(catalogue: Packed) -> str:
    """Return the file's content: one product a line, sets in order, so that a change shows as one."""
    plain = msgspec.to_builtins(catalogue, order="deterministic")
    parts = (
        f"{msgspec.json.encode(name).decode()}: [\n"
        + ",\n".join(msgspec.json.encode(entry, order="deterministic").decode() for entry in entries)
        + "\n]"
        for name, entries in plain.items()
    )
    return "{" + ",\n".join(parts) + "}\n"


def _document(name: str) -> dict[str, Any]:
    return tomllib.loads((files("agent.core.data") / name).read_text(encoding="utf-8"))


def _architecture(entry: Mapping[str, Any]) -> Architecture:
    return Architecture(
        compute_capability=parse_capability(entry["cc"]),
        family=entry.get("family"),
        native_precisions=frozenset(_native_precisions(entry)),
        tensor_precisions=frozenset(name.split("-")[0] for name in entry["tensor_precisions"]),
        features=frozenset(entry["features"]),
        fp32_lanes_per_sm=entry.get("fp32_lanes_per_sm"),
    )


def _native_precisions(entry: Mapping[str, Any]) -> Iterable[str]:
    """Yield what ordinary cores compute well: int8 by dp4a alone, slow fp64 and the token fp16 of Pascal do not count."""
    fp32_lanes = entry.get("fp32_lanes_per_sm")
    for precision in entry["native_precisions"]:
        lanes = entry.get(f"{precision}_lanes_per_sm")
        slow = fp32_lanes is not None and lanes is not None and lanes < FP64_SHARE_THAT_COUNTS * fp32_lanes
        rate_unknown = precision == "fp64" and lanes is None
        if precision in PRECISIONS and not slow and not rate_unknown:
            yield precision


def _product(entry: Mapping[str, Any], profiles: Mapping[str, frozenset[str]]) -> Product:
    return Product(
        key=entry["key"],
        class_name=entry["class"],
        family=entry["family"],
        model=entry["model"],
        compute_capability=parse_capability(entry["compute_capability"]),
        form_factor=entry["form_factor"],
        driver_names=frozenset(entry.get("nvml_names", ())),
        device_ids=frozenset(entry["pci_device_ids"]),
        subsystems=frozenset(entry.get("pci_subsystem_ids", ())),
        memory_gib=entry.get("memory_gb"),
        memory_type=entry.get("memory_type"),
        memory_bus_bits=entry.get("memory_bus_bits"),
        memory_bandwidth_gbps=entry.get("memory_bandwidth_gbps"),
        boost_clock_mhz=entry.get("boost_clock_mhz"),
        tensor_cores=entry.get("tensor_cores"),
        nvlink_gbps=entry.get("nvlink_gbps"),
        nvlink_generation=entry.get("nvlink_generation"),
        unified_memory=entry.get("unified_memory", False),
        mig_profiles=profiles.get(entry.get("mig_profile_set", ""), frozenset()),
        peaks=tuple(_peaks(entry)),
        confidence=entry["confidence"],
    )


def _peaks(entry: Mapping[str, Any]) -> Iterable[Peak]:
    """Yield the dense peaks; a tensor fp64 rate stands beside the ordinary one under its own name."""
    for precision, figure in entry.get("peak_dense", {}).items():
        yield Peak(precision=precision, tera_ops=float(figure), source=entry["peak_source"])
