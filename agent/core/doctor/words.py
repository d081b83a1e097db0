"""Causes and lists in words, for the checks of hardware."""

import re
from collections.abc import Iterable, Sequence

from agent.core.doctor.causes import CAUSES
from agent.core.doctor.check import Check, finding
from probes.facts import NodeFacts

_SHOWN = 8
_MENDER = re.compile(
    r"(?:[:;.]) (?=whoever deploys|the operator of|The operator of|If nvidia-smi works|if the host still)"
)


def cause_of(facts: NodeFacts, check: str) -> Check | None:
    """Return the finding of a check that is the cause of what the probe came to."""
    cause = CAUSES.get(facts.reason)
    if cause is None or cause.check != check:
        return None
    return finding(check, _seen(facts.message), meaning=cause.meaning, mend=cause.mend, who=cause.who)


def _seen(message: str) -> str:
    """Return what a probe's message says was seen, without what it says of mending."""
    return _MENDER.split(message)[0]


def cause_elsewhere(facts: NodeFacts) -> str | None:
    """Return why a check that needs answers is skipped, `None` where NVML answered."""
    if facts.verdict == "none":
        return "there is no NVIDIA GPU for this machine's workloads"
    if not facts.asked:
        cause = CAUSES.get(facts.reason)
        return f"the hardware could not be asked; see {cause.check if cause else facts.reason}"
    return None


def listed(words: Iterable[str]) -> str:
    """Return the words in the order that a person counts in: 2 before 10."""
    return ", ".join(sorted(words, key=_natural))


def _natural(word: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (0, part) for part in re.split(r"(\d+)", word)]


def first_of(texts: Sequence[str]) -> str:
    """Return the first few of many, and how many more there are."""
    rest = len(texts) - _SHOWN
    return "; ".join(texts[:_SHOWN]) + (f"; and {rest} more" if rest > 0 else "")
