"""What the benchmarks stand on: their library is the fake machine, their line is a line, their page shows every budget."""

import os
import shutil
import subprocess
import sys
from dataclasses import replace

import pytest

from bench import fake_library, machine
from bench.__main__ import ROWS, read
from bench.figures import Figure, Result, limit
from bench.growth import SIZES, line_through
from bench.page import page
from bench.row_scrape import whole
from probes.facts import NodeFacts
from probes.host_process import probe_once

needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler here")


def without_identities(facts: NodeFacts) -> NodeFacts:
    """The UUIDs are the library's own, and only a real library has a path."""
    return replace(
        facts,
        accelerators=tuple(replace(device, id=None) for device in facts.accelerators),
        drivers=tuple(replace(driver, library_path=None) for driver in facts.drivers),
        duration_seconds=None,
        simulated=False,
    )


@needs_compiler
def test_the_library_that_answers_at_once_is_the_fake_machine(tmp_path, monkeypatch):
    environment = fake_library.build(tmp_path)
    faked = probe_once((sys.executable, "-m", "fakes.child", "h100x8"))
    monkeypatch.setenv("LD_LIBRARY_PATH", environment["LD_LIBRARY_PATH"])
    root = environment["ACCELERATOR_HOST_ROOT"]
    at_once = probe_once((sys.executable, "-m", "probes.child", "--root", root))
    assert at_once.reason == "AllDevicesRead"
    assert without_identities(at_once) == without_identities(faked)


def test_a_line_goes_through_what_lies_on_one():
    line = line_through(SIZES, [3 + 2 * size / 1000 for size in SIZES])
    assert (round(line.fixed, 9), round(line.per_thousand, 9), round(line.fit, 9)) == (3.0, 2.0, 1.0)
    assert line.text("s", 1) == "3.0 s + 2.0 s per 1,000 nodes (R² 1.000); 13.0 s at 5,000"


def test_what_does_not_grow_has_no_slope():
    assert line_through(SIZES, [5.0] * 4).per_thousand == 0.0


@pytest.mark.parametrize(("measured", "holds"), [(1.0, True), (2.0, True), (2.1, False)])
def test_a_limit_holds_up_to_its_budget(measured, holds):
    figure = limit("x", measured, 2.0, "s")
    assert (figure.budget, figure.holds) == ("≤ 2 s", holds)


def test_the_page_says_which_budget_does_not_hold_and_keeps_the_profile():
    figures = (limit("time", 3.0, 2.0, "s", floor="1 s"), Figure(what="beside it", figure="4"))
    text = page([Result(row="r", title="t", figures=figures, profile="where it went", notes=("how",))])
    assert "| r | time | 3.00 s | ≤ 2 s | 1 s | **no** |" in text
    assert [
        part in text for part in ("## r: t", "- beside it: 4", "- how", "```text\nwhere it went\n```")
    ] == [True] * 4


@pytest.mark.parametrize("row", ROWS)
def test_each_row_is_a_module(row):
    assert (machine.ROOT / "bench" / f"row_{row}.py").exists()


def test_all_rows_together_end_within_an_hour():
    assert sum(ROWS.values()) <= 3600


def test_the_page_holds_exactly_the_rows_that_were_measured():
    measured = {row: result.row for row in ROWS if (result := read(row)) is not None}
    page = (machine.ROOT / "docs" / "performance.md").read_text()
    assert measured == {row: row for row in measured}
    assert {row for row in ROWS if f"## {row}: " in page} == measured.keys()
    assert measured


def test_an_answer_is_whole_when_its_length_has_come():
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n"
    assert [whole(bytearray(head[:20])), whole(bytearray(head + b"ab")), whole(bytearray(head + b"abc"))] == [
        False,
        False,
        True,
    ]


def test_processor_time_counts_children_that_have_ended():
    before = machine.cpu_seconds(os.getpid())
    program = "import time\nend = time.process_time() + 0.2\nwhile time.process_time() < end: pass"
    subprocess.run([sys.executable, "-c", program], check=True)
    assert machine.cpu_seconds(os.getpid()) - before >= 0.2
