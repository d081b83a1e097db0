"""The examples and the documented settings: a server takes them, and the program reads them."""

import re
from pathlib import Path

import pytest
import yaml

from agent.settings import load_settings
from agent.wiring import engines_of
from tests.cluster.definitions import collection_of
from tests.cluster.objects import DAEMONSET_FOLDER, documents, make_namespace

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "pools"


def test_the_examples_are_taken_by_a_server(pools_cluster):
    (role,) = documents(DAEMONSET_FOLDER / "components" / "pools" / "cluster-role.yaml")
    pools_cluster.admin.apply(collection_of(role), role, manager="tests", force=True)
    make_namespace(pools_cluster.admin, "inference")
    for file in ("namespace.yaml", "homogeneous.yaml", "mixed.yaml"):
        done = pools_cluster.kubectl(
            "apply", "--server-side", "--validate=strict", "-f", str(EXAMPLES / file)
        )
        assert done.stderr == ""
        assert len(done.stdout.splitlines()) == len(documents(EXAMPLES / file))


@pytest.mark.parametrize("name", ["my-server"])
def test_the_documented_engine_can_be_used_as_it_stands(tmp_path, name):
    text = (ROOT / "docs" / "pools.md").read_text()
    (block,) = re.findall(r"```yaml\n(# --config.*?)```", text, re.DOTALL)
    assert "yields_to" in yaml.safe_load(block)["pools"]["engines"][name]
    file = tmp_path / "settings.yaml"
    file.write_text(block)
    engine = engines_of(load_settings({"config": str(file)}, {}))[name]
    assert [str(spec) for spec in engine.kv_use] == ["my_cache{kind=used_fraction}"]


def test_every_engine_is_in_the_documents_table():
    text = (ROOT / "docs" / "pools.md").read_text()
    rows = re.findall(r"^\| `([a-z-]+)`.* \| `[a-z_:]+`", text, re.MULTILINE)
    assert sorted(rows) == sorted(engines_of(load_settings({}, {})))
