"""What one check comes to."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Status = Literal["ok", "finding", "skipped"]

Who = Literal["", "the operator of this node", "whoever deploys this agent", "the cluster's administrator"]
"""Who can mend a finding; empty where there is nothing to mend."""

NODE_OPERATOR: Who = "the operator of this node"
DEPLOYER: Who = "whoever deploys this agent"
ADMINISTRATOR: Who = "the cluster's administrator"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One check and its outcome."""

    id: str
    """A word that stays: scripts and the documentation name checks by it."""
    status: Status
    evidence: str
    """What was seen, or for a skipped check why nothing was looked at."""
    meaning: str = ""
    """What follows from a finding."""
    mend: str = ""
    who: Who = ""


def ok(id_: str, evidence: str) -> Check:
    """Return a check that found all well."""
    return Check(id=id_, status="ok", evidence=evidence)


def skipped(id_: str, why: str) -> Check:
    """Return a check that was not made."""
    return Check(id=id_, status="skipped", evidence=why)


def finding(id_: str, evidence: str, *, meaning: str, mend: str, who: Who) -> Check:
    """Return a check that found something to mend."""
    return Check(id=id_, status="finding", evidence=evidence, meaning=meaning, mend=mend, who=who)


def findings(checks: Iterable[Check]) -> tuple[Check, ...]:
    """Return the checks that found something, in their order."""
    return tuple(check for check in checks if check.status == "finding")


def plain(checks: Sequence[Check]) -> dict[str, Any]:
    """Return the checks as JSON has them; what is empty is left out."""
    keys = ("id", "status", "evidence", "meaning", "mend", "who")
    return {
        "checks": [{key: getattr(check, key) for key in keys if getattr(check, key)} for check in checks],
        "findings": [check.id for check in findings(checks)],
    }
