"""Readings of one GPU in a report of `nvidia-smi -q`, by our names for them; N/A and errors are `None`."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fakes.marshal import MESSAGES
from fakes.report import Entry
from fakes.smi_paths import PATHS

ABSENT = {"", "N/A", "[N/A]", "[Not Supported]", "Not Supported", MESSAGES[26]}
_FAILURE_CODES = {message: code for code, message in MESSAGES.items() if code not in {0, 3, 26}}


@dataclass(frozen=True, slots=True)
class GpuReport:
    """One GPU of a report."""

    entry: Entry
    xml: bool

    def raw(self, name: str) -> str | None:
        """Return the text of a reading, the first of its known places; `None` where the report has none."""
        return value_at(self.entry, name, xml=self.xml)

    def text(self, name: str) -> str | None:
        """Return the text of a reading; `None` for N/A and for the words of an error."""
        value = self.raw(name)
        return None if value is None or value in ABSENT or error_code(value) is not None else value

    def number(self, name: str) -> float | None:
        """Return the number before the unit."""
        match = re.match(r"-?\d+(\.\d+)?", self.text(name) or "")
        return float(match[0]) if match else None

    def whole(self, name: str) -> int | None:
        """Return the whole number before the unit."""
        number = self.number(name)
        return None if number is None else round(number)

    def mebibytes(self, name: str) -> int | None:
        """Return bytes of a reading in MiB."""
        number = self.whole(name)
        return None if number is None else number << 20

    def word(self, name: str, words: Mapping[str, Any]) -> Any:  # noqa: ANN401 -- what the table holds
        """Return what stands for a word, `None` for a word that the table lacks."""
        return words.get(self.text(name) or "")


def value_at(entry: Entry, name: str, *, xml: bool) -> str | None:
    """Return the text of a reading under an entry."""
    for path in PATHS[name][0 if xml else 1]:
        if (found := entry.find(path)) is not None:
            return found.value
    return None


def error_code(text: str) -> int | None:
    """Return the NVML code whose message nvidia-smi printed in place of a value."""
    return _FAILURE_CODES.get(text.strip("[]"))
