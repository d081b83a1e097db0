"""How many accelerators a workload takes on a class: from the model's size, the parallel sizes, and what pods ask for."""

from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal

from agent.core.matching.hardware import ClassFacts, gib_text
from agent.core.matching.precisions import BYTES_PER_PARAMETER
from agent.core.matching.requirements import Model, Requirements
from agent.core.matching.verdicts import CANNOT_TELL, DOES_NOT_FIT, FITS, RuleAnswer
from agent.core.matching.workload import Parallelism

OVERHEAD = Decimal("1.2")
"""Twenty per cent on top of the weights, for activations and a small cache, where the runtime does not say more."""

DEFAULT_PRECISION = "fp16"


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """What a workload takes on one class."""

    accelerators: int
    """Of one replica, on all its nodes."""
    per_pod: int
    """On one node, whole."""
    pods: int
    tensor_parallel: int
    stated: bool
    """Whether anything states a number; else one accelerator is taken for granted."""
    text: str


def need_on(
    requirements: Requirements, facts: ClassFacts, precision: str | None
) -> tuple[Need, tuple[RuleAnswer, ...]]:
    """Return the number for a class, and the rules about it: the model's size and the parallel sizes."""
    override = requirements.override_for(facts.name)
    work = requirements.workload
    sizes = override.parallelism if override and override.parallelism.stated else work.parallelism
    asked = _asked(requirements, facts)
    model, size_rule = _of_model(requirements, facts, precision)
    # One copy of the model lies on one tensor × pipeline group.
    groups = -(-(model or 1) // sizes.replica) * sizes.replica if sizes.stated else model or 1
    accelerators = max(groups * (sizes.data or 1), asked or 0)
    pods = work.pods
    per_pod = max(-(-accelerators // pods), (asked or 0) // pods)
    need = Need(
        accelerators=accelerators,
        per_pod=per_pod,
        pods=pods,
        tensor_parallel=sizes.tensor or 1,
        stated=bool(model or sizes.stated or asked),
        text=_text(accelerators, per_pod, pods),
    )
    rules = [size_rule] if size_rule else []
    rules += _room_rules(requirements, facts, sizes, asked, model)
    return need, tuple(rules)


def _asked(requirements: Requirements, facts: ClassFacts) -> int | None:
    """Return what the pods ask for together; `spec.resources` of the class is what OME writes over it."""
    work = requirements.workload
    per_pod = work.per_pod
    offered = facts.resource
    if offered is not None and offered in facts.resources and work.resource in (None, offered):
        per_pod = facts.resources[offered]
    return None if per_pod is None else per_pod * work.pods


def _of_model(
    requirements: Requirements, facts: ClassFacts, precision: str | None
) -> tuple[int | None, RuleAnswer | None]:
    """Return the accelerators that hold the model, `None` where it or the memory is not known."""
    model = requirements.model
    if model is None or model.billions is None:
        return None, None
    gigabytes, how = _gigabytes(model, requirements, facts, precision)
    required = f"{_number(gigabytes)} GB for {_number(model.billions)}B parameters ({how})"
    if facts.memory is None:
        return None, RuleAnswer(
            rule="modelSize",
            verdict=CANNOT_TELL,
            required=required,
            found="not known",
            source=facts.where("spec.capabilities.memoryGB"),
            path=model.source,
            reason="the class's memory is not known, so the model's accelerators cannot be counted",
        )
    count = int((gigabytes / facts.memory.nominal_gib).to_integral_value(rounding=ROUND_CEILING))
    return count, RuleAnswer(
        rule="modelSize",
        verdict=FITS,
        required=required,
        found=f"{count} × {gib_text(facts.memory.nominal_gib)}",
        source=facts.where("spec.capabilities.memoryGB"),
        path=model.source,
    )


def _gigabytes(
    model: Model, requirements: Requirements, facts: ClassFacts, precision: str | None
) -> tuple[Decimal, str]:
    billions = model.billions or Decimal(0)
    override = requirements.override_for(facts.name)
    if override is not None and override.gb_per_billion:
        return billions * override.gb_per_billion, f"minMemoryPerBillionParams {override.gb_per_billion} GB"
    word = model.precision or precision or DEFAULT_PRECISION
    size = Decimal(str(BYTES_PER_PARAMETER[word]))
    return billions * size * OVERHEAD, f"{word}: {_number(size)} bytes a parameter and 20 % on top"


def _room_rules(
    requirements: Requirements, facts: ClassFacts, sizes: Parallelism, asked: int | None, model: int | None
) -> list[RuleAnswer]:
    """Return what does not hold between the model, the parallel sizes and what the pods ask for."""
    rules = []
    if sizes.stated:
        rules.append(_parallelism_rule(requirements, facts, sizes, asked))
    room = sizes.replica if sizes.stated else asked
    if model is not None and room is not None and model > room:
        where = sizes.path if sizes.stated else requirements.workload.path
        rules.append(
            RuleAnswer(
                rule="modelSize",
                verdict=DOES_NOT_FIT,
                required=f"{model} accelerators for one copy of the model",
                found=f"{room} by {'tensor × pipeline size' if sizes.stated else 'what the pods ask for'}",
                source=where or facts.where("spec.resources"),
                path=requirements.model.source if requirements.model else None,
                reason=f"the model takes {model} accelerators, the runtime gives it {room}",
                gap=1 - room / model,
            )
        )
    return rules


def _parallelism_rule(
    requirements: Requirements, facts: ClassFacts, sizes: Parallelism, asked: int | None
) -> RuleAnswer:
    parts = (("tensor", sizes.tensor), ("pipeline", sizes.pipeline), ("data", sizes.data))
    required = " × ".join(f"{name} {size}" for name, size in parts if size) + f" = {sizes.total}"
    source = requirements.workload.path or facts.where("spec.resources")
    if asked is None or sizes.total <= asked:
        found = "no number asked for" if asked is None else f"{asked} asked for"
        return RuleAnswer(
            rule="parallelism", verdict=FITS, required=required, found=found, source=source, path=sizes.path
        )
    return RuleAnswer(
        rule="parallelism",
        verdict=DOES_NOT_FIT,
        required=required,
        found=f"{asked} asked for",
        source=source,
        path=sizes.path,
        reason=f"parallel sizes take {sizes.total} accelerators, the pods ask for {asked}",
        gap=1 - asked / sizes.total,
    )


def _text(accelerators: int, per_pod: int, pods: int) -> str:
    noun = "accelerator" if accelerators == 1 else "accelerators"
    return f"{accelerators} {noun}" + (f" ({pods} pods of {per_pod})" if pods > 1 else " on one node")


def _number(value: Decimal) -> str:
    return f"{value.normalize():f}"
