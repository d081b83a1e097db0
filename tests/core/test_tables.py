"""What people are shown: tables that fit, and a page that no name from a driver can break."""

from dataclasses import replace

import pytest

from agent.core.inventory import inventory_of
from agent.core.labels import labels_for
from agent.core.outcomes import NodeReport, Published
from agent.core.page import node_page
from agent.core.tables import classes_table, facts_table, labels_table
from agent.core.text_table import fitting_table, text_table
from probes.facts import FieldProblem
from tests.hardware import could_not_ask, facts, failed, fake_facts, h100, mig, on_the_bus, readable_nodes, t4


def test_columns_are_as_wide_as_their_widest_cell():
    assert text_table(("name", "n"), [("a", "1"), ("longer", "")]) == "NAME    N\na       1\nlonger  -"


def test_the_last_column_is_wrapped_and_the_others_never():
    table = text_table(("name", "words"), [("a-rather-long-name", "one two three four")], width=30)
    assert table == ("NAME                WORDS\na-rather-long-name  one two\n                    three four")


def test_a_narrow_terminal_leaves_a_readable_minimum():
    table = text_table(("name", "words"), [("a" * 30, "one two three")], width=10)
    assert [len(line) for line in table.splitlines()] == [37, 39, 37]


def test_a_word_is_never_cut_so_that_it_can_be_searched_for():
    table = text_table(("name", "words"), [("a" * 30, "hw-slowdown, hw-thermal-slowdown")], width=10)
    assert [line.split()[-1] for line in table.splitlines()] == [
        "WORDS",
        "hw-slowdown,",
        "hw-thermal-slowdown",
    ]


@pytest.mark.parametrize(
    ("width", "shown"),
    [
        (34, "NAME     N  KIND     WORDS\na-name   1  a-kind   two words"),
        (
            25,
            "NAME     N  WORDS\na-name   1  two words\n25 columns leave no room\nfor kind; a wider\nterminal shows them.",
        ),
        (
            20,
            "NAME     WORDS\na-name   two words\n20 columns leave no\nroom for kind, n; a\nwider terminal shows\nthem.",
        ),
    ],
)
def test_a_narrow_terminal_leaves_out_what_can_be_spared_and_says_so(width, shown):
    headers, row = ("name", "n", "kind", "words"), ("a-name ", "1", "a-kind ", "two words")
    assert fitting_table(headers, [row], width=width, spare=("kind", "n")) == shown


@pytest.mark.parametrize("name", readable_nodes())
def test_the_devices_of_every_fake_machine_fit_in_80_columns(name):
    sections = facts_table(inventory_of(fake_facts(name)), width=80).split("\n\n")
    devices = [section for section in sections if section.startswith("INDEX")]
    assert [line for section in devices for line in section.splitlines() if len(line) > 80] == []


def test_one_column_is_a_list():
    assert text_table(("name",), [("a",)]) == "NAME\na"


@pytest.mark.parametrize("name", readable_nodes())
def test_every_fake_machine_has_a_table_whose_first_lines_say_what_was_found(name):
    found = inventory_of(fake_facts(name))
    lines = facts_table(found, width=160).splitlines()
    assert lines[1].startswith(f"{found.facts.verdict}: ")
    assert "(simulated)" in lines[0]
    assert all(line == line.rstrip() for line in lines)


def test_the_table_of_one_gpu():
    assert facts_table(inventory_of(facts(h100())), width=200) == (
        "this machine: driver 580.95.05, CUDA 13.0\n"
        "complete: as the test says\n"
        "\n"
        "INDEX  PRODUCT                CLASS             MEMORY     CAPABILITY  MODE   PCI           STATE  REASONS\n"
        "0      NVIDIA H100 80GB HBM3  nvidia-h100-80gb  81559 MiB  9.0         whole  0000:10:00.0  ok     -"
    )


def test_devices_are_listed_by_index_and_partitions_problems_and_strays_below():
    sick = replace(failed(h100(0)), problems=(FieldProblem(field="memory", error="gpu-lost"),))
    machine = facts(
        sick,
        h100(1, id="GPU-a", mig=mig("1g.10gb")),
        pci=(*on_the_bus(h100(0), h100(1)), *on_the_bus(t4(5), driver="vfio-pci")),
    )
    sections = facts_table(inventory_of(machine), width=200).split("\n\n")
    assert [section.split()[0] for section in sections] == ["this", "INDEX", "GPU", "GPU", "ON"]
    assert [line.split()[0] for line in sections[1].splitlines()] == ["INDEX", "0", "1"]
    assert "1g.10gb" in sections[2]
    assert "gpu-lost" in sections[3]
    assert "vfio-pci" in sections[4]


def test_fr_004_labels_tell_not_asked_from_none():
    asked, not_asked = facts(), could_not_ask()
    assert labels_table({}, asked, width=80).endswith("No label would be on the Node.")
    assert labels_table({}, not_asked, width=80).endswith("No label would be changed.")
    assert labels_table({"a": "1", "b": "2"}, asked, width=80) == "a=1\nb=2"


def test_no_class_is_said_and_a_bare_one_has_dashes():
    assert classes_table([], width=80) == "No class."
    bare = {"metadata": {"name": "nvidia-ffff"}, "spec": {"capabilities": {}}}
    assert classes_table([bare], width=200).splitlines()[1].split() == ["nvidia-ffff", *"-------"]


# --- the page

NASTY = "<script>alert('x')</script>&\"\x00"


def page(report, labels=None, age=1.0):
    return node_page(report, node_name="gpu-1", version="0.1.0", labels=labels or {}, age=age)


def report_of(facts_, *published):
    return NodeReport(facts=facts_, inventory=inventory_of(facts_), passes=1, published=published)


def test_no_text_from_a_driver_or_a_server_becomes_markup():
    machine = facts(h100(0, product=NASTY, id=NASTY), message=NASTY, reason=NASTY)
    shown = node_page(
        report_of(machine, Published(target="labels", reason=NASTY, message=NASTY)),
        node_name=NASTY,
        version=NASTY,
        labels={NASTY: NASTY},
        age=1.0,
    )
    assert "<script" not in shown
    assert shown.count("&lt;script&gt;") >= 7


def test_the_page_says_what_was_found_and_when():
    machine = facts(h100(0), failed(t4(1)), simulated=True)
    shown = page(report_of(machine), labels_for(inventory_of(machine)), age=12.4)
    for text in (
        *("gpu-1", "simulated hardware", "last good probe 12 s ago", "partial: as the test says"),
        *("NVIDIA H100 80GB HBM3", "81559 MiB", "lost, gpu-lost", "nvidia.com/gpu"),
        "accelerators.ome.io/health",
    ):
        assert text in shown, text


def test_the_page_before_the_first_probe_and_after_a_failure():
    assert "the first probe has not ended yet" in page(NodeReport(), age=None)
    failed_ = page(NodeReport(facts=could_not_ask(), passes=1), age=None)
    assert "no probe has succeeded yet" in failed_
    assert 'class="bad">no-answer: nvmlInit did not return' in failed_


@pytest.mark.parametrize("name", readable_nodes())
def test_every_fake_machine_has_a_page_that_is_whole(name):
    shown = page(report_of(fake_facts(name)))
    assert shown.startswith("<!doctype html>")
    assert shown.endswith("</html>")
    assert shown.count("<tr>") == shown.count("</tr>")
    assert "None" not in shown
