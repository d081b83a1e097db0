"""The command `match`: inputs, sources, output and exit status."""

import argparse
import io
import json
import re
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml

from agent.cluster import (
    ACCELERATOR_CLASSES,
    ACCELERATOR_NODES,
    CLUSTER_BASE_MODELS,
    CLUSTER_SERVING_RUNTIMES,
    INFERENCE_SERVICES,
    NODES,
    PODS,
    Forbidden,
    NotFound,
    Unreachable,
)
from agent.commands.match import add_match_arguments, run_match
from agent.commands.match_sources import LocalHardware
from agent.core.matching.requirements import POLICIES
from tests.core.matching.kit import (
    a_device,
    a_model,
    a_node,
    a_record,
    a_runtime,
    a_service,
    an_object,
    bare_class,
    class_of,
)

EXAMPLES = Path(__file__).parents[1] / "examples" / "matching"
H100, A100 = class_of("nvidia-h100-80gb"), class_of("nvidia-a100-80gb")


@dataclass
class ListedCluster:
    """A cluster to read: the objects of each type, and the types that refuse."""

    objects: dict = field(default_factory=dict)
    refusing: dict = field(default_factory=dict)
    asked: list = field(default_factory=list)
    tick: object = None

    def list_all(self, resource, *, project=None, **_):
        self.asked.append(resource.plural)
        if resource in self.refusing:
            raise self.refusing[resource]
        if resource not in self.objects:
            raise NotFound(f"no {resource.plural}")
        found = []
        for obj in self.objects[resource]:
            if self.tick is not None:
                self.tick()
            # A server sends no kind with the items of a list.
            found.append(
                project({key: value for key, value in obj.items() if key not in {"kind", "apiVersion"}})
            )
        return found, "1"

    def get(self, resource, name, **_):
        self.asked.append(f"{resource.plural}/{name}")
        return next((obj for obj in self.objects.get(resource, ()) if obj["metadata"]["name"] == name), None)


@dataclass(frozen=True)
class Result:
    status: int
    out: str
    err: str

    @property
    def document(self):
        return json.loads(self.out)


def match(
    *arguments, files=None, cluster=None, local=(), stdin="", output="json", width=80, tmp_path=None, **given
):
    """Run the command; `files` are objects, written to one file each."""
    parser = argparse.ArgumentParser()
    add_match_arguments(parser)
    argv = list(arguments)
    for number, objects in enumerate(files or ()):
        path = tmp_path / f"{number}.yaml"
        path.write_text(yaml.safe_dump_all(objects, sort_keys=False))
        argv += ["-f", str(path)]
    out, err = io.StringIO(), io.StringIO()
    status = run_match(
        parser.parse_args(argv),
        cluster=lambda: cluster,
        local=lambda: local if isinstance(local, LocalHardware) else LocalHardware(objects=local),
        stdout=out,
        stderr=err,
        stdin=io.BytesIO(stdin.encode()),
        output=output,
        width=width,
        program="x",
        **given,
    )
    return Result(status, out.getvalue(), err.getvalue())


def example(*names, **given):
    argv = [part for name in names for part in ("-f", str(EXAMPLES / f"{name}.yaml"))]
    return argv, given


@pytest.mark.parametrize(
    ("requirements", "status"),
    [
        pytest.param({"minMemory": 80}, 0, id="fits"),
        pytest.param({"minMemory": 81}, 1, id="does not fit"),
        pytest.param({"minComputePerformanceTFLOPS": 1}, 0, id="a figure that is there"),
        pytest.param({}, 3, id="cannot tell"),
        pytest.param({"minMemory": -1}, 2, id="bad input"),
    ],
)
def test_the_exit_status_is_the_answer(requirements, status, tmp_path):
    assert match(files=[[a_runtime(**requirements), H100]], tmp_path=tmp_path).status == status


