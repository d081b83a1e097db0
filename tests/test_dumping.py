"""What commands print can be read back, by Python and by Kubernetes' own tools alike."""

import json
import re

import pytest
import yaml

from agent.commands.dumping import dump
from agent.core.catalogue import catalogue

TEXTS = (
    "2e12",
    "1e30",
    "1E5",
    "-1e3",
    ".5e1",
    "1.e2",
    "0o17",
    "0x1f",
    "1_000",
    "12:30",
    "yes",
    "null",
    "~",
    "",
    "é🚀\n",
)


@pytest.mark.parametrize("text", TEXTS, ids=repr)
def test_text_that_some_reader_takes_for_another_thing_is_quoted(text):
    printed = dump({"x": text}, "yaml")
    assert printed.removeprefix("x: ")[:1] in {"'", '"'} or text == "é🚀\n"
    assert yaml.safe_load(printed) == {"x": text}


@pytest.mark.parametrize("text", ["20b2", "2bb5", "80Gi", "0000:1b:00.0", "nvidia-h100-80gb", "e12"])
def test_other_text_is_left_bare(text):
    assert dump({"x": text}, "yaml") == f"x: {text}"


def test_every_device_id_of_the_catalogue_stays_text():
    ids = sorted(catalogue().by_device_id)
    lines = dump(ids, "yaml").splitlines()
    bare = [line.removeprefix("- ") for line in lines if "'" not in line]
    assert [id_ for id_ in bare if re.fullmatch(r"\d+(e\d+)?", id_)] == []
    assert yaml.safe_load("\n".join(lines)) == ids


def test_numbers_stay_numbers():
    assert dump({"a": 1, "b": 1.5, "c": True, "d": None}, "yaml") == "a: 1\nb: 1.5\nc: true\nd: null"
    assert json.loads(dump({"a": [1, "é"]}, "json")) == {"a": [1, "é"]}
