"""What `probe` prints for programs: the facts as they are. Imports nothing that describes hardware."""

import msgspec

from agent.commands.dumping import dump
from probes.facts import NodeFacts


def facts_text(facts: NodeFacts, output: str) -> str:
    """Return the facts as `yaml` or `json` text."""
    return dump(msgspec.to_builtins(facts), output)
