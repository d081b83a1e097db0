"""Each rule against classes that fit, that do not, and of which it cannot be told."""

import pytest

from tests.core.matching.kit import a_runtime, a_service, answered, bare_class, class_of, the_rule

FITS, NOT, UNKNOWN = "fits", "does-not-fit", "cannot-tell"


def outcome(rule, one, *, runtime=None, constraints=None, selector=None, **options):
    service = None
    if constraints is not None or selector is not None:
        service = a_service(selector=(selector or {}) | ({"constraints": constraints} if constraints else {}))
    answer = answered(runtime or a_runtime(), [one], service=service, **options)
    return the_rule(answer, one["metadata"]["name"], rule)


H100, A100, A10, L4, L40S, B200 = (
    class_of(name)
    for name in (
        "nvidia-h100-80gb",
        "nvidia-a100-80gb",
        "nvidia-a10-24gb",
        "nvidia-l4-24gb",
        "nvidia-l40s-48gb",
        "nvidia-b200-180gb",
    )
)
BARE = bare_class("bare")


@pytest.mark.parametrize(
    ("one", "least", "verdict", "reason"),
    [
        pytest.param(H100, 80, FITS, "", id="80 of 80"),
        pytest.param(L40S, 80, NOT, "needs 80 GiB, has 48 GiB", id="48 of 80"),
        pytest.param(BARE, 80, UNKNOWN, "memory of the class is not known", id="no memory"),
        pytest.param(bare_class("x", memoryGB="81559Mi"), 80, FITS, "", id="measured H100"),
        pytest.param(bare_class("x", memoryGB="80G"), 80, FITS, "", id="decimal 80"),
        pytest.param(
            bare_class("x", memoryGB="80"), 80, UNKNOWN, "memory of the class is not known", id="no unit"
        ),
        pytest.param(
            bare_class("x-mig-1g.10gb", memoryGB="9856Mi"), 10, NOT, "needs 10 GiB, has 9.62 GiB", id="slice"
        ),
    ],
)
def test_minimum_memory(one, least, verdict, reason):
    answer = outcome("minMemory", one, runtime=a_runtime(minMemory=least))
    assert (answer.verdict, answer.reason) == (verdict, reason)
    assert answer.path == "spec.acceleratorRequirements.minMemory"


@pytest.mark.parametrize(
    ("one", "most", "verdict"),
    [
        pytest.param(L4, 24, FITS, id="24 of 24"),
        pytest.param(H100, 24, NOT, id="80 of 24"),
        pytest.param(BARE, 24, UNKNOWN, id="no memory"),
        pytest.param(bare_class("x", memoryGB="80"), 64, UNKNOWN, id="no unit does not pass"),
    ],
)
def test_maximum_memory(one, most, verdict):
    assert outcome("maxMemory", one, constraints={"maxMemory": most}).verdict == verdict


@pytest.mark.parametrize(
    ("found", "required", "verdict"),
    [
        pytest.param("10.0", "9.0", FITS, id="10.0 reaches 9.0"),
        pytest.param("9.0", "10.0", NOT, id="9.0 is below 10.0"),
        pytest.param("9.0", "9", FITS, id="9 is 9.0"),
        pytest.param("9.0", "sm_90", FITS, id="sm_90 is 9.0"),
        pytest.param("8.9", "90", NOT, id="90 is 9.0"),
        pytest.param("12.1", "sm_121", FITS, id="sm_121 is 12.1"),
        pytest.param("9.0", "9.0a", FITS, id="9.0a is 9.0"),
        pytest.param("gfx942", "gfx942", FITS, id="same word"),
        pytest.param("gfx942", "9.0", UNKNOWN, id="word against number"),
        pytest.param("gfx90a", "gfx942", UNKNOWN, id="other word"),
        pytest.param(None, "9.0", UNKNOWN, id="no capability"),
        pytest.param("", "9.0", UNKNOWN, id="empty capability"),
    ],
)
def test_minimum_architecture(found, required, verdict):
    one = bare_class("x", **({} if found is None else {"computeCapability": found}))
    assert (
        outcome("minArchitectureVersion", one, runtime=a_runtime(minArchitectureVersion=required)).verdict
        == verdict
    )


@pytest.mark.parametrize(
    ("features", "wanted", "verdict", "reason"),
    [
        pytest.param(["nvlink"], "nvlink", FITS, "", id="same"),
        pytest.param(["tensor-cores"], "Tensor_Cores", FITS, "", id="case and separators"),
        pytest.param(["nvlink-4"], "nvlink", FITS, "", id="numbered is the general one"),
        pytest.param(["nvlink-4"], "nvlink-5", NOT, "lacks nvlink-5", id="other number"),
        pytest.param(["nvlink"], "nvlnk", NOT, "lacks nvlnk; did you mean nvlink?", id="near miss"),
        pytest.param(["nvlink"], "antigravity", NOT, "lacks antigravity", id="unheard of"),
        pytest.param([], "nvlink", NOT, "lacks nvlink", id="none listed"),
        pytest.param(None, "nvlink", UNKNOWN, "list of features of the class is not known", id="no list"),
    ],
)
def test_required_features(features, wanted, verdict, reason):
    one = bare_class("x", **({} if features is None else {"features": features}))
    answer = outcome("requiredFeatures", one, runtime=a_runtime(requiredFeatures=[wanted]))
    assert (answer.verdict, answer.reason) == (verdict, reason)
    assert answer.path == "spec.acceleratorRequirements.requiredFeatures[0]"


