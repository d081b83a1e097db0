"""What the API server's refusals mean."""

import pytest

from agent.cluster import (
    INFERENCE_POOLS,
    NODES,
    Conflict,
    FieldConflict,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    ServerFault,
    Throttled,
    Unauthorized,
    not_installed,
)
from agent.refusals import lacks_the_type, names_the_object, refusal

LABEL = ".metadata.labels.accelerators.ome.io/family"


def status(message="", *causes, **details):
    return {"kind": "Status", "message": message, "details": {**details, "causes": list(causes)}}


def conflict(field, message):
    return {"reason": "FieldManagerConflict", "message": message, "field": field}


@pytest.mark.parametrize(
    ("code", "body", "expected"),
    [
        pytest.param(401, status("Unauthorized"), Unauthorized("Unauthorized"), id="401"),
        pytest.param(
            403,
            status('nodes "n1" is forbidden: User "u" cannot patch resource "nodes"'),
            Forbidden('nodes "n1" is forbidden: User "u" cannot patch resource "nodes"'),
            id="a missing rule",
        ),
        pytest.param(
            403,
            status(
                "nodes \"n1\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no"
            ),
            Forbidden(
                "nodes \"n1\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no",
                denied=True,
            ),
            id="a policy's denial",
        ),
        pytest.param(404, {}, NotFound("the API server answered 404"), id="404 in plain text"),
        pytest.param(409, status("modified"), Conflict("modified"), id="409 of a changed object"),
        pytest.param(
            409,
            status(
                "Apply failed",
                conflict(LABEL, 'conflict with "kubectl-label" using v1'),
                conflict(
                    ".spec.x",
                    'conflict with "a b" with subresource "status" using v1 at 2026-01-01T00:00:00Z',
                ),
            ),
            Conflict(
                "Apply failed",
                conflicts=(FieldConflict(LABEL, "kubectl-label"), FieldConflict(".spec.x", "a b")),
            ),
            id="409 of an apply",
        ),
        pytest.param(410, status("expired"), Gone("expired"), id="410"),
        pytest.param(
            422,
            status("bad", {"field": "spec.a", "message": "x"}, {"field": "spec.a"}, {"field": "<nil>"}),
            Invalid("bad", fields=("spec.a",)),
            id="422",
        ),
        pytest.param(400, status("bad"), Invalid("bad"), id="400"),
        pytest.param(
            429, status("slow", retryAfterSeconds=3), Throttled("slow", retry_after_seconds=3), id="429"
        ),
        pytest.param(503, status("down"), ServerFault("down"), id="503"),
        pytest.param(
            500,
            status("failed to create typed patch object (/w): .spec.x: field not declared in schema"),
            ServerFault(
                "failed to create typed patch object (/w): .spec.x: field not declared in schema",
                permanent=True,
            ),
            id="500 that no retry mends",
        ),
    ],
)
def test_a_refusal_is_told_by_its_kind(code, body, expected):
    found = refusal(code, body)
    assert (type(found), vars(found)) == (type(expected), vars(expected))


def test_the_header_of_a_429_counts_before_its_body():
    assert (
        refusal(429, status("slow", retryAfterSeconds=3), retry_after_seconds=7.0).retry_after_seconds == 7.0
    )


def test_only_a_404_that_names_the_object_speaks_of_the_object():
    assert names_the_object(status("not found", name="n1"), "n1")
    assert not names_the_object(status("the server could not find the requested resource"), "n1")
    assert not names_the_object({}, "n1")


def test_a_404_without_any_name_is_for_lack_of_the_type():
    assert lacks_the_type({})
    assert lacks_the_type(status("the server could not find the requested resource"))
    assert not lacks_the_type(status('namespaces "x" not found', name="x"))


def test_what_every_api_server_has_is_not_said_to_lack_a_definition():
    assert (
        str(not_installed(NODES))
        == "404 for nodes of v1, which every API server has: the address is not one's"
    )
    assert "their definition is not installed" in str(not_installed(INFERENCE_POOLS))