def test_the_worst_of_several_subjects_is_the_exit_status(tmp_path):
    subjects = [a_runtime("good", minMemory=80), a_runtime("none"), a_runtime("bad", minMemory=500)]
    assert match(files=[[*subjects, H100]], tmp_path=tmp_path).status == 1
    assert match("good", "none", files=[[*subjects, H100]], tmp_path=tmp_path).status == 3


def test_json_has_the_documented_form(tmp_path):
    runtime = a_runtime(
        acceleratorClasses=["nvidia-h100-80gb"], minMemory=80, gpus=1, preferredPrecisions=["fp8"]
    )
    result = match("--ome", files=[[runtime, H100, a_node("n1", "nvidia-h100-80gb")]], tmp_path=tmp_path)
    assert result.document == [
        {
            "subject": {"kind": "ClusterServingRuntime", "namespace": None, "name": "rt"},
            "verdict": "fits",
            "source": str(tmp_path / "0.yaml"),
            "choice": {
                "policy": "BestFit",
                "class": "nvidia-h100-80gb",
                "accelerators": 1,
                "precision": "fp8",
                "reason": "best fit, score 1.00",
            },
            "classes": [
                {
                    "name": "nvidia-h100-80gb",
                    "verdict": "fits",
                    "accelerators": 1,
                    "nodesNow": 1,
                    "nodesTotal": 1,
                    "precision": "fp8",
                    "rules": result.document[0]["classes"][0]["rules"],
                }
            ],
            "nodes": [
                {
                    "name": "n1",
                    "class": "nvidia-h100-80gb",
                    "verdict": "fits",
                    "free": 8,
                    "usable": 8,
                    "reasons": [],
                }
            ],
            "findings": result.document[0]["findings"],
            "ome": {
                "outcome": "none",
                "class": None,
                "reason": "neither a class nor a policy is given, so no class is selected",
            },
        }
    ]
    assert result.document[0]["classes"][0]["rules"][2] == {
        "rule": "minMemory",
        "verdict": "fits",
        "required": "≥ 80 GB",
        "found": "80 GiB (78.4 GiB measured, 84181359001 bytes)",
        "source": "AcceleratorClass/nvidia-h100-80gb spec.capabilities.memoryGB",
        "path": "spec.acceleratorRequirements.minMemory",
        "reason": "",
    }
    assert [sorted(finding) for finding in result.document[0]["findings"]] == [
        ["id", "message", "path", "severity"]
    ]


def test_a_service_with_a_decoder_gives_an_element_for_each_component(tmp_path):
    service = a_service(engine={}, decoder={"acceleratorOverride": {"acceleratorClass": "nvidia-a100-80gb"}})
    runtime = a_runtime(minMemory=80)
    document = match("svc", files=[[runtime, service, H100, A100]], tmp_path=tmp_path).document
    assert [(one["subject"]["component"], one["choice"]["class"]) for one in document] == [
        ("engine", "nvidia-a100-80gb"),
        ("decoder", "nvidia-a100-80gb"),
    ]


@pytest.mark.parametrize("policy", POLICIES)
def test_the_printed_patch_applied_to_the_file_gives_fits_with_exit_status_0(policy, tmp_path):
    given = example("classes", "nodes", "model")[0]
    before = match("-f", str(EXAMPLES / "runtime.yaml"), *given, "--policy", policy)
    assert before.status == 1
    patch = match("-f", str(EXAMPLES / "runtime.yaml"), *given, "--policy", policy, "--patch")
    assert patch.status == 0
    runtime = yaml.safe_load((EXAMPLES / "runtime.yaml").read_text())
    merged = merge(runtime, patch.document)
    result = match("--policy", policy, *given, files=[[merged]], tmp_path=tmp_path)
    assert (result.status, result.document[0]["choice"]["policy"]) == (0, policy)


