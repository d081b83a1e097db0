"""The choice by policy, and the patch that makes it possible."""

import copy

import pytest

from agent.core.matching.ome import ome_answer, ome_class
from agent.core.matching.patch import patch_for
from agent.core.matching.question import Options
from agent.core.matching.requirements import POLICIES
from agent.core.matching.subject import runtime_subject
from tests.core.matching.kit import (
    a_node,
    a_runtime,
    a_service,
    answered,
    bare_class,
    class_of,
    the_hardware,
    verdicts,
)

H100, A100, L4, B200, T4 = (
    class_of(f"nvidia-{name}") for name in ("h100-80gb", "a100-80gb", "l4-24gb", "b200-180gb", "t4-16gb")
)
ALL = [H100, A100, L4, B200, T4]


def priced(obj, **cost):
    found = copy.deepcopy(obj)
    found["spec"]["cost"] = cost
    return found


def chosen(policy, classes, *, constraints=None, listed=None, **given):
    runtime = a_runtime(acceleratorClasses=listed or [one["metadata"]["name"] for one in classes])
    service = a_service(selector={"policy": policy, "constraints": constraints or {}})
    choice = answered(runtime, classes, service=service, **given).choice
    return choice and choice.class_name


@pytest.mark.parametrize(
    ("policy", "constraints", "classes", "expected"),
    [
        pytest.param("BestFit", {"minMemory": 24}, ALL, "nvidia-l4-24gb", id="the smallest that is enough"),
        pytest.param("BestFit", {"minMemory": 80}, [H100, B200], "nvidia-h100-80gb", id="80 before 180"),
        pytest.param(
            "BestFit",
            {"minMemory": 80, "preferredPrecisions": ["fp8", "fp16"]},
            [A100, H100],
            "nvidia-h100-80gb",
            id="the preferred precision breaks equal memory",
        ),
        pytest.param("MostCapable", {}, ALL, "nvidia-b200-180gb", id="the largest"),
        pytest.param(
            "MostCapable", {"maxMemory": 24}, ALL, "nvidia-l4-24gb", id="the largest that is allowed"
        ),
        pytest.param("FirstAvailable", {"minMemory": 80}, ALL, "nvidia-h100-80gb", id="the runtime's order"),
        pytest.param("Cheapest", {}, ALL, None, id="no price at all"),
        pytest.param(
            "Cheapest",
            {},
            [priced(H100, perHour="3"), priced(A100, perHour="4", spotPerHour="1500m")],
            "nvidia-a100-80gb",
            id="spot before hourly",
        ),
        pytest.param(
            "Cheapest",
            {},
            [priced(H100, spotPerHour="0", perHour="3"), priced(A100, perHour="2")],
            "nvidia-a100-80gb",
            id="0 is not a price",
        ),
        pytest.param(
            "Cheapest",
            {},
            [priced(H100, perMillionTokens="10"), priced(A100, perMillionTokens="9")],
            "nvidia-a100-80gb",
            id="tokens",
        ),
        pytest.param(
            "Cheapest", {}, [priced(H100, tier="HIGH"), priced(L4, tier="low")], "nvidia-l4-24gb", id="tier"
        ),
        pytest.param("Cheapest", {}, [priced(H100, tier="free"), H100], None, id="a tier that is none"),
    ],
)
def test_each_policy_takes_what_it_says(policy, constraints, classes, expected):
    assert chosen(policy, classes, constraints=constraints) == expected


def test_first_available_passes_over_a_class_that_is_taken():
    nodes = [a_node("busy", "nvidia-h100-80gb"), a_node("idle", "nvidia-a100-80gb")]
    held = {"busy": {"nvidia.com/gpu": 8}}
    assert chosen("FirstAvailable", [H100, A100], nodes=nodes, requested=held) == "nvidia-a100-80gb"


SOUND = [
    pytest.param(policy, constraints, id=f"{policy}-{number}")
    for policy in POLICIES
    for number, constraints in enumerate(
        (
            {"minMemory": 16},
            {"minMemory": 40, "preferredPrecisions": ["fp16"]},
            {"maxMemory": 80, "preferredPrecisions": ["int8", "fp16"]},
            {
                "requiredFeatures": ["nvlink"],
                "minComputePerformanceTFLOPS": 300,
                "preferredPrecisions": ["fp16"],
            },
        )
    )
]


