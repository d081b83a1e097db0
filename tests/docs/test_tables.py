"""The tables in the documents say what the code does, no more and no less."""

import dataclasses
import re
from pathlib import Path

from agent.core.families import Family
from agent.settings import Settings, metavar_of, setting_names

DOCS = Path(__file__).parents[2] / "docs"


def rows_of(page: str, header: str) -> list[list[str]]:
    """Return the cells of the table whose first header cell is `header`."""
    lines = (DOCS / page).read_text(encoding="utf-8").splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith(f"| {header} |"))
    rows = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split(" | ")])
    return rows


def test_every_label_that_any_machine_gets_is_in_the_table_and_no_other(published_labels: set[str]) -> None:
    documented = {row[0].strip("`") for row in rows_of("labels.md", "key")}
    group = re.compile(r"^(precision|feature|class|count)\.accelerators\.ome\.io/.*$")
    produced = {group.sub(lambda found: f"{found[1]}.accelerators.ome.io/", key) for key in published_labels}
    expected = {re.sub(r"/<.*>$", "/", key) for key in documented}
    assert produced == expected


def test_every_feature_that_any_machine_gets_is_explained(published_labels: set[str]) -> None:
    explained = " ".join(row[0] for row in rows_of("labels.md", "feature"))
    features = {key.split("/")[1] for key in published_labels if key.startswith("feature.")}
    generic = {re.sub(r"^nvlink-\d+$", "nvlink-<n>", feature) for feature in features}
    assert generic == set(re.findall(r"`([^`]+)`", explained))


def test_every_setting_is_documented_with_its_default_and_who_sets_it() -> None:
    rows = {row[0].strip("`"): row for row in rows_of("settings.md", "setting")}
    assert tuple(rows) == setting_names()
    for entry in dataclasses.fields(Settings):
        row = rows[entry.name]
        assert row[1].strip("`").replace("\\|", "|") == metavar_of(entry.name), entry.name
        assert row[4] == entry.metadata["doc"].replace("|", "\\|"), entry.name
        assert row[3] == entry.metadata["by"], entry.name


def test_every_metric_is_documented_with_its_type_and_labels(all_families: list[Family]) -> None:
    rows = {row[0].strip("`"): row for row in rows_of("metrics.md", "name")}
    produced = {
        family.name + ("_total" if family.kind == "counter" else ""): (
            family.kind,
            {name for sample in family.samples for name in sample.labels},
        )
        for family in all_families
    }
    assert set(rows) == set(produced)
    for name, (kind, labels) in produced.items():
        assert rows[name][1] == kind, name
        assert set(re.findall(r"`(\w+)`", rows[name][2])) == labels, name
