"""Conditions: what a person or an alert should know, in one sentence that fits."""

from datetime import timedelta

import pytest

from agent.core.conditions import (
    MAX_MESSAGE_BYTES,
    condition,
    conditions_of,
    cut_message,
    dated,
    failure_conditions,
    labels_condition,
    timestamp,
)
from agent.core.outcomes import Published
from tests.hardware import START, could_not_ask, h100, inventory

ANSWERS = [
    ("all published", Published(target="labels"), "True", "AllPublished"),
    ("nothing to write", Published(target="labels", reason="NothingToWrite"), "True", "AllPublished"),
    (
        "a rival",
        Published(target="labels", rivals={"a/x": "kubectl"}),
        "False",
        "OwnedByOthers",
    ),
    (
        "refused",
        Published(target="labels", reason="Forbidden", message="nodes is forbidden"),
        "False",
        "Forbidden",
    ),
]


@pytest.mark.parametrize(
    ("published", "status", "reason"), [row[1:] for row in ANSWERS], ids=[row[0] for row in ANSWERS]
)
def test_what_became_of_the_labels_is_a_condition(published, status, reason):
    found = labels_condition(published)
    assert (found["type"], found["status"], found["reason"]) == ("LabelsPublished", status, reason)


def test_fr_083_a_rival_is_named_with_its_key():
    found = labels_condition(Published(target="labels", rivals={"a/y": "gfd", "a/x": "kubectl"}))
    assert found["message"] == "owned by others: a/x by kubectl, a/y by gfd"


def test_fr_004_not_asked_and_none_are_different_answers():
    asked = {entry["type"]: entry["status"] for entry in conditions_of(inventory())}
    failed = {entry["type"]: entry["status"] for entry in failure_conditions(could_not_ask())}
    assert asked["ProbeSucceeded"] == "True"
    assert failed["ProbeSucceeded"] == "False"


def test_the_driver_is_named():
    [ready] = [entry for entry in conditions_of(inventory(h100())) if entry["type"] == "DriverReady"]
    assert ready["message"] == "nvidia 580.95.05"


@pytest.mark.parametrize("text", ["x" * 1024, "x" * 1025, "é" * 600, "🚀" * 400, ""], ids=len)
def test_a_message_is_cut_to_its_bound_and_stays_text(text):
    cut = cut_message(text)
    assert len(cut.encode()) <= MAX_MESSAGE_BYTES
    assert cut == text or (cut.endswith("…") and text.startswith(cut[:-1]))


def test_a_condition_changes_its_time_with_its_status_alone():
    old = [{**condition("A", "True", "X", "m"), "lastTransitionTime": "2020-01-01T00:00:00Z"}]
    previous = {"status": {"conditions": old}}
    now = START + timedelta(minutes=1)
    entries = [condition("A", "True", "Y", "n"), condition("B", "True", "X", "m")]
    assert [entry["lastTransitionTime"] for entry in dated(entries, previous, now)] == [
        "2020-01-01T00:00:00Z",
        "2026-11-30T20:01:00Z",
    ]
    changed = dated([condition("A", "False", "X", "m")], previous, now)
    assert changed[0]["lastTransitionTime"] == timestamp(now)


@pytest.mark.parametrize("previous", [None, {}, {"status": None}, {"status": {}}], ids=str)
def test_a_record_without_conditions_dates_them_now(previous):
    assert dated([condition("A", "True", "X", "m")], previous, START)[0]["lastTransitionTime"] == timestamp(
        START
    )