@pytest.mark.parametrize(
    ("features", "wanted", "found"),
    [
        pytest.param(["nvlink"], "nv-link", "nvlink", id="separators"),
        pytest.param(["tensor-cores"], "Tensor_Cores", "tensor-cores", id="case and separators"),
        pytest.param(["nvlink-4"], "nvlink", "nvlink-4", id="numbered is the general one"),
        pytest.param(["nvlink-4", "NVLink"], "nvlink", "NVLink", id="the name itself before a numbered one"),
    ],
)
def test_a_required_feature_is_found_as_the_class_spells_it(features, wanted, found):
    one = bare_class("x", features=features)
    answer = outcome("requiredFeatures", one, runtime=a_runtime(requiredFeatures=[wanted]))
    assert (answer.verdict, answer.required, answer.found) == (FITS, wanted, found)


@pytest.mark.parametrize(
    ("one", "preferred", "verdict", "found"),
    [
        pytest.param(H100, ["fp8"], FITS, "fp8", id="fp8 on H100"),
        pytest.param(A100, ["fp8"], NOT, "not in hardware", id="fp8 on A100, int8 does not stand in"),
        pytest.param(A100, ["fp8", "bf16"], FITS, "bf16", id="second choice"),
        pytest.param(B200, ["NVFP4", "fp8"], FITS, "fp4", id="other spelling"),
        pytest.param(
            bare_class("x", computeCapability="8.0"), ["fp8"], NOT, "not in hardware", id="by capability"
        ),
        pytest.param(bare_class("x", computeCapability="8.9"), ["fp8"], FITS, "fp8", id="fp8 by capability"),
        pytest.param(
            bare_class("x", features=["fp16"]), ["fp8"], NOT, "not in hardware", id="precisions are listed"
        ),
        pytest.param(
            bare_class("x", performance={"fp16Tflops": 9}), ["fp16"], FITS, "fp16", id="by a figure"
        ),
        pytest.param(BARE, ["fp8"], UNKNOWN, "not known", id="nothing known"),
        pytest.param(A100, ["fp9"], UNKNOWN, "not known", id="no such precision"),
    ],
)
def test_preferred_precisions(one, preferred, verdict, found):
    answer = outcome("preferredPrecisions", one, runtime=a_runtime(preferredPrecisions=preferred))
    assert (answer.verdict, answer.found) == (verdict, found)


@pytest.mark.parametrize(
    ("one", "preferred", "least", "verdict"),
    [
        pytest.param(H100, ["fp8"], 1900, FITS, id="at fp8"),
        pytest.param(H100, None, 1900, NOT, id="at fp16 where none is preferred"),
        pytest.param(A100, ["fp8"], 300, FITS, id="at fp16 where the preferred is missing"),
        pytest.param(A100, ["int8"], 600, FITS, id="at int8"),
        pytest.param(BARE, None, 1, UNKNOWN, id="no figure"),
        pytest.param(
            bare_class("x", vendor="nvidia", features=["bf16"], performance={"fp16Tflops": 312}),
            ["bf16"],
            312,
            FITS,
            id="bf16 runs at the rate of fp16",
        ),
        pytest.param(
            bare_class("x", vendor="nvidia", features=["fp8"], performance={"int8Tops": 1979}),
            ["fp8"],
            1,
            UNKNOWN,
            id="the figure of int8 is none of fp8",
        ),
    ],
)
def test_minimum_compute(one, preferred, least, verdict):
    stated = {"minComputePerformanceTFLOPS": least} | (
        {"preferredPrecisions": preferred} if preferred else {}
    )
    assert outcome("minComputePerformanceTFLOPS", one, runtime=a_runtime(**stated)).verdict == verdict


@pytest.mark.parametrize(
    ("one", "allowed", "verdict"),
    [
        pytest.param(H100, "hopper", FITS, id="family"),
        pytest.param(H100, "NVIDIA Hopper", FITS, id="vendor and family"),
        pytest.param(L4, "ada-lovelace", FITS, id="marketing name"),
        pytest.param(L4, "nvidia-ada-lovelace", FITS, id="vendor and marketing name"),
        pytest.param(H100, "ampere", NOT, id="other family"),
        pytest.param(H100, "nvidia", NOT, id="a vendor is no family"),
        pytest.param(H100, "hop", NOT, id="whole words alone"),
        pytest.param(BARE, "hopper", UNKNOWN, id="no family"),
    ],
)
def test_architecture_families(one, allowed, verdict):
    assert (
        outcome("architectureFamilies", one, constraints={"architectureFamilies": [allowed]}).verdict
        == verdict
    )


