"""Named fake machines, and any other that a file describes."""

from collections.abc import Callable
from difflib import get_close_matches
from pathlib import Path

from fakes.machines import MACHINES, Data
from fakes.scenario import Scenario
from fakes.strict import MAX_TEXT_BYTES, ScenarioError
from fakes.troubles import TROUBLES

_KERNEL = "6.8.0-60-generic"

NODES: dict[str, Callable[[], Data]] = {**MACHINES, **TROUBLES}


def names() -> tuple[str, ...]:
    """Return the names of all fake machines."""
    return tuple(NODES)


def node(name: str) -> Scenario:
    """Return a fake machine by name; `KeyError` for a name that is not one of `names()`."""
    data = NODES[name]()
    host = {"kernel": _KERNEL, **data.get("host", {})}
    return Scenario.from_data({**data, "name": name, "host": host})


def load(source: str) -> Scenario:
    """Return the scenario that a name or a file describes; `ScenarioError` says what is wrong with either.

    A file is a scenario in YAML, or what `nvidia-smi -q -x` or `nvidia-smi -q` printed, told apart by its content.
    """
    if source in NODES:
        return node(source)
    path = Path(source)
    if not path.is_file():
        near = get_close_matches(source, NODES, n=1)
        hint = f" (did you mean {near[0]}?)" if near else ""
        raise ScenarioError(f"{source!r}{hint} is neither a file nor one of {', '.join(names())}")
    if path.stat().st_size > 8 * MAX_TEXT_BYTES:
        raise ScenarioError(f"{source}: larger than {8 * MAX_TEXT_BYTES} bytes")
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ScenarioError(f"{source}: not text in UTF-8") from error
    # Only a report of nvidia-smi needs its reader.
    from fakes import smi  # noqa: PLC0415

    if smi.is_report(text):
        return smi.scenario_of_file(path, text)
    return Scenario.from_yaml(text)
