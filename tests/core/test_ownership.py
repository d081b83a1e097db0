"""Who owns a field, read from managed fields as an API server writes them."""

import pytest

from agent.core.ownership import foreign_label_keys, other_owners, owned_label_keys, owned_paths, owners

DOMAIN = "accelerators.ome.io"


def entry(manager, fields, operation="Apply"):
    return {"manager": manager, "operation": operation, "fieldsType": "FieldsV1", "fieldsV1": fields}


NODE = {
    "metadata": {
        "name": "n1",
        "managedFields": [
            entry(
                "accelerator-agent",
                {"f:metadata": {"f:labels": {f"f:{DOMAIN}/count": {}, f"f:{DOMAIN}/family": {}}}},
            ),
            entry(
                "kubectl-label",
                {"f:metadata": {"f:labels": {f"f:{DOMAIN}/family": {}, "f:team": {}}}},
                operation="Update",
            ),
            entry(
                "kubelet",
                {"f:metadata": {"f:labels": {".": {}, "f:kubernetes.io/arch": {}}}},
                operation="Update",
            ),
        ],
    }
}

CLASS = {
    "metadata": {
        "managedFields": [
            entry(
                "accelerator-inventory",
                {
                    "f:spec": {
                        "f:capabilities": {"f:computeCapability": {}},
                        "f:discovery": {"f:nodeSelector": {"f:a": {}}},
                    }
                },
            ),
            entry(
                "kubectl-edit",
                {"f:spec": {"f:capabilities": {"f:memoryGB": {}}, "f:cost": {".": {}, "f:perHour": {}}}},
                operation="Update",
            ),
        ]
    }
}

MINIMAL = {"metadata": {"managedFields": [entry("kubectl-edit", {"f:spec": {}}, operation="Update")]}}


def test_the_keys_of_a_manager_are_those_in_its_entries():
    assert owned_label_keys(NODE, "accelerator-agent") == {f"{DOMAIN}/count", f"{DOMAIN}/family"}
    assert owned_label_keys(NODE, "kubelet") == {"kubernetes.io/arch"}
    assert owned_label_keys({"metadata": {}}, "kubelet") == frozenset()


def test_a_key_that_another_manager_owns_is_foreign_even_when_we_own_it_too():
    keys = [f"{DOMAIN}/count", f"{DOMAIN}/family", f"{DOMAIN}/vendor", "team"]
    assert foreign_label_keys(NODE, keys, "accelerator-agent") == {
        f"{DOMAIN}/family": "kubectl-label",
        "team": "kubectl-label",
    }


@pytest.mark.parametrize(
    ("obj", "path", "expected"),
    [
        pytest.param(CLASS, ("spec", "capabilities", "memoryGB"), ("kubectl-edit",), id="a leaf"),
        pytest.param(CLASS, ("spec", "capabilities", "computeCapability"), (), id="our own leaf"),
        pytest.param(CLASS, ("spec", "cost"), ("kubectl-edit",), id="something inside it"),
        pytest.param(CLASS, ("spec", "capabilities", "features"), (), id="nobody's"),
        pytest.param(MINIMAL, ("spec",), ("kubectl-edit",), id="an atomic value"),
        pytest.param(MINIMAL, ("status",), (), id="beside an atomic value"),
    ],
)
def test_the_other_owners_of_a_field(obj, path, expected):
    assert other_owners(obj, path, "accelerator-inventory") == expected


def test_all_owners_include_ourselves():
    assert owners(CLASS, ("spec", "capabilities")) == ("accelerator-inventory", "kubectl-edit")


def test_the_leaves_of_a_manager():
    assert owned_paths(CLASS, "kubectl-edit") == {
        ("spec", "capabilities", "memoryGB"),
        ("spec", "cost", "perHour"),
    }
