"""The table of engines and what an operator may add to it."""

import pytest

from agent.core.pools.engines import Spec, engine_table, family_names, parse_spec
from agent.core.pools.serving import Reading, Refusal, serving_of
from agent.settings import Settings, SettingsError
from agent.wiring import engines_of

TGI = {"waiting": ["tgi_queue_size"], "running": ["tgi_batch_current_size"]}


def test_the_built_in_engines_are_these():
    assert sorted(engine_table()) == ["sglang", "triton", "triton-tensorrt-llm", "trtllm-serve", "vllm"]


def test_an_operator_adds_an_engine_by_its_families():
    table = engines_of(Settings(pools={"engines": {"tgi": TGI}}))
    serving = serving_of([Reading("tgi_queue_size", {}, 3.0)], table)
    assert (serving.engine, serving.specs) == ("tgi", {"tgi_queue_size"})
    assert "tgi_batch_current_size" in family_names(table)


def test_an_operator_changes_one_key_of_a_built_in_engine():
    table = engine_table({"vllm": {"waiting": ["my:waiting"]}})
    assert table["vllm"].waiting == (Spec("my:waiting"),)
    assert table["vllm"].running == engine_table()["vllm"].running


def test_a_family_that_several_engines_serve_tells_none():
    table = engine_table({"fork": {"waiting": ["vllm:num_requests_waiting"], "running": []}})
    assert serving_of([Reading("vllm:num_requests_waiting")], table) == Refusal(
        word="several-engines", message="it serves metrics of fork and vllm"
    )


def test_an_engine_that_yields_to_another_is_known_by_its_own_families_too():
    table = engine_table(
        {"fork": {"waiting": ["fork:waiting"], "running": []}, "vllm": {"yields_to": ["fork"]}}
    )
    both = [Reading("vllm:num_requests_waiting"), Reading("fork:waiting")]
    assert serving_of(both, table).engine == "fork"
    assert serving_of(both[:1], table).engine == "vllm"


BAD = {
    "an unknown word": ({"engine": {}}, "pools: 'engine' is not known; engines is"),
    "an unknown key": ({"engines": {"a": {**TGI, "wating": []}}}, "pools: engines: a: .*`wating`"),
    "no families": ({"engines": {"a": {}}}, "pools: engines: a: .*required field `waiting`"),
    "a name that no label can hold": (
        {"engines": {"my engine": TGI}},
        "'my engine' cannot be a label's value",
    ),
    "no metric": ({"engines": {"a": {**TGI, "cache_info": "a b"}}}, "'a b' is no metric"),
    "no label": (
        {"engines": {"a": {**TGI, "waiting": ["a{b}"]}}},
        r"'a\{b\}': 'b' is not written label=value",
    ),
    "a second default": (
        {"engines": {"a": {**TGI, "picker_default": True}}},
        "exactly one engine .* vllm, a",
    ),
}


@pytest.mark.parametrize(("value", "told"), BAD.values(), ids=BAD)
def test_what_cannot_be_used_is_refused_with_the_reason(value, told):
    with pytest.raises(SettingsError, match=told):
        engines_of(Settings(pools=value))


SPECS = {
    "name": ("vllm:waiting", Spec("vllm:waiting"), "vllm:waiting"),
    "one label": ("a{b=c}", Spec("a", (("b", "c"),)), "a{b=c}"),
    "quotes and space": ('a{b="c", d=e}', Spec("a", (("b", "c"), ("d", "e"))), "a{b=c,d=e}"),
    "empty braces": ("a{}", Spec("a"), "a"),
}


@pytest.mark.parametrize(("text", "spec", "written"), SPECS.values(), ids=SPECS)
def test_a_family_is_read_as_pickers_write_it(text, spec, written):
    assert parse_spec(text) == spec
    assert str(spec) == written


HOSTILE = {
    "infinity": {"block_size": "16", "num_gpu_blocks": "inf"},
    "no number": {"block_size": "16", "num_gpu_blocks": "many"},
    "negative": {"block_size": "-16", "num_gpu_blocks": "2"},
    "absurd": {"block_size": "1e300", "num_gpu_blocks": "1e300"},
    "absent": {},
}


@pytest.mark.parametrize("labels", HOSTILE.values(), ids=HOSTILE)
def test_a_cache_that_cannot_be_is_not_known(labels):
    readings = [Reading("vllm:num_requests_waiting"), Reading("vllm:cache_config_info", labels, 1.0)]
    assert serving_of(readings, engine_table()).kv_tokens is None