@pytest.mark.parametrize(("policy", "constraints"), SOUND)
def test_where_omes_choice_is_sound_ours_is_the_same(policy, constraints):
    classes = [priced(one, perHour=str(place + 1)) for place, one in enumerate(ALL)]
    runtime = a_runtime(acceleratorClasses=[one["metadata"]["name"] for one in classes])
    service = a_service(selector={"policy": policy, "constraints": constraints})
    theirs = ome_answer(
        runtime, service, "engine", {one["metadata"]["name"]: ome_class(one) for one in classes}
    )
    assert chosen(policy, classes, constraints=constraints) == theirs.class_name


def test_a_class_of_which_it_cannot_be_told_is_never_chosen():
    unknown = bare_class("a-mystery", vendor="nvidia")
    assert chosen("FirstAvailable", [unknown, H100], constraints={"minMemory": 80}) == "nvidia-h100-80gb"


@pytest.mark.parametrize("policy", POLICIES)
def test_the_patch_turns_does_not_fit_into_fits(policy):
    classes = [priced(one, perHour=str(place + 1)) for place, one in enumerate(ALL)]
    runtime = a_runtime(
        acceleratorClasses=["nvidia-t4-16gb", "gone"], minMemory=80, preferredPrecisions=["fp8"]
    )
    assert answered(runtime, classes, policy=policy).verdict == "does-not-fit"
    patch = patch_for(runtime_subject(runtime), the_hardware(classes), Options(policy=policy))
    patched = copy.deepcopy(runtime)
    patched["spec"]["acceleratorRequirements"] |= patch.body["spec"]["acceleratorRequirements"]
    answer = answered(patched, classes, policy=policy)
    assert (answer.verdict, answer.findings[0].id) == ("fits", "no-nodes")
    assert set(patch.classes) == {"nvidia-h100-80gb", "nvidia-b200-180gb"}
    assert answer.choice.class_name == patch.classes[0]


def test_the_patch_keeps_the_order_of_what_is_listed_and_fits():
    runtime = a_runtime(
        acceleratorClasses=["nvidia-b200-180gb", "nvidia-t4-16gb", "nvidia-h100-80gb"], minMemory=80
    )
    patch = patch_for(runtime_subject(runtime), the_hardware(ALL), Options())
    assert patch.classes == ("nvidia-b200-180gb", "nvidia-h100-80gb", "nvidia-a100-80gb")


def test_there_is_no_patch_where_nothing_fits():
    patch = patch_for(runtime_subject(a_runtime(minMemory=500)), the_hardware(ALL), Options())
    assert (patch.classes, patch.verdict) == ((), "does-not-fit")


def test_the_nearest_miss_comes_first():
    runtime = a_runtime(minMemory=81, minArchitectureVersion="8.0")
    answer = answered(runtime, [T4, L4, H100])
    assert [one.facts.name for one in answer.classes] == [
        "nvidia-h100-80gb",
        "nvidia-l4-24gb",
        "nvidia-t4-16gb",
    ]


def test_a_service_without_a_known_runtime_is_promised_nothing():
    answer = answered(
        None, [H100], service=a_service(selector={"constraints": {"minMemory": 80}}, runtime=None)
    )
    assert (answer.verdict, verdicts(answer)) == ("cannot-tell", {"nvidia-h100-80gb": "fits"})


def test_constraints_of_a_service_its_component_and_its_runtime_add_up():
    service = a_service(
        selector={"constraints": {"maxMemory": 100}},
        engine={"acceleratorOverride": {"constraints": {"requiredFeatures": ["fp8"]}}},
    )
    answer = answered(a_runtime(minMemory=24), ALL, service=service)
    assert verdicts(answer) == {
        "nvidia-h100-80gb": "fits",
        "nvidia-l4-24gb": "fits",
        "nvidia-a100-80gb": "does-not-fit",
        "nvidia-b200-180gb": "does-not-fit",
        "nvidia-t4-16gb": "does-not-fit",
    }


def test_old_and_unknown_fields_are_named():
    runtime = a_runtime(minComputeCapability="9.0", minMemroy=80, maxMemory=90)
    ids = [(f.id, f.path, f.message) for f in runtime_subject(runtime).findings]
    place = "spec.acceleratorRequirements"
    assert ids == [
        (
            "old-field-name",
            f"{place}.minComputeCapability",
            "minComputeCapability is an old name and is not evaluated: write minArchitectureVersion",
        ),
        (
            "unknown-field",
            f"{place}.minMemroy",
            "minMemroy is no field of the API and is not evaluated; did you mean minMemory?",
        ),
        (
            "unknown-field",
            f"{place}.maxMemory",
            "maxMemory is no field of the API and is not evaluated; did you mean minMemory?",
        ),
    ]
