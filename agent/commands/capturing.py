"""`capture`: writes the scenario of a machine as a file that `--fake` loads."""

from pathlib import Path
from typing import Any, TextIO

from agent.commands.dumping import dump
from agent.settings import SettingsError
from probes.facts import NodeFacts

_HEAD = """\
# All that NVML and the files of one machine answered to one probe, as a scenario:
#   accelerator-agent probe --fake FILE
# UUIDs and fabric domains are replaced, serial numbers and the host's name were never read. The names of products, of
# the machine and of its kernel, and PCI addresses are as they were: look through the file before you publish it.
"""


def write_capture(
    facts: NodeFacts, scenario: dict[str, Any], file: str, *, stdout: TextIO, stderr: TextIO
) -> int:
    """Write the scenario to `file`, `-` for standard output, and say what is in it."""
    text = _HEAD + dump(scenario, "yaml") + "\n"
    if file == "-":
        stdout.write(text)
    else:
        try:
            Path(file).write_text(text, encoding="utf-8")
        except OSError as error:
            raise SettingsError(f"{file} cannot be written: {error.strerror}") from error
    failures = len(scenario["failures"])
    where = "standard output" if file == "-" else file
    stderr.write(
        f"wrote {where}: {len(facts.accelerators)} devices, {failures} failures in the script, "
        f"verdict {facts.verdict} ({facts.reason})\n"
    )
    return 0
