"""The commands: their exit statuses, what they print for people and for pipes, and their words for bad input."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from agent import app, cli
from agent.cluster import Unreachable
from agent.version import agent_version

ROOT = Path(__file__).parent.parent
DOMAIN = "accelerators.ome.io"


class Ran:
    """One command that has run."""

    def __init__(self, status, out, err):
        self.status, self.out, self.err = status, out, err

    @property
    def json(self):
        return json.loads(self.out)


@pytest.fixture
def run(capsys):
    """`run(*argv, **environment)` runs a command in this process, with no environment but what is given."""

    def go(*argv, program="accelerator-agent", **environment):
        status = cli.main(argv, program=program, environment=environment)
        out, err = capsys.readouterr()
        return Ran(status, out, err)

    return go


# FR-004: could not ask, and asked and none, are different answers; each cause has a status and a word of its own.
VERDICTS = [
    ("t4", 0, "complete", ""),
    ("no-gpu", 0, "none", ""),
    ("driver-no-gpu", 0, "none", ""),
    ("h100x8-one-lost", 3, "partial", ""),
    ("no-driver", 4, "no-driver", "DriverNotLoaded: "),
    ("version-mismatch", 5, "version-mismatch", "DriverLibraryMismatch: "),
    ("no-runtime", 6, "not-in-container", "LibraryNotVisible: "),
    ("h100x8-all-lost", 7, "no-answer", "EveryDeviceFailed: "),
    ("crash", 7, "no-answer", "ProbeCrashed: "),
]


@pytest.mark.parametrize(("fake", "status", "verdict", "told"), VERDICTS, ids=[row[0] for row in VERDICTS])
def test_fr_004_each_outcome_has_its_own_status_and_words(run, fake, status, verdict, told):
    ran = run("probe", "--fake", fake)
    assert (ran.status, ran.json["verdict"], ran.json["simulated"]) == (status, verdict, True)
    assert ran.err.startswith(told)
    assert bool(ran.err) is bool(told)


def test_a_machine_that_does_not_answer_is_status_7_in_time(run):
    ran = run("probe", "--fake", "no-answer", "--probe-timeout", "200ms")
    assert (ran.status, ran.json["reason"]) == (7, "NoAnswer")


def test_every_verdict_has_a_status():
    assert app.EXIT_BY_VERDICT == {
        "complete": 0,
        "none": 0,
        "partial": 3,
        "no-driver": 4,
        "version-mismatch": 5,
        "not-in-container": 6,
        "no-answer": 7,
    }


def test_fr_006_a_pod_without_the_runtime_is_told_what_is_missing_and_by_what_evidence(run):
    ran = run("labels", "--fake", "no-runtime", "-o", "table")
    assert ran.status == 6
    assert "runtimeClassName" in ran.err
    assert "0000:1b:00.0" in ran.err
    assert "No label would be changed." in ran.out


def test_labels_are_an_object_in_a_pipe_and_lines_in_a_table(run):
    piped, shown = run("labels", "--fake", "t4"), run("labels", "--fake", "t4", "-o", "table")
    assert piped.json[f"{DOMAIN}/class"] == "nvidia-t4-16gb"
    assert shown.out.splitlines() == [f"{key}={value}" for key, value in piped.json.items()]


def test_labels_take_the_settings_of_names_and_domains(run):
    ran = run(
        *("labels", "--fake", "t4", "--label-domain", "gpu.example.com", "--compat-labels", "gfd"),
        ACCELERATOR_CLASS_NAMES="nvidia-t4-16gb=small",
    )
    assert ran.json["gpu.example.com/class"] == "small"
    assert ran.json["nvidia.com/gpu.product"] == "Tesla-T4"


def test_one_class_is_one_object_and_several_are_a_list(run):
    one, several = run("classes", "--fake", "t4"), run("classes", "--fake", "v100-mixed", "-o", "yaml")
    assert (one.json["kind"], one.json["metadata"]["name"]) == ("AcceleratorClass", "nvidia-t4-16gb")
    listed = yaml.safe_load(several.out)
    assert listed["kind"] == "List"
    assert [item["metadata"]["name"] for item in listed["items"]] == ["nvidia-v100-16gb", "nvidia-v100-32gb"]


def test_a_class_of_fake_hardware_bears_the_mark(run):
    assert run("classes", "--fake", "t4").json["metadata"]["annotations"][f"{DOMAIN}/simulated"] == "true"


def test_a_record_of_a_failed_probe_does_not_claim_success(run):
    ran = run("record", "--fake", "no-driver")
    told = {entry["type"]: entry["status"] for entry in ran.json["status"]["conditions"]}
    assert (ran.status, told) == (4, {"ProbeSucceeded": "False", "DriverReady": "False"})
    assert ran.json["spec"]["simulated"] is True


def test_a_record_is_printed_under_the_name_of_its_node(run):
    assert run("record", "--fake", "t4", "--node-name", "gpu-1").json["metadata"] == {"name": "gpu-1"}


def test_a_fake_may_be_named_by_the_environment(run):
    assert run("probe", ACCELERATOR_FAKE="t4").json["accelerators"][0]["product"] == "Tesla T4"


def test_a_terminal_gets_a_table(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    assert cli.main(["probe", "--fake", "t4"], program="x", environment={}) == 0
    assert "INDEX" in terminal.getvalue()


# --- bad input: 2, with words

BAD = [
    ([], "usage:"),
    (["nothing"], "invalid choice: 'nothing'"),
    (["probe", "--nothing"], "probe: no argument '--nothing' is known ("),
    (["probe", "--probe-timeot", "5s"], "'--probe-timeot' is known; did you mean --probe-timeout? ("),
    (["probe", "--fak", "t4"], "no argument '--fak' is known"),
    (["node", "--no-allow-simulate"], "did you mean --no-allow-simulated?"),
    (["probe", "--runs"], "probe: no argument '--runs' is known (accelerator-agent probe --help"),
    (["--nothing", "probe"], "accelerator-agent: no argument '--nothing' is known (accelerator-agent --help"),
    (["--vers"], "the following arguments are required: COMMAND"),
    (["probe", "-o", "xml"], "invalid choice: 'xml'"),
    (["probe", "--fake", "h100x9"], "'h100x9' (did you mean h100x8?) is neither a file nor one of"),
    (["probe", "--probe-timeout", "5"], "is not a duration; write it like 90s, 5m or 1h"),
    (["probe", "--label-domain", "kubernetes.io"], "which Kubernetes reserves for itself"),
    (["probe", "--config", "/nowhere"], "cannot be read"),
    (["node"], "node_name is not set: give ACCELERATOR_NODE_NAME from the downward API"),
    (["node", "--fake", "h100x9", "--node-name", "x"], "neither a file nor one of"),
]


@pytest.mark.parametrize(("argv", "words"), BAD, ids=[" ".join(argv) or "nothing at all" for argv, _ in BAD])
def test_bad_usage_or_input_is_status_2_with_the_reason(run, argv, words):
    ran = run(*argv)
    assert ran.status == 2
    assert words in ran.err
    assert "Traceback" not in ran.err


def test_a_variable_that_is_no_setting_is_status_2(run):
    ran = run("probe", ACCELERATOR_PROBE_TIMEOUTS="5s")
    assert (ran.status, "did you mean ACCELERATOR_PROBE_TIMEOUT?" in ran.err) == (2, True)


@pytest.mark.parametrize(
    "text",
    [
        "devices: [{board: h100-sxm, colour: red}]",
        "devices: [{board: nothing}]",
        "a: [",
        "\x00\xff",
        "- 1",
        "",
    ],
    ids=["unknown field", "unknown board", "no YAML", "no text", "a list", "empty"],
)
def test_a_file_that_is_no_scenario_is_status_2(run, tmp_path, text):
    file = tmp_path / "scenario.yaml"
    file.write_bytes(text.encode("latin-1"))
    ran = run("probe", "--fake", str(file))
    assert ran.status == 2, ran.err
    assert ran.err.startswith(f"accelerator-agent: --fake {file}: ")


def test_a_scenario_file_is_a_machine(run, tmp_path):
    file = tmp_path / "scenario.yaml"
    file.write_text("name: mine\ndevices: [{board: t4, count: 2}]\n")
    assert len(run("probe", "--fake", str(file)).json["accelerators"]) == 2


def test_help_and_version_are_no_errors(run):
    assert run("--version").out == f"{agent_version()}\n"
    ran = run("--help")
    assert ran.status == 0
    assert all(command.name in ran.out for command in cli.COMMANDS)


@pytest.mark.parametrize("command", [command.name for command in cli.COMMANDS])
def test_each_command_has_help_with_its_settings(run, command):
    ran = run(command, "--help")
    assert ran.status == 0
    assert "--probe-interval" in ran.out
    assert "--config" in ran.out


# --- other endings


def broken(error):
    def raise_it(*_, **__):
        raise error

    return raise_it


def test_a_bug_is_status_70_and_says_so(run, monkeypatch):
    monkeypatch.setattr(app, "probe_host", broken(KeyError("a bug")))
    ran = run("probe", "--fake", "t4")
    assert ran.status == 70
    assert "KeyError: 'a bug'" in ran.err
    assert ran.err.endswith("accelerator-agent: this is a bug; please report it with the lines above\n")


ENDINGS = [
    (Unreachable("connection refused"), 8, "accelerator-agent: connection refused\n"),
    (BrokenPipeError(), 141, ""),
    (KeyboardInterrupt(), 130, ""),
]


@pytest.mark.parametrize(
    ("error", "status", "told"), ENDINGS, ids=[type(error).__name__ for error, _, _ in ENDINGS]
)
def test_the_ways_a_command_can_be_stopped(run, monkeypatch, error, status, told):
    monkeypatch.setattr(app, "probe_host", broken(error))
    ran = run("probe", "--fake", "t4")
    assert (ran.status, ran.err) == (status, told)


def test_the_program_ends_with_its_status_and_flushes_what_it_printed():
    done = subprocess.run(
        [sys.executable, "-m", "agent", "labels", "--fake", "h100x8-one-lost"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 3
    assert json.loads(done.stdout)[f"{DOMAIN}/count"] == "7"


def test_a_reader_that_goes_away_is_no_bug():
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as gone:
        done = subprocess.run(
            [sys.executable, "-m", "agent", "record", "--fake", "h100x8"],
            cwd=ROOT,
            stdout=gone,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=60,
        )
    assert (done.returncode, done.stderr) == (141, "")


def test_an_address_that_is_none_is_status_2_also_for_the_long_running_command(tmp_path):
    kubeconfig = tmp_path / "config"
    kubeconfig.write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: x\n"
        "clusters: [{name: x, cluster: {server: 'http://127.0.0.1:1'}}]\n"
        "users: [{name: x, user: {}}]\ncontexts: [{name: x, context: {cluster: x, user: x}}]\n"
    )
    done = subprocess.run(
        [
            *(sys.executable, "-m", "agent", "node", "--fake", "t4", "--node-name", "x"),
            *("--listen", "9478", "--kubeconfig", str(kubeconfig)),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 2
    assert "must be written ADDRESS:PORT" in done.stderr
