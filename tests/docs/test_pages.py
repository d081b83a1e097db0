"""Pages: every link leads somewhere, every command line names what exists, every report is a known one."""

import re
from pathlib import Path

import pytest
import yaml

from agent.cli import COMMANDS
from agent.settings import setting_names

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]


def anchors(page: Path) -> set[str]:
    """Return the fragments that a page's headings make."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^a-z0-9 _-]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_every_link_leads_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith(("http://", "https://")):
            continue
        path, _, fragment = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        assert there.exists(), target
        if fragment:
            assert fragment in anchors(there), target


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_every_file_of_the_manifests_that_is_named_exists(page: Path) -> None:
    for name in re.findall(
        r"(?<![\w/.])deploy/(?:daemonset|helm|observability|Dockerfile|requirements)[\w./-]*",
        page.read_text(encoding="utf-8"),
    ):
        assert (ROOT / name.rstrip("./")).exists(), name


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_every_command_that_is_typed_exists(page: Path) -> None:
    known = {command.name for command in COMMANDS}
    typed = re.findall(r"accelerator-agent ([a-z][a-z-]*)", page.read_text(encoding="utf-8"))
    said = {"and", "is", "on", "does", "labels"}
    assert set(typed) - known - said == set()


def test_every_report_in_the_questions_is_a_known_one() -> None:
    known = set(re.findall(r"FR-\d+", (ROOT / "docs" / "field-reports.md").read_text(encoding="utf-8")))
    named = set(re.findall(r"FR-\d+", (ROOT / "docs" / "faq.md").read_text(encoding="utf-8")))
    assert len(named) > 30
    assert named <= known


def test_what_the_chart_refuses_as_settings_is_settings() -> None:
    schema = yaml.safe_load((ROOT / "deploy" / "helm" / "values.schema.json").read_text())
    refused = schema["properties"]["settings"]["propertyNames"]["not"]["enum"]
    assert set(refused) <= set(setting_names())


def test_every_overlay_has_its_row_in_the_page_on_deploying() -> None:
    page = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")
    rows = set(
        re.findall(r"^\| .* \| `kubectl apply -k deploy/daemonset/overlays/([\w-]+)` ", page, re.MULTILINE)
    )
    overlays = {path.name for path in (ROOT / "deploy" / "daemonset" / "overlays").iterdir()}
    assert rows == overlays - {"ome-crd"}
