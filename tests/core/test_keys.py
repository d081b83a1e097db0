"""Domains and keys: whose they are, and which domains are refused."""

import pytest

from agent.core.keys import domain_problem, is_ours

REFUSED = {
    "kubernetes.io": "reserves",
    "gpu.kubernetes.io": "reserves",
    "node-restriction.kubernetes.io": "reserves",
    "k8s.io": "reserves",
    "x.k8s.io": "reserves",
    "kubernetes.io/gpu": "not a DNS subdomain",
    "": "not a DNS subdomain",
    "UPPER_case/": "not a DNS subdomain",
    "UPPER.example": "not a DNS subdomain",
    "a" * 60 + ".example." + "b" * 180: "longer than",
}


@pytest.mark.parametrize(
    ("domain", "why"), REFUSED.items(), ids=[domain[:30] or "empty" for domain in REFUSED]
)
def test_fr_056_a_protected_or_malformed_domain_is_refused_with_its_reason(domain, why):
    problem = domain_problem(domain)
    assert problem is not None
    assert why in problem


@pytest.mark.parametrize("domain", ["accelerators.ome.io", "gpu.example.com", "notkubernetes.io", "a"])
def test_an_ordinary_domain_will_do(domain):
    assert domain_problem(domain) is None


OURS = [
    ("accelerators.ome.io/class", True),
    ("class.accelerators.ome.io/nvidia-h100-80gb", True),
    ("precision.accelerators.ome.io/fp8", True),
    ("nvidia.com/gpu.product", False),
    ("notaccelerators.ome.io/class", False),
    ("ome.io/class", False),
    ("accelerators.ome.io", False),
    ("accelerators.ome.io.evil.com/class", False),
]


@pytest.mark.parametrize(("key", "ours"), OURS)
def test_a_key_is_ours_under_the_domain_or_one_of_its_groups(key, ours):
    assert is_ours(key, "accelerators.ome.io") is ours
