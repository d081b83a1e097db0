"""What is published for every named fake machine, whole, as files for a reviewer; `make snapshots` writes them anew."""

import sys
from pathlib import Path

import pytest
import yaml

from agent.app import EXIT_BY_VERDICT
from agent.cluster import ACCELERATOR_CLASSES, CRDS
from agent.commands.dumping import dump
from agent.commands.machine_classes import class_objects
from agent.core.inventory import inventory_of
from agent.settings import Settings
from fakes import nodes
from probes.host_process import probe_once
from tests.hardware import fake_facts, needs_a_process
from tests.world import DEPLOY, FOREIGN, World

FOLDER = Path(__file__).parent
NONE = "# none\n"
OME_CRD = yaml.load((DEPLOY / "overlays/ome-crd/acceleratorclasses-crd.yaml").read_bytes(), yaml.CSafeLoader)


def probed(name):
    """The facts of a fake machine; one that hangs is given under a second a call, in a process of its own."""
    if not needs_a_process(name):
        return fake_facts(name)
    command = (sys.executable, "-m", "fakes.child", name)
    return probe_once(command, timeout_seconds=1.5, simulated=True)


def as_yaml(value):
    return dump(value, "yaml") + "\n"


def published(name):
    """Everything that a first pass on a machine publishes, and what `classes` prints of it."""
    facts = probed(name)
    world = World()
    world.cluster.apply(CRDS, OME_CRD, manager="kubectl")
    world.run(facts)
    assert not any(outcome.failed for outcome in world.agent.report.published)
    assert {key: world.labels[key] for key in FOREIGN} == FOREIGN
    classes = class_objects(inventory_of(facts), Settings())
    for object_ in classes:
        # The schema is OME's: what it refuses or drops would not be in the cluster.
        held = world.cluster.apply(ACCELERATOR_CLASSES, object_, manager="tests")
        assert held["spec"] == object_["spec"]
    labels = "".join(f"{key}={value}\n" for key, value in sorted(world.ours.items()))
    listed = "---\n".join(as_yaml(object_) for object_ in classes)
    record = world.record and {key: world.record[key] for key in ("spec", "status")}
    return (
        f"# {name}: {facts.verdict} ({facts.reason}), exit status {EXIT_BY_VERDICT[facts.verdict]}\n"
        f"# {facts.message}\n\n"
        f"# labels\n{labels or NONE}"
        f"\n# record\n{as_yaml(record) if record else NONE}"
        f"\n# classes\n{listed or NONE}"
    )


@pytest.mark.parametrize("name", nodes.names())
def test_what_is_published_is_what_the_file_says(name, request):
    file = FOLDER / f"{name}.txt"
    found = published(name)
    if request.config.getoption("--update-snapshots"):
        file.write_text(found)
    assert file.is_file(), f"{file.name} is missing; `make snapshots` writes it, for review"
    assert found == file.read_text()


def test_every_file_is_of_a_machine_that_there_is():
    assert sorted(file.stem for file in FOLDER.glob("*.txt")) == sorted(nodes.names())
