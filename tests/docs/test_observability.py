"""Alerts and dashboards ask for metrics and labels that exist."""

import json
import re
from pathlib import Path

import pytest

from agent.core.families import Family
from tests.cluster.objects import DAEMONSET_FOLDER

FOLDER = DAEMONSET_FOLDER.parent / "observability"
DASHBOARDS = sorted((FOLDER / "dashboards").glob("*.json"))
ASKING = [FOLDER / "alerts.yaml", *DASHBOARDS]


@pytest.mark.parametrize("path", ASKING, ids=[path.name for path in ASKING])
def test_every_metric_that_is_asked_for_exists(path: Path, all_families: list[Family]) -> None:
    known = {family.name + ("_total" if family.kind == "counter" else "") for family in all_families}
    asked = set(re.findall(r"\baccelerator_[a-z_]+", path.read_text()))
    assert asked
    assert asked <= known


@pytest.mark.parametrize("path", ASKING, ids=[path.name for path in ASKING])
def test_every_label_that_is_selected_by_exists(path: Path, all_families: list[Family]) -> None:
    labels: dict[str, set[str]] = {}
    for family in all_families:
        name = family.name + ("_total" if family.kind == "counter" else "")
        labels[name] = {label for sample in family.samples for label in sample.labels}
    given = {"job", "instance", "node", "pod"}  # by Prometheus
    for name, selectors in re.findall(
        r"\b(accelerator_[a-z_]+)\{([^}]*)\}", path.read_text().replace('\\"', '"')
    ):
        used = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", selectors))
        assert used <= labels[name] | given, name


@pytest.mark.parametrize("path", DASHBOARDS, ids=[path.name for path in DASHBOARDS])
def test_a_dashboard_is_whole(path: Path) -> None:
    board = json.loads(path.read_text())
    assert board["uid"] == path.stem
    assert board["title"]
    ids = [panel["id"] for panel in board["panels"]]
    assert len(set(ids)) == len(ids)
    for panel in board["panels"]:
        assert panel["title"]
        assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24
        if panel["type"] != "row":
            assert panel["description"], panel["title"]
            assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
            assert all(target["expr"] for target in panel["targets"])
    used = set(re.findall(r"\$(?:\{)?(\w+)", json.dumps(board["panels"]))) - {"__rate_interval", "__range"}
    assert used <= {variable["name"] for variable in board["templating"]["list"]}


def test_there_is_a_dashboard_of_the_fleet_and_one_of_a_node() -> None:
    assert [path.stem for path in DASHBOARDS] == ["accelerator-fleet", "accelerator-node"]
