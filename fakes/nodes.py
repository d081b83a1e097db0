"""Named fake machines: which boards they hold and what is wrong with them. Values only; `fakes.nvml` plays them."""

from collections.abc import Callable
from typing import Any

from fakes.scenario import Scenario

_DGX_BUSES = ("1b", "43", "52", "61", "9d", "c3", "d1", "df")


def _eight(board: str, **fields: Any) -> list[dict[str, Any]]:  # noqa: ANN401 -- fields of a device
    """Return eight devices of one board, the first four on NUMA node 0."""
    return [
        {
            "board": board,
            "pci": {"address": f"0000:{bus}:00.0", "numa_node": n // 4},
            "module_id": n,
            **fields,
        }
        for n, bus in enumerate(_DGX_BUSES)
    ]


def h100x8() -> dict[str, Any]:
    """Return a DGX H100."""
    return {
        "host": {"machine": "DGXH100", "memory_bytes": 2164195123200, "cpus": 224},
        "devices": _eight("h100-sxm"),
    }


NODES: dict[str, Callable[[], dict[str, Any]]] = {"h100x8": h100x8}


def names() -> tuple[str, ...]:
    """Return the names of all fake machines."""
    return tuple(NODES)


def node(name: str) -> Scenario:
    """Return a fake machine by name; `KeyError` for a name that is not one of `names()`."""
    return Scenario.from_data({"name": name, **NODES[name]()})
