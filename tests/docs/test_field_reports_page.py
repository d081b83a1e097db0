"""Every field report has tests of its number, in the files that the page names, and none is forgotten."""

import re
from pathlib import Path

import pytest

from tests.docs.test_tables import rows_of

TESTS = Path(__file__).parents[1]

# Gaps are numbers that were never given.
REPORTS = (
    *range(1, 13), 15, 17, 19, 21, 22, 25, 26, 27, 29, 30, 32, 33, 34, 35, 37, 38, 39, 41, 42, 43, 45, 47, 48, 51, 52, 55,
    *range(56, 60), 61, 65, 66, 67, 69, 70, 71, 73, 75, 77, 78, *range(81, 88), 90, *range(93, 98), 99, 100, 101,
    *range(104, 108), 109, 110, 111, 113, 114, 115, 117, 118, *range(120, 127), 128, 130, 131, 132, 133, 135, 137,
)  # fmt: skip
_TEST = re.compile(r"def (test_(?:fr_\d{3}_)+)")


def files_by_report() -> dict[int, set[str]]:
    """Return report → the files that hold a test of its number."""
    found: dict[int, set[str]] = {}
    for path in TESTS.rglob("test_*.py"):
        for name in _TEST.findall(path.read_text()):
            for number in re.findall(r"fr_(\d{3})", name):
                found.setdefault(int(number), set()).add(str(path.relative_to(TESTS)))
    return found


def listed() -> dict[int, set[str]]:
    """Return report → the files that the page names."""
    rows = rows_of("field-reports.md", "report")
    return {int(row[0].removeprefix("FR-")): set(re.findall(r"`([^`]+\.py)`", row[2])) for row in rows}


def test_every_report_is_on_the_page_once() -> None:
    rows = [row[0] for row in rows_of("field-reports.md", "report")]
    assert rows == [f"FR-{number:03d}" for number in REPORTS]


def test_every_report_has_tests_and_the_page_names_their_files() -> None:
    found = files_by_report()
    assert {number: files for number, files in listed().items() if files != found.get(number, set())} == {}
    assert found.keys() == set(REPORTS)


@pytest.mark.parametrize("text", ["Symptom", "Trigger"])
def test_the_page_is_in_our_own_words(text: str) -> None:
    assert text not in (Path(__file__).parents[2] / "docs" / "field-reports.md").read_text()
