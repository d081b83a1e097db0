"""The merge patch that makes a runtime name every class that fits."""

from dataclasses import dataclass
from typing import Any

from agent.core.matching.answer import Answer, answer_for
from agent.core.matching.question import Hardware, Options, without_list
from agent.core.matching.requirements import Stated
from agent.core.matching.spelling import same_name
from agent.core.matching.subject import Subject
from agent.core.matching.verdicts import FITS, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Patch:
    """What to write into a runtime."""

    target: str
    """`Kind/name` of the runtime."""
    classes: tuple[str, ...]
    """Empty where no class fits, whatever is listed."""
    verdict: Verdict
    """Of the subject with the patch applied."""

    @property
    def body(self) -> dict[str, Any]:
        """Return the JSON merge patch."""
        return {"spec": {"acceleratorRequirements": {"acceleratorClasses": list(self.classes)}}}


def patch_for(subject: Subject, hardware: Hardware, options: Options) -> Patch:
    """Return the list of all fitting classes: those already listed first, in their order, then by the policy's choice.

    Classes that do not exist are dropped: one of them is enough to make OME select none.
    """
    answer = answer_for(subject, hardware, without_list(options))
    runtime = subject.runtime or {}
    return Patch(
        target=f"{runtime.get('kind')}/{(runtime.get('metadata') or {}).get('name')}",
        classes=_ordered(answer, subject.requirements.classes),
        verdict=answer.verdict,
    )


def _ordered(answer: Answer, stated: Stated[tuple[str, ...]] | None) -> tuple[str, ...]:
    fitting = [one.facts.name for one in answer.classes if one.verdict == FITS]
    listed = [same_name(name, fitting) for name in stated.value] if stated else []
    chosen = answer.choice.class_name if answer.choice else None
    names = [*listed, chosen, *fitting]
    return tuple(dict.fromkeys(name for name in names if name is not None))
