"""What is worth knowing beside the verdicts of an answer."""

from collections.abc import Iterable

from agent.core.matching.question import Hardware, Options
from agent.core.matching.requirements import Requirements
from agent.core.matching.spelling import did_you_mean, same_name
from agent.core.matching.verdicts import Finding


def answer_findings(requirements: Requirements, hardware: Hardware, options: Options) -> Iterable[Finding]:
    """Return what an answer should say beside its verdicts: names that lead nowhere, facts that are missing."""
    yield from _missing_classes(requirements, hardware, options)
    for facts in hardware.classes:
        for problem in facts.problems:
            yield Finding(
                id="value-not-usable",
                severity="error",
                path=f"AcceleratorClass/{facts.name} {problem.path}",
                message=f"{problem.message}; the fact counts as not known",
            )
    if not hardware.classes:
        yield Finding(
            id="no-classes",
            severity="error",
            path="",
            message=f"there is no AcceleratorClass in {hardware.source}",
        )
    if not hardware.nodes:
        yield Finding(
            id="no-nodes",
            severity="info",
            path="",
            message="no nodes are known, so nothing is said of what is free or how many are on one node",
        )
    elif all(node.allocatable is None for node in hardware.nodes):
        yield Finding(
            id="no-node-objects",
            severity="info",
            path="",
            message="no Node objects are known: taints, cordons, selectors and what is free were not compared",
        )
    elif all(node.requested is None for node in hardware.nodes):
        yield Finding(
            id="pods-not-read",
            severity="info",
            path="",
            message="pods were not read, so all that the kubelet offers counts as free",
        )
    simulated = [node.name for node in hardware.nodes if node.simulated]
    if simulated:
        among = f"{len(simulated)} nodes have simulated hardware, among them {simulated[0]}"
        yield Finding(
            id="simulated-nodes",
            severity="warning",
            path="",
            message=among if len(simulated) > 1 else f"node {simulated[0]} has simulated hardware",
        )


def _missing_classes(requirements: Requirements, hardware: Hardware, options: Options) -> Iterable[Finding]:
    """Tell of listed or named classes that do not exist, or are spelt in a way that OME does not find."""
    names = [facts.name for facts in hardware.classes]
    listed = requirements.classes if options.only_listed else None
    places = [(name, f"{listed.path}[{place}]") for place, name in enumerate(listed.value)] if listed else []
    places += [(stated.value, stated.path) for stated in requirements.named]
    for name, path in places:
        same = same_name(name, names)
        if same is None:
            message = f"there is no class {name} in {hardware.source}{did_you_mean(name, names)}"
            yield Finding(id="listed-class-missing", severity="warning", path=path, message=message)
        elif same != name:
            message = (
                f"{name} is taken for {same}; OME compares names to the letter and finds none: write {same}"
            )
            yield Finding(id="class-name-spelling", severity="warning", path=path, message=message)
