"""Boards as data: one TOML file each, holding the fields of `fakes.hardware.Device` that belong to the board.

A file is read when a scenario names it. Figures come from the product catalogue and from captures of real machines.
"""

import tomllib
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

_DIRECTORY = Path(__file__).parent


def names() -> tuple[str, ...]:
    """Return the names of all boards, sorted."""
    return tuple(sorted(file.stem for file in _DIRECTORY.glob("*.toml")))


def board(name: str) -> dict[str, Any]:
    """Return the fields of a board; `KeyError` for a name that is not one of `names()`."""
    return deepcopy(_read(name))


@cache
def _read(name: str) -> dict[str, Any]:
    if name not in names():
        raise KeyError(name)
    return tomllib.loads((_DIRECTORY / f"{name}.toml").read_text(encoding="utf-8"))
