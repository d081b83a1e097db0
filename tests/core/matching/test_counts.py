"""How many accelerators a workload takes."""

import pytest

from tests.core.matching.kit import a_model, a_runtime, a_service, answered, bare_class, class_of

H100, A10, H200 = (class_of(name) for name in ("nvidia-h100-80gb", "nvidia-a10-24gb", "nvidia-h200-141gb"))


def needed(runtime, one=H100, **given):
    return answered(runtime, [one], **given).classes[0].need.accelerators


def config(**fields):
    return [{"acceleratorConfig": {"nvidia-h100-80gb": fields}}]


@pytest.mark.parametrize(
    ("size", "runtime", "expected"),
    [
        # 70 × 2 bytes × 1.2 = 168 GB
        pytest.param("70B", a_runtime(minMemory=1), 3, id="70B at fp16"),
        pytest.param("70B", a_runtime(preferredPrecisions=["fp8"]), 2, id="70B at fp8, 84 GB"),
        pytest.param("66.6B", a_runtime(preferredPrecisions=["fp8"]), 1, id="79.92 GB on 80"),
        pytest.param("66.7B", a_runtime(preferredPrecisions=["fp8"]), 2, id="80.04 GB on 80"),
        pytest.param("350M", a_runtime(minMemory=1), 1, id="350M"),
        pytest.param("1T", a_runtime(preferredPrecisions=["fp8"]), 15, id="1T at fp8, 1200 GB"),
        pytest.param("70B", a_runtime(formats=config(minMemoryPerBillionParams=1)), 1, id="stated, 70 GB"),
        pytest.param("70B", a_runtime(formats=config(minMemoryPerBillionParams=4)), 4, id="stated, 280 GB"),
        pytest.param("70B", a_runtime(args=["--tp", "4"]), 4, id="up to the tensor-parallel size"),
        pytest.param(
            "7B", a_runtime(args=["--tp", "4"]), 4, id="the size given is more than the model takes"
        ),
        pytest.param("7B", a_runtime(gpus=8), 8, id="the number asked for is more than the model takes"),
        pytest.param(
            "70B",
            a_runtime(
                formats=config(tensorParallelismOverride={"tensorParallelSize": 4, "pipelineParallelSize": 2})
            ),
            8,
            id="tensor × pipeline",
        ),
        pytest.param(
            "7B",
            a_runtime(
                formats=config(tensorParallelismOverride={"tensorParallelSize": 2, "dataParallelSize": 3})
            ),
            6,
            id="tensor × data",
        ),
    ],
)
def test_the_model_the_parallel_sizes_and_the_pods_decide_together(size, runtime, expected):
    assert needed(runtime, model=a_model(size)) == expected


def test_the_weights_of_the_model_decide_its_size_and_not_what_the_hardware_computes():
    model = a_model("70B", quantization="fbgemm_fp8")
    answer = answered(a_runtime(minMemory=1), [A10], model=model)
    # 84 GB on 24; an A10 has no fp8, and nobody requires it.
    assert (answer.classes[0].need.accelerators, answer.classes[0].failures) == (4, ())


def test_of_several_formats_the_one_of_the_models_quantization_counts():
    formats = [
        {
            "quantization": quantization,
            "acceleratorConfig": {
                "nvidia-h100-80gb": {"tensorParallelismOverride": {"tensorParallelSize": size}}
            },
        }
        for quantization, size in (("fp8", 2), ("int4", 1))
    ]
    runtime = a_runtime(formats=formats)
    assert needed(runtime, model=a_model("70B", quantization="int4")) == 1
    assert needed(runtime, model=a_model("70B", quantization="fp8")) == 2


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        pytest.param(["--tp-size", "4"], 4, id="pair"),
        pytest.param(["--tp=4"], 4, id="equals sign"),
        pytest.param(["--tensor-parallel-size=2", "--pp-size", "2"], 4, id="two flags"),
        pytest.param(["python3 -m server --tp-size 4 --port 80"], 4, id="one line"),
        pytest.param(["python3 -m server \\\n  --tp-size 4 \\\n  --port 80"], 4, id="script"),
        pytest.param(["--tp-size", "$(PARALLELISM_SIZE)"], 1, id="known only at run time"),
        pytest.param(["--tp-size", "2", "--dp-size", "4"], 8, id="replicas"),
        pytest.param(
            ["--tp-size", "8", "--dp-size", "8", "--enable-dp-attention"], 8, id="replicas that share"
        ),
        pytest.param(["--tpu", "4"], 1, id="another flag"),
    ],
)
def test_parallel_sizes_are_read_from_command_lines(arguments, expected):
    assert needed(a_runtime(minMemory=1, args=arguments)) == expected


