"""The OME mode against inputs and outputs observed on OME's own code."""

import json
from pathlib import Path

import pytest

from agent.core.matching.ome import choose_by_name, ome_answer, runtime_compatible, select
from agent.core.matching.ome_scores import (
    best_fit_score,
    compute_score,
    eligible,
    max_tflops,
    memory_as_gib,
    memory_fit_score,
    score_from_tflops,
    tflops_for_precision,
)
from agent.core.quantity import canonical_quantity

HANDED = Path(__file__).parents[3].parent / "shared" / "cases" / "ome-matching.json"
OWN = Path(__file__).parent / "data" / "ome_cases.json"


def cases(path):
    document = json.loads(path.read_text())
    return [
        pytest.param(document["fixtures"], case, id=f"{case['id']}-{case['fn']}")
        for case in document["cases"]
    ]


def eligibility(_, given):
    return eligible(given["class"], given["constraints"])._asdict()


def selection(fixtures, given):
    candidates = [fixtures[one] if isinstance(one, str) else one for one in given["candidates"]]
    answer = select(given["policy"], candidates, given["constraints"])
    return "PANIC" if answer.outcome == "panic" else answer.class_name


def compatibility(_, given):
    required = [given[key] for key in given if key != "runtimeClasses"]
    return {"ok": runtime_compatible(given["runtimeClasses"], required), "error": "RuntimeCompatibilityError"}


def by_name(_, given):
    override = given.get(f"{given['component']}OverrideClass")
    return choose_by_name(given["runtimeClasses"], given.get("selectorClass"), override)


FUNCTIONS = {
    "eligible": eligibility,
    "select": selection,
    "scoreFromTFLOPS": lambda _, given: score_from_tflops(*given),
    "tflopsForPrecision": lambda _, given: tflops_for_precision(given["performance"], given["precision"]),
    "maxTflops": lambda _, given: max_tflops(given["performance"]),
    "memoryFitScore": lambda _, given: memory_fit_score(given["memoryGB"], given["minMemory"]),
    "computeScore": lambda _, given: compute_score(given["performance"], given),
    "bestFitScore": lambda _, given: best_fit_score({"capabilities": given}, given),
    "chooseByName": by_name,
    "runtimeCompatible": compatibility,
    "getAcceleratorClass": lambda _, given: selected(given),
    "memoryAsGB": lambda _, given: memory_as_gib(given),
    "quantityAfterGoRoundTrip": lambda _, given: canonical_quantity(given),
}


def outcome(fixtures, case):
    found = FUNCTIONS[case["fn"]](fixtures, case["in"])
    # Some cases tell the verdict alone, and no reason.
    return found["ok"] if isinstance(found, dict) and isinstance(case["out"], bool) else found


def selected(given):
    runtime = {
        "spec": {
            "acceleratorRequirements": {
                "acceleratorClasses": given["runtimeClasses"],
                "minMemory": given.get("runtimeMinMemory"),
                "requiredFeatures": given.get("runtimeRequiredFeatures"),
            }
        }
    }
    selector = {
        "acceleratorClass": given.get("selectorClass"),
        "policy": given.get("policy"),
        "constraints": given.get("constraints"),
    }
    service = {
        "spec": {
            "acceleratorSelector": selector,
            "engine": {"acceleratorOverride": given.get("engineOverride", {})},
        }
    }
    present = {name: {"name": name} for name in given["present"]}
    return ome_answer(runtime, service, "engine", present).class_name


TOLERANCE = {"memoryFitScore": 0.01, "computeScore": 0.01, "bestFitScore": 0.02}


def holds(fixtures, case):
    expected = case["out"]
    if case["fn"] in TOLERANCE:
        expected = pytest.approx(expected, abs=TOLERANCE[case["fn"]])
    assert outcome(fixtures, case) == expected


@pytest.mark.skipif(not HANDED.exists(), reason="the handed cases lie beside the repository, not in it")
def test_every_handed_case_is_reproduced(subtests):
    document = json.loads(HANDED.read_text())
    assert len(document["cases"]) > 100
    for case in document["cases"]:
        with subtests.test(id=case["id"]):
            holds(document["fixtures"], case)


@pytest.mark.parametrize(("fixtures", "case"), cases(OWN))
def test_ome_does_with_the_projects_own_cases_what_is_written(fixtures, case):
    holds(fixtures, case)
