"""The two forms of an `nvidia-smi -q` report, read into one tree: XML (`-q -x`) and indented text (`-q`)."""

import re
from dataclasses import dataclass, field
from xml.etree import ElementTree as ET

from fakes.strict import ScenarioError

_TEXT_HEAD = "NVSMI LOG"
_XML_ROOT = "nvidia_smi_log"
_GPU_LINE = re.compile(r"^GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])\s*$")


@dataclass(slots=True)
class Entry:
    """One line or element: its name, its text, what stands under it."""

    name: str
    value: str = ""
    children: list["Entry"] = field(default_factory=list)

    def find(self, path: str) -> "Entry | None":
        """Return the first entry at a path of names separated by `/`."""
        entry: Entry | None = self
        for name in path.split("/"):
            entry = next((child for child in entry.children if child.name == name), None) if entry else None
        return entry

    def all(self, path: str) -> list["Entry"]:
        """Return every entry at a path; only the last name may repeat."""
        parent, _, last = path.rpartition("/")
        holder = self.find(parent) if parent else self
        return [child for child in holder.children if child.name == last] if holder else []


def is_xml(text: str) -> bool:
    """Tell whether a text is a report in XML."""
    return text.lstrip().startswith("<") and _XML_ROOT in text[:2000]


def is_report(text: str) -> bool:
    """Tell whether a text is a report in either form."""
    return is_xml(text) or _TEXT_HEAD in text[:2000]


def read_report(text: str) -> Entry:
    """Return the tree of a report: entries of the whole machine, and one named `gpu` for each GPU."""
    return _read_xml(text) if is_xml(text) else _read_text(text)


def _read_xml(text: str) -> Entry:
    if "<!ENTITY" in text:
        # nvidia-smi declares none, and nested ones grow without bound. External ones are never fetched.
        raise ScenarioError("the report declares XML entities, which nvidia-smi never does")
    try:
        root = ET.fromstring(text)  # noqa: S314 -- entities were refused
    except ET.ParseError as error:
        raise ScenarioError(f"not a whole report of nvidia-smi -q -x: {error}") from error
    return _entry(root)


def _entry(element: ET.Element) -> Entry:
    return Entry(element.tag, (element.text or "").strip(), [_entry(child) for child in element])


def _read_text(text: str) -> Entry:
    root = Entry(_XML_ROOT)
    open_entries: list[tuple[int, Entry]] = [(-1, root)]
    for line in text.splitlines():
        if not line.strip() or line.startswith("="):
            continue
        indent = len(line) - len(line.lstrip())
        gpu = _GPU_LINE.match(line)
        name, colon, value = line.partition(" : ")
        text_of_line = value.strip() if colon else ""
        entry = Entry("gpu", gpu[1]) if gpu is not None else Entry(name.strip(), text_of_line)
        while open_entries[-1][0] >= indent:
            open_entries.pop()
        open_entries[-1][1].children.append(entry)
        open_entries.append((indent, entry))
    return root