def merge(target, patch):
    """Apply a JSON merge patch (RFC 7386)."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge(merged.get(key), value)
    return merged


def test_without_a_fitting_class_there_is_no_patch_on_standard_output(tmp_path):
    result = match("--patch", files=[[a_runtime(minMemory=500), H100]], tmp_path=tmp_path)
    assert (result.status, result.out) == (1, "")
    assert "no class fits ClusterServingRuntime rt" in result.err


@pytest.mark.parametrize("width", [80, 160])
@pytest.mark.parametrize("mode", [[], ["--nodes", "--ome"], ["--explain", "nvidia-h100-80gb"]], ids=str)
def test_tables_keep_to_their_width_and_have_no_colour(width, mode):
    argv = example("runtime", "service", "classes", "nodes", "model")[0]
    text = match(*argv, *mode, output="table", width=width).out
    wide = [line for line in text.splitlines() if len(line) > width]
    assert wide == []
    assert re.search(r"[\x00-\x08\x0b-\x1f\x7f]", text) is None
    assert "nvidia-h100-80gb" in text


def test_a_table_at_80_columns_puts_reasons_under_their_rows():
    argv = example("runtime", "classes", "nodes", "model")[0]
    lines = match(*argv, output="table", width=80).out.splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("CLASS"))
    assert lines[start : start + 4] == [
        "CLASS              VERDICT       NEEDS  FIT NOW  IF FREE  PRECISION",
        "nvidia-h100-80gb   does not fit  4      1        1        fp8",
        "    the runtime does not list this class; all else holds",
        "nvidia-a100-80gb   does not fit  4      1        1        bf16",
    ]


def test_the_answer_says_where_the_hardware_was_read(tmp_path):
    cluster = ListedCluster({ACCELERATOR_CLASSES: [H100], NODES: [], ACCELERATOR_NODES: [], PODS: []})
    runtime = a_runtime(minMemory=80)
    given = {"files": [[runtime]], "tmp_path": tmp_path}
    assert match(**given, cluster=cluster).document[0]["source"] == "the cluster"
    assert match(**given, local=[H100]).document[0]["source"] == "this machine"
    assert (
        match("--no-cluster", **given, cluster=cluster, local=[H100]).document[0]["source"] == "this machine"
    )


def test_a_machine_that_could_not_be_asked_is_told_with_the_reason(tmp_path):
    local = LocalHardware(not_asked="no-driver: no driver is loaded")
    result = match(files=[[a_runtime(minMemory=80)]], local=local, tmp_path=tmp_path)
    (answer,) = result.document
    assert (result.status, answer["source"]) == (3, "this machine, which could not be asked")
    assert {
        "id": "hardware-not-asked",
        "severity": "error",
        "path": "",
        "message": "the hardware of this machine could not be asked: no-driver: no driver is loaded",
    } in answer["findings"]


def test_a_cluster_is_not_asked_for_what_files_hold(tmp_path):
    cluster = ListedCluster()
    match(
        files=[[a_runtime(minMemory=80), H100, a_node("n1", "nvidia-h100-80gb")]],
        cluster=cluster,
        tmp_path=tmp_path,
    )
    assert cluster.asked == []


def in_cluster():
    pod = {
        "metadata": {"name": "p", "namespace": "d"},
        "spec": {"nodeName": "n1", "containers": [{"resources": {"requests": {"nvidia.com/gpu": "6"}}}]},
        "status": {"phase": "Running"},
    }
    objects = {
        ACCELERATOR_CLASSES: [H100, A100],
        NODES: [a_node("n1", "nvidia-h100-80gb"), a_node("n2", "nvidia-h100-80gb")],
        ACCELERATOR_NODES: [a_record("n1", [a_device("nvidia-h100-80gb", index) for index in range(8)])],
        PODS: [pod],
        CLUSTER_SERVING_RUNTIMES: [a_runtime("shared", minMemory=80, gpus=4)],
        INFERENCE_SERVICES: [
            a_service(runtime="shared", model={"name": "model"}, selector={"constraints": {"maxMemory": 90}})
        ],
        CLUSTER_BASE_MODELS: [a_model("70B")],
    }
    return ListedCluster(objects)


def test_everything_can_come_from_the_cluster():
    document = match(cluster=in_cluster()).document
    assert [(one["subject"]["name"], one["verdict"]) for one in document] == [
        ("shared", "fits"),
        ("svc", "fits"),
    ]
    nodes = [(node["name"], node["free"], node["usable"]) for node in document[0]["nodes"]]
    assert nodes == [("n1", 2, 8), ("n2", 8, 8)]
    of_service = document[1]["classes"][0]
    assert (of_service["name"], of_service["accelerators"], of_service["nodesNow"]) == (
        "nvidia-h100-80gb",
        4,
        1,
    )
    assert "modelSize" in {rule["rule"] for rule in of_service["rules"]}


def test_a_service_in_a_file_is_read_with_its_runtime_in_the_cluster(tmp_path):
    result = match(files=[[a_service(runtime="shared")]], cluster=in_cluster(), tmp_path=tmp_path)
    rules = result.document[0]["classes"][0]["rules"]
    assert {rule["path"] for rule in rules if rule["rule"] == "minMemory"} == {
        "ClusterServingRuntime/shared spec.acceleratorRequirements.minMemory"
    }


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"spec": {"containers": []}}, id="on no node"),
        pytest.param({"status": {"phase": "Succeeded"}}, id="finished"),
    ],
)
def test_a_pod_that_holds_nothing_is_skipped(changes):
    cluster = in_cluster()
    (pod,) = cluster.objects[PODS]
    cluster.objects[PODS] = [pod | changes, pod]
    document = match("shared", cluster=cluster).document
    assert [node["free"] for node in document[0]["nodes"]] == [2, 8]


def test_a_missing_right_to_read_pods_is_told_and_nothing_counts_as_held():
    cluster = in_cluster()
    cluster.refusing[PODS] = Forbidden("pods is forbidden")
    document = match("shared", cluster=cluster).document
    assert [node["free"] for node in document[0]["nodes"]] == [8, 8]
    assert {"not-allowed", "pods-not-read"} <= {finding["id"] for finding in document[0]["findings"]}


def test_a_cluster_that_does_not_answer_is_exit_status_8():
    cluster = in_cluster()
    cluster.refusing[ACCELERATOR_CLASSES] = Unreachable("connection refused")
    result = match(cluster=cluster)
    assert (result.status, result.err) == (8, "x: the cluster could not be read: connection refused\n")


def test_a_long_read_tells_how_far_it_is_once_a_second_and_not_before():
    class Clock:
        seconds = 0.0

        def __call__(self):
            return self.seconds

        def tick(self):
            self.seconds += 0.4

    clock = Clock()
    cluster = ListedCluster(
        {
            ACCELERATOR_CLASSES: [H100],
            NODES: [a_node(f"n{number}", "nvidia-h100-80gb") for number in range(6)],
            ACCELERATOR_NODES: [],
            PODS: [],
            CLUSTER_SERVING_RUNTIMES: [a_runtime(minMemory=80)],
        },
        tick=clock.tick,
    )
    result = match(cluster=cluster, monotonic=clock)
    assert result.err.splitlines() == ["reading nodes: 1", "reading nodes: 4"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(
            "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: x}",
            "standard input:2: Deployment is not read here",
            id="another kind",
        ),
        pytest.param(
            "apiVersion: ome.io/v1beta1\nkind: ServingRuntim\nmetadata: {name: x}",
            "standard input:2: ServingRuntim is not read here; did you mean ServingRuntime?",
            id="a kind with a slip",
        ),
        pytest.param(
            "apiVersion: serving.kserve.io/v1alpha1\nkind: ServingRuntime\nmetadata: {name: x}",
            "standard input:1: ServingRuntime of serving.kserve.io/v1alpha1 is not read here, only of ome.io/v1beta1",
            id="another API",
        ),
        pytest.param(
            "a: 1",
            "standard input:1: is no Kubernetes object: it has no apiVersion and no kind\n",
            id="no object",
        ),
        pytest.param(
            "kind: ServingRuntime",
            "standard input:1: is no Kubernetes object: it has no apiVersion\n",
            id="no apiVersion",
        ),
        pytest.param(
            "apiVersion: ome.io/v1beta1",
            "standard input:1: is no Kubernetes object: it has no kind\n",
            id="no kind",
        ),
        pytest.param(
            "apiVersion: ome.io/v1beta1\nkind: ServingRuntime\nmetadata: {}",
            "standard input:3: ServingRuntime has no metadata.name",
            id="no name",
        ),
        pytest.param(
            "apiVersion: ome.io/v1beta1\nkind: ServingRuntime\nmetadata: {name: x}\nspec: []",
            "standard input:4: spec of ServingRuntime x is no object",
            id="spec of another kind",
        ),
        pytest.param(
            "apiVersion: ome.io/v1beta1\nkind: ServingRuntime\nmetadata: {name: x}\nspec:\n"
            "  acceleratorRequirements:\n    minMemory: 80Gi\n    requiredFeatures: null",
            "standard input:6: ServingRuntime x spec.acceleratorRequirements.minMemory: '80Gi' where a whole number",
            id="a value of another kind",
        ),
        pytest.param(
            "apiVersion: ome.io/v1beta1\nkind: AcceleratorClass\nmetadata: {name: x}\nspec:\n"
            "  capabilities:\n    memoryGB: 80",
            "standard input:6: AcceleratorClass x spec.capabilities.memoryGB: '80' is 80 bytes; write 80Gi",
            id="a size without a unit",
        ),
        pytest.param("", "nothing to match", id="nothing"),
    ],
)
def test_an_input_that_cannot_be_used_is_exit_status_2_with_file_line_and_reason(text, message):
    result = match("-f", "-", stdin=text)
    assert (result.status, result.out) == (2, "")
    assert result.err.startswith(f"x: {message}")


def test_every_value_that_cannot_be_used_is_told_at_once():
    text = (
        "apiVersion: ome.io/v1beta1\nkind: ServingRuntime\nmetadata: {name: x}\nspec:\n"
        "  acceleratorRequirements:\n    minMemory: -1\n    requiredFeatures: null\n    minArchitectureVersion: 9.0"
    )
    lines = match("-f", "-", stdin=text).err.splitlines()
    assert sorted(line.split(":")[2] for line in lines) == ["6", "7", "8"]


def test_an_object_given_twice_is_refused_with_both_places(tmp_path):
    result = match(files=[[H100], [H100, a_runtime(minMemory=1)]], tmp_path=tmp_path)
    assert result.status == 2
    assert "nvidia-h100-80gb is given before, at" in result.err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--params", "70"], "--params '70' is not a size such as 70B, 7.62B or 350M\n"),
        (["--precision", "fp9"], "--precision 'fp9' is not a precision such as fp8, bf16 or int8\n"),
        (["--model", "absent"], "--model absent: there is no such BaseModel or ClusterBaseModel\n"),
        (["--explain", "h100"], "--explain h100: there is no such class; did you mean nvidia-h100-80gb?\n"),
        (["absent"], "there is no runtime or service absent; there are ClusterServingRuntime/rt\n"),
    ],
    ids=str,
)
def test_a_flag_that_cannot_be_used_is_told(flags, message, tmp_path):
    result = match(*flags, files=[[a_runtime(minMemory=80), H100]], tmp_path=tmp_path)
    assert (result.status, result.err) == (2, f"x: {message}")


def test_the_model_can_be_given_by_flags(tmp_path):
    result = match(
        "--params",
        "70B",
        "--precision",
        "fp8",
        files=[[a_runtime(minMemory=1), H100, A100]],
        tmp_path=tmp_path,
    )
    found = {one["name"]: (one["accelerators"], one["verdict"]) for one in result.document[0]["classes"]}
    # Two on one node: without nodes it is not known whether a node has two.
    assert found == {"nvidia-h100-80gb": (2, "cannot-tell"), "nvidia-a100-80gb": (2, "does-not-fit")}


def test_a_class_in_the_cluster_with_a_bad_value_hides_no_other():
    broken = bare_class("broken", vendor="nvidia", memoryGB="80")
    cluster = in_cluster()
    cluster.objects[ACCELERATOR_CLASSES] = [broken, H100]
    document = match("shared", cluster=cluster).document
    assert document[0]["verdict"] == "fits"
    path = "AcceleratorClass/broken spec.capabilities.memoryGB"
    assert [
        finding["path"] for finding in document[0]["findings"] if finding["id"] == "value-not-usable"
    ] == [path]


def test_lint_prints_findings_and_tells_by_its_exit_status_whether_there_are_any(tmp_path):
    result = match("lint", *example("lint")[0])
    assert result.status == 1
    by_name = {
        one["subject"]["name"]: {finding["id"] for finding in one["findings"]} for one in result.document
    }
    assert "value-not-usable" in by_name["h100"]
    assert {"old-field-name", "listed-class-missing", "tensor-parallel-differs"} <= by_name["typo"]
    assert "bestfit-without-constraints" in by_name["hasty"]
    clean = match(
        "lint", files=[[a_runtime(acceleratorClasses=["nvidia-h100-80gb"]), H100]], tmp_path=tmp_path
    )
    assert (clean.status, [len(one["findings"]) for one in clean.document]) == (0, [0, 1])


def test_lint_of_a_runtime_alone_says_nothing_of_missing_classes(tmp_path):
    result = match("lint", files=[[a_runtime(acceleratorClasses=["anything"])]], tmp_path=tmp_path)
    assert (result.status, result.document[0]["findings"]) == (0, [])


def test_yaml_output_is_the_same_document(tmp_path):
    given = {"files": [[a_runtime(minMemory=80), H100]], "tmp_path": tmp_path}
    assert yaml.safe_load(match(output="yaml", **given).out) == match(**given).document


def test_every_example_is_read_and_answered():
    names = sorted(path.stem for path in EXAMPLES.glob("*.yaml"))
    assert names == ["classes", "lint", "model", "nodes", "runtime", "service"]
    status = {name: match(*example(name, "classes", "nodes")[0]).status for name in ("runtime", "service")}
    assert status == {"runtime": 1, "service": 0}


def test_an_unnamed_namespaced_object_is_shown_with_its_namespace(tmp_path):
    runtime = an_object(
        "ServingRuntime", "rt", {"acceleratorRequirements": {"minMemory": 80}}, namespace="team"
    )
    text = match(files=[[runtime, H100]], tmp_path=tmp_path, output="table").out
    assert text.startswith("ServingRuntime team/rt: fits")


DOCUMENT = (Path(__file__).parents[1] / "docs" / "matching.md").read_text(encoding="utf-8")
SHOWN = re.findall(r"```console\n\$ accelerator-agent match (.*)\n((?:.*\n)*?)```", DOCUMENT)


@pytest.mark.parametrize(("command", "shown"), SHOWN, ids=[command for command, _ in SHOWN])
def test_the_page_shows_what_the_command_prints(command, shown, monkeypatch):
    monkeypatch.chdir(EXAMPLES)
    words = command.split()
    output = words[words.index("-o") + 1] if "-o" in words else "json"
    if "-o" in words:
        del words[words.index("-o") : words.index("-o") + 2]
    assert match(*words, output=output, width=100).out == shown


def test_the_page_lists_every_finding_of_lint():
    sources = Path(__file__).parents[1] / "agent" / "core" / "matching"
    text = "".join(path.read_text() for path in sources.glob("lint*.py"))
    written = set(re.findall(r'(?:error|warning|info)\(\s*"([a-z-]+)"', text)) | set(
        re.findall(r'id="([a-z-]+)"', text)
    )
    table = DOCUMENT[DOCUMENT.index("| id | of | tells |") : DOCUMENT.index("An error breaks")]
    listed = set(re.findall(r"`([a-z]+(?:-[a-z]+)+)`", table))
    assert written - listed == set()
    assert listed - written == {"old-field-name", "unknown-field", "unknown-precision"}
