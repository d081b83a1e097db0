"""The commands of pools: whom they ask, what they say where there is nothing, and their words for bad input."""

import json

import pytest

from agent.cluster import Forbidden
from agent.commands.doctor import Patient, doctor_checks
from agent.core.doctor.check import ADMINISTRATOR, Check
from agent.core.pools.finding import pools_check
from agent.core.pools.shown import NOT_INSTALLED
from agent.settings import Settings, SettingsError
from tests.inventory.hardware import h100
from tests.pools import expositions
from tests.pools.stage import ENGINE, H100, LORA
from tests.pools.test_mixed import mixed, printed, ran


@pytest.fixture
def team(fake_stage):
    fake_stage.namespace("team", "true")
    fake_stage.node("hopper", [h100(0)])
    fake_stage.pool()
    return fake_stage


def test_without_the_definition_of_pools_the_command_says_so_and_is_no_failure(stage_without_pools):
    assert ran(stage_without_pools) == (0, NOT_INSTALLED + "\n", "")
    status, out, err = ran(stage_without_pools, "config", "llama", output="json")
    assert (status, json.loads(out), err) == (0, {"installed": False, "pools": []}, "")


def test_a_cluster_with_the_definition_and_no_pool_says_so(fake_stage):
    assert printed(fake_stage) == "No InferencePool.\n"


def test_a_namespace_that_did_not_opt_in_is_not_asked_by_the_command_either(fake_stage):
    fake_stage.namespace("team")
    fake_stage.node("hopper", [h100(0)])
    fake_stage.pool()
    server = fake_stage.pod("a", expositions.vllm(), labels={ENGINE: "vllm"})
    (pool,) = json.loads(printed(fake_stage, output="json"))["pools"]
    assert server.requests == []
    assert pool["counts"] == [{"class": H100, "engine": "vllm", "lora": "unknown", "endpoints": 1}]
    assert pool["endpoints"][0]["engineFrom"] == "label"
    assert pool["findings"] == [
        "engines are not asked: the namespace team has no label accelerators.ome.io/pools=true"
    ]


def test_whoever_cannot_reach_the_pods_is_told_what_the_controller_found(team):
    team.pod("a", expositions.vllm(), args=["--enable-lora"])
    team.pod("b", expositions.vllm(lora=[(1.0, "sql", "")]))
    team.turn()
    assert team.annotations("b") == {LORA: "active"}
    report = team.reports(ask=False)["llama"]
    assert [(one.engine, one.engine_from, one.lora.state, one.lora.evidence) for one in report.endpoints] == [
        ("vllm", "label", "enabled", "the container server has the argument --enable-lora"),
        ("vllm", "label", "active", f"the annotation {LORA}"),
    ]


def test_an_annotation_that_a_person_wrote_is_no_evidence(team):
    team.pod("a", annotations={LORA: "active"})
    assert team.reports(ask=False)["llama"].endpoints[0].lora.state == "unknown"


def test_a_name_in_several_namespaces_must_be_told_apart(team):
    team.namespace("other")
    team.pool(namespace="other")
    with pytest.raises(SettingsError, match="llama is the name of several pools: other/llama, team/llama"):
        ran(team, "llama")
    assert ran(team, "other/llama")[0] == 0
    assert ran(team, "llama", "--namespace", "team")[0] == 0


BAD = [
    (("nothing",), "there is no InferencePool nothing; there are: team/llama"),
    (("config",), "pools config: name the pool, as NAME or NAMESPACE/NAME"),
    (("llama", "other"), r"'llama other' is not \[config\|split\|patch\] \[POOL\]"),
    (("team/llama", "-n", "other"), "team/llama is not in the namespace other"),
]


@pytest.mark.parametrize(("words", "told"), BAD, ids=[" ".join(row[0]) for row in BAD])
def test_bad_words_are_refused_with_what_would_do(team, words, told):
    with pytest.raises(SettingsError, match=told):
        ran(team, *words)


def test_the_check_of_a_diagnosis_names_the_pools_that_deserve_a_look(fake_stage):
    mixed(fake_stage)
    fake_stage.pod("wrong", expositions.sglang(), labels={ENGINE: "vllm"})
    assert pools_check(tuple(fake_stage.reports().values())) == Check(
        id="pools",
        status="finding",
        evidence="of several classes: team/llama; labelled wrongly: team/llama",
        meaning="an endpoint picker takes endpoints of one pool for alike, and reads each by its engine label",
        mend="see `accelerator-agent pools POOL`; `pools split POOL` prints pools of one class each",
        who=ADMINISTRATOR,
    )
    assert pools_check(()).status == "ok"
    assert (pools_check(None).status, pools_check(None).evidence) == ("skipped", NOT_INSTALLED)


def pools_by_doctor(stage):
    patient = Patient(facts=None, surroundings=None, cluster=stage.cluster)
    checks = doctor_checks(patient, Settings(), now=stage.time.now())
    return next(check for check in checks if check.id == "pools")


def test_doctor_says_that_there_are_no_pools_or_what_of_them_deserves_a_look(fake_stage, stage_without_pools):
    assert pools_by_doctor(stage_without_pools) == Check(id="pools", status="skipped", evidence=NOT_INSTALLED)
    mixed(fake_stage)
    assert pools_by_doctor(fake_stage).evidence == "of several classes: team/llama"
    fake_stage.cluster.fault = lambda call: Forbidden("no") if call.resource == "inferencepools" else None
    assert pools_by_doctor(fake_stage).status == "skipped"
