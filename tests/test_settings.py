"""Settings: flags before environment before file before defaults, and a plain refusal of anything else."""

import argparse
import dataclasses

import pytest

from agent.settings import (
    Duration,
    Settings,
    SettingsError,
    add_settings_arguments,
    load_settings,
    parse_duration,
    setting_names,
)
from agent.wiring import node_pass_options


def load(*argv, environment=None):
    parser = argparse.ArgumentParser()
    add_settings_arguments(parser)
    return load_settings(vars(parser.parse_args(argv)), environment or {})


@pytest.fixture
def file(tmp_path):
    """`file(text)` writes a settings file and returns its path."""

    def write(text):
        path = tmp_path / "settings.yaml"
        path.write_text(text)
        return str(path)

    return write


def refusal(*argv, environment=None):
    with pytest.raises(SettingsError) as caught:
        load(*argv, environment=environment)
    return str(caught.value)


def test_nothing_given_leaves_the_defaults():
    assert load() == Settings()


def test_flags_come_before_environment_before_file(file):
    path = file("probe_interval: 10s\nprobe_timeout: 10s\nheartbeat: 10s\n")
    environment = {"ACCELERATOR_PROBE_TIMEOUT": "20s", "ACCELERATOR_PROBE_INTERVAL": "20s"}
    found = load("--config", path, "--probe-interval", "30s", environment=environment)
    assert (found.probe_interval, found.probe_timeout, found.heartbeat) == (30.0, 20.0, 10.0)
    assert found.stale_after == Settings().stale_after


def test_the_file_may_be_named_by_the_environment(file):
    assert load(environment={"ACCELERATOR_CONFIG": file("node_name: gpu-1")}).node_name == "gpu-1"


def test_an_empty_file_changes_nothing(file):
    assert load("--config", file("# nothing\n")) == Settings()


FORMS = {
    "former_domains": ("a.example,b.example", ("a.example", "b.example")),
    "class_names": (
        "nvidia-h100-80gb=big, nvidia-t4-16gb=small",
        {"nvidia-h100-80gb": "big", "nvidia-t4-16gb": "small"},
    ),
    "allow_simulated": ("true", True),
    "compat_labels": ("gfd", ("gfd",)),
    "mig_strategy": ("single", "single"),
    "stale_after": ("1h30m", 5400.0),
    "node_name": ("gpu-1", "gpu-1"),
}


@pytest.mark.parametrize(("name", "form"), FORMS.items(), ids=list(FORMS))
def test_a_setting_has_one_form_in_flags_and_environment(name, form):
    text, value = form
    assert getattr(load(environment={f"ACCELERATOR_{name.upper()}": text}), name) == value
    if name != "allow_simulated":
        assert getattr(load("--" + name.replace("_", "-"), text), name) == value


def test_a_switch_is_a_flag_with_its_opposite():
    environment = {"ACCELERATOR_ALLOW_SIMULATED": "true"}
    assert load("--allow-simulated").allow_simulated is True
    assert load("--no-allow-simulated", environment=environment).allow_simulated is False


def test_lists_and_maps_are_written_in_yaml_as_such(file):
    found = load("--config", file("former_domains: [a.example]\nclass_names: {nvidia-t4-16gb: small}\n"))
    assert (found.former_domains, found.class_names) == (("a.example",), {"nvidia-t4-16gb": "small"})


DURATIONS = [("90s", 90.0), ("5m", 300.0), ("1h", 3600.0), ("1h30m", 5400.0), ("500ms", 0.5), ("1.5s", 1.5)]


@pytest.mark.parametrize(("text", "seconds"), DURATIONS, ids=[text for text, _ in DURATIONS])
def test_a_duration_has_a_unit(text, seconds):
    assert parse_duration(text, "x") == Duration(seconds)


@pytest.mark.parametrize(
    "text", ["60", "", "5 m", "m", "-5s", "5d", "1e3s", "٣s5", 60, 1.5, None, ["5s"], {}], ids=repr
)
def test_anything_else_is_no_duration(text):
    with pytest.raises(SettingsError, match="is not a duration; write it like 90s, 5m or 1h"):
        parse_duration(text, "probe_interval")


REFUSED = [
    (["--probe-interval", "60"], "--probe-interval: '60' is not a duration"),
    (["--probe-interval", "0s"], "probe_interval must be longer than 0s"),
    (["--mig-strategy", "none"], "--mig-strategy: 'none' cannot be used: known are mixed, single"),
    (["--compat-labels", "nfd"], "--compat-labels: ['nfd'] cannot be used: known are gfd"),
    (["--class-names", "h100"], "--class-names: 'h100' must be written key=value"),
    (["--class-names", "nvidia-t4-16gb=No Name"], "class_names: 'No Name' cannot name a class"),
    (["--class-names", f"nvidia-t4-16gb={'a' * 64}"], "cannot name a class"),
    (
        ["--config", "/nowhere.yaml"],
        "the settings file /nowhere.yaml cannot be read: No such file or directory",
    ),
]


