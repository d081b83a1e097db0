"""Whether a pod may land on a node: selectors, required node affinity, taints; the scheduler's rules, with reasons."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent.core.matching.verdicts import CANNOT_TELL, DOES_NOT_FIT, FITS, Verdict, all_of, any_of

_BLOCKING_EFFECTS = {"NoSchedule", "NoExecute"}


@dataclass(frozen=True, slots=True)
class Check:
    """One verdict about a place, and why where it is not `fits`."""

    verdict: Verdict
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Taint:
    """A node's taint; `value` and `effect` are empty where they are absent."""

    key: str
    value: str = ""
    effect: str = ""

    def __str__(self) -> str:
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"


@dataclass(frozen=True, slots=True)
class Labels:
    """Labels of a node; not `complete` where only a record of ours tells some of them."""

    values: Mapping[str, str]
    complete: bool = True


def selector_checks(selector: Mapping[str, str], labels: Labels, origin: str) -> Iterator[Check]:
    """Return what does not hold of a node selector; `origin` names the object that states it."""
    for key, wanted in selector.items():
        found = labels.values.get(key)
        if found == wanted:
            continue
        if found is None and not labels.complete:
            yield Check(CANNOT_TELL, f"label {key} is not known; {origin} selects {key}={wanted}")
        else:
            shown = "absent" if found is None else found
            yield Check(DOES_NOT_FIT, f"{_short(key)} is {shown}, {origin} selects {wanted} (label {key})")


def affinity_checks(
    terms: Sequence[Mapping[str, Any]] | None, labels: Labels, node: str, origin: str
) -> Iterator[Check]:
    """Return why a required node affinity does not hold: for several terms the reasons of the last."""
    if terms is None:
        return
    outcomes = [_term(term, labels, node, origin) for term in terms]
    verdict = any_of(check.verdict for check in outcomes) if outcomes else DOES_NOT_FIT
    if verdict == FITS:
        return
    reasons = [check.reason for check in outcomes if check.verdict == verdict]
    yield Check(
        verdict,
        reasons[-1] if reasons else f"{origin} has a node affinity without terms, which no node meets",
    )


def taint_checks(taints: Sequence[Taint], tolerations: Sequence[Mapping[str, Any]]) -> Iterator[Check]:
    """Return the taints that keep a pod away."""
    for taint in taints:
        if taint.effect in _BLOCKING_EFFECTS and not any(_tolerates(one, taint) for one in tolerations):
            yield Check(DOES_NOT_FIT, f"taint {taint} is not tolerated")


def _term(term: Mapping[str, Any], labels: Labels, node: str, origin: str) -> Check:
    """Evaluate one term: all its expressions must hold, and an empty one holds nowhere."""
    checks = [_expression(entry, labels, origin) for entry in _objects(term.get("matchExpressions"))]
    fields = Labels({"metadata.name": node})
    checks += [_expression(entry, fields, origin) for entry in _objects(term.get("matchFields"))]
    if not checks:
        return Check(DOES_NOT_FIT, f"{origin} has an empty affinity term, which no node meets")
    verdict = all_of(check.verdict for check in checks)
    return next(check for check in checks if check.verdict == verdict)


def _expression(entry: Mapping[str, Any], labels: Labels, origin: str) -> Check:
    key, operator = str(entry.get("key")), str(entry.get("operator"))
    values = [str(value) for value in entry.get("values") or ()]
    found = labels.values.get(key)
    wanted = f"{origin} needs {key} {operator} {', '.join(values)}".rstrip()
    if found is None and not labels.complete:
        return Check(CANNOT_TELL, f"label {key} is not known; {wanted}")
    if _holds(operator, values, found):
        return Check(FITS)
    return Check(DOES_NOT_FIT, f"{_short(key)} is {'absent' if found is None else found}, {wanted}")


def _holds(operator: str, values: Sequence[str], found: str | None) -> bool:
    match operator:
        case "In":
            return found in values
        case "NotIn":
            return found not in values
        case "Exists":
            return found is not None
        case "DoesNotExist":
            return found is None
        case "Gt" | "Lt":
            return _compared(operator, values, found)
        case _:
            # The server knows no other operator; a file may hold anything.
            return False


def _compared(operator: str, values: Sequence[str], found: str | None) -> bool:
    try:
        figure, limit = int(found or ""), int(values[0])
    except (ValueError, IndexError):
        # The scheduler takes a label that is no integer for a mismatch.
        return False
    return figure > limit if operator == "Gt" else figure < limit


def _tolerates(toleration: Mapping[str, Any], taint: Taint) -> bool:
    key, effect = toleration.get("key") or "", toleration.get("effect") or ""
    if effect not in {"", taint.effect}:
        return False
    if (toleration.get("operator") or "Equal") == "Exists":
        return key in {"", taint.key}
    return key == taint.key and (toleration.get("value") or "") == taint.value


def _short(key: str) -> str:
    """Return the part of a label key that people say: `driver-major`."""
    return key.rpartition("/")[2]


def _objects(entries: object) -> list[Mapping[str, Any]]:
    return (
        [entry for entry in entries if isinstance(entry, Mapping)]
        if isinstance(entries, list | tuple)
        else []
    )
