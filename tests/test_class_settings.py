"""What a class could not hold is refused at the start, with the setting, the value and what would do."""

import pytest

from agent.class_settings import class_options
from agent.cluster import NODES, Unreachable
from agent.commands.machine_classes import class_objects
from agent.commands.show import render
from agent.core.class_spec import ListEdit
from agent.core.inventory import inventory_of
from agent.edges.cluster import KubernetesCluster, kubeconfig
from agent.settings import Settings, SettingsError, load_settings
from tests.hardware import fake_facts

H100 = "nvidia-h100-80gb"


def test_what_an_operator_may_decide_reaches_the_classes() -> None:
    settings = Settings(
        price_list={H100: {"perHour": "2210m", "tier": "high"}},
        class_edits={H100: {"features": {"add": ["rdma"], "drop": ["mig"]}}},
        node_selectors={H100: {"cloud.example/gpu": "h100"}},
        excluded_fields=("capabilities.clockSpeedMHz", "cost"),
    )
    options = class_options(settings)
    assert options.prices == {H100: {"perHour": "2210m", "tier": "high"}}
    assert options.features == {H100: ListEdit(add=("rdma",), drop=("mig",))}
    assert options.excluded_fields == {"capabilities.clockSpeedMHz", "cost"}


def test_what_an_operator_decided_is_in_what_classes_prints() -> None:
    settings = Settings(
        price_list={H100: {"perHour": "2.50"}},
        class_edits={H100: {"features": {"add": ["rdma"]}}},
        node_selectors={H100: {"cloud.example/gpu": "h100"}},
    )
    [printed] = class_objects(inventory_of(fake_facts("h100x8")), settings)
    assert printed["spec"]["cost"] == {"perHour": "2500m"}
    assert "rdma" in printed["spec"]["capabilities"]["features"]
    assert printed["spec"]["discovery"]["nodeSelector"] == {"cloud.example/gpu": "h100"}
    assert "labels" not in printed["metadata"]


def test_a_failed_device_takes_nothing_from_what_classes_prints() -> None:
    [sound] = class_objects(inventory_of(fake_facts("h100x8")), Settings())
    [sick] = class_objects(inventory_of(fake_facts("h100x8-one-lost")), Settings())
    assert sick["spec"] == sound["spec"]


def test_classes_prints_a_table_without_what_was_excluded() -> None:
    settings = Settings(excluded_fields=("capabilities",))
    text = render("classes", fake_facts("t4"), settings, output="table", width=120)
    assert "nvidia-t4-16gb" in text


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        pytest.param(
            {"price_list": {H100: {"perHour": "abc"}}},
            f"price_list: {H100}: perHour: 'abc' is not",
            id="no quantity",
        ),
        pytest.param({"price_list": {H100: {"perHour": "0"}}}, "0 would be read as free", id="free"),
        pytest.param({"price_list": {H100: {"perhour": "2"}}}, "perhour is none of perHour", id="key"),
        pytest.param(
            {"price_list": {H100: {"tier": "gold"}}}, "'gold' is none of low, medium, high", id="tier"
        ),
        pytest.param({"class_edits": {H100: {"feature": {}}}}, "'feature' is none of features", id="list"),
        pytest.param(
            {"class_edits": {H100: {"features": {"plus": ["a"]}}}},
            "'plus' is neither add nor drop",
            id="edit",
        ),
        pytest.param(
            {"class_edits": {H100: {"features": {"add": ["RDMA 2"]}}}}, "'RDMA 2' is no feature", id="feature"
        ),
        pytest.param({"node_selectors": {H100: {}}}, "would select every node", id="empty selector"),
        pytest.param({"node_selectors": {H100: {"a b": "c"}}}, "a b=c is no label", id="selector"),
        pytest.param(
            {"excluded_fields": ("capabilities.memory",)}, "'capabilities.memory' is no field", id="field"
        ),
    ],
)
def test_what_no_class_could_hold_is_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(SettingsError) as refused:
        class_options(Settings(**settings))  # type: ignore[arg-type]
    assert message in str(refused.value)


def test_a_key_that_stands_twice_in_the_file_is_refused_with_its_line(tmp_path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("probe_interval: 30s\nheartbeat: 5m\nprobe_interval: 60s\n")
    with pytest.raises(
        SettingsError, match=r"settings.yaml:3: 'probe_interval' stands here for the second time"
    ):
        load_settings({"config": str(file)}, {})


def test_a_duration_beyond_a_week_is_refused() -> None:
    with pytest.raises(SettingsError, match="probe_timeout must be longer than 0s and at most 7 days"):
        load_settings({"probe_timeout": "999h"}, {})


def test_a_file_that_is_no_kubeconfig_is_no_bug_of_ours(tmp_path) -> None:
    file = tmp_path / "passwd"
    file.write_text("root:x:0:0:root:/root:/bin/bash\n")
    with pytest.raises(Unreachable, match="is no kubeconfig"):
        KubernetesCluster(kubeconfig(str(file)), wait=lambda _: None).get(NODES, "n1")