@pytest.mark.parametrize(("argv", "why"), REFUSED, ids=[" ".join(argv)[:40] for argv, _ in REFUSED])
def test_a_flag_that_cannot_be_used_is_refused_by_name_and_value(argv, why):
    assert why in refusal(*argv)


@pytest.mark.parametrize(
    ("domain", "why"),
    [
        ("kubernetes.io", "reserves"),
        ("node-restriction.kubernetes.io", "reserves"),
        ("UPPER_case/", "DNS"),
        ("", "DNS"),
    ],
)
def test_fr_056_a_protected_domain_is_refused_before_anything_runs(domain, why):
    assert why in refusal("--label-domain", domain)
    assert why in refusal(environment={"ACCELERATOR_LABEL_DOMAIN": domain})


def test_a_former_domain_is_checked_like_the_present_one():
    assert "reserves" in refusal("--former-domains", "a.example,kubernetes.io")


UNKNOWN_FILES = [
    ("probe_intervall: 10s", "'probe_intervall' is not a setting; did you mean probe_interval?"),
    ("nodename: x", "'nodename' is not a setting; did you mean node_name?"),
    ("completely-else: x", "'completely-else' is not a setting"),
    ("1: x", "1 is not a setting"),
    ("- a\n- b", "must hold keys and values"),
    ("a: [", "is not YAML"),
    ("a: !!python/object/apply:os.system [id]", "is not YAML"),
    ("probe_interval: 60", "60' is not a duration"),
    ("allow_simulated: perhaps", "allow_simulated: 'perhaps' cannot be used"),
    ("class_names: [a]", "class_names: ['a'] cannot be used"),
]


@pytest.mark.parametrize(("text", "why"), UNKNOWN_FILES, ids=[text[:30] for text, _ in UNKNOWN_FILES])
def test_a_file_with_an_error_is_refused_with_its_path(file, text, why):
    message = refusal("--config", file(text))
    assert "settings.yaml" in message
    assert why in message


def test_an_unknown_variable_is_refused_with_the_nearest_name():
    message = refusal(environment={"ACCELERATOR_NODENAME": "x"})
    assert message == "ACCELERATOR_NODENAME is not a setting; did you mean ACCELERATOR_NODE_NAME?"


SERVICE_VARIABLES = (
    "ACCELERATOR_AGENT_SERVICE_HOST",
    "ACCELERATOR_AGENT_SERVICE_PORT",
    "ACCELERATOR_AGENT_SERVICE_PORT_METRICS",
    "ACCELERATOR_AGENT_PORT",
    "ACCELERATOR_AGENT_PORT_9478_TCP",
    "ACCELERATOR_AGENT_PORT_9478_TCP_ADDR",
    "ACCELERATOR_AGENT_PORT_9478_TCP_PROTO",
)


def test_variables_that_a_service_of_our_name_makes_are_passed_over():
    assert load(environment=dict.fromkeys(SERVICE_VARIABLES, "tcp://10.0.0.1:9478")) == Settings()
    assert load(environment={"ACCELERATOR_FAKE": "h100x8", "HOME": "/", "ACCELERATORX": "y"}) == Settings()


def aliases(name):
    """A small file whose one value, written out, would have 9^12 parts: each setting is given it as a list of lists."""
    inner = "&a0 [x, x, x, x, x, x, x, x, x]"
    for depth in range(1, 12):
        inner = f"&a{depth} [{inner}{f', *a{depth - 1}' * 8}]"
    return f"{name}: {inner}\n"


@pytest.mark.parametrize(
    "name", ["probe_interval", "class_names", "price_list", "former_domains", "node_name"]
)
def test_a_file_of_aliases_is_refused_with_a_short_message(file, name):
    message = refusal("--config", file(aliases(name)))
    assert name in message
    assert len(message) < 2000


def test_a_file_nested_without_end_or_larger_than_its_bound_is_refused(file):
    assert "nested too deeply" in refusal("--config", file("a: " + "[" * 20000))
    assert "larger than 1 MiB" in refusal("--config", file("#" * (1 << 20) + "\n"))


def test_every_setting_is_documented_and_has_a_flag():
    assert setting_names() == tuple(entry.name for entry in dataclasses.fields(Settings))
    for entry in dataclasses.fields(Settings):
        assert entry.metadata["doc"].endswith("."), entry.name
        assert entry.metadata["by"], entry.name


@pytest.mark.parametrize("name", [None, ""], ids=["unset", "empty"])
def test_fr_055_the_node_name_is_required_and_never_guessed(name):
    with pytest.raises(SettingsError, match=r"fieldPath spec\.nodeName.*never guessed from the host name"):
        node_pass_options(Settings(node_name=name))


def test_the_options_of_a_pass_are_those_of_the_settings():
    options = node_pass_options(
        Settings(
            node_name="gpu-1",
            label_domain="gpu.example.com",
            class_names={"b": "y", "a": "x"},
            mig_strategy="single",
        )
    )
    assert (options.node_name, options.domain) == ("gpu-1", "gpu.example.com")
    assert options.inventory.class_names == (("a", "x"), ("b", "y"))
    assert options.inventory.mig_shared_resource is True
