"""Text that hardware gave, made fit for labels and names, and still telling one thing from another."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core.catalogue import catalogue
from agent.core.label_text import (
    class_name_text,
    is_dns_subdomain,
    is_label_key,
    is_label_value,
    label_value,
    profile_text,
)

KUBERNETES_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")

CLEANED = [
    ("NVIDIA H100 80GB HBM3", "NVIDIA-H100-80GB-HBM3"),
    ("GeForce GTX 1070", "GeForce-GTX-1070"),
    ("NVIDIA  A10  ", "NVIDIA-A10"),
    ("NVIDIA Graphics Device", "NVIDIA-Graphics-Device"),
    ("NVIDIA GeForce GTX 1660 Ti with Max-Q Design", "NVIDIA-GeForce-GTX-1660-Ti-with-Max-Q-Design"),
    ("580.95.05", "580.95.05"),
    ("570.86.10-grid", "570.86.10-grid"),
    ("", None),
    ("   ", None),
    ("(™)", "TM-104db936"),
    ("显卡", None),
    ("-_.", None),
    ("NVIDIA TITAN X (Pascal)", "NVIDIA-TITAN-X-Pascal-a41cd1dc"),
]


@pytest.mark.parametrize(("text", "value"), CLEANED, ids=[repr(text) for text, _ in CLEANED])
def test_text_becomes_a_label_value(text, value):
    assert label_value(text) == value


# Names of FR-041 and what they stand beside.
AWKWARD_NAMES = (
    "NVIDIA TITAN X (Pascal)",
    "NVIDIA TITAN X Pascal",
    "NVIDIA TITAN X [Pascal]",
    "Orin (nvgpu)",
    "Orin nvgpu",
    "Orin, nvgpu",
    "Quadro RTX 8000 / 6000",
    "Quadro RTX 8000 6000",
    "Quadro RTX 8000/6000",
    "Intel(R) Data Center GPU Max 1550",
    "Intel® Data Center GPU Max 1550",
    "Intel™ Data Center GPU Max 1550",
    "Intel R Data Center GPU Max 1550",
    "card @ home",
    "card home",
    "cárd home",
    "card 显卡",
    "card 🚀",
    "card\0",
    "card\x07",
)


def test_fr_041_awkward_names_are_legal_and_stay_apart():
    values = {name: label_value(name) for name in AWKWARD_NAMES}
    assert all(value is not None and is_label_value(value) for value in values.values())
    assert len(set(values.values())) == len(AWKWARD_NAMES)


def test_fr_041_a_readable_part_of_the_name_stays():
    value = label_value("NVIDIA TITAN X (Pascal)")
    assert value is not None
    assert value.startswith("NVIDIA-TITAN-X-Pascal-")


LONG = "NVIDIA RTX PRO 6000 Blackwell {} Edition"
EDITIONS = ("Max-Q Workstation", "Workstation", "Server")
SUFFIXES = ("", "-SHARED", "-MIG-1g.24gb.me.all", "-MIG-2g.48gb.gfx-SHARED")


def test_fr_045_long_names_stay_apart_after_the_cut():
    texts = [LONG.format(edition) + suffix for edition in EDITIONS for suffix in SUFFIXES]
    values = [label_value(text) for text in texts]
    assert all(value is not None and is_label_value(value) for value in values)
    assert len(set(values)) == len(texts)
    assert label_value(LONG.format(EDITIONS[0])) == "NVIDIA-RTX-PRO-6000-Blackwell-Max-Q-Workstation-Edition"


def test_fr_047_a_space_becomes_a_dash():
    assert label_value("GeForce GTX 1070") == "GeForce-GTX-1070"


def test_fr_067_profiles_with_attributes_stay_apart():
    profiles = (
        *("1g.24gb", "1g.24gb+me", "1g.24gb+gfx", "1g.24gb-me", "1g.24gb+me.all", "2g.48gb-me"),
        *("1g.10gb+me", "1c.3g.40gb", "2g.48gb+gfx"),
    )
    written = [profile_text(profile) for profile in profiles]
    assert written[:5] == ["1g.24gb", "1g.24gb.me", "1g.24gb.gfx", "1g.24gb-me", "1g.24gb.me.all"]
    assert len({class_name_text(f"nvidia-card-96gb-mig-{profile}") for profile in written}) == len(profiles)
    assert all(is_label_value(profile) for profile in written)


@given(st.text())
def test_any_text_gives_a_legal_value_or_none(text):
    value = label_value(text)
    assert value is None or (value and is_label_value(value))


def _white_space_apart(text):
    return re.sub(r"\s+", "-", text.strip())


names = st.text(st.characters(codec="utf-8"), max_size=90) | st.text(
    st.sampled_from("aB1 -_.()+/é\t\0"), max_size=90
)


@given(names, names)
def test_distinct_texts_give_distinct_values(one, other):
    first, second = label_value(one), label_value(other)
    if first is not None and first == second:
        assert _white_space_apart(one) == _white_space_apart(other)


def test_distinct_short_texts_give_distinct_values():
    letters = "a-._ (é+"
    texts = [a + b + c + d for a in letters for b in letters for c in letters for d in letters]
    meant: dict[str, set[str]] = {}
    for text in texts:
        value = label_value(text)
        if value is not None:
            meant.setdefault(value, set()).add(_white_space_apart(text))
    assert [value for value, apart in meant.items() if len(apart) > 1] == []


@given(st.text() | st.text(st.sampled_from("aB1-_. "), max_size=80))
def test_any_text_gives_an_object_name_or_none(text):
    name = class_name_text(text)
    assert name is None or (KUBERNETES_NAME.fullmatch(name) and len(name) <= 63)


def test_every_class_of_the_catalogue_is_a_name_already():
    names_ = [product.class_name for product in catalogue().products]
    assert [class_name_text(name) for name in names_] == names_


KEYS = [
    ("accelerators.ome.io/class", True),
    ("class.accelerators.ome.io/nvidia-h100-80gb-mig-1g.10gb", True),
    ("plain", True),
    ("", False),
    ("accelerators.ome.io/", False),
    ("/name", False),
    ("a/b/c", False),
    ("UPPER.case/name", False),
    ("accelerators.ome.io/a b", False),
    ("accelerators.ome.io/-a", False),
    ("accelerators.ome.io/" + "a" * 63, True),
    ("accelerators.ome.io/" + "a" * 64, False),
    (".".join(["a" * 50] * 5)[:253] + "/x", True),
    ("a" * 254 + "/x", False),
]


@pytest.mark.parametrize(("key", "fits"), KEYS, ids=[key[:40] or "empty" for key, _ in KEYS])
def test_fr_043_keys_are_checked_with_their_prefix(key, fits):
    assert is_label_key(key) is fits


DOMAINS = [
    ("accelerators.ome.io", True),
    ("a", True),
    ("a..b", False),
    ("a.-b", False),
    ("a-.b", False),
    ("A.b", False),
    ("", False),
    ("a_b", False),
]


@pytest.mark.parametrize(("text", "fits"), DOMAINS)
def test_a_domain_is_a_dns_subdomain(text, fits):
    assert is_dns_subdomain(text) is fits


def test_no_two_products_share_a_cleaned_name():
    texts = {name for product in catalogue().products for name in product.driver_names}
    assert len({label_value(text) for text in texts}) == len(texts)