def pod(gpus):
    return {"runner": {"resources": {"limits": {"nvidia.com/gpu": gpus}}}}


def test_a_leader_and_its_workers_are_pods_of_their_own():
    need = (
        answered(a_runtime(engine={"leader": pod(8), "worker": {"size": 3, **pod(8)}}), [H100])
        .classes[0]
        .need
    )
    assert (need.accelerators, need.per_pod, need.pods) == (32, 8, 4)


def test_what_a_service_asks_for_replaces_what_its_runtime_asks_for():
    service = a_service(engine=pod(2))
    assert needed(a_runtime(gpus=8), service=service) == 2


def test_the_resources_of_a_class_replace_what_pods_ask_for():
    shape = bare_class("x4", vendor="nvidia", resources=[{"name": "nvidia.com/gpu", "quantity": "4"}])
    assert needed(a_runtime(gpus=1), shape) == 4


def test_a_model_larger_than_the_layout_does_not_fit_and_the_numbers_are_told():
    answer = answered(a_runtime(gpus=2), [H100], model=a_model("70B"))
    assert answer.verdict == "does-not-fit"
    assert [rule.reason for rule in answer.classes[0].failures] == [
        "the model takes 3 accelerators, the runtime gives it 2"
    ]


def test_a_size_without_a_unit_is_refused_with_its_path():
    from agent.core.matching.subject import runtime_subject

    problems = runtime_subject(a_runtime(), model=a_model("70")).problems
    assert [(one.path, one.message) for one in problems] == [
        ("ClusterBaseModel/model spec.modelParameterSize", "'70' is not a size such as 70B, 7.62B or 350M")
    ]


@pytest.mark.parametrize(
    ("section", "path", "message"),
    [
        pytest.param(
            {"minMemory": "80Gi"},
            "spec.acceleratorRequirements.minMemory",
            "'80Gi' where a whole number (GB), without quotes or suffix, is expected",
            id="suffix",
        ),
        pytest.param(
            {"minMemory": -1},
            "spec.acceleratorRequirements.minMemory",
            "-1 is out of range: write a whole number of at least 0 (GB)",
            id="negative",
        ),
        pytest.param(
            {"minMemory": True},
            "spec.acceleratorRequirements.minMemory",
            "True where a whole number (GB), without quotes or suffix, is expected",
            id="boolean",
        ),
        pytest.param(
            {"minMemory": 79.5},
            "spec.acceleratorRequirements.minMemory",
            "79.5 where a whole number (GB), without quotes or suffix, is expected",
            id="fraction",
        ),
        pytest.param(
            {"minArchitectureVersion": 9.0},
            "spec.acceleratorRequirements.minArchitectureVersion",
            "9.0 where text: write '9.0' in quotes is expected",
            id="number for text",
        ),
        pytest.param(
            {"acceleratorClasses": None},
            "spec.acceleratorRequirements.acceleratorClasses",
            "null where a list is expected: write the list, or leave the field out",
            id="null list",
        ),
        pytest.param(
            {"requiredFeatures": "fp8"},
            "spec.acceleratorRequirements.requiredFeatures",
            "'fp8' where a list is expected",
            id="text for a list",
        ),
        pytest.param(
            {"requiredFeatures": ["fp8", None]},
            "spec.acceleratorRequirements.requiredFeatures[1]",
            "null where a name is expected",
            id="null in a list",
        ),
    ],
)
def test_a_value_of_the_wrong_kind_is_refused_with_its_path(section, path, message):
    from agent.core.matching.subject import runtime_subject

    problems = runtime_subject(a_runtime(**section)).problems
    assert [(one.path, one.message) for one in problems] == [(path, message)]