@pytest.mark.parametrize(
    ("listed", "verdict"),
    [
        pytest.param("nvidia-h100-80gb", FITS, id="listed"),
        pytest.param("NVIDIA_H100_80GB", FITS, id="in another spelling"),
        pytest.param("nvidia-h100", NOT, id="a part of the name"),
        pytest.param("nvidia-h100-80gb-mig-1g.10gb", NOT, id="a partition of it"),
    ],
)
def test_listed_classes(listed, verdict):
    runtime = a_runtime(acceleratorClasses=[listed])
    assert outcome("acceleratorClasses", H100, runtime=runtime).verdict == verdict


@pytest.mark.parametrize(
    ("named", "verdict"), [("nvidia-h100-80gb", FITS), ("nvidia-a100-80gb", NOT)], ids=str
)
def test_the_class_that_a_service_names(named, verdict):
    assert outcome("acceleratorClass", H100, selector={"acceleratorClass": named}).verdict == verdict


@pytest.mark.parametrize(
    ("excluded", "verdict"), [("nvidia-h100-80gb", NOT), ("nvidia-a100-80gb", FITS)], ids=str
)
def test_excluded_classes(excluded, verdict):
    assert outcome("excludedClasses", H100, constraints={"excludedClasses": [excluded]}).verdict == verdict


MIG = bare_class("nvidia-a100-80gb-mig-2g.20gb", vendor="nvidia", memoryGB="19968Mi")
OTHER = bare_class("x", memoryGB="80Gi")
SHARED = bare_class("x", vendor="nvidia", resources=[{"name": "nvidia.com/gpu.shared", "quantity": "1"}])


@pytest.mark.parametrize(
    ("one", "resource", "verdict"),
    [
        pytest.param(H100, "nvidia.com/gpu", FITS, id="whole GPU"),
        pytest.param(H100, "amd.com/gpu", NOT, id="other vendor"),
        pytest.param(H100, "nvidia.com/mig-1g.10gb", NOT, id="slice against whole"),
        pytest.param(MIG, "nvidia.com/mig-2g.20gb", FITS, id="the slice"),
        pytest.param(OTHER, "nvidia.com/gpu", UNKNOWN, id="class without a vendor"),
        pytest.param(SHARED, "nvidia.com/gpu", UNKNOWN, id="an operator's own name"),
    ],
)
def test_resource_names(one, resource, verdict):
    assert outcome("resource", one, runtime=a_runtime(gpus=1, resource=resource)).verdict == verdict


@pytest.mark.parametrize(
    ("runtime", "allow", "verdict"),
    [
        pytest.param(a_runtime(minMemory=10), False, NOT, id="nobody asked for a slice"),
        pytest.param(a_runtime(minMemory=10), True, FITS, id="flag"),
        pytest.param(
            a_runtime(acceleratorClasses=["nvidia-a100-80gb-mig-2g.20gb"]), False, FITS, id="listed by name"
        ),
        pytest.param(
            a_runtime(gpus=1, resource="nvidia.com/mig-2g.20gb"), False, FITS, id="asked for by resource"
        ),
    ],
)
def test_partitions_stand_in_only_where_somebody_said_so(runtime, allow, verdict):
    assert outcome("partition", MIG, runtime=runtime, allow_partitions=allow).verdict == verdict


@pytest.mark.parametrize(
    ("model", "formats", "gpus", "verdict"),
    [
        pytest.param("7B", None, None, FITS, id="one holds it"),
        pytest.param("70B", None, 4, FITS, id="four hold it"),
        pytest.param("70B", None, 2, NOT, id="two do not"),
    ],
)
def test_model_size(model, formats, gpus, verdict):
    runtime = a_runtime(gpus=gpus, formats=formats, minMemory=80)
    found = {"spec": {"modelParameterSize": model}, "kind": "BaseModel", "metadata": {"name": "m"}}
    assert outcome("modelSize", H100, runtime=runtime, model=found).verdict == verdict


def test_model_size_on_a_class_of_unknown_memory_cannot_be_told():
    found = {"spec": {"modelParameterSize": "7B"}, "kind": "BaseModel", "metadata": {"name": "m"}}
    assert outcome("modelSize", BARE, runtime=a_runtime(), model=found).verdict == UNKNOWN


@pytest.mark.parametrize(
    ("args", "gpus", "verdict"),
    [
        pytest.param(["--tp-size", "8"], 8, FITS, id="8 of 8"),
        pytest.param(["--tp=4"], 8, FITS, id="4 of 8"),
        pytest.param(["--tensor-parallel-size=4", "--pp", "4"], 8, NOT, id="16 of 8"),
        pytest.param(["--tp-size", "8"], None, FITS, id="no number asked for"),
    ],
)
def test_parallel_sizes(args, gpus, verdict):
    assert outcome("parallelism", H100, runtime=a_runtime(gpus=gpus, args=args)).verdict == verdict


def test_a_runtime_that_requires_nothing_is_promised_nothing():
    answer = answered(a_runtime(), [H100])
    assert (answer.verdict, answer.choice) == (UNKNOWN, None)
